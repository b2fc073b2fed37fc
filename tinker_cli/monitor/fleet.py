"""Several runs on one screen: a row each, with its state, place, newest numbers and sparklines.

Knows facts of runs; the terminal is `terminal`'s.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from tinker_cli import console
from tinker_cli.monitor import terminal
from tinker_cli.monitor.canvas import COLOURS, QUIET
from tinker_cli.monitor.charts import sparkline
from tinker_cli.monitor.dashboard import (
    CLOCK_SECONDS,
    LOOK_SECONDS,
    Painter,
    terminal_view,
)
from tinker_cli.monitor.facts import RunFacts, newest
from tinker_cli.monitor.keyboard import keys
from tinker_cli.monitor.strips import SIGNS, STATES, one_line
from tinker_cli.monitor.view import View
from tinker_cli.runs.frame import Column
from tinker_cli.runs.status import duration

SHORTEST_SPARK = 6  # columns


def watch_fleet(runs: Sequence[Path]) -> str:
    """Show the runs until a person leaves or all have ended: "detached", "ended", "interrupted"."""
    facts, view = [RunFacts(run) for run in runs], terminal_view()
    painter, how = Painter(view), "interrupted"
    try:
        with terminal.other_screen(), keys() as keyboard:
            while True:
                size = (console.width(), console.height())
                painter.paint(fleet_lines(facts, view, size[0], with_keys=True), size)
                drawn = time.monotonic()
                while time.monotonic() - drawn < CLOCK_SECONDS:
                    if keyboard.press(LOOK_SECONDS) == "q":
                        return "detached"
                    changed = [one.refresh() for one in facts]  # all of them, not up to the first
                    if any(changed):
                        break
                if all(one.has_ended for one in facts):
                    how = "ended"
                    break
    except KeyboardInterrupt:
        return how
    print_fleet(facts, view)
    return how


def print_fleet(facts: Sequence[RunFacts], view: View | None = None) -> None:
    """Print the rows once, on stdout."""
    view = view or terminal_view()
    width = console.width()
    lines = terminal.as_text(fleet_lines(facts, view, width), width, colour=view.colour)
    console.write("\n".join(line.rstrip() for line in lines))


def fleet_lines(
    facts: Sequence[RunFacts], view: View, width: int, *, with_keys: bool = False
) -> list[Text]:
    """A heading and a row a run, none wider than `width`."""
    name_width = min(max([len(one.run.name) for one in facts] + [4]), max(width // 4, 8))
    fixed = 2 + name_width + 2 + 10 + 10 + 13 + 2 + 10 + 10
    spark = (width - fixed) // 2 - 1
    spark = 0 if spark < SHORTEST_SPARK else min(spark, 40)
    head = f"  {'run':<{name_width}}  {'state':<10}{'step':>10}{'left':>13}  {'reward/nll':<10}"
    head += f"{'':<{spark}}  {'KL':<9}"
    lines = [Text(head[:width], style=QUIET)]
    for one in facts:
        lines.append(_row(one, view, name_width, spark))
    if with_keys:
        lines += [Text(""), Text(" q detach", style=QUIET)]
    for line in lines:
        line.truncate(width)
    return lines


def _row(one: RunFacts, view: View, name_width: int, spark: int) -> Text:
    status = one.status
    state_style = STATES.get(one.state, "")
    sign = SIGNS.get(one.state, "  ") if view.unicode else "  "
    name = Text(one_line(one.run.name), style="bold")
    name.truncate(name_width, overflow="ellipsis" if view.unicode else "crop", pad=True)
    step = status.step if status else len(one.reader.frame)
    of = f"/{status.total_steps}" if status and status.total_steps else ""
    left = one.seconds_left() if not one.has_ended else None
    row = Text.assemble((sign, state_style), name)
    row.append(f"  {one.state:<10}", style=state_style)
    row.append(f"{step}{of}".rjust(10) + f"{duration(left) if left is not None else '':>13}  ")
    first = one.column("reward") if one.kind == "rl" else one.column("nll")
    second = one.column("kl") if one.kind == "rl" else None
    for column, colour in ((first, COLOURS[0]), (second, COLOURS[1])):
        row.append(_spark(column, spark, view), style=colour)
        row.append(f"{_newest(column):<10}")
    return row


def _spark(column: Column | None, width: int, view: View) -> str:
    values: Sequence[float] = column.finite()[1] if column is not None else []
    return f"{sparkline(values, width, unicode=view.unicode):<{width}} " if width else ""


def _newest(column: Column | None) -> str:
    values = newest(column)
    return f"{values[-1]:.3g}" if values else ""
