"""The curves that `tinker metrics --plot` draws: a panel a metric, several runs in one panel.

Knows frames and charts; knows nothing of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from tinker_cli.monitor.canvas import Marks
from tinker_cli.monitor.charts import Series, chart_lines
from tinker_cli.monitor.curves import short
from tinker_cli.runs.derived import all_keys, along, clock_of, column_of
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.names import label
from tinker_cli.runs.stats import smooth
from tinker_cli.runs.status import duration

KL_WARNING = 0.01  # the cookbook's advice: above it the sampler has left the learner
PLOT_LINES = 16  # of one chart: 12 whole rows of y, so that quarters fall on rows
DRAWN_BY_DEFAULT = 4  # panels, where no metric is named


@dataclass(frozen=True)
class Plot:
    """How curves are drawn: x axis, weight of the average (0: none), log y, size, terminal."""

    x: str = "step"
    smoothing: float = 0.0
    log: bool = False
    width: int = 80
    height: int = PLOT_LINES
    colour: bool = True
    unicode: bool = True


@dataclass(frozen=True)
class Curves:
    """A run to be drawn: its name, its rows, the steps at which it was resumed and saved."""

    name: str
    frame: Frame
    resumes: Sequence[int] = ()
    checkpoints: Sequence[int] = ()


def plot_lines(runs: Sequence[Curves], keys: Sequence[str], how: Plot) -> list[Text]:
    """A chart for each of `keys`, one above the other; UsageError where a run lacks the x axis."""
    lines: list[Text] = []
    for key in keys:
        lines += _chart(runs, key, how)
    return lines


def x_text(axis: str) -> Callable[[float], str]:
    """How a number of that axis is written."""
    if axis == "time":
        return duration
    return {"tokens": short, "cost": "${:.2f}".format}.get(axis, "{:.6g}".format)


def _chart(runs: Sequence[Curves], key: str, how: Plot) -> list[Text]:
    series: list[Series] = []
    for run in runs:
        if key not in all_keys(run.frame):
            continue
        column = column_of(run.frame, key)
        xs = _along(run, how.x, column.steps)
        name = run.name if len(runs) > 1 else label(key)
        series.append(Series(name, xs, column.values, faint=how.smoothing > 0))
        if how.smoothing > 0:
            series.append(Series(name, xs, smooth(column.values, how.smoothing)))
    return chart_lines(
        series,
        width=how.width,
        height=how.height,
        title=label(key) if label(key) == key else f"{label(key)}  {key}",
        log=how.log,
        threshold=KL_WARNING if "kl_sample_train" in key else None,
        x_label=how.x,
        x_text=x_text(how.x),
        marks=_marks(runs, how) if len(runs) == 1 else None,
        colour=how.colour,
        unicode=how.unicode,
    )


def _along(run: Curves, axis: str, steps: Sequence[float]) -> Sequence[float]:
    return steps if axis == "step" else along(clock_of(run.frame, axis, run.name), steps)


def _marks(runs: Sequence[Curves], how: Plot) -> Marks:
    run = runs[0]
    words = [f"resumed @ {step}" for step in run.resumes]
    return Marks(_along(run, how.x, run.resumes), _along(run, how.x, run.checkpoints), words)
