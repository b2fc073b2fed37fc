"""Metrics as columns of float64, one row a step.

A missing value is NaN; a value that was written but isn't finite is kept as infinity, so that the
two differ. Knows nothing of files.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

MISSING = math.nan
NOT_FINITE = math.inf


@dataclass(frozen=True)
class Column:
    """One metric where it has a value: steps ascending, and values (inf: written, not finite)."""

    key: str
    steps: array[int]
    values: array[float]

    def finite(self) -> tuple[array[int], array[float]]:
        """The points that are numbers."""
        if math.isfinite(sum(self.values)):
            return self.steps, self.values
        usable = [value != NOT_FINITE for value in self.values]
        return array("q", compress(self.steps, usable)), array("d", compress(self.values, usable))

    @property
    def not_finite(self) -> list[int]:
        """The steps at which the value was NaN or infinite."""
        if math.isfinite(sum(self.values)):
            return []
        return [s for s, v in zip(self.steps, self.values, strict=True) if v == NOT_FINITE]


@dataclass
class Frame:
    """Rows by step. `overwritten` counts steps written again, `seams` are where that began.

    `touched` collects the steps that change, for a reader of rows that empties it; None: nobody.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=dict)
    seams: list[int] = field(default_factory=list)
    overwritten: int = 0
    touched: set[int] | None = None
    top: int | None = None  # the highest step
    _index: dict[int, int] | None = field(default=None, repr=False)  # only where steps jump back
    _order: list[int] = field(default_factory=list, repr=False)
    _in_replay: bool = field(default=False, repr=False)

    def __len__(self) -> int:
        """Rows, that is, distinct steps."""
        return len(self.steps)

    def __contains__(self, step: int) -> bool:
        """True if there is a row of that step."""
        return self._find(step) is not None

    def _find(self, step: int) -> int | None:
        """The row number of a step."""
        if self._index is not None:
            return self._index.get(step)
        at = bisect_left(self.steps, step)
        return at if at < len(self.steps) and self.steps[at] == step else None

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row, or merge it into its step; a step trained again replaces the old one."""
        if self.touched is not None:
            self.touched.add(step)
        if self.top is None or step > self.top:
            at = self._append(step)
            self._in_replay, self.top = False, step
        else:
            found = self._find(step)
            at = self._append(step, jumps_back=True) if found is None else found
            if found is not None and self._is_replay(at, values):
                self._replace(step, at)
        for key, value in values.items():
            column = self.columns.get(key)
            if column is None:
                column = self.columns[key] = array("d")
            short = at + 1 - len(column)
            if short > 0:
                column.extend([MISSING] * short)
            column[at] = value

    def _append(self, step: int, *, jumps_back: bool = False) -> int:
        at = len(self.steps)
        if jumps_back and self._index is None:
            self._index = {step: i for i, step in enumerate(self.steps)}
        if self._index is not None:
            self._index[step] = at
        self.steps.append(step)
        return at

    def extend(self, steps: Sequence[int], block: Mapping[str, array[float]]) -> None:
        """Add many rows at once: finite values, steps ascending and all above `top`."""
        at = len(self.steps)
        if self.touched is not None:
            self.touched.update(steps)
        self.steps.extend(steps)
        if self._index is not None:
            self._index.update(zip(steps, range(at, at + len(steps)), strict=True))
        self.top, self._in_replay = steps[-1], False
        for key, values in block.items():
            column = self.columns.get(key)
            if column is None:
                column = self.columns[key] = array("d")
            if len(column) < at:
                column.extend([MISSING] * (at - len(column)))
            column.extend(values)

    def _is_replay(self, at: int, values: Mapping[str, float]) -> bool:
        """True if a value that is already there comes again and differs in kind from a merge."""
        return any(at < len(c) and c[at] == c[at] for k in values if (c := self.columns.get(k)))

    def _replace(self, step: int, at: int) -> None:
        self.overwritten += 1
        if not self._in_replay:
            self.seams.append(step)
            self._in_replay = True
        for column in self.columns.values():
            if at < len(column):
                column[at] = MISSING

    def keys(self) -> list[str]:
        """Every metric's name, in the order in which they appeared."""
        return list(self.columns)

    def order(self) -> Sequence[int]:
        """Row numbers by ascending step."""
        if self._index is None:
            return range(len(self.steps))
        if len(self._order) != len(self.steps):
            self._order = sorted(range(len(self.steps)), key=self.steps.__getitem__)
        return self._order

    def column(self, key: str) -> Column:
        """One metric, as a copy that later rows don't change; KeyError if there is none."""
        values = self.columns[key]
        steps = self.steps[: len(values)]
        if self._index is not None:
            order = [i for i in self.order() if i < len(values)]
            values = array("d", map(values.__getitem__, order))
            steps = array("q", map(steps.__getitem__, order))
        if not math.isnan(sum(values)):  # every row has it: no look at each value
            return Column(key, steps, values[:])
        there = [value == value for value in values]
        return Column(key, array("q", compress(steps, there)), array("d", compress(values, there)))

    def row(self, step: int) -> dict[str, float]:
        """What is known of a step, by metric; NaN for what was written but isn't finite."""
        at = self._find(step)
        if at is None:
            raise KeyError(step)
        return self._row(at)

    def _row(self, at: int) -> dict[str, float]:
        found = {}
        for key, column in self.columns.items():
            if at < len(column) and (value := column[at]) == value:
                found[key] = MISSING if value == NOT_FINITE else value
        return found

    def rows(self, start: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, row) by ascending step, from the `start`-th on; negative counts from the end."""
        for i in self.order()[start:]:
            yield self.steps[i], self._row(i)
