"""Curves made small enough to draw: thinning, gaps, a range that outliers can't spoil, labels.

A thinned curve holds at most twice as many points as there are columns: each column keeps its
lowest and its highest value, so that a spike of one step is seen. Knows numbers; draws nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TAIL = 0.05  # of the points at each end don't set the range by themselves
OUTLIER_FACTOR = 8.0  # a range so many times the bulk's width was made by outliers
FEWEST_FOR_CLIPPING = 40  # points; of fewer, none can be called an outlier
LARGEST = 1e307  # either way; the distance between two larger numbers may not be one
SAMPLE = 5000  # points that the percentiles are taken from


@dataclass(frozen=True)
class Series:
    """A curve: x ascending, y any floats; what isn't finite is a gap.

    `faint` draws it behind the others and says nothing of it; `points` draws marks, no line.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    faint: bool = False
    points: bool = False


@dataclass
class Thinned:
    """What of a series is drawn. `breaks[i]` is true where no line leads to point i.

    `bad` are the x of values that aren't finite; `below` counts values that a log axis can't show.
    """

    xs: list[float] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)
    breaks: list[bool] = field(default_factory=list)
    bad: list[float] = field(default_factory=list)
    below: int = 0
    hole_open: bool = False  # the last value that was seen is a gap

    def segments(self) -> list[tuple[list[float], list[float]]]:
        """The unbroken pieces."""
        found: list[tuple[list[float], list[float]]] = []
        for x, y, breaks in zip(self.xs, self.ys, self.breaks, strict=True):
            if breaks or not found:
                found.append(([], []))
            found[-1][0].append(x)
            found[-1][1].append(y)
        return found


@dataclass(frozen=True)
class Bounds:
    """The y range of a chart, and what lies outside of it: (x, y) of the drawn points."""

    low: float
    high: float
    clipped: tuple[tuple[float, float], ...] = ()

    def share(self, y: float) -> float:
        """How far up `y` is, from 0 at the low end to 1 at the high end; beyond them it stays."""
        inside = min(max(y, self.low), self.high)
        spread = self.high / 2 - self.low / 2  # halves: the difference of two floats may be none
        return (inside / 2 - self.low / 2) / spread if spread > 0 else 0.5


def thin(one: Series, columns: int, *, log: bool = False) -> Thinned:
    """At most `2 * columns` points of a series; y as its decimal logarithm if `log`."""
    result = Thinned()
    count = len(one.xs)
    if not count:
        return result
    columns = max(columns, 1)
    if count <= 2 * columns:
        _keep(result, range(count), one, log, extremes=False)
        return result
    left, right = one.xs[0], one.xs[-1]
    start = 0
    for column in range(1, columns + 1):
        edge = left + (right - left) * column / columns
        end = count if column == columns else bisect_left(one.xs, edge, start)
        if end > start:
            _keep(result, range(start, end), one, log, extremes=True)
        start = end
    return result


def _keep(into: Thinned, at: range, one: Series, log: bool, *, extremes: bool) -> None:
    """Add the points of one column: all, or the lowest and the highest."""
    values = one.ys[at.start : at.stop]
    if extremes and not log and math.isfinite(sum(values)):  # all finite, found at the speed of C
        low, high = values.index(min(values)), values.index(max(values))
        _add(into, [(at.start + i, values[i]) for i in sorted({low, high})], one, [])
        return
    usable: list[tuple[int, float]] = []
    holes: list[int] = []
    for i, y in zip(at, values, strict=True):
        if not math.isfinite(y):
            into.bad.append(one.xs[i])
            holes.append(i)
        elif log and y <= 0:
            into.below += 1
            holes.append(i)
        else:
            usable.append((i, math.log10(y) if log else y))
    if extremes and len(usable) > 2:
        ends = {min(usable, key=lambda p: p[1]), max(usable, key=lambda p: p[1])}
        usable = sorted(ends)
    _add(into, usable, one, holes)


def _add(into: Thinned, kept: list[tuple[int, float]], one: Series, holes: list[int]) -> None:
    pending = into.hole_open
    hole = iter([*holes, len(one.xs)])
    next_hole = next(hole)
    for i, y in kept:
        broken = pending
        pending = False
        while next_hole < i:
            broken, next_hole = True, next(hole)
        into.xs.append(one.xs[i])
        into.ys.append(y)
        into.breaks.append(broken or len(into.xs) == 1)
    into.hole_open = pending or next_hole < len(one.xs)


