"""Single key presses from a terminal, without waiting; the terminal is always put back."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Keyboard]:
    """Read keys one by one within the block."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keyboard:
    """The keys pressed on a terminal, or none where there is no terminal."""

    def __init__(self, descriptor: int | None):
        self._descriptor = descriptor

    def press(self, seconds: float) -> str:
        """The next key within `seconds`, or the empty string."""
        if self._descriptor is None:
            select.select([], [], [], seconds)
            return ""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return ""
        return os.read(self._descriptor, 8).decode("utf-8", "replace")[:1]
