"""The rows of growing files, each as it comes, and again when it has changed.

A step may be written in several rows, and anew after a resume: it is told again if what was told
of it isn't what there is now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tinker_cli.errors import UsageError
from tinker_cli.runs.derived import all_keys
from tinker_cli.runs.export import chosen
from tinker_cli.runs.metrics import MetricsReader
from tinker_cli.runs.names import default_names, resolve_names
from tinker_cli.runs.wanted import Source

Shown = Mapping[str, float]


class Tail:
    """Tells rows of a reader that has read nothing yet; `choose` says what of a row is shown.

    `last` leaves out all but so many of the rows that are there when it begins.
    """

    def __init__(
        self, reader: MetricsReader, choose: Callable[[Shown], Shown], *, last: int | None = None
    ):
        self.reader, self._choose, self._last = reader, choose, last
        if last is None:  # else the first look needs no more than the end of the rows
            reader.mark_changes()
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
        if self._last is not None:  # the first look
            steps = [frame.steps[at] for at in frame.order()[-self._last :]]
            self._last = None
            self._floor = steps[0] if steps else self._floor
            self.reader.mark_changes()
        else:
            steps = sorted(frame.touched or ())
        frame.touched = set()
        if not steps:
            return
        if self.reader.notes.reread != self._reread:
            self._reread = self.reader.notes.reread
            self._floor = min(self._floor, steps[-1])
            steps = [step for step in steps if step >= self._floor]
        for step in steps:
            shown = self._choose(frame.row(step))
            mark = hash(repr(sorted(shown.items())))
            if shown and self._told.get(step) != mark:
                self._told[step] = mark
                yield step, shown


class Tails:
    """Rows of several sources as they come, until each of them has ended.

    `words` name what is shown of a row; without any it is what a person looks at first, or with
    `whole` all of it. A name that is unknown yet is told once to `say`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        words: Sequence[str],
        *,
        whole: bool,
        last: int | None,
        say: Callable[[str], None],
    ):
        self._words, self._whole, self._say = words, whole, say
        self._said: set[tuple[str, str]] = set()
        self._open = [(one, Tail(one.reader, self._chooser(one), last=last)) for one in sources]

    def poll(self) -> Iterator[tuple[Source, int, Shown]]:
        """(source, step, what is shown of it), source by source."""
        still = []
        for source, tail in self._open:
            ended = source.has_ended()  # asked first: what was written before it is read yet
            source.reader.poll()
            if ended:
                source.reader.settled()
            else:
                still.append((source, tail))
            for step, shown in tail.news():
                yield source, step, shown
        self._open = still

    @property
    def ended(self) -> bool:
        """True if no row will come any more."""
        return not self._open

    def _chooser(self, source: Source) -> Callable[[Shown], Shown]:
        def choose(row: Shown) -> Shown:
            if not self._words and self._whole:
                return row
            keys = all_keys(source.frame)
            wanted = [] if self._words else default_names(keys)
            for word in self._words:
                try:
                    wanted += resolve_names([word], keys)
                except UsageError as error:  # it may come with a later row
                    if (source.name, word) not in self._said:
                        self._said.add((source.name, word))
                        self._say(f"{source.name}: {error.message} yet; {error.hint}")
            return chosen(row, wanted)

        return choose
