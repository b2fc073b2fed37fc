"""Large charts for `--plot`, and sparklines. Knows numbers; knows nothing of runs.

What a chart can't show is said beneath it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.cells import cell_len, chop_cells
from rich.text import Text

from tinker_cli.monitor.boxes import framed
from tinker_cli.monitor.canvas import ALARM, COLOURS, LETTERS, QUIET, Drawing, Marks, draw
from tinker_cli.monitor.curves import Series, beyond, remarks, short, thin
from tinker_cli.monitor.terminal import as_text

__all__ = ["Series", "chart_lines", "line_chart", "sparkline"]

NARROWEST = 24  # columns; below it a sentence says more than a chart
LOWEST = 5  # lines: a frame, two of curve, an axis


def chart_lines(
    series: Sequence[Series],
    *,
    width: int,
    height: int,
    title: str = "",
    log: bool = False,
    threshold: float | None = None,
    x_label: str = "step",
    x_text: Callable[[float], str] = "{:.6g}".format,
    marks: Marks | None = None,
    colour: bool = True,
    unicode: bool = True,
) -> list[Text]:
    """A framed chart of `width` x `height` characters, and a line for each thing worth saying.

    Where it is too narrow, or nothing is finite, sentences instead. No sign beyond ASCII without
    `unicode` but for names, no line wider than `width`.
    """
    height = max(height, LOWEST)
    drawing = draw(
        series,
        width=max(width, NARROWEST) - 2,
        height=height - 2,
        log=log,
        threshold=threshold,
        marks=marks,
        x_text=x_text,
        colour=colour,
        unicode=unicode,
    )
    notes = remarks(drawing.curves, x_label)
    if width < NARROWEST or drawing.limits is None:
        lines = _fold([*_sentences(series), *notes], width)
        return [Text(line, no_wrap=True) for line in lines]
    if drawing.limits.clipped:
        notes.append(beyond(drawing.limits, x_label, log=log))
    legend = _legend(drawing, colour=colour, unicode=unicode)
    right = Text.assemble(" ", *legend)
    heading = Text(f" {title} " if title else "", style="bold")
    below: list[Text] = []
    if heading.cell_len + right.cell_len + 6 > width:
        if len(legend) > 1 or not title:
            right, below = Text(""), legend
        room = width - right.cell_len - 6
        if heading.cell_len > room:
            heading.truncate(max(room, 0), overflow="ellipsis" if unicode else "crop")
    foot = Text(f"{x_label}{', log scale' if log else ''}", style=QUIET)
    box = framed(heading, right, drawing.lines, foot, width, height, unicode=unicode)
    for line in below:
        line.truncate(width, overflow="ellipsis" if unicode else "crop")
    return [*box, *below, *(Text(note, style=ALARM) for note in _fold(notes, width))]


def line_chart(series: Sequence[Series], *, width: int, colour: bool = False, **how: object) -> str:
    """The lines of `chart_lines` as one text, with escape codes only if `colour`."""
    lines = chart_lines(series, width=width, colour=colour, **how)  # type: ignore[arg-type]
    return "\n".join(line.rstrip() for line in as_text(lines, max(width, 2), colour=colour))


def _legend(drawing: Drawing, *, colour: bool, unicode: bool) -> list[Text]:
    """The newest value of each curve, with its name where there are several."""
    curves = [one for one, _ in drawing.curves if not one.faint]
    names = {one.name for one in curves}
    found = []
    for number, one in enumerate(curves):
        finite = [y for y in (one.ys[-100:] if len(one.ys) > 100 else one.ys) if math.isfinite(y)]
        value = short(finite[-1]) if finite else ""
        sign = ("●" if unicode else "*") if colour or not number else LETTERS[number % len(LETTERS)]
        words = f"{sign} {one.name} {value}  " if len(names) > 1 else f"{value} "
        found.append(Text(words, style=COLOURS[number % len(COLOURS)]))
    return found


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
