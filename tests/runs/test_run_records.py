"""Events, checkpoints, descriptions and locks of a run directory, in every broken state."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_cli.errors import UsageError
from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.runs.describe import RunDescription, read_run_json, write_run_json
from tinker_cli.runs.events import append_event, last_event, read_events
from tinker_cli.runs.glance import glance
from tinker_cli.runs.lock import acquire_lock, is_locked
from tinker_cli.runs.paths import resolve_run, run_word
from tinker_cli.runs.stop_request import clear_stop_request, read_stop_request, request_stop

GOOD = '{"name":"000010","batch":10,"state_path":"tinker://r:train:0/weights/000010"}'


def test_events_come_back_in_order_and_torn_lines_are_passed_over(tmp_path: Path) -> None:
    append_event(tmp_path, "launched", step=0)
    append_event(tmp_path, "checkpoint", name="000002")
    with open(tmp_path / "events.jsonl", "a") as file:
        file.write('{"kind": "fin')
    assert [event["kind"] for event in read_events(tmp_path)] == ["launched", "checkpoint"]
    found = last_event(tmp_path, "checkpoint")
    assert found is not None
    assert found["name"] == "000002"
    assert last_event(tmp_path, "failed") is None


def test_no_events_of_no_run(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none") == []


@pytest.mark.parametrize("tail", ['\n{"name":"0000', "\n", "\n\n  \n", ""])
def test_torn_or_blank_last_line_leaves_the_one_before(tmp_path: Path, tail: str) -> None:
    (tmp_path / "checkpoints.jsonl").write_text(GOOD + tail)
    checkpoints, notes = read_checkpoints(tmp_path)
    assert [c.name for c in checkpoints] == ["000010"]
    assert len(notes) == ("name" in tail)


def test_sampler_only_row_can_not_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.jsonl").write_text('{"name":"a","sampler_path":"tinker://x/y/z"}\n')
    assert [c.can_resume for c in read_checkpoints(tmp_path)[0]] == [False]


@given(cut=st.integers(min_value=0, max_value=3 * len(GOOD) + 3))
def test_file_cut_anywhere_gives_its_whole_rows(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    text = (GOOD + "\n") * 3
    (run / "checkpoints.jsonl").write_text(text[:cut])
    whole = sum(1 for end in (1, 2, 3) if cut >= end * (len(GOOD) + 1) - 1)
    assert len(read_checkpoints(run)[0]) == whole


def test_description_comes_back(tmp_path: Path) -> None:
    described = RunDescription(id="a", kind="rl", name="x", created=1.0, argv=("train", "rl"))
    write_run_json(tmp_path, described)
    assert read_run_json(tmp_path) == described
    (tmp_path / "run.json").write_text("{")
    assert read_run_json(tmp_path) is None


def test_second_trainer_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    lock = acquire_lock(tmp_path)
    code = (
        "import sys; from pathlib import Path; from tinker_cli.runs.lock import acquire_lock\n"
        "acquire_lock(Path(sys.argv[1]))"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "already at work" in second.stderr
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)


def test_lock_of_a_killed_trainer_is_free(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tinker_cli.runs.lock import acquire_lock\n"
        "lock = acquire_lock(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    acquire_lock(tmp_path).release()


def test_lock_of_a_trainer_on_another_host_holds_while_it_writes(tmp_path: Path) -> None:
    import time

    holder = {"pid": 1, "pid_started": "x", "host": "elsewhere"}
    (tmp_path / ".trainer.lock").write_text(json.dumps(holder))
    status = {"state": "running", "host": "elsewhere", "updated": time.time()}
    (tmp_path / "status.json").write_text(json.dumps(status))
    with pytest.raises(UsageError, match="elsewhere"):
        acquire_lock(tmp_path)
    (tmp_path / "status.json").write_text(json.dumps({**status, "updated": time.time() - 3600}))
    acquire_lock(tmp_path).release()


def test_stop_requests(tmp_path: Path) -> None:
    assert read_stop_request(tmp_path) is None
    request_stop(tmp_path)
    assert read_stop_request(tmp_path) == "step"
    request_stop(tmp_path, now=True)
    assert read_stop_request(tmp_path) == "now"
    clear_stop_request(tmp_path)
    assert read_stop_request(tmp_path) is None


def test_the_word_for_a_run_finds_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_COOKBOOK_RUNS_DIR", str(tmp_path / "root"))
    named, elsewhere = tmp_path / "root" / "a run", tmp_path / "other" / "a run"
    for folder in (named, elsewhere):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run_word(named) == "'a run'"
    assert resolve_run("a run") == named
    assert run_word(elsewhere) == f"'{elsewhere}'"
    monkeypatch.chdir(tmp_path / "other")  # here the name means the other one
    assert run_word(named) == f"'{named}'"


def test_glance_at_a_run_of_the_cookbook_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_name": "Qwen/Qwen3-8B"}')
    rows = [{"step": 0, "train_mean_nll": 2.5}, {"step": 1, "train_mean_nll": 2.25}]
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"step": 2, "trai'
    (tmp_path / "metrics.jsonl").write_text(text)
    seen = glance(tmp_path)
    assert (seen.kind, seen.step, seen.nll, seen.model) == ("sl", 2, 2.25, "Qwen/Qwen3-8B")
    assert seen.state == "unknown"
