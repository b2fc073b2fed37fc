"""Rows told as they come, and rows for other programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tinker_cli.runs.compare import align, config_differences
from tinker_cli.runs.derived import RATE, SECONDS, all_keys, along, column_of, spent
from tinker_cli.runs.export import Rows, csv_lines, json_lines, write_parquet
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.metrics import MetricsReader, read_metrics
from tinker_cli.runs.tail import Tail


def write(path: Path, *rows: dict[str, object], mode: str = "a") -> None:
    with path.open(mode) as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows))


def frame_of(*rows: tuple[int, dict[str, float]]) -> Frame:
    frame = Frame()
    for step, row in rows:
        frame.add(step, row)
    return frame


def test_each_row_is_told_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *({"step": i, "a": i} for i in range(3)))
    tail = Tail(MetricsReader(path), lambda row: row)
    assert [step for step, _ in tail.poll()] == [0, 1, 2]
    assert list(tail.poll()) == []
    write(path, {"step": 2, "test/b": 5})
    assert list(tail.poll()) == [(2, {"a": 2, "test/b": 5})]
    write(path, {"step": 3, "a": 3})
    assert list(tail.poll()) == [(3, {"a": 3})]


def test_a_follower_goes_on_after_a_resume_has_cut_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *({"step": i, "a": i} for i in range(6)))
    tail = Tail(MetricsReader(path), lambda row: row)
    list(tail.poll())
    write(path, *({"step": i, "a": i} for i in range(3)), mode="w")
    assert list(tail.poll()) == []  # rows that were told already
    write(path, {"step": 3, "a": 30})
    assert list(tail.poll()) == [(3, {"a": 30})]
    assert list(tail.reader.frame.steps) == [0, 1, 2, 3]


def test_a_follower_of_the_last_rows_tells_what_a_resume_writes_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *({"step": i, "a": i} for i in range(100)))
    tail = Tail(MetricsReader(path), lambda row: row, last=3)
    assert [step for step, _ in tail.poll()] == [97, 98, 99]
    write(path, {"step": 50, "a": 5.5})
    assert list(tail.poll()) == [(50, {"a": 5.5})]
    write(path, *({"step": i, "a": i} for i in range(20)), mode="w")
    write(path, {"step": 20, "a": 1})
    told = [step for step, _ in tail.poll()]
    assert told == [20]


def test_rows_as_json_are_strict_and_name_their_run_where_there_are_several() -> None:
    frame = frame_of((0, {"a": 1.5}), (1, {"a": float("inf"), "b": 2}))
    rows = Rows("x", frame, frame.keys())
    lines = [json.loads(line) for line in json_lines([rows])]
    assert lines == [{"step": 0, "a": 1.5}, {"step": 1, "a": None, "b": 2.0}]
    assert json.loads(next(iter(json_lines([rows, rows]))))["run"] == "x"


def test_csv_has_an_empty_cell_where_a_key_appears_late() -> None:
    frame = frame_of((0, {"train_mean_nll": 2}), (1, {"train_mean_nll": 1, "test/nll": 1.5}))
    lines = list(csv_lines([Rows("x", frame, frame.keys())]))
    assert list(csv.reader(lines)) == [
        ["step", "train_mean_nll", "test/nll"],
        ["0", "2.0", ""],
        ["1", "1.0", "1.5"],
    ]


def test_parquet_holds_the_rows_by_run_and_step(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    one = frame_of((1, {"a": 1.0}), (0, {"a": 0.0, "b": float("inf")}))
    two = frame_of((5, {"a": 5.0}))
    target = tmp_path / "m.parquet"
    assert write_parquet([Rows("x", one, ["a", "b"]), Rows("y", two, ["a"])], target) == 3
    read = pandas.read_parquet(target)
    assert list(read.run) == ["x", "x", "y"]
    assert list(read.step) == [0, 1, 5]
    assert list(read.a) == [0.0, 1.0, 5.0]
    assert read.b.isna().all()


def test_the_time_of_a_supervised_step_is_its_submitting_and_finishing() -> None:
    rows = {"num_tokens": 1000.0, "time/submit_batch": 0.1, "time/finish_batch": 0.3}
    frame = frame_of((0, {**rows, "time/step": 7e-5}), (1, {**rows, "time/step": 7e-5}))
    assert list(column_of(frame, SECONDS).values) == pytest.approx([0.4, 0.4])
    assert list(column_of(frame, RATE).values) == pytest.approx([2500, 2500])
    assert all_keys(frame)[-2:] == [SECONDS, RATE]
    clock = spent(frame, "time")
    assert clock is not None
    assert along(clock, [-1, 0, 1, 9]) == pytest.approx([0, 0.4, 0.8, 0.8])


def test_an_absurd_step_time_gives_no_rate() -> None:
    frame = frame_of((0, {"num_tokens": 1000.0, "time/step": 7e-5}))
    assert list(column_of(frame, RATE).values) == []


def test_tokens_and_cost_are_running_totals() -> None:
    rl = frame_of(
        (0, {"env/all/total_ac_tokens": 10, "env/all/total_ob_tokens": 5, "cost/step_usd": 0.5}),
        (1, {"env/all/total_ac_tokens": 20, "env/all/total_ob_tokens": 5, "cost/step_usd": 0.25}),
    )
    tokens, cost = spent(rl, "tokens"), spent(rl, "cost")
    assert tokens is not None
    assert cost is not None
    assert (list(tokens.values), list(cost.values)) == ([15, 40], [0.5, 0.75])
    assert spent(frame_of((0, {"a": 1})), "cost") is None


def test_runs_are_aligned_by_step_and_the_better_is_known() -> None:
    one = frame_of((0, {"env/all/reward/total": 0.1}), (1, {"env/all/reward/total": 0.5}))
    two = frame_of((1, {"env/all/reward/total": 0.4}), (2, {"env/all/reward/total": 0.9}))
    aligned = align([one, two], "env/all/reward/total")
    assert aligned.steps == [0, 1, 2]
    assert aligned.values == [[0.1, None], [0.5, 0.4], [None, 0.9]]
    assert [aligned.best(row) for row in range(3)] == [None, 0, None]


def test_configs_differ_by_dotted_name(tmp_path: Path) -> None:
    for name, rate in (("a", 1e-4), ("b", 3e-4)):
        (tmp_path / name).mkdir()
        builder = {"batch_size": 8, **({"n": 1} if name == "b" else {})}
        config = {"learning_rate": rate, "log_path": name, "dataset_builder": builder}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    found = config_differences([tmp_path / "a", tmp_path / "b"])
    assert [(one.key, one.values) for one in found] == [
        ("learning_rate", [1e-4, 3e-4]),
        ("dataset_builder.n", [None, 1]),
    ]


def test_a_whole_file_is_told_in_order_even_where_steps_jump(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 5, "a": 1}, {"step": 2, "a": 1}, {"step": 9, "a": 1})
    assert [step for step, _ in Tail(MetricsReader(path), lambda row: row).poll()] == [2, 5, 9]
    assert [step for step, _ in read_metrics(path).frame.rows()] == [2, 5, 9]
