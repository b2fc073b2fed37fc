"""Whatever is done to a metrics file, and whenever it is read, its rows are those of a plain read.

The plain read here is an implementation of its own: lines, `json.loads`, a dict of dicts.
"""

from __future__ import annotations

import gzip
import json
import math
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli.errors import RunFailed
from tinker_cli.runs.frame import NOT_FINITE
from tinker_cli.runs.metrics import MetricsReader, read_metrics
from tinker_cli.runs.stats import summarise

Rows = dict[int, dict[str, float]]


def plain_read(data: bytes) -> tuple[Rows, int, int]:
    """Rows by step, torn lines, rows without step; of lines that have an end."""
    rows: Rows = {}
    torn = without = 0
    for line in data.split(b"\n")[:-1]:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            torn += 1
            continue
        if not isinstance(row, dict):
            torn += 1
            continue
        step = row.pop("step", None)
        if isinstance(step, bool) or not isinstance(step, (int, float)) or step != int(step):
            without += 1
            continue
        new = {
            key: float(value) if value is not None and math.isfinite(value) else NOT_FINITE
            for key, value in row.items()
            if value is None or isinstance(value, (int, float))
        }
        old = rows.get(int(step), {})
        rows[int(step)] = new if old.keys() & new.keys() else old | new
    return rows, torn, without


def rows_of(reader: MetricsReader) -> Rows:
    return {
        step: {k: NOT_FINITE if v != v else v for k, v in row.items()}
        for step, row in reader.frame.rows()
    }


_VALUES = st.one_of(
    st.floats(width=32), st.integers(-5, 5), st.booleans(), st.none(), st.just("text")
)
_ROW = st.fixed_dictionaries(
    {},
    optional={
        "step": st.one_of(
            st.integers(-2, 9), st.integers(-2, 9), st.integers(0, 9).map(float), st.just("7")
        ),
        "a": _VALUES,
        "b": st.floats(0, 1),
        "c": _VALUES,
    },
)
_RUN = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(
    lambda start_count: b"".join(
        json.dumps({"step": start_count[0] + i, "a": i / 7, "b": i}).encode() + b"\n"
        for i in range(start_count[1])
    )
)
_LINE = _ROW.map(lambda row: json.dumps(row).encode() + b"\n")
_TORN = st.sampled_from([b'{"step": 3, "a"', b"\n", b"[1]\n", b"nan\n", b"\xff\xfe\n", b'{"st\r\n'])
_PIECE = st.one_of(_LINE, _RUN, _TORN)
_ACTION = st.one_of(
    st.tuples(st.just("append"), _PIECE),
    st.tuples(st.just("half"), _LINE),
    st.tuples(st.just("cut"), st.integers(0, 400)),
    st.tuples(st.just("cut_and_append"), st.tuples(st.integers(0, 60), _PIECE)),
    st.tuples(st.just("replace"), _PIECE),
    st.tuples(st.just("rewrite"), _PIECE),
    st.tuples(st.just("remove"), st.none()),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("read"), st.none()),
)


