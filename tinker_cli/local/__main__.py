"""`python -m tinker_cli.local`: the engine's process.

Takes its key from the environment variable TINKER_ENGINE_KEY, prints one JSON line when it is
ready (or the reason why it can't be), and ends with SIGTERM or when its standard input closes,
that is, when the process that started it is gone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

KEY_VARIABLE = "TINKER_ENGINE_KEY"
LOOK_SECONDS = 15.0  # how often clients that have gone are looked for
SWITCH_SECONDS = 0.0002  # between threads: compute must not wait for a request being parsed
MOST_LANES = 4  # by default; each runs Python between its tensor operations


def main() -> int:
    """Load the model, serve until told to end, return the exit code."""
    options = _parse()
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        listener = _bind(options.host, options.port)
    except OSError as error:
        return _refuse(f"port {options.port} on {options.host} can't be used: {error.strerror}", 2)
    if (missing := _what_is_missing(options.model)) is not None:
        return _refuse(f"the model {options.model} can't be loaded: {missing}", 2)
    from tinker_cli.local.faults import ClientFault

    try:
        app, scheduler = _build(options)
    except ClientFault as fault:
        return _refuse(str(fault), 2)
    host, port = listener.getsockname()[:2]
    ready = {"url": f"http://{host}:{port}", "pid": os.getpid(), "model": options.name}
    return _serve(app, scheduler, listener, ready, watch_stdin=options.with_parent)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tinker_cli.local")
    parser.add_argument("--model", default="tiny", help="tiny, a model folder, or a hub name")
    parser.add_argument("--name", default=None, help="the name under which it is served")
    parser.add_argument("--alias", action="append", default=[], help="another name for it")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--with-parent", action="store_true", help="end when stdin closes")
    options = parser.parse_args()
    options.name = options.name or options.model
    return options


def _what_is_missing(model: str) -> str | None:
    """What is plainly wrong with a model's folder, told before seconds of imports."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return None if (folder / "config.json").is_file() else "the folder has no config.json"
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        return "there is no such folder"
    return None


def _build(options: argparse.Namespace) -> tuple[Any, Any]:
    import torch

    from tinker_cli import tiny
    from tinker_cli.local.lora import BaseModel, load_base_model
    from tinker_cli.local.scheduler import Scheduler
    from tinker_cli.local.server import make_app
    from tinker_cli.local.sessions import Sessions
    from tinker_cli.local.store import Store

    source = str(tiny.FOLDER) if options.model == tiny.NAME else options.model
    base = load_base_model(options.name, source, device=options.device, dtype=options.dtype)
    cores = os.cpu_count() or 1
    # The matrix products of a small model are too short to be shared between threads; samples
    # can be, each thread having rows of its own.
    lanes = (options.threads or min(cores, MOST_LANES)) if base.device.type == "cpu" else 1
    torch.set_num_threads(options.threads or (1 if base.is_small else cores))
    base.lanes = lanes
    store = Store(options.store)
    store.sweep()
    scheduler = Scheduler()

    def load(name: str, folder: str) -> BaseModel:
        model = load_base_model(name, folder, device=options.device, dtype=options.dtype)
        model.lanes = lanes
        return model

    sessions = Sessions(
        base, store, scheduler, seed=options.seed, aliases=tuple(options.alias), load=load
    )
    threading.Thread(target=_look_after, args=(sessions,), daemon=True).start()
    return make_app(sessions, os.environ[KEY_VARIABLE]), scheduler


def _look_after(sessions: Any) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        sessions.look_after()


def _bind(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


def _refuse(reason: str, code: int) -> int:
    print(json.dumps({"error": reason, "exit_code": code}), flush=True)
    return code


def _serve(
    app: Any, scheduler: Any, listener: socket.socket, ready: dict[str, Any], *, watch_stdin: bool
) -> int:
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, access_log=False
    )
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        server.should_exit = True

    if watch_stdin:
        threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()
    signal.signal(signal.SIGTERM, end)  # before anyone can know that we are here
    listener.listen(2048)
    print(json.dumps(ready), flush=True)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    server.run(sockets=[listener])
    scheduler.stop()
    return 0


def _end_with_parent(end: Any) -> None:
    # Not through sys.stdin: a thread that waits in its buffer breaks the interpreter's exit.
    while os.read(0, 4096):
        pass
    end()


if __name__ == "__main__":
    sys.exit(main())
