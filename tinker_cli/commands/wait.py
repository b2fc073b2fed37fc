"""`tinker wait RUN...`: block until runs end; the exit code says how."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import EXIT_DONE, TinkerError

POLL_SECONDS = 0.25

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("wait")
def wait(
    runs: Annotated[
        list[str], typer.Argument(help="Directories or names of runs, or -.", metavar="RUN...")
    ],
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.0, help="Give up after this many seconds.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a run, as it ends.")
    ] = False,
) -> None:
    """Block until every RUN has ended.

    tinker wait gsm8k-grpo && tinker sample --run gsm8k-grpo "What is 7 * 8?"
    tinker wait lr-1e-4 lr-3e-5 --json

    Exit code: 0 if all finished, else that of the first RUN named that did not: 1 failed or
    crashed, 3 stopped by a guard, 4 no key or no server, 130 stopped by you.
    --json: {"run", "state", "exit_code", "step", "reason"}
    """
    from tinker_cli.runs.paths import resolve_run

    waiting = list(dict.fromkeys(resolve_run(run) for run in runs))
    codes: dict[Path, int] = {}
    deadline = None if timeout is None else time.monotonic() + timeout
    while len(codes) < len(waiting):
        for run in waiting:
            if run not in codes:
                _look(run, codes, as_json)
        if len(codes) == len(waiting):
            break
        if deadline is not None and time.monotonic() > deadline:
            late = ", ".join(run.name for run in waiting if run not in codes)
            raise TinkerError(f"still running after {timeout:g} s: {late}")
        time.sleep(POLL_SECONDS)
    code = next((codes[run] for run in waiting if codes[run] != EXIT_DONE), EXIT_DONE)
    if code != EXIT_DONE:
        raise typer.Exit(code)


def _look(run: Path, codes: dict[Path, int], as_json: bool) -> None:
    from tinker_cli.runs.status import effective_state, read_status
    from tinker_cli.trainer.launch import end_of

    ended = end_of(run)
    if ended is None:
        return
    state, codes[run] = ended
    status = read_status(run)
    note = effective_state(run, status)[1]
    if as_json:
        document: dict[str, Any] = {"run": str(run), "state": state, "exit_code": codes[run]}
        console.emit_row({**document, "step": status.step if status else None, "reason": note})
        return
    console.write(f"{run.name}: {state}" + (f": {note}" if note else ""))
