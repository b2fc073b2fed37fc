"""The dashboard's screen from a run's facts: the header, the panels of curves, the lines below.

Pure drawing: `screen_lines` gives lines of the size it is asked for. Which curves a panel shows is
a table here; how they are drawn is `canvas`; the lines above and below are `strips`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.text import Text

from tinker_cli.monitor.boxes import framed
from tinker_cli.monitor.canvas import ALARM, COLOURS, LETTERS, QUIET, Marks, draw
from tinker_cli.monitor.curves import Bounds, Series, beyond, short
from tinker_cli.monitor.facts import RunFacts, newest
from tinker_cli.monitor.strips import below, header
from tinker_cli.monitor.view import View
from tinker_cli.runs.derived import RATE, SECONDS
from tinker_cli.runs.frame import Column
from tinker_cli.runs.stats import smooth
from tinker_cli.runs.status import duration

KL_WARNING = 0.01  # the cookbook's advice: above it the sampler has left the learner
NARROW = 64  # columns; below it panels stand one above the other
WIDE = 160  # columns; from it on three panels stand side by side
LOWEST_PANEL = 6  # lines: a frame, three of curve, an axis
COMFORTABLE_PANEL = 9  # lines; a third row of panels has at least so many
MOVE_STEPS = 10  # whose mean is held against that of as many before
TALLEST_PANEL = 20  # lines; taller curves say no more


@dataclass(frozen=True)
class Spec:
    """What a panel shows: metrics by name, each with the word that stands before its value."""

    title: str
    names: tuple[tuple[str, str], ...]
    threshold: float | None = None


GROUPS = Spec("groups", (("env/all/by_group/frac_mixed", ""),))
PAGES: dict[str, tuple[tuple[Spec, ...], ...]] = {
    "rl": (
        (
            Spec("reward", (("reward", ""), ("test_reward", "test"))),
            Spec("KL sampler→learner", (("kl_v1", "v1"), ("kl_v2", "v2")), KL_WARNING),
            Spec("entropy", (("entropy", ""),)),
            GROUPS,
            Spec("tokens a turn", (("env/all/ac_tokens_per_turn", ""),)),
            Spec("seconds a step", ((SECONDS, ""),)),
        ),
        (
            Spec("correct", (("correct", ""), ("test/env/all/correct", "test"))),
            Spec("format", (("format", ""),)),
            Spec("tokens a turn", (("env/all/ac_tokens_per_turn", ""),)),
            Spec("seconds a step", ((SECONDS, ""), ("time/sampling", "sampling"))),
            Spec("gradient norm", (("grad_norm:max", ""),)),
            Spec("learning rate", (("lr", ""),)),
        ),
    ),
    "sl": (
        (
            Spec("NLL", (("train_mean_nll", "train"), ("test/nll", "test"))),
            Spec("learning rate", (("lr", ""),)),
            Spec("tokens a second", ((RATE, ""),)),
            Spec("seconds a step", ((SECONDS, ""),)),
            Spec("gradient norm", (("grad_norm:max", ""),)),
        ),
    ),
}


def screen_lines(facts: RunFacts, view: View, width: int, height: int) -> list[Text]:
    """The whole screen: at most `height` lines of at most `width` columns."""
    top = header(facts, view, width)
    bottom = below(facts, view, width, roomy=height >= 30)
    room = height - len(top) - len(bottom)
    middle = _kept_panels(facts, view, width, room) if room >= 3 else []
    lines = [*top, *middle, *bottom]
    if len(lines) > height:
        lines = [*top[:height], *bottom[-max(height - len(top), 0) :]][:height]
    for line in lines:
        line.no_wrap = True
        line.truncate(width)
    return lines


def _kept_panels(facts: RunFacts, view: View, width: int, room: int) -> list[Text]:
    """The panels, drawn anew only where a fact or the view has changed: not for the clock."""
    key = (id(facts), facts.version, view.page, view.x, view.smoothing, width, room)
    if view.kept is None or view.kept[0] != key:
        view.kept = (key, _panels(facts, view, width, room))
    return view.kept[1]


def _panels(facts: RunFacts, view: View, width: int, room: int) -> list[Text]:
    pages = PAGES[facts.kind]
    chosen = [s for s in pages[view.page % len(pages)] if any(facts.column(n) for n, _ in s.names)]
    if not chosen:
        words = "no metrics" if facts.has_ended else "waiting for the first step ..."
        height = min(room, LOWEST_PANEL)
        body, none = [Text(f" {words}")], Text("")
        return framed(Text(" the run "), none, body, none, width, height, unicode=view.unicode)
    columns = min(1 if width < NARROW else 2 if width < WIDE else 3, len(chosen))
    rows = max(1, min(-(-len(chosen) // columns), room // LOWEST_PANEL))
    while rows > 2 and room // rows < COMFORTABLE_PANEL:
        rows -= 1
    if room // rows > TALLEST_PANEL:  # room for curves of the other pages too
        titles = {spec.title for spec in chosen}
        others = [s for page in pages for s in page if s.title not in titles]
        chosen += [s for s in others if any(facts.column(n) for n, _ in s.names)]
        rows = max(rows, min(-(-len(chosen) // columns), room // TALLEST_PANEL + 1))
    shown = chosen[: rows * columns]
    height = max(3, min(room // rows, TALLEST_PANEL))
    lines: list[Text] = []
    for start in range(0, len(shown), columns):
        row = shown[start : start + columns]
        edges = [width * i // len(row) for i in range(len(row) + 1)]
        sizes = [right - left for left, right in pairwise(edges)]
        boxes = [
            _panel(facts, view, spec, size, height) for spec, size in zip(row, sizes, strict=True)
        ]
        lines += [Text.assemble(*parts) for parts in zip(*boxes, strict=True)]
    return lines


def _panel(facts: RunFacts, view: View, spec: Spec, width: int, height: int) -> list[Text]:
    if spec is GROUPS:
        return _groups_panel(facts, view, width, height)
    found = [(word, column) for name, word in spec.names if (column := facts.column(name))]
    series = [one for word, column in found for one in _series(facts, column, view, word)]
    drawing = draw(
        series,
        width=width - 2,
        height=height - 2,
        threshold=spec.threshold,
        marks=_marks(facts, view, with_words=spec.title in (p[0].title for p in PAGES[facts.kind])),
        x_text=_x_text(view.x),
        colour=view.colour,
        unicode=view.unicode,
    )
    notes = []
    if drawing.bad:
        where = ", ".join(_x_text(view.x)(x) for x in drawing.bad[:2])
        notes.append(f"{len(drawing.bad)} NaN @ {where}{' ..' if len(drawing.bad) > 2 else ''}")
    if drawing.limits is not None and drawing.limits.clipped:
        notes.append(beyond(drawing.limits, view.x))
    right = _latest(found, series, view, roomy=width >= 46)
    words = view.plain(spec.title)
    if len(words) + right.cell_len + 8 > width:  # the values say more than the rest of the title
        words = words.split(" ")[0]
    title = Text(f" {words} ", style="bold")
    note = Text("  ".join(notes), style=ALARM)
    if not notes and drawing.limits is not None and spec.threshold is not None:
        note = _far_limit(spec.threshold, drawing.limits)
    return framed(title, right, drawing.lines, note, width, height, unicode=view.unicode)


def _far_limit(threshold: float, limits: Bounds) -> Text:
    """A word on a threshold that is too far from the curve to be drawn."""
    if limits.low <= threshold <= limits.high:
        return Text("")
    side = "above" if threshold > limits.high else "below"
    return Text(f"the limit, {threshold:g}, is far {side}", style=QUIET)


def _marks(facts: RunFacts, view: View, *, with_words: bool) -> Marks:
    resumes = sorted({*facts.resumes, *facts.reader.frame.seams})
    return Marks(
        facts.along(view.x, resumes),
        facts.along(view.x, facts.checkpoints),
        [f"resumed @ {step}" for step in resumes] if with_words else (),
    )


def _x_text(axis: str) -> Callable[[float], str]:
    """How a number of that axis is written."""
    if axis == "time":
        return duration
    return {"tokens": short, "cost": "${:.2f}".format}.get(axis, "{:.6g}".format)


def _latest(
    found: list[tuple[str, Column]], series: list[Series], view: View, *, roomy: bool
) -> Text:
    """The newest value of each curve in its colour, and how the first has moved."""
    text = Text(" ")
    drawn = [one for one in series if not one.faint]
    for number, (word, column) in enumerate(found):
        values = newest(column, 2 * MOVE_STEPS)
        if not values:
            continue
        sign = "○ " if drawn[number].points and view.unicode else ""
        if number and not drawn[number].points and not view.colour:
            sign = f"{LETTERS[number % len(LETTERS)]} "
        at = f" @ {column.steps[-1]}" if drawn[number].points and roomy else ""
        colour = COLOURS[number % len(COLOURS)]
        text.append(f"{sign}{word + ' ' if word else ''}{short(values[-1])}{at} ", style=colour)
        if not word and not drawn[number].points:
            text.append(_move(values, view), style=QUIET)
        text.append(" " if roomy else "")
    text.rstrip()
    text.append(" ")
    return text


def _move(values: list[float], view: View) -> str:
    """The mean of the last ten steps against that of the ten before."""
    if len(values) < 4:
        return ""
    size = min(MOVE_STEPS, len(values) // 2)
    new, old = values[-size:], values[-2 * size : -size]
    change = sum(new) / size - sum(old) / size
    if change == 0 or not abs(change) < float("inf"):
        return ""
    up, down = ("▲", "▼") if view.unicode else ("^", "v")
    return f"{up if change > 0 else down} {short(abs(change), 2)} "


def _series(facts: RunFacts, column: Column, view: View, word: str) -> list[Series]:
    xs = facts.along(view.x, column.steps)
    ys = column.values
    raw = Series(word or column.key, xs, ys, points=word == "test")
    if raw.points or view.smoothing <= 0:
        return [raw]
    return [replace(raw, faint=True), Series(raw.name, xs, smooth(ys, view.smoothing))]


def _groups_panel(facts: RunFacts, view: View, width: int, height: int) -> list[Text]:
    """Shares of groups whose rollouts are all good, mixed, all bad: a column a bucket of steps."""
    names = ("all_good", "mixed", "all_bad")
    columns = [facts.column(f"env/all/by_group/frac_{name}") for name in names]
    title = Text(" groups ", style="bold")
    colours = (COLOURS[2], COLOURS[0], COLOURS[4])
    marks = "█▓░" if view.unicode else "#=."
    right = Text(" ")
    shares: list[list[float]] = []
    for name, column, colour, mark in zip(names, columns, colours, marks, strict=True):
        values: Sequence[float] = column.finite()[1] if column is not None else []
        shares.append(_means(values, width - 2))
        newest = 100 * values[-1] if values else 0.0
        word = name.replace("_", " ") if width >= 56 else name.removeprefix("all_")
        room = " " if width >= 45 else ""
        right.append(f"{mark}{room}{word} {newest:.0f}{room and ' %'} ", style=colour)
    across = min((len(s) for s in shares), default=0)
    rows = height - 2
    body = []
    for row in range(rows):
        level = (rows - row - 0.5) / rows
        line = Text()
        for i in range(across):
            good, mixed = shares[0][i], shares[0][i] + shares[1][i]
            which = 0 if level <= good else 1 if level <= mixed else 2
            line.append(marks[which], style=colours[which])
        body.append(line)
    return framed(title, right, body, Text(""), width, height, unicode=view.unicode)


def _means(values: Sequence[float], most: int) -> list[float]:
    """The values stretched or averaged to `most` columns."""
    count = len(values)
    if not count or most < 1:
        return []
    result = []
    for i in range(most):
        start = i * count // most
        part = values[start : max((i + 1) * count // most, start + 1)]
        result.append(sum(part) / len(part))
    return result
