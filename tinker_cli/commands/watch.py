"""`tinker watch RUN`: attach the dashboard to a running or finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import console

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("watch")
def watch(
    run: Annotated[str, typer.Argument(help="A run: directory, name, or - for the newest.")] = "-",
    plain: Annotated[bool, typer.Option("--plain", help="One line a step.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the screen as a picture.")
    ] = None,
) -> None:
    """Attach the dashboard to a run; leaving it never hurts the run.

    tinker watch -
    tinker watch demo --svg demo.svg

    --json: {"step": 0, "env/all/reward/total": 0.31, ...}, one object a line
    """
    from tinker_cli.runs.paths import resolve_run
    from tinker_cli.runs.stop_request import request_stop

    where = resolve_run(run)
    if svg is not None:
        from tinker_cli.monitor.picture import save_screen

        save_screen(where, svg)
        console.say(f"wrote {svg}")
    elif plain or as_json or not console.is_terminal():
        from tinker_cli.monitor.plain import follow_plain

        follow_plain(where, as_json=as_json)
    else:
        from tinker_cli.monitor.dashboard import watch as attach

        if attach(where, on_stop=lambda now: request_stop(where, now=now)) == "detached":
            console.say(f"detached; tinker watch {where.name} shows it again")
