"""Numbers that sum a curve up, and its smoothing. Knows sequences of numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from operator import mul

from tinker_cli.runs.frame import Column

LOWER_IS_BETTER = ("nll", "loss", "kl", "bpb", "error")
HIGHER_IS_BETTER = ("reward", "correct", "accuracy", "format", "score")


@dataclass(frozen=True)
class Summary:
    """A curve in a few numbers; slope is per 100 steps, by least squares over all points."""

    key: str
    count: int
    first: float | None
    last: float | None
    best: float | None
    best_step: int | None
    low: float | None
    high: float | None
    last_tenth: float | None
    slope: float | None
    not_finite: int


def better(key: str) -> int:
    """1 if higher is better, -1 if lower is, 0 if nobody can say."""
    name = key.lower()
    if any(word in name for word in HIGHER_IS_BETTER):
        return 1
    return -1 if any(word in name for word in LOWER_IS_BETTER) else 0


def summarise(column: Column) -> Summary:
    """Sum up the finite points of a column; None where there are none.

    `count` is how many values were written, finite or not.
    """
    steps, values = column.finite()
    count, bad = len(column.values), len(column.values) - len(values)
    if not values:
        return Summary(column.key, count, *(None,) * 8, not_finite=bad)
    sign, low, high = better(column.key), min(values), max(values)
    best = (low, None, high)[sign + 1]
    tail = values[-max(len(values) // 10, 1) :]
    return Summary(
        key=column.key,
        count=count,
        first=values[0],
        last=values[-1],
        best=best,
        best_step=None if best is None else steps[values.index(best)],
        low=low,
        high=high,
        last_tenth=sum(tail) / len(tail),
        slope=slope(steps, values),
        not_finite=bad,
    )


def slope(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """The least-squares slope per 100 units of x; None for fewer than two distinct x."""
    n = len(xs)
    if n < 2:
        return None
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    across = [x - mean_x for x in xs]
    spread = sum(map(mul, across, across))
    if spread == 0:
        return None
    return float(100 * sum(map(mul, across, [y - mean_y for y in ys])) / spread)


def smooth(values: Sequence[float], weight: float) -> list[float]:
    """Exponential moving average, debiased: m_t = w m + (1 - w) v, divided by 1 - w^t.

    Values that aren't finite stay as they are and move nothing.
    """
    result, mean, norm = [], 0.0, 0.0
    for value in values:
        if not isfinite(value):
            result.append(value)
            continue
        mean = weight * mean + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        result.append(mean / norm)
    return result
