"""metrics.jsonl as it really is: cut, torn, written twice, by anyone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli.errors import UsageError
from tinker_cli.runs.expressions import parse
from tinker_cli.runs.frame import NOT_FINITE, Column
from tinker_cli.runs.metrics import MetricsReader, read_metrics
from tinker_cli.runs.names import resolve_name, resolve_names
from tinker_cli.runs.stats import slope, smooth, summarise


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "metrics.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _column(reader: MetricsReader, key: str) -> tuple[list[int], list[float]]:
    column = reader.frame.column(key)
    return list(column.steps), list(column.values)


def test_a_torn_line_in_the_middle_is_counted_and_left_out(tmp_path: Path) -> None:
    reader = read_metrics(
        _file(tmp_path, '{"step":0,"loss":3}\n{"step":1,"lo\n{"step":2,"loss":1}\n\n')
    )
    assert _column(reader, "loss") == ([0, 2], [3.0, 1.0])
    assert reader.notes.torn == [2]


def test_a_file_cut_by_resume_is_read_anew(tmp_path: Path) -> None:
    rows = [json.dumps({"step": step, "loss": step}) + "\n" for step in range(6)]
    path = _file(tmp_path, "".join(rows))
    reader = MetricsReader(path)
    reader.poll()
    path.unlink()
    _file(tmp_path, "".join(rows[:3]))
    reader.poll()
    with path.open("a") as stream:
        stream.write(rows[3])
    reader.poll()
    assert list(reader.frame.steps) == [0, 1, 2, 3]


def test_steps_written_again_replace_the_old_ones(tmp_path: Path) -> None:
    pairs = [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (3, 2.5), (4, 1.5), (5, 0.5)]
    text = "".join(json.dumps({"step": s, "loss": v}) + "\n" for s, v in pairs)
    reader = read_metrics(_file(tmp_path, text))
    assert _column(reader, "loss") == ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2.5, 1.5, 0.5])
    assert reader.frame.overwritten == 2
    assert reader.frame.seams == [3]


def test_several_rows_of_a_step_are_merged(tmp_path: Path) -> None:
    text = '{"step":0,"a":1}\n{"step":1,"a":2}\n{"step":0,"test/b":3}\n'
    reader = read_metrics(_file(tmp_path, text))
    assert reader.frame.row(0) == {"a": 1, "test/b": 3}
    assert reader.frame.overwritten == 0


def test_nan_null_and_such_texts_are_values_that_are_not_finite(tmp_path: Path) -> None:
    text = (
        '{"step":0,"loss":nan}\n{"step":1,"loss":null}\n{"step":2,"loss":"NaN"}\n'
        '{"step":3,"loss":0.5}\n{"step":4,"loss":NaN}\n{"step":5,"loss":-Infinity}\n'
    )
    reader = read_metrics(_file(tmp_path, text))
    assert reader.notes.torn == [1]
    steps, values = reader.frame.column("loss").finite()
    assert (list(steps), list(values)) == ([3], [0.5])
    assert reader.frame.column("loss").not_finite == [1, 2, 4, 5]


def test_late_keys_nested_text_and_odd_names(tmp_path: Path) -> None:
    row = {
        "step": 1,
        "note": "warm",
        "opt": {"lr": 0.0001},
        "hist": [1, 2],
        "loss:sum": -66.9,
        "acc[/x]": 0.5,
    }
    text = '{"step":0,"a":2}\n' + json.dumps(row) + "\n"
    frame = read_metrics(_file(tmp_path, text)).frame
    assert frame.row(0) == {"a": 2}
    assert frame.row(1) == {"opt/lr": 0.0001, "loss:sum": -66.9, "acc[/x]": 0.5}


def test_byte_order_mark_crlf_and_unicode_separators(tmp_path: Path) -> None:
    text = '\ufeff{"step":0,"loss":2,"note":"a\u2028b"}\r\n{"step":1,"loss":1}\r\n'
    assert _column(read_metrics(_file(tmp_path, text)), "loss") == ([0, 1], [2.0, 1.0])


def test_steps_that_are_none_are_reported(tmp_path: Path) -> None:
    text = (
        '{"loss":9}\n{"step":1.0,"loss":3}\n{"step":"2","loss":2}\n{"step":true,"loss":8}\n'
        '{"step":3,"loss":1}\n'
    )
    reader = read_metrics(_file(tmp_path, text))
    assert _column(reader, "loss") == ([1, 3], [3.0, 1.0])
    assert reader.notes.without_step == 3


def test_a_huge_integer_is_not_finite(tmp_path: Path) -> None:
    reader = read_metrics(_file(tmp_path, '{"step":0,"a":1' + "0" * 400 + "}\n"))
    assert list(reader.frame.column("a").values) == [NOT_FINITE]


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    path = _file(tmp_path, '{"step":0,"a":1}\n{"step":1,')
    reader = MetricsReader(path)
    reader.poll()
    assert list(reader.frame.steps) == [0]
    with path.open("a") as stream:
        stream.write('"a":2}\n')
    assert reader.poll()
    assert reader.frame.row(1) == {"a": 2}
    assert not reader.poll()


_ROWS = st.lists(
    st.fixed_dictionaries(
        {"step": st.integers(0, 6), "a": st.one_of(st.none(), st.floats(width=32))},
        optional={"b": st.integers(-5, 5)},
    ),
    max_size=12,
)


@settings(max_examples=120, deadline=None)
@given(rows=_ROWS, cuts=st.lists(st.integers(1, 40), max_size=30))
def test_reading_in_pieces_is_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path_factory.mktemp("m") / "metrics.jsonl"
    path.write_bytes(b"")
    reader, at = MetricsReader(path), 0
    for size in [*cuts, len(data)]:
        with path.open("ab") as stream:
            stream.write(data[at : at + size])
        at += size
        reader.poll()
    whole = read_metrics(path)
    assert repr(list(reader.frame.rows())) == repr(list(whole.frame.rows()))
    last = {row["step"]: row["a"] for row in rows}
    if "a" in whole.frame.columns:
        for step, value in zip(*_column(whole, "a"), strict=True):
            wanted = last[step]
            is_number = wanted is not None and math.isfinite(wanted)
            assert value == (wanted if is_number else NOT_FINITE)


KEYS = ["env/all/reward/total", "optim/kl_sample_train_v1", "optim/entropy", "env/all/correct"]


def test_names_people_use_find_their_keys() -> None:
    assert resolve_name("reward", KEYS) == "env/all/reward/total"
    assert resolve_name("kl", KEYS) == "optim/kl_sample_train_v1"
    assert resolve_name("entropy", KEYS) == "optim/entropy"
    assert resolve_names(["env/*"], KEYS) == [KEYS[0], KEYS[3]]
    with pytest.raises(UsageError) as caught:
        resolve_name("entrpy", KEYS)
    assert "entropy" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "row", "value"),
    [
        ("kl < 0.05", {"optim/kl_sample_train_v2": 0.01}, True),
        ("a/b > 2 and not nan(c)", {"a/b": 3, "c": 1}, True),
        ("nan(loss)", {"loss": math.nan}, True),
        ("abs(a - 3) * 2 >= 4 or b == 1", {"a": 1, "b": 0}, True),
        ("-a + 2 <= 1", {"a": 0.5}, False),
        ("'odd name' != 1e-3", {"odd name": 0.001}, False),
        ("missing > 1", {"a": 1}, None),
        ("1 - 2 - 3 == -4", {}, True),
        ("8 / 2 / 2 == 2 and 2 + 3 * 4 == 14", {}, True),
    ],
)
def test_expressions(text: str, row: dict[str, float], value: bool | None) -> None:
    assert parse(text).evaluate(row) is value


@pytest.mark.parametrize(
    "text", ["", "kl <", "kl < 0.05 and", "(a > 1", "a >> 1", "import os", "$"]
)
def test_what_is_no_expression_says_where(text: str) -> None:
    with pytest.raises(UsageError, match="column"):
        parse(text)


def test_summary_smoothing_and_slope_by_hand() -> None:
    from array import array

    column = Column("nll", array("q", range(4)), array("d", [4, 2, NOT_FINITE, 1]))
    s = summarise(column)
    assert (s.count, s.first, s.last, s.best, s.best_step) == (4, 4, 1, 1, 3)
    assert s.not_finite == 1
    assert slope([0, 1, 3], [4, 2, 1]) == pytest.approx(100 * (-13 / 14))
    assert slope([1], [1]) is None
    # weights 0.5: 1; (1/4 + 3/2) / (3/4); (1/8 + 3/4 + 2/2) / (7/8)
    assert smooth([1, 3, 2], 0.5) == pytest.approx([1, 7 / 3, 15 / 7])
