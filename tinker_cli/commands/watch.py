"""`tinker watch RUN...`: attach the dashboard to running or finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import EXIT_INTERRUPTED, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("watch")
def watch(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="A directory, a name, or - for the newest."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="One line a step.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the screen as a picture.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the screen as a page.")] = None,
) -> None:
    """Attach the dashboard to a run; leaving it never hurts the run. Several runs: a row each.

    tinker watch -
    tinker watch demo --svg demo.svg

    --json: {"step": 0, "env/all/reward/total": 0.31, ...}, one object a line
    """
    from tinker_cli.runs.paths import resolve_run

    found = [resolve_run(name) for name in runs or ["-"]]
    lines = plain or as_json
    if len(found) > 1 and (lines or svg or html):
        raise UsageError("--plain, --json, --svg and --html take one run")
    if svg is not None or html is not None:
        _save_pictures(found[0], svg, html)
    elif lines:
        from tinker_cli.monitor.plain import follow_plain

        follow_plain(found[0], as_json=as_json)
    elif len(found) > 1:
        _watch_many(found)
    else:
        _watch_one(found[0])


def _save_pictures(run: Path, svg: Path | None, html: Path | None) -> None:
    from tinker_cli.monitor.picture import save_picture

    for kind, target in (("svg", svg), ("html", html)):
        if target is not None:
            save_picture(run, target, kind=kind)
            console.say(f"wrote {target}")


def _watch_many(runs: list[Path]) -> None:
    from tinker_cli.monitor.facts import RunFacts
    from tinker_cli.monitor.fleet import print_fleet, watch_fleet

    if console.is_terminal():
        watch_fleet(runs)
    else:
        print_fleet([RunFacts(run) for run in runs])


def _watch_one(run: Path) -> None:
    from tinker_cli.monitor.dashboard import print_frame
    from tinker_cli.monitor.dashboard import watch as attach
    from tinker_cli.monitor.facts import RunFacts
    from tinker_cli.monitor.plain import follow_plain
    from tinker_cli.runs.paths import run_word
    from tinker_cli.runs.status import END_STATES, effective_state, read_status
    from tinker_cli.runs.stop_request import request_stop

    ended = effective_state(run, read_status(run))[0] in (*END_STATES, "unknown")
    if not console.is_terminal():
        if ended:
            print_frame(RunFacts(run))
        else:
            follow_plain(run)
        return
    how = attach(run, on_stop=lambda now: request_stop(run, now=now), until_end=not ended)
    if how != "ended" and not ended:
        console.say(f"detached; tinker watch {run_word(run)} shows it again")
    if how == "interrupted":
        raise typer.Exit(EXIT_INTERRUPTED)
