"""Metrics as columns of float64, one row a step.

A missing value is NaN; a value that was written but isn't finite is kept as infinity, so that the
two differ. Knows nothing of files.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MISSING = math.nan
NOT_FINITE = math.inf


@dataclass(frozen=True)
class Column:
    """One metric where it has a value: steps ascending, and values (inf: written, not finite)."""

    key: str
    steps: array[int]
    values: array[float]

    def finite(self) -> tuple[list[int], list[float]]:
        """The points that are numbers."""
        points = [(s, v) for s, v in zip(self.steps, self.values, strict=True) if v != NOT_FINITE]
        return [s for s, _ in points], [v for _, v in points]

    @property
    def not_finite(self) -> list[int]:
        """The steps at which the value was NaN or infinite."""
        return [s for s, v in zip(self.steps, self.values, strict=True) if v == NOT_FINITE]


@dataclass
class Frame:
    """Rows by step. `overwritten` counts steps written again, `seams` are where that began."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=dict)
    seams: list[int] = field(default_factory=list)
    overwritten: int = 0
    _index: dict[int, int] = field(default_factory=dict, repr=False)
    _order: list[int] | None = field(default=None, repr=False)
    _top: int | None = field(default=None, repr=False)
    _in_replay: bool = field(default=False, repr=False)

    def __len__(self) -> int:
        """Rows, that is, distinct steps."""
        return len(self.steps)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row, or merge it into its step; a step trained again replaces the old one."""
        at = self._index.get(step)
        if at is None:
            at = len(self.steps)
            self._index[step] = at
            self.steps.append(step)
            self._order = None if self._top is not None and step < self._top else self._order
            self._in_replay = False if self._top is None or step > self._top else self._in_replay
        elif self._is_replay(at, values):
            self._replace(step, at)
        self._top = step if self._top is None else max(self._top, step)
        for key, value in values.items():
            column = self.columns.get(key)
            if column is None:
                column = self.columns[key] = array("d")
            short = at + 1 - len(column)
            if short > 0:
                column.extend([MISSING] * short)
            column[at] = value

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

    def order(self) -> list[int]:
        """Row numbers by ascending step."""
        if self._order is None or len(self._order) != len(self.steps):
            steps = self.steps
            self._order = sorted(range(len(steps)), key=steps.__getitem__)
        return self._order

    def column(self, key: str) -> Column:
        """One metric; KeyError if there is none of that name."""
        values = self.columns[key]
        steps_out, values_out = array("q"), array("d")
        for i in self.order():
            if i < len(values) and values[i] == values[i]:
                steps_out.append(self.steps[i])
                values_out.append(values[i])
        return Column(key, steps_out, values_out)

    def row(self, step: int) -> dict[str, float]:
        """What is known of a step, by metric; NaN for what was written but isn't finite."""
        at = self._index[step]
        found = {}
        for key, column in self.columns.items():
            if at < len(column) and column[at] == column[at]:
                found[key] = MISSING if column[at] == NOT_FINITE else column[at]
        return found

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, row) by ascending step."""
        for i in self.order():
            yield self.steps[i], self.row(self.steps[i])