def do(path: Path, action: str, what: Any) -> None:
    data = path.read_bytes() if path.exists() else b""
    if action == "append":
        path.write_bytes(b"") if not path.exists() else None
        with path.open("ab") as stream:
            stream.write(what)
    elif action == "half":  # what a writer that was killed leaves
        with path.open("ab") as stream:
            stream.write(what[: len(what) // 2])
    elif action == "cut":
        if path.exists():
            with path.open("r+b") as stream:
                stream.truncate(max(len(data) - what, 0))
    elif action == "cut_and_append":  # in place, between two looks
        by, piece = what
        with path.open("r+b" if path.exists() else "w+b") as stream:
            stream.truncate(max(len(data) - by, 0))
            stream.seek(0, 2)
            stream.write(piece)
    elif action == "replace":  # as an atomic rewrite does
        beside = path.with_suffix(".new")
        beside.write_bytes(what)
        beside.replace(path)
    elif action == "rewrite":
        path.write_bytes(what)
    elif action == "remove":
        path.unlink(missing_ok=True)


@settings(max_examples=300, deadline=None)
@given(actions=st.lists(_ACTION, max_size=14))
def test_any_history_of_a_file_ends_in_the_rows_of_a_plain_read(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("h") / "metrics.jsonl"
    reader = MetricsReader(path)
    for action, what in actions:
        do(path, action, what)
        if action == "read":
            reader.poll()
    if not path.exists():
        path.write_bytes(b"")
    reader.poll()
    rows, torn, without = plain_read(path.read_bytes())
    assert rows_of(reader) == rows
    assert (len(reader.notes.torn), reader.notes.without_step) == (torn, without)
    assert not reader.poll()
    for key in {key for row in rows.values() for key in row}:
        column = reader.frame.column(key)
        wanted = [(step, rows[step][key]) for step in sorted(rows) if key in rows[step]]
        assert list(zip(column.steps, column.values, strict=True)) == wanted
        finite = [(step, v) for step, v in wanted if v != NOT_FINITE]
        assert list(zip(*column.finite(), strict=True)) == finite
        assert column.not_finite == [step for step, v in wanted if v == NOT_FINITE]


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(_PIECE, max_size=8), cuts=st.lists(st.integers(1, 50), max_size=20))
def test_packed_files_read_in_pieces_are_plain_files(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("z") / "metrics.jsonl.gz"
    packed = b"".join(gzip.compress(piece) for piece in pieces)
    path.write_bytes(b"")
    reader, at = MetricsReader(path), 0
    for size in [*cuts, len(packed)]:
        with path.open("ab") as stream:
            stream.write(packed[at : at + size])
        at += size
        reader.poll()
    assert rows_of(reader) == plain_read(b"".join(pieces))[0]


def test_a_file_that_only_begins_like_gzip_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.gz"
    path.write_bytes(b"\x1f\x8bnothing of the kind" * 9)
    with pytest.raises(RunFailed, match=r"metrics\.jsonl\.gz is not gzip"):
        read_metrics(path)


def test_a_packed_file_in_a_run_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl.gz").write_bytes(gzip.compress(b'{"step":4,"a":1}\n'))
    assert list(read_metrics(tmp_path).frame.steps) == [4]


def test_a_run_whose_name_has_a_dot_is_a_directory_before_it_is_there(tmp_path: Path) -> None:
    reader = MetricsReader(tmp_path / "gsm8k-v1.5")
    assert not reader.poll()
    (tmp_path / "gsm8k-v1.5").mkdir()
    (tmp_path / "gsm8k-v1.5" / "metrics.jsonl").write_text('{"step":0,"a":1}\n')
    assert reader.poll()


def test_backups_of_a_resume_are_not_read(tmp_path: Path) -> None:
    rows = [json.dumps({"step": step, "loss": step}) + "\n" for step in range(46)]
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    (tmp_path / "metrics.jsonl.pre_resume_000040").write_text("".join(rows[:45]))
    assert len(read_metrics(tmp_path).frame) == 46


def test_long_runs_are_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step":{i},"loss":{i}}}\n' for i in range(60_000)))
    found = summarise(read_metrics(path).frame.column("loss"))
    assert (found.count, found.first, found.last) == (60_000, 0, 59_999)
    assert found.slope == pytest.approx(100)


def test_what_a_poll_reads_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step":{i},"loss":{i}}}\n' for i in range(60_000)))
    reader = MetricsReader(path)
    reader.poll()
    taken: list[int] = []
    take = reader._take_piece
    reader._take_piece = lambda piece: (taken.append(len(piece)), take(piece))[1]  # type: ignore[method-assign, func-returns-value]
    assert not reader.poll()
    with path.open("a") as stream:
        stream.write('{"step":60000,"loss":1}\n')
    assert reader.poll()
    assert taken == [len('{"step":60000,"loss":1}\n')]


def test_a_summary_of_nothing_finite_counts_and_says_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step":0,"loss":NaN}\n{"step":1,"loss":NaN}\n')
    found = summarise(read_metrics(tmp_path).frame.column("loss"))
    assert (found.count, found.not_finite) == (2, 2)
    assert {found.first, found.last, found.best, found.best_step, found.slope} == {None}


def test_columns_of_a_frame_are_copies(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":0,"loss":1}\n')
    reader = read_metrics(path)
    column = reader.frame.column("loss")
    with path.open("a") as stream:
        stream.write('{"step":1,"loss":2}\n')
    reader.poll()
    assert column.steps == array("q", [0])
    assert column.values == array("d", [1])
