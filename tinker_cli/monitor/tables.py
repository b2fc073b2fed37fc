"""Metrics as tables of text: the last rows, summaries, keys, several runs side by side.

Knows frames; knows nothing of the command line. Columns are as wide as they need to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tinker_cli.monitor.plots import x_text
from tinker_cli.monitor.strips import one_line
from tinker_cli.runs.compare import Difference, align
from tinker_cli.runs.derived import all_keys, along, clock_of, column_of, value_of
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.names import label, unit
from tinker_cli.runs.stats import Summary, better, summarise


@dataclass(frozen=True)
class Named:
    """Rows under the name of their run."""

    name: str
    frame: Frame


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> list[str]:
    """Lines of columns two blanks apart; the first `words` of them are flush left."""
    cells = [[one_line(cell) for cell in row] for row in [header, *rows]]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        padded = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(cell))
            padded.append(cell + blank if i < words else blank + cell)
        lines.append("  ".join(padded).rstrip())
    return lines


def number(value: float | None) -> str:
    """A value in four digits, NaN for one that isn't finite, nothing for none."""
    if value is None:
        return ""
    return f"{value:.4g}" if value == value else "NaN"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def change(value: float | None, base: float | None) -> str:
    """How far `value` is from `base`; nothing where one of them is missing."""
    if value is None or base is None or not abs(value - base) < float("inf"):
        return ""
    return f"{value - base:+.3g}"


def rows_table(run: Named, keys: Sequence[str], last: int, *, axis: str = "step") -> list[str]:
    """The last rows that have one of the metrics; a value that a row lacks is an empty cell.

    Beside the step stands what had been spent on `axis`; UsageError where the rows don't tell.
    """
    frame, kept = run.frame, []
    for i in reversed(frame.order()):
        row = frame.row(frame.steps[i])
        values = [value_of(row, key) for key in keys]
        if any(value is not None for value in values):
            kept.append([str(frame.steps[i]), *map(number, values)])
        if len(kept) == last:
            break
    kept.reverse()
    if axis == "step":
        return table(["step", *map(label, keys)], kept, words=0)
    spent_by = along(clock_of(frame, axis, run.name), [int(cells[0]) for cells in kept])
    for cells, value in zip(kept, spent_by, strict=True):
        cells.insert(1, clock(value) if axis == "time" else x_text(axis)(value))
    return table(["step", axis, *map(label, keys)], kept, words=0)


def keys_table(frame: Frame) -> list[str]:
    """Every metric: its unit, how often it was written, its first, last, lowest, highest value."""
    rows = []
    for key in all_keys(frame):
        s = summarise(column_of(frame, key))
        rows.append([key, unit(key), str(s.count), *map(number, (s.first, s.last, s.low, s.high))])
    return table(["metric", "unit", "count", "first", "last", "min", "max"], rows, words=2)


def _summary_cells(s: Summary) -> list[str]:
    best = "" if s.best is None else f"{number(s.best)} @ {s.best_step}"
    slope = "" if s.slope is None else f"{s.slope:+.3g}"
    return [number(s.first), number(s.last), best, number(s.last_tenth), slope]


SUMMARY = ["first", "last", "best", "last tenth", "slope/100"]


def summary_table(frame: Frame, keys: Sequence[str]) -> list[str]:
    """A row a metric: first, last, best with its step, mean of the last tenth, slope."""
    rows = [
        [label(key), key if label(key) != key else "", *_summary_cells(_summed(frame, key))]
        for key in keys
    ]
    return table(["metric", "", *SUMMARY], rows, words=2)


def _summed(frame: Frame, key: str) -> Summary:
    if key not in all_keys(frame):
        return Summary(key, 0, *(None,) * 8, not_finite=0)
    return summarise(column_of(frame, key))


