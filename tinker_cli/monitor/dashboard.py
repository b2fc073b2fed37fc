"""The live screen: draws whole frames, listens to keys, and never touches the run but by `on_stop`.

Frames go to the terminal's other screen in one synchronised write, so that nothing flickers and
the scrollback stays as it was. Knows the terminal; what a frame holds is in `panels`.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tinker_cli import console
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.keyboard import keys
from tinker_cli.monitor.panels import View, screen

LOOK_SECONDS = 0.25  # how often the files are looked at
CLOCK_SECONDS = 1.0  # how often the elapsed time is drawn while nothing else changes
SMOOTHING = (0.0, 0.5, 0.8, 0.9, 0.95)
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"


def watch(
    run: Path, *, on_stop: Callable[[bool], None] | None = None, until_end: bool = True
) -> str:
    """Show a run until it ends or a person leaves: "ended", "detached" or "interrupted".

    `on_stop(now)` is called when the person asks for the run to end.
    """
    facts = RunFacts(run)
    view = View(colour=console.wants_colour(), unicode=console.supports_unicode())
    sys.stdout.write(_ENTER)
    try:
        with keys() as keyboard:
            how = _loop(facts, view, keyboard.press, on_stop, until_end)
    except KeyboardInterrupt:
        how = "interrupted"
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
    if how == "ended":
        facts.refresh()
        console.write(frame(facts, view, console.width(), min(console.height(), 24)).rstrip())
    return how


def frame(facts: RunFacts, view: View, width: int, height: int) -> str:
    """One frame as text with its escape codes (none without colour)."""
    out = io.StringIO()
    printer = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=view.colour,
        color_system="truecolor" if view.colour else None,
        no_color=not view.colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    printer.print(screen(facts, view, width, height), end="")
    return out.getvalue()


def _loop(
    facts: RunFacts,
    view: View,
    press: Callable[[float], str],
    on_stop: Callable[[bool], None] | None,
    until_end: bool,
) -> str:
    drawn, size = 0.0, (0, 0)
    changed = True
    while True:
        now = time.monotonic()
        here = (console.width(), console.height())
        if changed or here != size or now - drawn > CLOCK_SECONDS:
            _draw(facts, view, *here)
            drawn, size = now, here
        if until_end and facts.has_ended and facts.status is not None:
            return "ended"
        key = press(LOOK_SECONDS)
        if key == "q" and not view.asking:
            return "detached"
        changed = _pressed(key, view, on_stop) if key else False
        changed |= facts.refresh()


def _draw(facts: RunFacts, view: View, width: int, height: int) -> None:
    lines = frame(facts, view, width, height - 1).split("\n")[: height - 1]
    sys.stdout.write(_BEGIN + "\x1b[K\n".join(lines) + "\x1b[K" + _END)
    sys.stdout.flush()


def _pressed(key: str, view: View, on_stop: Callable[[bool], None] | None) -> bool:
    if view.asking:
        view.asking = False
        if key in "yY" and on_stop is not None:
            on_stop(False)
    elif key == "s":
        view.asking = on_stop is not None
    elif key == "\t":
        view.page += 1
    elif key == "x":
        view.by_time = not view.by_time
    elif key in "+=":
        at = SMOOTHING.index(view.smoothing)
        view.smoothing = SMOOTHING[min(at + 1, len(SMOOTHING) - 1)]
    elif key == "-":
        view.smoothing = SMOOTHING[max(SMOOTHING.index(view.smoothing) - 1, 0)]
    elif key == "?":
        view.help = not view.help
    else:
        return False
    return True
