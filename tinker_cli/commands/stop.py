"""`tinker stop RUN`: finish the step, save a checkpoint, end the run."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import EXIT_FAILED, TinkerError

NOW_SECONDS = 10.0  # a trainer that hasn't obeyed --now by then is killed

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("stop")
def stop(
    run: Annotated[str, typer.Argument(help="A run's directory or name, or - for the newest.")],
    now: Annotated[bool, typer.Option("--now", help="End at once; the step is lost.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask, and don't wait.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Finish the step, save a checkpoint that can be resumed, end the run.

    tinker stop gsm8k-grpo
    tinker stop - --now

    Exit code 0 if the run is at its end, 1 if it failed or crashed instead of stopping.
    --json: {"run", "state", "exit_code", "step", "last_checkpoint", "reason"}
    """
    from tinker_cli.runs.paths import resolve_run
    from tinker_cli.runs.stop_request import request_stop
    from tinker_cli.trainer.launch import end_of, wait_until_ended

    directory = resolve_run(run)
    if end_of(directory) is None:
        request_stop(directory, now=now)
        if no_wait:
            _tell(directory, "stopping", as_json)
            return
        if now:
            _end_now(directory)
        else:
            console.say(f"{directory.name} stops after its step (Ctrl-C here doesn't undo that)")
    state, code = wait_until_ended(directory)
    _tell(directory, state, as_json)
    if state in ("failed", "crashed"):
        raise typer.Exit(code or EXIT_FAILED)


def _end_now(run: Path) -> None:
    """Wait for the trainer to obey; kill it if it hangs, and write what became of it."""
    from tinker_cli.runs.status import is_alive, read_status, write_status
    from tinker_cli.trainer.launch import end_of

    deadline = time.monotonic() + NOW_SECONDS
    while time.monotonic() < deadline:
        if end_of(run) is not None:
            return
        time.sleep(0.1)
    status = read_status(run)
    if status is None or status.pid is None or not is_alive(status):
        raise TinkerError(f"{run.name} did not answer; its trainer is on another machine")
    with contextlib.suppress(ProcessLookupError):
        os.kill(status.pid, signal.SIGKILL)
    ended = time.time()
    changes = {"state": "stopped", "reason": "killed on request", "exit_code": 130}
    write_status(run, status.with_changes(**changes, ended=ended, updated=ended))


def _tell(run: Path, state: str, as_json: bool) -> None:
    from tinker_cli.runs.status import effective_state, read_status

    status = read_status(run)
    if as_json:
        console.emit(
            {
                "run": str(run),
                "state": state,
                "exit_code": status.exit_code if status else None,
                "step": status.step if status else None,
                "last_checkpoint": status.last_checkpoint if status else None,
                "reason": effective_state(run, status)[1],
            }
        )
        return
    saved = f", checkpoint {status.last_checkpoint}" if status and status.last_checkpoint else ""
    at = f" at step {status.step}" if status else ""
    console.write(f"{run.name}: {state}{at}{saved}")
