"""The terminal of a live screen: entered, drawn to in whole frames, and always put back.

A frame is one write within a synchronised update, to the terminal's other screen, and only of the
lines that differ, so that nothing flickers and the scrollback stays as it was. Knows bytes; knows
nothing of what a frame holds.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.text import Text

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_DEADLY = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def other_screen() -> Iterator[None]:
    """Show another screen within the block; the old one comes back whatever ends the block.

    A SIGTERM or SIGHUP ends the block as SystemExit with the code a shell gives such an end.
    """
    before = {number: signal.signal(number, _leave) for number in _DEADLY}
    _write(ENTER)
    try:
        yield
    finally:
        _write(LEAVE)
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def draw(lines: Mapping[int, str], *, anew: bool) -> None:
    """Write lines by row, counted from 0, each as wide as the screen; `anew` clears it first.

    A line that ended in "erase to the right" would lose its last column where wrapping is off.
    """
    placed = "".join(f"\x1b[{row + 1};1H{line}" for row, line in lines.items())
    _write(_BEGIN + ("\x1b[2J" if anew else "") + placed + _END)


def as_text(lines: Sequence[Text], width: int, *, colour: bool) -> list[str]:
    """The lines with their escape codes; none without colour."""
    out = io.StringIO()
    printer = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    for line in lines:
        printer.print(line, no_wrap=True, overflow="crop", crop=True)
    return out.getvalue().split("\n")[: len(lines)]


def _write(text: str) -> None:
    sys.stdout.flush()
    data = memoryview(text.encode(sys.stdout.encoding or "ascii", "replace"))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
