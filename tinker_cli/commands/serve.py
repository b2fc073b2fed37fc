"""`tinker serve`: the embedded engine, for any Tinker client."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import EXIT_DONE, RunFailed

DEFAULT_PORT = 8719

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("serve")
def serve(
    model: Annotated[str, typer.Option("--model", help="tiny, a folder, a hub name.")] = "tiny",
    port: Annotated[int, typer.Option("--port", min=0, max=65535)] = DEFAULT_PORT,
    host: Annotated[str, typer.Option("--host", help="Loopback unless you say otherwise.")] = (
        "127.0.0.1"
    ),
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32 or bfloat16.")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", min=1)] = None,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    store: Annotated[Path | None, typer.Option("--store", help="Folder of checkpoints.")] = None,
    alias: Annotated[list[str] | None, typer.Option("--alias", help="Another name for it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say where it listens as JSON.")] = False,
) -> int:
    """Run the embedded engine until Ctrl-C. A key in TINKER_API_KEY is used, else a random one.

    tinker serve --model tiny
    TINKER_API_KEY=tml-mine tinker serve --port 9000 --alias Qwen/Qwen3-8B

    --json: {"url", "key", "model", "pid"}
    """
    from tinker_cli.engine import default_store, start_engine

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    log = default_store() / "logs" / f"serve-{os.getpid()}.log"
    with start_engine(
        model=model,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
        store=store,
        aliases=alias or (),
        host=host,
        port=port,
        key=os.environ.get("TINKER_API_KEY"),
        log=log,
    ) as engine:
        facts = {"url": engine.url, "key": engine.key, "model": engine.model, "pid": engine.pid}
        if as_json:
            console.emit_row(facts)
        else:
            console.write(f"export TINKER_BASE_URL={engine.url} TINKER_API_KEY={engine.key}")
        console.say(f"serving {engine.model}; log: {log}; Ctrl-C ends it")
        while not ended.wait(0.5):
            if not engine.alive():
                raise RunFailed("the engine has ended by itself", hint=f"see {log}")
    return EXIT_DONE
