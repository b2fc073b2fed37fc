"""Curves and charts: what is kept, what is said, what reaches the terminal."""

from __future__ import annotations

import json
import math
import random
import re
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tinker_cli.monitor.canvas import COLOURS, Marks, draw
from tinker_cli.monitor.charts import line_chart, sparkline
from tinker_cli.monitor.curves import Series, bounds, short, thin, tick
from tinker_cli.runs.metrics import read_metrics

NAN, INF = math.nan, math.inf


def chart(ys: list[float], *, name: str = "loss", width: int = 60, **options: object) -> str:
    xs = list(range(len(ys)))
    return line_chart([Series(name, xs, ys)], width=width, height=12, **options)  # type: ignore[arg-type]


def dots(text: str) -> int:
    return sum((ord(sign) - 0x2800).bit_count() for sign in text if 0x2800 <= ord(sign) < 0x2900)


def test_a_spike_of_one_step_survives_thinning() -> None:
    ys = [1.0] * 5000
    ys[2500] = 100.0
    kept = thin(Series("loss", range(5000), ys), 60)
    assert len(kept.xs) <= 120
    assert (2500, 100.0) in zip(kept.xs, kept.ys, strict=True)
    text = chart(ys)
    assert "100" in text


def test_a_clipped_spike_is_said_with_its_value_and_step() -> None:
    chance = random.Random(0)
    ys = [1 + chance.random() for _ in range(5000)]
    ys[2500] = 100.0
    text = chart(ys)
    assert "1 point beyond the chart, as far as 100 at step 2500" in text
    assert "▲" in text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.just(NAN), max_size=400),
    st.integers(1, 50),
)
def test_thinning_keeps_few_points_and_both_extremes(ys: list[float], columns: int) -> None:
    kept = thin(Series("y", range(len(ys)), ys), columns)
    finite = [y for y in ys if math.isfinite(y)]
    assert len(kept.xs) <= 2 * columns
    assert all(math.isfinite(y) for y in kept.ys)
    assert kept.xs == sorted(kept.xs)
    assert len(kept.bad) == len(ys) - len(finite)
    if finite:
        assert (min(kept.ys), max(kept.ys)) == (min(finite), max(finite))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(NAN), min_size=1, max_size=30))
def test_a_line_breaks_exactly_where_a_value_is_missing(ys: list[float]) -> None:
    pieces: list[list[float]] = []
    for y in ys:  # the runs of finite values, found in another way
        if math.isnan(y):
            pieces.append([])
        else:
            pieces = pieces or [[]]
            pieces[-1].append(y)
    kept = thin(Series("y", range(len(ys)), ys), 100)
    assert [segment for _, segment in kept.segments()] == [piece for piece in pieces if piece]


def test_nan_breaks_the_line_and_its_step_is_said() -> None:
    text = chart([3, 2, NAN, 1])
    assert "loss: 1 non-finite value (step 2)" in text
    assert "×" in text
    assert dots(text) < dots(chart([3, 2, 1.5, 1]))


def test_a_run_that_diverged_does_not_look_healthy() -> None:
    text = chart([1, NAN, NAN, NAN, 1])
    assert "3 of 5 non-finite values (steps 1, 2, 3)" in text


def test_nothing_finite_is_said_not_drawn() -> None:
    assert chart([NAN, NAN]).startswith("loss: no finite values")
    assert "│" not in chart([NAN, NAN])


def test_one_point_and_zeros_are_seen() -> None:
    assert "●" in chart([3.5])
    assert "3.5" in chart([3.5])
    zeros = chart([0, 0, 0])
    assert dots(zeros) > 0
    assert any(line[1:].lstrip().startswith("0 ⠤") for line in zeros.split("\n"))


def test_a_log_axis_says_what_it_leaves_out() -> None:
    text = chart([-0.25, 0, 0.3125], name="kl", log=True)
    assert "kl: 2 values <= 0 can't be on a log axis" in text


def test_a_log_axis_is_logarithmic() -> None:
    kept = thin(Series("y", [0, 1, 2], [1.0, 10.0, 1000.0]), 40, log=True)
    assert kept.ys == [0, 1, 3]


@pytest.mark.parametrize("width", [1, 2, 5, 10, 23, 24, 30, 80, 200])
@pytest.mark.parametrize("name", ["loss", "损失🔥/loss", "a" * 90])
def test_no_line_is_wider_than_the_terminal(width: int, name: str) -> None:
    two = [Series(name, [0, 1, 2], [1, NAN, 3.0]), Series("b", [0, 1, 2], [1.0, 2, 3.0])]
    text = line_chart(two, width=width, height=5, title=name)
    wide = [line for line in text.split("\n") if cell_len(line) > max(width, 1)]
    assert [line for line in wide if not (width == 1 and cell_len(line) == 2)] == []


def test_a_wide_name_leaves_the_frame_straight() -> None:
    two = [Series("损失🔥/loss", [0, 1, 2], [1, 2, 3.0]), Series("b", [0, 1, 2], [1.0, 2, 3.0])]
    text = line_chart(two, width=60, height=12, title="损失🔥/loss")
    ends = {cell_len(line) for line in text.split("\n") if line.endswith(("╮", "│", "╯"))}
    assert ends == {60}
    assert "损失🔥/loss" in text


@pytest.mark.parametrize("unicode", [True, False])
def test_no_escape_codes_without_colour(unicode: bool) -> None:
    text = line_chart(
        [Series("a", [0, 1, 2], [1, 2, 3.0]), Series("b", [0, 1, 2], [2, 1, NAN])],
        width=60,
        height=12,
        threshold=2.5,
        unicode=unicode,
    )
    assert "\x1b" not in text
    assert unicode or text.isascii()
    assert "o" in text  # the second curve differs in shape