def summaries_table(runs: Sequence[Named], keys: Sequence[str], *, delta: str) -> list[str]:
    """A row a metric and run; `*` at the best mean of the last tenth, and its distance from the
    first run's."""
    rows = []
    for key in keys:
        found = [_summed(run.frame, key) for run in runs]
        tenths = {i: s.last_tenth for i, s in enumerate(found) if s.last_tenth is not None}
        sign = better(key)
        winner = max(tenths, key=lambda i: sign * tenths[i]) if sign and len(tenths) > 1 else None
        for i, (run, s) in enumerate(zip(runs, found, strict=True)):
            first, last, best, tenth, slope = _summary_cells(s)
            tenth = f"*{tenth}" if i == winner else tenth
            moved = change(s.last_tenth, found[0].last_tenth) if i else ""
            name = label(key) if i == 0 else ""
            rows.append([name, run.name, first, last, best, tenth, moved, slope])
    return table(["metric", "run", *SUMMARY[:4], delta, SUMMARY[4]], rows, words=2)


def footer(frame: Frame, keys: Sequence[str], resumes: Sequence[int]) -> list[str]:
    """Rows, steps, what a resume did, where values aren't numbers: a sentence each."""
    order = frame.order()
    parts = [f"{len(frame)} rows", f"steps {frame.steps[order[0]]} to {frame.steps[order[-1]]}"]
    if again := [step for step in resumes if step not in frame.seams]:
        parts.append(f"resumed at {', '.join(map(str, again[-3:]))}")
    if frame.overwritten:
        steps = "step" if frame.overwritten == 1 else "steps"
        parts.append(f"{frame.overwritten} {steps} overwritten from {frame.seams[0]}")
    there = set(all_keys(frame))
    for key in keys:
        if key in there and (bad := column_of(frame, key).not_finite):
            parts.append(f"{len(bad)} NaN in {key} (step {bad[0]})")
    return parts


def side_by_side(runs: Sequence[Named], key: str, last: int, *, delta: str) -> list[str]:
    """A metric of several runs by step, `*` at the best of a step, each with its distance from the
    first run's; then the best and the mean of the last tenth of each run.

    Steps that only one run has are left out if there are others: nothing stands beside them.
    """
    aligned = align([run.frame for run in runs], key)
    shared = [at for at, values in enumerate(aligned.values) if _how_many(values) > 1]
    rows = []
    for at in (shared or range(len(aligned.steps)))[-last:]:
        values, best = aligned.values[at], aligned.best(at)
        rows.append([str(aligned.steps[at]), *_with_distance(values, best)])
    found = [_summed(run.frame, key) for run in runs]
    tenths = [s.last_tenth for s in found]
    if any(s.best is not None for s in found):
        cells: list[str] = []
        for i, s in enumerate(found):
            cell = "" if s.best is None else f"{number(s.best)} @ {s.best_step}"
            cells += [cell] if i == 0 else [cell, change(s.best, found[0].best)]
        rows.append(["best", *cells])
    rows.append(["last tenth", *_with_distance(tenths, None)])
    sense = {1: ", higher is better", -1: ", lower is better"}.get(better(key), "")
    names = [runs[0].name, *(word for run in runs[1:] for word in (run.name, delta))]
    title = label(key) if label(key) == key else f"{label(key)}  {key}"
    return [f"{one_line(title)}{sense}", *table(["step", *names], rows)]


def _how_many(values: Sequence[float | None]) -> int:
    return sum(value is not None for value in values)


def _with_distance(values: Sequence[float | None], best: int | None) -> list[str]:
    cells: list[str] = []
    for i, value in enumerate(values):
        cell = f"*{number(value)}" if i == best else number(value)
        cells += [cell] if i == 0 else [cell, change(value, values[0])]
    return cells


def differences_table(names: Sequence[str], found: Sequence[Difference]) -> list[str]:
    """A row a setting that differs, a column a run; a blank where a run doesn't have it."""
    rows = [[one.key, *("" if v is None else str(v) for v in one.values)] for one in found]
    return table(["setting", *names], rows, words=1 + len(names))
