"""Which checkpoint a run goes on from, what is dropped, and what may not have changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.errors import UsageError
from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.runs.describe import RunDescription, write_run_json
from tinker_cli.trainer.resume import find_point, refuse_drift, rewind


def write_rows(path: Path, *rows: dict[str, Any], tail: str = "") -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "state_path": f"tinker://r/weights/{name}", **fields}


def everything(_: str) -> bool:
    return True


def test_final_row_that_points_past_the_end_means_the_end_of_its_epochs(tmp_path: Path) -> None:
    # 9 batches an epoch, trained for 2 epochs: 18 steps are in the state, whatever "batch" says.
    write_rows(tmp_path / "checkpoints.jsonl", record("final", epoch=2, batch=9, final=True))
    point = find_point(tmp_path, "sl", n_batches=9, exists=everything)
    assert point.step == 18
    rewind(tmp_path, point, "sl", 9)
    row = read_checkpoints(tmp_path)[0][-1].row
    assert (row["epoch"], row["batch"]) == (2, 0)
    assert 1 - point.step / 27 == pytest.approx(1 / 3)  # the linear multiplier, 3 epochs


def test_row_of_the_cookbook_alone_holds_the_batch_ahead_too(tmp_path: Path) -> None:
    # Saved after batch 2 finished, while batch 3 was submitted: steps 0..3 are in the state.
    write_rows(tmp_path / "checkpoints.jsonl", record("000002", epoch=0, batch=2))
    assert find_point(tmp_path, "sl", n_batches=6, exists=everything).step == 4
    assert find_point(tmp_path, "sl", n_batches=6, exists=everything, submit_ahead=0).step == 3
    assert find_point(tmp_path, "sl", n_batches=6, exists=everything, total_steps=3).step == 3


def test_rl_row_names_the_next_batch(tmp_path: Path) -> None:
    write_rows(tmp_path / "checkpoints.jsonl", record("000004", batch=4))
    assert find_point(tmp_path, "rl", n_batches=6, exists=everything).step == 4


def test_torn_last_line_is_said_and_the_one_before_taken(tmp_path: Path) -> None:
    text = json.dumps(record("000010", batch=10)) + '\n{"name": "0000'
    (tmp_path / "checkpoints.jsonl").write_text(text)
    point = find_point(tmp_path, "rl", n_batches=20, exists=everything)
    assert point.step == 10
    assert "cut off" in point.notes[0]
    assert point.sentence() == "resuming at step 10, from checkpoint 000010"


def test_checkpoint_gone_from_the_server_is_passed_over_with_words(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "checkpoints.jsonl",
        record("000002", step=2),
        {"name": "000003", "step": 3, "sampler_path": "tinker://r/sampler_weights/3"},
        record("000004", step=4, rolling=True),
    )
    point = find_point(tmp_path, "rl", n_batches=9, exists=lambda path: path.endswith("2"))
    assert point.step == 2
    assert point.notes == ("checkpoint 000004 is no longer on the server; passed over",)


def test_no_checkpoint_starts_again_with_words(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", {"step": 0}, {"step": 1})
    point = find_point(tmp_path, "sl", n_batches=9, exists=everything)
    assert point.step == 0
    assert "step 0" in point.sentence()
    assert rewind(tmp_path, point, "sl", 9) == 2
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_rewind_drops_later_rows_and_keeps_a_copy(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "metrics.jsonl",
        {"step": 0, "a": float("nan")},
        {"step": 1},
        {"eval": 1},
        {"step": 2},
        tail='{"step": 3, "a',
    )
    write_rows(tmp_path / "checkpoints.jsonl", record("000002", step=2), record("000003", step=3))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    point = find_point(tmp_path, "sl", n_batches=9, exists=lambda path: path.endswith("2"))
    assert rewind(tmp_path, point, "sl", 9) == 2
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("step") for row in kept] == [0, 1, None]
    assert (tmp_path / "metrics.jsonl.pre_resume_000002").read_bytes() == before
    assert [c.name for c in read_checkpoints(tmp_path)[0]] == ["000002"]
    assert rewind(tmp_path, point, "sl", 9) == 0  # nothing more to drop


def launched(run: Path, spec: str, data: str = "d1") -> None:
    (run / "spec.yaml").write_text(spec)
    described = RunDescription(id="a", kind="sl", name="x", created=1.0, data_hash=data)
    write_run_json(run, described)


SPEC = "learning_rate: 0.1\nmax_steps: 5\ndataset_builder: {batch_size: 4, file: a.jsonl}\n"


def test_changed_batch_size_is_refused_with_both_values(tmp_path: Path) -> None:
    launched(tmp_path, SPEC)
    changed = SPEC.replace("batch_size: 4", "batch_size: 8")
    with pytest.raises(UsageError, match=r"dataset_builder.batch_size: 4 -> 8"):
        refuse_drift(tmp_path, changed, "d1", allow=False)
    assert len(refuse_drift(tmp_path, changed, "d1", allow=True)) == 1


def test_changed_data_is_refused(tmp_path: Path) -> None:
    launched(tmp_path, SPEC)
    with pytest.raises(UsageError, match="the data"):
        refuse_drift(tmp_path, SPEC, "d2", allow=False)


def test_more_steps_and_other_saves_are_no_drift(tmp_path: Path) -> None:
    launched(tmp_path, SPEC)
    longer = SPEC.replace("max_steps: 5", "max_steps: 9") + "save_every: 1\n"
    assert refuse_drift(tmp_path, longer, "d1", allow=False) == []