def test_colour_is_there_when_asked_for() -> None:
    assert "\x1b[" in chart([1, 2, 3], colour=True)


@pytest.mark.parametrize(
    "ys",
    [
        [1e300, -1e300, 1e308],
        [1.7e308, -1.7e308],
        [5e-324, 1e-320],
        [1e-12, 2e-12],
        [7.0] * 50,
        [INF, 1.0, -INF, 2.0],
        [float(10**300), 1.0],
        [],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_strange_series_draw_without_a_fault(ys: list[float], log: bool) -> None:
    assert chart(ys, log=log)
    if not log:
        series = [Series("y", range(len(ys)), ys)]
        for unicode in (True, False):
            drawing = draw(series, width=40, height=6, unicode=unicode)
            assert len(drawing.lines) == 6
            assert all(line.cell_len <= 40 for line in drawing.lines)


def test_a_near_threshold_is_on_the_chart_and_a_far_one_is_not() -> None:
    near = Series("kl", [0, 1], [0.002, 0.003])
    far = Series("kl", [0, 1], [1e-7, 2e-7])
    assert bounds([(near, thin(near, 9))], threshold=0.01).high >= 0.01
    assert bounds([(far, thin(far, 9))], threshold=0.01).high < 1e-6
    drawn = "\n".join(line.plain for line in draw([near], width=60, height=8, threshold=0.01).lines)
    assert "┄" in drawn


def test_a_panel_marks_gaps_saves_and_resumes() -> None:
    series = [Series("y", range(100), [1.0 * i if i != 50 else NAN for i in range(100)])]
    drawing = draw(series, width=50, height=8, marks=Marks([30], [10, 90], ["resumed @ 30"]))
    axis = drawing.lines[-1].plain
    assert axis.count("┴") == 2
    assert axis.count("×") == 1
    assert drawing.bad == [50]
    assert any("resumed @ 30" in line.plain for line in drawing.lines)


def test_the_second_curve_differs_without_colour() -> None:
    xs = list(range(40))
    one = Series("a", xs, [0.0] * 39 + [10.0])
    two = Series("b", xs, [5.0] * 40)
    plain = "\n".join(x.plain for x in draw([one, two], width=40, height=9, colour=False).lines)
    coloured = "\n".join(x.plain for x in draw([one, two], width=40, height=9).lines)
    assert 0 < dots(plain) < dots(coloured)
    assert plain.count("o") >= 4
    assert "o" not in coloured


def test_a_raw_curve_lies_beneath_its_average() -> None:
    xs = list(range(200))
    raw = Series("y", xs, [float(x % 2) for x in xs], faint=True)
    mean = Series("y", xs, [0.5] * 200)
    lines = draw([raw, mean], width=60, height=9).lines
    spans = [span.style for line in lines for span in line.spans]
    assert "bright_black" in spans
    assert COLOURS[0] in spans  # the colour that the curve has without smoothing


def test_a_log_axis_names_its_decades() -> None:
    text = chart([10.0**-i for i in range(7)], log=True, width=80)
    assert "1e0 " in text
    assert "1e-6" in text
    assert "log scale" in text


def test_the_limit_is_drawn_on_a_log_axis_too() -> None:
    text = chart([0.001, 0.1], log=True, threshold=0.01)
    assert "┄" in text
    assert "0.010" in text


def test_a_million_points_are_thinned_to_the_width() -> None:
    ys = array("d", [0.5]) * 1_000_000
    ys[777_777] = 3.0
    kept = thin(Series("y", range(1_000_000), ys), 80)
    assert len(kept.xs) <= 160
    assert 777_777 in kept.xs


def test_ticks_are_short_and_tell_neighbours_apart() -> None:
    assert tick(0.0, 1.0) == "0"
    assert tick(0.25, 0.25) == "0.25"
    assert tick(44_000, 8000) == "44.0k"
    assert tick(2e-7, 1e-7) == "2.0e-07"
    assert short(42_345.0) == "42.3k"
    assert short(1234.5) == "1234"
    assert short(0.002312) == "0.00231"


def test_a_sparkline_fits_and_ends_high() -> None:
    line = sparkline([float(i) for i in range(1000)], 12)
    assert len(line) <= 12
    assert (line[0], line[-1]) == ("▁", "█")
    assert sparkline([NAN], 12) == ""
    assert sparkline([1.0, 2.0], 12, unicode=False).isascii()


def x_labels(text: str) -> list[str]:
    """The words of the axis: the last line but the frame."""
    axis = next(line for line in reversed(text.split("\n")) if "──" in line and line[0] == "│")
    return re.findall(r"[0-9.]+", axis)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 30, 300])
def test_steps_are_whole_numbers_each_said_once(count: int) -> None:
    said = x_labels(chart([float(i) for i in range(count)], width=100))
    assert said[0] == "0"
    assert said[-1] == str(count - 1)
    assert all(label.isdigit() for label in said)
    assert len(set(said)) == len(said)


def test_a_single_point_has_a_single_label() -> None:
    assert x_labels(chart([3.0], width=100)) == ["0"]


def test_a_row_that_says_null_breaks_the_line(tmp_path: Path) -> None:
    rows = [{"step": i, "loss": None if i == 10 else 1.0} for i in range(20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    column = read_metrics(tmp_path).frame.column("loss")
    broken = line_chart([Series("loss", column.steps, column.values)], width=60, height=12)
    whole = chart([1.0] * 20)
    assert dots(broken) < dots(whole)
    assert "1 non-finite value (step 10)" in broken
