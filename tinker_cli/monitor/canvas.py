"""A small chart for a panel: braille dots in cells, labels at the left, an axis with its marks.

The upper series covers the lower in each cell, so that colours don't bleed. Without colour the
curves differ by their dots, without Unicode by their letters. Knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from rich.text import Text

from tinker_cli.monitor.curves import Bounds, Series, Thinned, bounds, thin, tick

# blue, orange, green, purple, red: at least 3:1 against a white and against a black ground, and
# 20 apart in CIE Lab for every kind of colour blindness (a test reckons both)
COLOURS = ("#3d7bff", "#e57500", "#00a96a", "#b56199", "#e1263a")
ALARM, QUIET = COLOURS[4], "bright_black"
LETTERS = "*o+x#"  # of curves that no colour tells apart
MOST_DECADES = 5  # that are named on a log axis
MARKER_EVERY = 8  # columns between two of them
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille dots of [row][column]


@dataclass(frozen=True)
class Marks:
    """What happened along x: `resumes` cross the chart, `saves` are ticks on its axis.

    `words` says each of the resumes beside its line; none where it would be said too often.
    """

    resumes: Sequence[float] = ()
    saves: Sequence[float] = ()
    words: Sequence[str] = ()


@dataclass
class Drawing:
    """The lines of a chart, and what is to be said beside it."""

    lines: list[Text]
    limits: Bounds | None = None
    bad: list[float] = field(default_factory=list)
    curves: list[tuple[Series, Thinned]] = field(default_factory=list)


@dataclass
class _Cells:
    width: int
    height: int
    signs: list[list[str]] = field(init=False)
    styles: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.signs = [[" "] * self.width for _ in range(self.height)]
        self.styles = [[""] * self.width for _ in range(self.height)]

    def put(self, row: int, column: int, sign: str, style: str) -> None:
        if 0 <= row < self.height and 0 <= column < self.width:
            self.signs[row][column], self.styles[row][column] = sign, style

    def put_if_empty(self, row: int, column: int, sign: str, style: str) -> None:
        if self.signs[row][column] == " ":
            self.put(row, column, sign, style)

    def lines(self) -> list[Text]:
        texts = []
        for signs, styles in zip(self.signs, self.styles, strict=True):
            text, start = Text(no_wrap=True), 0
            for i in range(1, self.width + 1):
                if i == self.width or styles[i] != styles[start]:
                    text.append("".join(signs[start:i]), style=styles[start] or None)
                    start = i
            texts.append(text)
        return texts


def draw(
    series: Sequence[Series],
    *,
    width: int,
    height: int,
    threshold: float | None = None,
    marks: Marks | None = None,
    x_text: Callable[[float], str] = "{:.6g}".format,
    log: bool = False,
    colour: bool = True,
    unicode: bool = True,
) -> Drawing:
    """A chart of exactly `height` lines, none wider than `width`; the last line is the x axis.

    `x_text` writes a number of that axis. The y axis is logarithmic if `log`.
    """
    curves = [(one, thin(one, max(width - 6, 4), log=log)) for one in series]
    bad = sorted({x for one, t in curves if not one.faint for x in t.bad})
    if not any(t.xs for _, t in curves):
        empty = [Text("no finite values")] + [Text("")] * (height - 1)
        return Drawing(empty[:height], None, bad, curves)
    threshold = math.log10(threshold) if threshold and log else threshold
    limits = bounds(curves, threshold=threshold, log=log)
    rows = max(height - 1, 1)
    labels = _labels(limits, rows, log)
    if len(constant := {y for _, t in curves for y in t.ys}) == 1:
        value = constant.pop()
        label = f"{10 ** min(value, 308):.2g}" if log else tick(value, abs(value) or 1.0)
        labels[round((1 - limits.share(value)) * (rows - 1))] = label
    gutter = max(len(label) for label in labels.values()) + 1
    cells = _Cells(max(width - gutter, 2), rows)
    ends = (min(s.xs[0] for s in series if s.xs), max(s.xs[-1] for s in series if s.xs))
    place = _Place(cells, limits, ends, unicode)
    for one, thinned in curves:
        if one.faint:
            _draw_curve(place, 0, one, thinned, colour)
    for number, (one, thinned) in enumerate(pair for pair in curves if not pair[0].faint):
        _draw_curve(place, number, one, thinned, colour)
    _draw_clipped(place, limits)
    if threshold is not None and limits.low <= threshold <= limits.high:
        _draw_threshold(place, threshold, 10**threshold if log else threshold)
    marks = marks or Marks()
    for number, x in enumerate(marks.resumes):
        _draw_resume(place, x, marks.words[number] if number < len(marks.words) else "")
    lines = [
        Text.assemble((f"{labels.get(row, ''):>{gutter - 1}} ", QUIET), line)
        for row, line in enumerate(cells.lines())
    ]
    axis = _axis(place, marks, bad, x_text)
    lines.append(Text(" " * gutter) + axis)
    return Drawing(lines[:height], limits, bad, curves)


@dataclass(frozen=True)
class _Place:
    """Where a point falls on the cells."""

    cells: _Cells
    limits: Bounds
    ends: tuple[float, float]
    unicode: bool

    @property
    def fine(self) -> tuple[int, int]:
        """Dots across and down: 2 x 4 a cell in braille, 1 x 1 in letters."""
        across, down = (2, 4) if self.unicode else (1, 1)
        return self.cells.width * across, self.cells.height * down

    def column(self, x: float) -> int:
        return self._across(x, self.cells.width)

    def _across(self, x: float, count: int) -> int:
        left, right = self.ends
        share = (x - left) / (right - left) if right > left else 0.5
        return min(max(int(share * count), 0), count - 1)

    def row(self, y: float) -> int:
        return self._down(y, self.cells.height)

    def _down(self, y: float, count: int) -> int:
        return round((1 - self.limits.share(y)) * (count - 1))

    def dot(self, x: float, y: float) -> tuple[int, int]:
        across, down = self.fine
        return self._across(x, across), self._down(y, down)


def _labels(limits: Bounds, rows: int, log: bool) -> dict[int, str]:
    """The numbers at the left by row: both ends, and what falls on whole rows between them."""
    if log and (decades := range(math.ceil(limits.low), math.floor(limits.high) + 1))[1:]:
        kept = decades[:: -(-len(decades) // MOST_DECADES)]
        return {round((1 - limits.share(d)) * (rows - 1)): f"1e{d}" for d in kept}
    parts = next((n for n in (4, 2) if rows > 2 * n and (rows - 1) % n == 0), 1)
    found = {}
    for i in range(parts + 1):
        share = i / parts
        value = limits.high * (1 - share) + limits.low * share  # no difference: it may overflow
        row = (rows - 1) * i // parts
        spread = (limits.high / parts) - (limits.low / parts)
        found[row] = f"{10 ** min(value, 308):.2g}" if log else tick(value, spread)
    if rows > 1:
        return found
    return {0: found[0]}


def _draw_curve(place: _Place, number: int, one: Series, thinned: Thinned, colour: bool) -> None:
    style = QUIET if one.faint else COLOURS[number % len(COLOURS)]
    if one.points or len(thinned.xs) == 1:
        sign = ("○" if one.points else "●") if place.unicode else LETTERS[number % len(LETTERS)]
        for x, y in zip(thinned.xs, thinned.ys, strict=True):
            place.cells.put(place.row(y), place.column(x), sign, style)
        return
    dots: set[tuple[int, int]] = set()
    previous: tuple[int, int] | None = None
    for x, y, broken in zip(thinned.xs, thinned.ys, thinned.breaks, strict=True):
        here = place.dot(x, y)
        dots.update([here] if broken or previous is None else _line(*previous, *here))
        previous = here
    marked: dict[int, int] = {}
    if number and not colour and place.unicode:  # dashes and letters where no colour tells apart
        marked = {across // 2: down // 4 for across, down in sorted(dots)}
        dots = {dot for dot in dots if dot[0] % 6 < 3}
    if one.faint and not colour:  # the points alone, beneath the line of their average
        dots = {place.dot(x, y) for x, y in zip(thinned.xs, thinned.ys, strict=True)}
    if not place.unicode:
        sign = "." if one.faint else LETTERS[number % len(LETTERS)]
        for across, down in dots:
            place.cells.put(down, across, sign, style)
        return
    patterns: dict[tuple[int, int], int] = {}
    for across, down in dots:
        cell = (down // 4, across // 2)
        patterns[cell] = patterns.get(cell, 0) | _BITS[down % 4][across % 2]
    for (row, column), bits in patterns.items():
        place.cells.put(row, column, chr(0x2800 + bits), style)
    for column, row in marked.items():
        if column % MARKER_EVERY == 2 * number % MARKER_EVERY:
            place.cells.put(row, column, LETTERS[number % len(LETTERS)], style)


def _line(x0: int, y0: int, x1: int, y1: int) -> list[tuple[int, int]]:
    """The dots from one point to another, both included."""
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return [
        (x0 + round((x1 - x0) * i / count), y0 + round((y1 - y0) * i / count))
        for i in range(count + 1)
    ]


def _draw_clipped(place: _Place, limits: Bounds) -> None:
    up, down = ("▲", "▼") if place.unicode else ("^", "v")
    for x, y in limits.clipped:
        above = y > limits.high
        row = 0 if above else place.cells.height - 1
        place.cells.put(row, place.column(x), up if above else down, ALARM)


def _draw_threshold(place: _Place, threshold: float, value: float) -> None:
    sign, row = "┄" if place.unicode else "-", place.row(threshold)
    word = f" {tick(value, abs(value))} "
    start = place.cells.width - len(word) - 2
    has_room = start > 8 and not "".join(place.cells.signs[row][start : start + len(word)]).strip()
    for column in range(place.cells.width):
        place.cells.put_if_empty(row, column, sign, ALARM)
    for i, letter in enumerate(word if has_room else ""):
        place.cells.put(row, start + i, letter, ALARM)


def _draw_resume(place: _Place, x: float, word: str) -> None:
    if not place.ends[0] <= x <= place.ends[1]:
        return
    column = place.column(x)
    for row in range(place.cells.height):
        place.cells.put_if_empty(row, column, "┊" if place.unicode else ":", QUIET)
    for row in (place.cells.height - 1, 0):
        room = place.cells.signs[row][column + 1 : column + 1 + len(word)]
        if len(room) == len(word) and not "".join(room).strip():
            for i, letter in enumerate(word):
                place.cells.put(row, column + 1 + i, letter, QUIET)
            return


def _axis(
    place: _Place, marks: Marks, bad: Sequence[float], x_text: Callable[[float], str]
) -> Text:
    """A line with a tick at each checkpoint, a cross at each gap, and x at both ends."""
    width, (left, right) = place.cells.width, place.ends
    line, tick_sign, cross = ("─", "┴", "×") if place.unicode else ("-", "+", "!")
    signs, styles = [line] * width, [QUIET] * width
    for x in marks.saves:
        if left <= x <= right:
            signs[place.column(x)] = tick_sign
    crossed = {place.column(x) for x in bad}
    for start, word in _x_labels(place, x_text, crossed).items():
        signs[start : start + len(word)] = word
    for x in bad:
        column = place.column(x)
        signs[column], styles[column] = cross, ALARM
    text = Text(no_wrap=True)
    for sign, style in zip(signs, styles, strict=True):
        text.append(sign, style=style)
    return text


def _x_labels(place: _Place, x_text: Callable[[float], str], crossed: Set[int]) -> dict[int, str]:
    """The numbers along x by the column where each begins: both ends, and others that fit.

    `crossed` are the columns of the crosses that will be put over them.
    """
    width, (left, right) = place.cells.width, place.ends
    first, last = x_text(left), x_text(right)
    if left == right:
        return {place.column(left): first} if place.column(left) + len(first) <= width else {}
    ends = ((0, first), (width - len(last), last))
    found = {start: word for start, word in ends if 2 * len(word) + 2 <= width}
    free = len(first) + 2
    for x in _between(left, right, 4 if width >= 60 else 2 if width >= 30 else 1):
        start, word = place.column(x), x_text(x)
        fits = free <= start and start + len(word) + 2 <= width - len(last)
        is_new = word not in found.values() and word != last
        if fits and is_new and crossed.isdisjoint(range(start, start + len(word))):
            found[start] = word
            free = start + len(word) + 2
    return found


def _between(left: float, right: float, parts: int) -> list[float]:
    """Where numbers stand between the ends: of whole ones, as steps are, round ones."""
    if left != int(left) or right != int(right):
        return [left + (right - left) * i / parts for i in range(1, parts)]
    least = max((right - left) / (parts + 1), 1)
    size = 10 ** math.floor(math.log10(least))
    every = next(size * factor for factor in (1, 2, 2.5, 5, 10) if _is_step(size * factor, least))
    return [every * i for i in range(math.floor(left / every) + 1, math.ceil(right / every))]


def _is_step(size: float, least: float) -> bool:
    return size >= least and size == int(size)
