"""`tinker serve`: the embedded engine in the foreground, for any Tinker client on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import RunFailed, ServiceError, UsageError

DEFAULT_PORT = 8765
STATUS_SECONDS = 5.0  # how long a live engine may take to say how it is
WATCH_SECONDS = 0.5  # how soon the death of the engine is seen

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("serve")
def serve(
    model: Annotated[str, typer.Option("--model", help="tiny, a model folder, or a hub name.")] = (
        "tiny"
    ),
    name: Annotated[
        str | None, typer.Option("--name", help="The name to serve it under; default: as given.")
    ] = None,
    alias: Annotated[
        list[str] | None, typer.Option("--alias", help="Another name for it; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads; default: by model size.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of unseeded requests.")] = 0,
    store: Annotated[
        Path | None, typer.Option("--store", help="Folder of checkpoints; default: as runs use.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to bind.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")
    ] = DEFAULT_PORT,
    key: Annotated[
        str | None, typer.Option("--key", help="The key to accept; default: a random one.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Let --model come from the hub.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Ask the engine on --host and --port how it is.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Run the embedded engine until Ctrl-C or SIGTERM, one line of log an operation on stderr.

    tinker serve
    tinker serve --model ./Qwen3-0.6B --port 9000

    Point any Tinker client at it: stdout has the two lines to set in another shell.

    --json: {"url", "key", "pid", "model", "store"}; with --status: {"models", "sessions",
    "training", "samplers", "rows", "operations", "uptime_s", "pid"}
    """
    if status:
        _show_status(host, port, as_json)
        return
    if key is not None and not key.startswith("tml-"):
        raise UsageError("--key must start with tml-: the SDK refuses any other")
    from tinker_cli.engine import default_store, start_engine

    place = store or default_store()
    with start_engine(
        model=model,
        name=name,
        aliases=alias or (),
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
        store=place,
        log_to_stderr=True,
        host=host,
        port=port,
        key=key,
        download=download,
    ) as engine:
        _announce(engine, place, as_json)
        _wait(engine)


def _announce(engine: Any, store: Path, as_json: bool) -> None:
    if as_json:
        console.emit_row(
            {
                "url": engine.url,
                "key": engine.key,
                "pid": engine.pid,
                "model": engine.model,
                "store": str(store),
            }
        )
        return
    console.say(f"serving {engine.model}; checkpoints in {store}; Ctrl-C ends it")
    console.write(f"export TINKER_BASE_URL={engine.url}")
    console.write(f"export TINKER_API_KEY={engine.key}")
    sys.stdout.flush()


def _wait(engine: Any) -> None:
    """Until SIGTERM (quietly), Ctrl-C (as an interruption), or the engine's own end (a failure)."""
    ended = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        while not ended.wait(WATCH_SECONDS):
            if not engine.alive():
                raise RunFailed("the engine has ended by itself", hint="its log is above")
    finally:
        signal.signal(signal.SIGTERM, previous)


def _show_status(host: str, port: int, as_json: bool) -> None:
    url = f"http://{host}:{port}"
    if port == DEFAULT_PORT:
        url = os.environ.get("TINKER_BASE_URL", url).rstrip("/")
    try:
        with urllib.request.urlopen(f"{url}/api/v1/status", timeout=STATUS_SECONDS) as answer:
            document = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ServiceError(f"no engine answers at {url}: {reason}", hint="tinker serve") from None
    if as_json:
        console.emit(document)
        return
    for label, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        console.write(f"{label:12} {shown}")
