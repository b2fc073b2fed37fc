"""`tinker ls [ROOT]`: local runs, newest first: state, step, reward or loss, KL, model, age."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import UsageError

if TYPE_CHECKING:
    from tinker_cli.runs.glance import Glance

MARKS = {
    "running": ("●", ">"),
    "starting": ("●", ">"),
    "stopping": ("●", ">"),
    "paused": ("◐", "~"),
    "stalled": ("◐", "~"),
    "finished": ("✓", "+"),
    "stopped": ("■", "-"),
    "failed": ("✗", "x"),
    "crashed": ("✗", "x"),
}
HEADER = ("", "run", "kind", "state", "step", "reward/nll", "KL", "model", "age", "")

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("ls")
def ls(
    root: Annotated[
        str | None, typer.Argument(help="Where to look; default: the runs root.", metavar="[ROOT]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List local runs, the newest first.

    tinker ls
    tinker ls ./experiments --json

    --json: [{"run", "name", "kind", "state", "note", "step", "total_steps", "reward", "nll",
    "kl", "model", "backend", "age", "exit_code"}]
    """
    from tinker_cli.runs.glance import glance
    from tinker_cli.runs.paths import list_runs, runs_root

    place = Path(root).expanduser() if root else runs_root()
    if root and not place.is_dir():
        raise UsageError(f"no directory {root}")
    glances = [glance(run) for run in list_runs(place)] if place.is_dir() else []
    glances.sort(key=lambda each: each.age if each.age is not None else float("inf"))
    if as_json:
        console.emit([each.as_json() for each in glances])
        return
    if not glances:
        console.say(f"no runs in {place}")
        return
    for line in _table(glances):
        console.write(line)


def _table(glances: list[Glance]) -> list[str]:
    rows = [HEADER, *(_row(each) for each in glances)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(each: Glance) -> tuple[str, ...]:
    from tinker_cli.runs.status import duration

    nice, plain = MARKS.get(each.state, ("·", "."))
    step = "" if each.step is None else str(each.step)
    if each.total_steps:
        step = f"{step}/{each.total_steps}"
    score = each.reward if each.kind != "sl" and each.reward is not None else each.nll
    model = each.model or ""
    return (
        nice if console.supports_unicode() else plain,
        each.name,
        each.kind or "",
        each.state,
        step,
        "" if score is None else f"{score:.3g}",
        "" if each.kl is None else f"{each.kl:.4f}",
        Path(model).name if model.startswith("/") else model,
        "" if each.age is None else duration(each.age),
        (each.note or "") if each.state not in ("running", "finished") else "",
    )
