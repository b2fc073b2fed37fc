"""Counts over many conversations: tokens, trained tokens, lengths, what is cut. In parallel.

Rows are read once and rendered by one process a core, in batches; only counts come back. Knows
rows and lenses; knows nothing of screens.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault
from tinker_cli.render.shown import Lens

BATCH_ROWS = 200  # conversations handed to a process at once
SERIAL_ROWS = 2_000  # below it, starting processes costs more than they bring
PERCENTILES = (50, 90, 95, 99, 100)


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
    lengths: list[int] = field(default_factory=list)

    def add(self, other: Stats) -> None:
        """Count another batch in."""
        for name in ("conversations", "faulty", "turns", "tokens", "trained", "cut", "untrained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.roles += other.roles
        self.lengths += other.lengths

    def percentile(self, percent: int) -> int:
        """The length that `percent` of the conversations do not exceed (nearest rank)."""
        ordered = sorted(self.lengths)
        if not ordered:
            return 0
        return ordered[max(-(-percent * len(ordered) // 100) - 1, 0)]

    def as_json(self) -> dict[str, Any]:
        """The counts and the percentiles."""
        counts = {k: v for k, v in self.__dict__.items() if k not in ("roles", "lengths")}
        lengths = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        return {**counts, "roles": dict(self.roles), "lengths": lengths}


def count(
    rows: Iterable[Row | Fault],
    make_lens: Callable[[], Lens],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Stats:
    """Count all rows; faulty ones are counted apart. `make_lens` must survive pickling."""
    total = Stats()
    source = iter(rows)
    first = list(islice(source, SERIAL_ROWS))
    workers = workers or os.cpu_count() or 1
    if len(first) < SERIAL_ROWS or workers == 1:
        lens = make_lens()
        for batch in _batches([*first, *source] if workers != 1 else _chain(first, source)):
            total.add(_count_batch(lens, batch))
            _tell(progress, total)
        return total
    with ProcessPoolExecutor(workers, initializer=_start, initargs=(make_lens,)) as pool:
        waiting: list[Any] = []
        for batch in _batches(_chain(first, source)):
            waiting.append(pool.submit(_count_here, batch))
            if len(waiting) >= 4 * workers:
                total.add(waiting.pop(0).result())
                _tell(progress, total)
        for future in waiting:
            total.add(future.result())
            _tell(progress, total)
    return total


def _tell(progress: Callable[[int], None] | None, total: Stats) -> None:
    if progress is not None:
        progress(total.conversations + total.faulty)


def _chain(first: Sequence[Row | Fault], rest: Iterator[Row | Fault]) -> Iterator[Row | Fault]:
    yield from first
    yield from rest


def _batches(rows: Iterable[Row | Fault]) -> Iterator[list[Row | Fault]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH_ROWS)):
        yield batch


_LENS: list[Lens] = []  # one a process


def _start(make_lens: Callable[[], Lens]) -> None:
    _LENS.append(make_lens())


def _count_here(batch: Sequence[Row | Fault]) -> Stats:
    return _count_batch(_LENS[0], batch)


def _count_batch(lens: Lens, batch: Sequence[Row | Fault]) -> Stats:
    stats = Stats()
    for row in batch:
        if not _count_row(lens, row, stats):
            stats.faulty += 1
    return stats


def _count_row(lens: Lens, row: Row | Fault, stats: Stats) -> bool:
    if isinstance(row, Fault):
        return False
    parsed = parse_conversation(row)
    messages = [item for item in parsed if not isinstance(item, Fault)]
    if len(messages) < len(parsed):
        return False
    try:
        model_input, weights = lens.renderer.build_supervised_example(
            messages, train_on_what=lens.train_on_what
        )
    except Exception:  # a renderer refuses in many ways; `--check` says which
        return False
    whole = int(model_input.length)
    kept = whole if lens.max_length is None else min(whole, lens.max_length)
    trained = int((weights[:kept] != 0).sum())
    stats.conversations += 1
    stats.turns += len(messages)
    stats.tokens += kept
    stats.trained += trained
    stats.cut += kept < whole
    stats.untrained += trained == 0
    stats.roles.update(str(message["role"]) for message in messages)
    stats.lengths.append(whole)
    return True
