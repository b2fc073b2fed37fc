"""Single key presses from a terminal, without waiting; the terminal is always put back."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL
)  # arrows, Alt-x and the like


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
        self._typed = ""  # and not yet handed out

    def press(self, seconds: float) -> str:
        """The next key within `seconds`, or the empty string; keys that send sequences are none."""
        if not self._typed and self._wait(seconds):
            assert self._descriptor is not None
            typed = os.read(self._descriptor, 1024).decode("utf-8", "replace")
            self._typed = _SEQUENCE.sub("", typed)
        key, self._typed = self._typed[:1], self._typed[1:]
        return key

    def _wait(self, seconds: float) -> bool:
        if self._descriptor is None:
            select.select([], [], [], seconds)
            return False
        return bool(select.select([self._descriptor], [], [], seconds)[0])
