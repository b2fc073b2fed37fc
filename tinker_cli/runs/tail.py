"""The rows of a growing file, each as it comes, and again when it has changed.

A step may be written in several rows, and anew after a resume: it is told again if what was told
of it isn't what there is now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from tinker_cli.runs.metrics import MetricsReader

Shown = Mapping[str, float]


class Tail:
    """Tells rows of a reader that has read nothing yet; `choose` says what of a row is shown.

    `last` leaves out all but so many of the rows that are there when it begins.
    """

    def __init__(
        self, reader: MetricsReader, choose: Callable[[Shown], Shown], *, last: int | None = None
    ):
        reader.mark_changes()
        self.reader, self._choose, self._last = reader, choose, last
        self._told: dict[int, int] = {}
        self._floor: float = -math.inf  # rows of lower steps were there before and are left out
        self._reread = 0

    def poll(self) -> Iterator[tuple[int, Shown]]:
        """(step, what is shown of it) of rows that are new or changed, by ascending step."""
        self.reader.poll()
        yield from self.news()

    def news(self) -> Iterator[tuple[int, Shown]]:
        """The same, of what the reader has read already."""
        frame = self.reader.frame
        steps = sorted(frame.touched or ())
        if not steps:
            return
        frame.touched = set()
        if self._last is not None:  # the first look
            steps, self._last = steps[-self._last :], None
            self._floor = steps[0]
        elif self.reader.notes.reread != self._reread:
            self._reread = self.reader.notes.reread
            self._floor = min(self._floor, steps[-1])
            steps = [step for step in steps if step >= self._floor]
        for step in steps:
            shown = self._choose(frame.row(step))
            mark = hash(repr(sorted(shown.items())))
            if shown and self._told.get(step) != mark:
                self._told[step] = mark
                yield step, shown