def bounds(
    curves: Sequence[tuple[Series, Thinned]],
    *,
    threshold: float | None = None,
    log: bool = False,
) -> Bounds:
    """The range that shows the bulk of the points, and the threshold if that is near.

    Where outliers make the range more than eight times as wide as the middle nine tenths are, they
    are clipped. ValueError if nothing is finite.
    """
    drawn = [(x, y) for _, t in curves for x, y in zip(t.xs, t.ys, strict=True)]
    low = max(min(y for _, y in drawn), -LARGEST)
    high = min(max(y for _, y in drawn), LARGEST)
    values = sorted(v for one, _ in curves for v in _sample(one, log))
    tail = int(len(values) * TAIL)
    middle_low, middle_high = values[tail], values[-1 - tail]
    middle = middle_high - middle_low
    if len(values) >= FEWEST_FOR_CLIPPING and 0 < OUTLIER_FACTOR * middle < high - low:
        low, high = max(low, middle_low - middle), min(high, middle_high + middle)
    clipped = tuple((x, y) for x, y in drawn if not low <= y <= high)
    if threshold is not None and not log and _is_near(threshold, low, high):
        low, high = min(low, threshold), max(high, threshold)
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return Bounds(low - pad, high + pad, clipped)
    return Bounds(*(_rounded(low, high) if not log else (low, high)), clipped)


def _sample(one: Series, log: bool) -> list[float]:
    every = max(len(one.ys) // SAMPLE, 1)
    finite = [y for y in one.ys[::every] if math.isfinite(y)]
    return [math.log10(y) for y in finite if y > 0] if log else finite


def _is_near(threshold: float, low: float, high: float) -> bool:
    """True if the curve stays readable when the threshold is on the chart too."""
    return low <= threshold <= high or max(abs(low), abs(high)) > abs(threshold) / 6


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Outwards to a round number, so that the labels are short."""
    spread = high - low
    if not math.isfinite(spread) or spread <= 0:
        return low, high
    power = 10.0 ** math.floor(math.log10(spread / 4))
    if power == 0 or not math.isfinite(power):
        return low, high
    unit = next(u * power for u in (1, 2, 5, 10) if u * power >= spread / 4)
    return math.floor(low / unit + 1e-9) * unit, math.ceil(high / unit - 1e-9) * unit


def tick(value: float, spread: float) -> str:
    """A number on an axis whose labels span `spread`: as few digits as tell neighbours apart."""
    if value == 0 or abs(value) < spread * 1e-9:
        return "0"
    size = max(abs(value), spread)
    if not math.isfinite(spread) or size >= 1e15 or size < 1e-3:
        return f"{value:.1e}"
    for limit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scale = limit if sign != "k" else 1e3
            return f"{value / scale:.{_digits(spread / scale)}f}{sign}"
    return f"{value:.{_digits(spread)}f}"


def short(value: float, digits: int = 3) -> str:
    """A number in few signs: 0.00231, 42.3k, 1.2e-07."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    for limit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if limit <= abs(value) < 1e15:
            return f"{value / (limit if sign != 'k' else 1e3):.{digits}g}{sign}"
    if 10 ** (digits - 1) <= abs(value) < 1e4:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def _digits(spread: float) -> int:
    return max(0, min(6, 1 - math.floor(math.log10(spread)))) if spread > 0 else 3


def remarks(series: Iterable[tuple[Series, Thinned]], x_label: str = "step") -> list[str]:
    """What a person must know of the curves beside their shape: gaps, values off a log axis."""
    said = []
    for one, thinned in series:
        if one.faint:
            continue
        if bad := thinned.bad:
            where = ", ".join(f"{x:g}" for x in bad[:4]) + (" ..." if len(bad) > 4 else "")
            values = "value" if len(bad) == 1 else "values"
            places = x_label if len(bad) == 1 else f"{x_label}s"
            share = f"{len(bad)} of {len(one.ys)}" if len(bad) > 1 else "1"
            said.append(f"{one.name}: {share} non-finite {values} ({places} {where})")
        if thinned.below:
            said.append(f"{one.name}: {thinned.below} values <= 0 can't be on a log axis")
    return said


def beyond(limits: Bounds, x_label: str = "step", *, log: bool = False) -> str:
    """The points that the range leaves out, and the worst of them; "" if there are none."""
    if not limits.clipped:
        return ""
    middle = (limits.low + limits.high) / 2
    x, y = max(limits.clipped, key=lambda point: abs(point[1] - middle))
    worst = 10**y if log else y
    many = "point" if len(limits.clipped) == 1 else "points"
    return (
        f"{len(limits.clipped)} {many} beyond the chart, as far as {worst:.4g} at {x_label} {x:g}"
    )
