"""The live screen: looks at a run's files, draws when something has changed, listens to keys.

It never touches the run but by `on_stop`. What a frame holds is in `panels`, how it reaches the
terminal in `terminal`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from tinker_cli import console
from tinker_cli.monitor import terminal
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.keyboard import keys
from tinker_cli.monitor.panels import screen_lines
from tinker_cli.monitor.view import X_AXES, View

LOOK_SECONDS = 0.25  # how often the files are looked at
CLOCK_SECONDS = 1.0  # how often the elapsed time is drawn while nothing else changes
REDRAW = "\x0c"  # Ctrl-L
DRAW_SHARE = 10  # after a frame the screen rests so many times as long as the frame took
SMOOTHING = (0.0, 0.5, 0.8, 0.9, 0.95)
LAST_FRAME_LINES = 24  # of the screen that stays in the scrollback when the run has ended


def watch(
    run: Path, *, on_stop: Callable[[bool], None] | None = None, until_end: bool = True
) -> str:
    """Show a run until it ends or a person leaves: "ended", "detached" or "interrupted".

    `on_stop(now)` is called when the person asks for the run to end. Without `until_end` the screen
    of an ended run stays until the person leaves it.
    """
    facts = RunFacts(run)
    view = terminal_view()
    view.can_stop = on_stop is not None and not facts.has_ended
    how = "interrupted"
    try:
        with terminal.other_screen(), keys() as keyboard:
            how = _loop(facts, view, keyboard.press, on_stop, until_end)
    except KeyboardInterrupt:
        pass
    if how == "ended" or (how == "detached" and facts.has_ended):
        facts.refresh()
        print_frame(facts, view)
    return how


def terminal_view() -> View:
    """What the terminal of stdout can show."""
    return View(colour=console.wants_colour(), unicode=console.supports_unicode())


def print_frame(facts: RunFacts, view: View | None = None) -> None:
    """Print the screen once, without its line of keys, on stdout."""
    view = view or terminal_view()
    height = min(max(console.height() - 1, 12), LAST_FRAME_LINES)
    lines = screen_lines(facts, view, console.width(), height + 1)[:-1]
    console.write(
        "\n".join(
            line.rstrip() for line in terminal.as_text(lines, console.width(), colour=view.colour)
        )
    )


@dataclass
class Painter:
    """Brings lines to the terminal, writing those that differ from what is there."""

    view: View
    _size: tuple[int, int] = (0, 0)
    _there: list[Text] = field(default_factory=list)

    def paint(self, lines: list[Text], size: tuple[int, int], *, anew: bool = False) -> None:
        """Show `lines` on a screen of `size` (columns, lines), and nothing else."""
        width, height = size
        whole = [line.copy() for line in lines[:height]]
        whole += [Text("") for _ in range(height - len(lines))]
        for line in whole:
            line.truncate(width, pad=True)
        anew = anew or size != self._size or len(self._there) != height
        rows = [i for i in range(height) if anew or whole[i] != self._there[i]]
        written = terminal.as_text([whole[i] for i in rows], width, colour=self.view.colour)
        if rows:
            terminal.draw(dict(zip(rows, written, strict=True)), anew=anew)
        self._size, self._there = size, whole


def _loop(
    facts: RunFacts,
    view: View,
    press: Callable[[float], str],
    on_stop: Callable[[bool], None] | None,
    until_end: bool,
) -> str:
    drawn, took, size = 0.0, 0.0, (0, 0)
    changed, pressed = True, ""
    painter = Painter(view)
    while True:
        now = time.monotonic()
        here = (console.width(), console.height())
        rested = now - drawn > min(DRAW_SHARE * took, 60.0)
        due = rested and (changed or (now - drawn > CLOCK_SECONDS and not facts.has_ended))
        if pressed or here != size or due:
            painter.paint(screen_lines(facts, view, *here), here, anew=pressed == REDRAW)
            drawn, size, changed = time.monotonic(), here, False
            took = drawn - now
        if until_end and facts.has_ended and facts.status is not None:
            return "ended"
        key = press(LOOK_SECONDS)
        if key == "q" and not view.asking:
            return "detached"
        pressed = key
        if key:
            _press(key, view, facts, on_stop)
        changed |= facts.refresh()


def _press(key: str, view: View, facts: RunFacts, on_stop: Callable[[bool], None] | None) -> None:
    """Do what a key asks for."""
    view.said = ""
    if view.asking:
        view.asking = False
        if key in "yY" and on_stop is not None:
            on_stop(False)
            view.said = "stopping after this step, with a checkpoint; q leaves the screen"
    elif key == "s":
        view.asking = view.can_stop and not facts.has_ended
    elif key == "\t":
        view.page += 1
    elif key == "x":
        axes = [axis for axis in X_AXES if facts.has_axis(axis)]
        view.x = axes[(axes.index(view.x) + 1) % len(axes)] if view.x in axes else "step"
    elif key in "+=":
        view.smoothing = SMOOTHING[min(SMOOTHING.index(view.smoothing) + 1, len(SMOOTHING) - 1)]
    elif key in "-_":
        view.smoothing = SMOOTHING[max(SMOOTHING.index(view.smoothing) - 1, 0)]
    elif key in "?h":
        view.help = not view.help
