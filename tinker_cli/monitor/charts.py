"""Large charts for `--plot`: the one module that touches plotext.

plotext sees finite points only (a NaN or an infinity ends it), at most twice as many as the chart
is wide. What a chart can't show is said beneath it. Knows numbers; knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from tinker_cli.monitor.curves import Bounds, Series, Thinned, beyond, bounds, remarks, thin, tick

__all__ = ["Series", "line_chart", "sparkline"]

NARROWEST = 24  # columns; below it a sentence says more than a chart
LOWEST = 5  # lines that plotext needs
# Okabe and Ito, "Color Universal Design" (2008)
COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0))
FAINT, ALARM = (120, 120, 120), (213, 94, 0)
MARKERS = ("braille", "o", "x", "+", "#")  # told apart without colour
LETTERS = ("*", "o", "x", "+", "#")
_ASCII = str.maketrans("┌┐└┘─│┬┴├┤┼┄╎▲▼×", "++++-|++++++|^vX")


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
    """A framed chart of `width` x `height` characters, and a line for each thing worth saying.

    Where it is too narrow, or nothing is finite, sentences instead. No escape codes without
    `colour`, no sign beyond ASCII without `unicode`, no line wider than `width`.
    """
    curves = [(one, thin(one, max(width - 8, 1), log=log)) for one in series]
    notes = remarks(curves, x_label)
    if width < NARROWEST or not any(t.xs for _, t in curves):
        return "\n".join(_fold([*_sentences(series), *notes], width))
    limits = bounds(curves, threshold=threshold, log=log)
    if limits.clipped:
        notes.append(beyond(limits, x_label, log=log))
    if cell_len(title) != len(title):  # plotext counts wide characters as one column
        heading, title = [title], ""
    else:
        heading = []
    picture = _Picture(width, max(height, LOWEST), log, colour, unicode)
    text = picture.draw(curves, limits, title, threshold, x_label)
    return "\n".join([*_fold(heading, width), *text, *_fold([*picture.legend, *notes], width)])


class _Picture:
    """One plotext figure; plotext keeps its state in the module, so it is cleared first."""

    def __init__(self, width: int, height: int, log: bool, colour: bool, unicode: bool):
        self.width, self.height, self.log = width, height, log
        self.colour, self.unicode = colour, unicode
        self.legend: list[str] = []

    def draw(
        self,
        curves: Sequence[tuple[Series, Thinned]],
        limits: Bounds,
        title: str,
        threshold: float | None,
        x_label: str,
    ) -> list[str]:
        import plotext

        plotext.clear_figure()
        plotext.limit_size(False, False)
        plotext.plot_size(self.width, self.height)
        plotext.theme("clear")
        many = len({one.name for one, _ in curves}) > 1
        for number, (one, thinned) in enumerate(curves):
            self._curve(number, one, thinned, limits, show_name=many)
        self._marks(curves, limits)
        if threshold is not None and not self.log and limits.low <= threshold <= limits.high:
            plotext.hline(limits.share(threshold), ALARM)
        self._axes(curves, limits)
        if title:
            plotext.title(title)
        if x_label:
            plotext.xlabel(x_label)
        text = str(plotext.build())
        text = text if self.colour else str(plotext.uncolorize(text))
        text = text if self.unicode else text.translate(_ASCII)
        return text.rstrip("\n").split("\n")

    def _curve(
        self, number: int, one: Series, thinned: Thinned, limits: Bounds, *, show_name: bool
    ) -> None:
        import plotext

        marker = "braille" if self.unicode and (self.colour or one.faint) else ""
        marker = marker or (MARKERS if self.unicode else LETTERS)[number % len(MARKERS)]
        marker = "." if one.faint and not self.unicode else marker
        if len(thinned.xs) == 1 and self.unicode:
            marker = "●"
        colour = FAINT if one.faint else COLOURS[number % len(COLOURS)]
        name = one.name if show_name and not one.faint else None
        if name is not None and (cell_len(name) != len(name) or len(name) > self.width // 3):
            self.legend.append(f"{LETTERS[number % 5] if not self.colour else ''} {name}".strip())
            name = None
        for xs, ys in thinned.segments():
            inside = [limits.share(y) for y in ys]
            plotext.plot(xs, inside, marker=marker, color=colour, label=name)
            name = None

    def _marks(self, curves: Sequence[tuple[Series, Thinned]], limits: Bounds) -> None:
        """Crosses where a value is missing, arrows where a point lies beyond the chart."""
        import plotext

        bad = sorted({x for one, t in curves if not one.faint for x in t.bad})
        if bad:
            plotext.scatter(bad, [0.0] * len(bad), marker="×", color=ALARM)
        for sign, edge, over in (("▲", 1.0, True), ("▼", 0.0, False)):
            xs = [x for x, y in limits.clipped if (y > limits.high) == over]
            if xs:
                plotext.scatter(xs, [edge] * len(xs), marker=sign, color=ALARM)

    def _axes(self, curves: Sequence[tuple[Series, Thinned]], limits: Bounds) -> None:
        import plotext

        low, high = limits.low, limits.high
        plotext.ylim(0, 1)  # shares of the range: plotext overflows on the largest numbers
        values = [low + (high - low) * i / 4 for i in range(5)]
        shown = [10 ** min(v, 308) if self.log else v for v in values]
        spacing = (shown[-1] - shown[0]) / 4
        plotext.yticks(
            [i / 4 for i in range(5)], [f"{v:.2g}" if self.log else tick(v, spacing) for v in shown]
        )
        left = min(one.xs[0] for one, _ in curves if len(one.xs))
        right = max(one.xs[-1] for one, _ in curves if len(one.xs))
        if left == right:
            left, right = left - 1, right + 1
        plotext.xlim(left, right)
        count = 4 if self.width >= 50 else 2
        places = [left + (right - left) * i / count for i in range(count + 1)]
        if right - left >= 2 * count:
            places = sorted({float(round(place)) for place in places})
        plotext.xticks(places, [f"{place:.6g}" for place in places])


def _sentences(series: Sequence[Series]) -> list[str]:
    lines = []
    for one in series:
        if one.faint:
            continue
        points = [(x, y) for x, y in zip(one.xs, one.ys, strict=True) if math.isfinite(y)]
        if not points:
            lines.append(f"{one.name}: no finite values")
            continue
        x, highest = max(points, key=lambda point: point[1])
        first, last = points[0][1], points[-1][1]
        lines.append(f"{one.name}: {first:.4g} to {last:.4g}, max {highest:.4g} @ {x:g}")
    return lines


def _fold(lines: Sequence[str], width: int) -> list[str]:
    """The lines in pieces that fit, between letters: a narrow screen has no room for more."""
    width = max(width, 1)
    pieces: list[str] = []
    for line in lines:
        if width >= NARROWEST:
            pieces += _by_words(line, width)
        else:
            pieces += chop_cells(line, max(width, 2)) if width > 1 else list(line)
    return pieces


def _by_words(line: str, width: int) -> list[str]:
    pieces, at = [], ""
    for word in line.split(" "):
        if at and cell_len(at) + 1 + cell_len(word) > width:
            pieces.append(at)
            at = word
        else:
            at = f"{at} {word}" if at else word
    return [part for piece in [*pieces, at] for part in chop_cells(piece, width)]


def sparkline(values: Sequence[float], width: int, *, unicode: bool = True) -> str:
    """One line of bars, at most `width`, the newest at the right; "" if nothing is finite."""
    marks = "▁▂▃▄▅▆▇█" if unicode else "_.-=+*#@"
    finite = [v for v in values if math.isfinite(v)]
    kept = thin(Series("", range(len(finite)), finite), max(width // 2, 1)).ys[-width:]
    if not kept:
        return ""
    low, span = min(kept), (max(kept) - min(kept)) or 1.0
    return "".join(marks[int((v - low) / span * (len(marks) - 1))] for v in kept)
