"""Curves as text: the one module that touches plotext.

A chart never holds more points than twice its width: each bucket keeps its minimum and its maximum,
so that a spike of one step is seen. Values that aren't finite break the line and are said beneath.
Knows numbers; knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

NARROWEST = 24  # columns; below it a sentence says more than a chart
CLIP_TAIL = 0.05  # of the points at each end do not set the range by themselves
CLIP_FACTOR = 8.0  # a range this many times wider than the bulk's is an outlier's
COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0))
MARKERS = ("*", "o", "+", "x", "#")
_ASCII = str.maketrans("┌┐└┘─│┬┴├┤┼┄╎", "++++-|++++++|")


@dataclass(frozen=True)
class Series:
    """A curve: x ascending, y any floats; what isn't finite is a gap. `faint` draws it behind."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    faint: bool = False


@dataclass
class _Figure:
    segments: list[tuple[int, list[float], list[float]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def line_chart(
    series: Sequence[Series],
    *,
    width: int,
    height: int,
    title: str = "",
    log: bool = False,
    threshold: float | None = None,
    x_label: str = "step",
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """A framed chart of `width` x `height` characters, and a line for each thing worth saying."""
    figure = _prepare(series, width, log)
    if width < NARROWEST or not figure.segments:
        return "\n".join([*_sentences(series, width), *_fold(figure.notes, width)])
    low, high, clipped = _range(figure, threshold, log)
    if clipped:
        figure.notes.append(f"{clipped} points lie beyond the chart")
    text = _draw(
        series, figure, (low, high), width, height, title, log, threshold, x_label, unicode
    )
    text = text if colour else _uncoloured(text)
    text = text if unicode else text.translate(_ASCII)
    return "\n".join([*text.rstrip("\n").split("\n"), *_fold(figure.notes, width)])


def buckets(xs: Sequence[float], ys: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """At most `most` of the points, in order: the lowest and the highest of each bucket."""
    count = len(xs)
    if count <= most:
        return list(xs), list(ys)
    parts = max(most // 2, 1)
    keep: list[int] = []
    for part in range(parts):
        members = range(part * count // parts, (part + 1) * count // parts)
        keep += sorted({min(members, key=ys.__getitem__), max(members, key=ys.__getitem__)})
    return [xs[i] for i in keep], [ys[i] for i in keep]


def _prepare(series: Sequence[Series], width: int, log: bool) -> _Figure:
    figure = _Figure()
    for number, one in enumerate(series):
        bad = [x for x, y in zip(one.xs, one.ys, strict=True) if not math.isfinite(y)]
        below = sum(1 for y in one.ys if math.isfinite(y) and y <= 0) if log else 0
        if bad and not one.faint:
            figure.notes.append(_bad_note(one, bad))
        if below and not one.faint:
            figure.notes.append(f"{one.name}: {below} values <= 0 can't be on a log axis")
        for xs, ys in _segments(one, log):
            share = max(2, round(2 * width * len(xs) / max(len(one.xs), 1)))
            figure.segments.append((number, *buckets(xs, ys, share)))
    return figure


def _bad_note(one: Series, bad: list[float]) -> str:
    steps = ", ".join(f"{x:g}" for x in bad[:4]) + (" ..." if len(bad) > 4 else "")
    values = "value" if len(bad) == 1 else "values"
    where = "step" if len(bad) == 1 else "steps"
    return f"{one.name}: {len(bad)} of {len(one.ys)} non-finite {values} ({where} {steps})"


def _segments(one: Series, log: bool) -> list[tuple[list[float], list[float]]]:
    found: list[tuple[list[float], list[float]]] = []
    xs: list[float] = []
    ys: list[float] = []
    for x, y in zip(one.xs, one.ys, strict=True):
        if math.isfinite(y) and (y > 0 or not log):
            xs.append(x)
            ys.append(math.log10(y) if log else y)
        elif xs:
            found.append((xs, ys))
            xs, ys = [], []
    return [*found, (xs, ys)] if xs else found


def _range(figure: _Figure, threshold: float | None, log: bool) -> tuple[float, float, int]:
    values = sorted(y for _, _, ys in figure.segments for y in ys)
    low, high = values[0], values[-1]
    tail = int(len(values) * CLIP_TAIL)
    bulk_low, bulk_high = values[tail], values[-1 - tail]
    bulk = bulk_high - bulk_low
    clipped = 0
    if bulk > 0 and high - low > CLIP_FACTOR * bulk and len(values) > 40:
        low, high = max(low, bulk_low - bulk), min(high, bulk_high + bulk)
        clipped = sum(1 for y in values if not low <= y <= high)
    if threshold is not None and not log and threshold <= high + 2 * (high - low or abs(high)):
        low, high = min(low, threshold), max(high, threshold)
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    return low, high, clipped


def _draw(
    series: Sequence[Series],
    figure: _Figure,
    y_range: tuple[float, float],
    width: int,
    height: int,
    title: str,
    log: bool,
    threshold: float | None,
    x_label: str,
    unicode: bool,
) -> str:
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(width, max(height, 5))
    plotext.theme("clear")
    low, high = y_range
    named: set[int] = set()
    for number, xs, ys in figure.segments:
        inside = [min(max(y, low), high) for y in ys]
        faint = series[number].faint
        show = len(series) > 1 and not faint and number not in named
        named.add(number)
        plotext.plot(
            xs,
            inside,
            marker="braille" if unicode else MARKERS[number % len(MARKERS)],
            color=(120, 120, 120) if faint else COLOURS[number % len(COLOURS)],
            label=series[number].name if show else None,
        )
    if threshold is not None and not log and low <= threshold <= high:
        plotext.hline(threshold, (213, 94, 0))
    plotext.ylim(low, high)
    ticks = [low + (high - low) * i / 4 for i in range(5)]
    plotext.yticks(ticks, [_tick(10**t if log else t, high - low) for t in ticks])
    left = min(xs[0] for _, xs, _ in figure.segments)
    right = max(xs[-1] for _, xs, _ in figure.segments)
    if left == right:
        left, right = left - 1, right + 1
    plotext.xlim(left, right)
    places = sorted({round(left + (right - left) * i / 4) for i in range(5)})
    plotext.xticks(places, [f"{place:g}" for place in places])
    if title:
        plotext.title(title)
    plotext.xlabel(x_label)
    return str(plotext.build())


def _tick(value: float, spread: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.1e}"
    digits = max(0, min(5, 2 - math.floor(math.log10(spread)))) if spread > 0 else 3
    return f"{value:.{digits}f}"


def _uncoloured(text: str) -> str:
    import plotext

    return str(plotext.uncolorize(text))


def _sentences(series: Sequence[Series], width: int) -> list[str]:
    lines = []
    for one in series:
        if one.faint:
            continue
        values = [y for y in one.ys if math.isfinite(y)]
        if not values:
            lines.append(f"{one.name}: no finite values")
        else:
            text = f"{one.name}: {values[0]:.4g} to {values[-1]:.4g}, max {max(values):.4g}"
            lines.append(text)
    return _fold(lines, width)


def _fold(lines: Sequence[str], width: int) -> list[str]:
    width = max(width, 1)
    return [line[i : i + width] for line in lines for i in range(0, max(len(line), 1), width)]


def sparkline(values: Sequence[float], width: int, *, unicode: bool = True) -> str:
    """One line of bars, the newest at the right."""
    marks = "▁▂▃▄▅▆▇█" if unicode else "_.-=+*#@"
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return ""
    _, kept = buckets(range(len(finite)), finite, width)
    low, high = min(kept), max(kept)
    span = (high - low) or 1.0
    return "".join(marks[int((v - low) / span * (len(marks) - 1))] for v in kept[-width:])
