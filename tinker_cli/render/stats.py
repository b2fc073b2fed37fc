"""Counts over many conversations: tokens, trained tokens, lengths, what is cut.

Only counts are kept, so that memory does not grow with the text. Knows rows and lenses; knows
nothing of screens.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault
from tinker_cli.render.pool import worked
from tinker_cli.render.shown import Lens, Shown

PERCENTILES = (50, 90, 95, 99, 100)
BINS = 8  # of the histogram


@dataclass(frozen=True)
class Bin:
    """Conversations of `low` to `high` tokens, both included."""

    low: int
    high: int
    count: int


@dataclass
class Stats:
    """The counts; `lengths` is tokens a conversation, before any cut."""

    conversations: int = 0
    faulty: int = 0
    turns: int = 0
    tokens: int = 0
    trained: int = 0
    cut: int = 0
    untrained: int = 0
    roles: Counter[str] = field(default_factory=Counter)
    lengths: array[int] = field(default_factory=lambda: array("l"))

    def add(self, other: Stats) -> None:
        """Count another batch in."""
        for name in ("conversations", "faulty", "turns", "tokens", "trained", "cut", "untrained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.roles.update(other.roles)
        self.lengths.extend(other.lengths)

    def add_example(self, kept: int, whole: int, trained: int) -> None:
        """Count one conversation: its tokens after and before the cut, and the trained ones."""
        self.conversations += 1
        self.tokens += kept
        self.trained += trained
        self.cut += kept < whole
        self.untrained += trained == 0
        self.lengths.append(whole)

    def percentiles(self) -> dict[int, int]:
        """The lengths that so many percent of the conversations do not exceed (nearest rank)."""
        ordered = sorted(self.lengths)
        if not ordered:
            return dict.fromkeys(PERCENTILES, 0)
        return {p: ordered[max(-(-p * len(ordered) // 100) - 1, 0)] for p in PERCENTILES}

    def histogram(self) -> list[Bin]:
        """Conversations by length, in bins of one width."""
        if not self.lengths:
            return []
        low, high = min(self.lengths), max(self.lengths)
        width = max(-(-(high - low + 1) // BINS), 1)
        counts = Counter((length - low) // width for length in self.lengths)
        starts = range(low, high + 1, width)
        return [Bin(start, start + width - 1, counts[n]) for n, start in enumerate(starts)]

    def as_json(self) -> dict[str, Any]:
        """The counts, the percentiles and the histogram."""
        counts = {k: v for k, v in self.__dict__.items() if k not in ("roles", "lengths")}
        lengths = {f"p{percent}": length for percent, length in self.percentiles().items()}
        bins = [
            {"from": each.low, "to": each.high, "count": each.count} for each in self.histogram()
        ]
        return {**counts, "roles": dict(self.roles), "lengths": lengths, "histogram": bins}


def count(
    rows: Iterable[Row | Fault],
    make_lens: Callable[[], Lens],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Stats:
    """Count all rows; faulty ones are counted apart. `make_lens` must survive pickling.

    `progress` is told of the rows done since it was last told.
    """
    total = Stats()
    for stats in worked(rows, make_lens, count_batch, workers=workers):
        total.add(stats)
        if progress is not None:
            progress(stats.conversations + stats.faulty)
    return total


def count_shown(examples: Iterable[Shown]) -> Stats:
    """Count examples that are rendered already."""
    stats = Stats()
    for shown in examples:
        stats.add_example(len(shown.tokens), shown.whole, shown.trained)
    return stats


def count_batch(lens: Lens, batch: Sequence[Row | Fault]) -> Stats:
    """Count some rows."""
    stats = Stats()
    for row in batch:
        if not _count_row(lens, row, stats):
            stats.faulty += 1
    return stats


def _count_row(lens: Lens, row: Row | Fault, stats: Stats) -> bool:
    if isinstance(row, Fault):
        return False
    messages = parse_conversation(row)
    if isinstance(messages[0], Fault):
        return False
    try:
        model_input, weights = lens.example(messages)
    except Exception:  # a renderer refuses in many ways; `--check` says which
        return False
    marks = weights.tolist()
    whole = len(marks)
    kept = whole if lens.max_length is None else min(whole, lens.max_length)
    del marks[kept:], model_input
    stats.add_example(kept, whole, kept - marks.count(0))
    stats.turns += len(messages)
    stats.roles.update([message["role"] for message in messages])
    return True
