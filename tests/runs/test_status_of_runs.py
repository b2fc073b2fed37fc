"""status.json: written whole, read safely, believed only as far as the process lives."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.runs import status as status_module
from tinker_cli.runs.status import (
    SPARE_NAME,
    Status,
    duration,
    effective_state,
    end_code,
    process_mark,
    read_status,
    write_status,
)


def live(**changes: object) -> Status:
    mine = Status(
        state="running",
        pid=os.getpid(),
        pid_started=process_mark(os.getpid()),
        host=socket.gethostname(),
        updated=1000.0,
    )
    return mine.with_changes(**changes)


def test_status_comes_back_as_written(tmp_path: Path) -> None:
    status = live(step=3, total_steps=9, reason="é")
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"step": 3}', '{"state": 7}'])
def test_unreadable_status_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert read_status(tmp_path) is None


def test_unknown_fields_of_a_newer_program_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "finished", "mood": "good"}')
    assert read_status(tmp_path) == Status(state="finished")


def test_live_process_is_running(tmp_path: Path) -> None:
    assert effective_state(tmp_path, live(), now=1001.0) == ("running", None)


def test_dead_pid_under_a_live_state_is_crashed(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    state, note = effective_state(tmp_path, live(pid=child.pid, step=4), now=1001.0)
    assert state == "crashed"
    assert "step 4" in str(note)


def test_reused_pid_is_crashed(tmp_path: Path) -> None:
    assert effective_state(tmp_path, live(pid_started="another boot:1"), now=1001.0)[0] == "crashed"


def test_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while process_mark(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process_mark(child.pid) is None
    child.wait()


def test_crash_code_is_one_and_ended_runs_keep_theirs(tmp_path: Path) -> None:
    assert end_code(tmp_path, live()) == 1
    assert end_code(tmp_path, Status(state="stopped", exit_code=3)) == 3
    assert end_code(tmp_path, Status(state="finished", exit_code=0)) == 0


def test_slow_step_is_not_stalled_until_five_times_the_median(tmp_path: Path) -> None:
    slow = live(last_step_at=1000.0, step_seconds=300.0)
    assert effective_state(tmp_path, slow, now=1000.0 + 1499)[0] == "running"
    assert effective_state(tmp_path, slow, now=1000.0 + 1501)[0] == "stalled"


def test_fast_steps_are_given_two_minutes(tmp_path: Path) -> None:
    fast = live(last_step_at=1000.0, step_seconds=0.1)
    assert effective_state(tmp_path, fast, now=1119.0)[0] == "running"
    state, note = effective_state(tmp_path, fast, now=1121.0)
    assert (state, note) == ("stalled", "no step for 2 min 1 s")


def test_paused_run_is_paused_not_stalled(tmp_path: Path) -> None:
    paused = live(state="paused", reason="no capacity", last_step_at=1000.0, step_seconds=1.0)
    assert effective_state(tmp_path, paused, now=5000.0) == ("paused", "no capacity")


def test_clock_set_back_is_no_stall(tmp_path: Path) -> None:
    status = live(last_step_at=1000.0, step_seconds=1.0)
    assert effective_state(tmp_path, status, now=10.0)[0] == "running"
    elsewhere = live(host="elsewhere")
    assert effective_state(tmp_path, elsewhere, now=10.0)[0] == "running"


def test_other_host_is_believed_while_it_writes(tmp_path: Path) -> None:
    elsewhere = live(host="elsewhere", pid=1)
    assert effective_state(tmp_path, elsewhere, now=1005.0)[0] == "running"
    state, note = effective_state(tmp_path, elsewhere, now=1200.0)
    assert state == "stalled"
    assert "elsewhere" in str(note)


def test_full_disk_can_not_silence_the_last_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(tmp_path, live())
    assert (tmp_path / SPARE_NAME).exists()
    real_open = open

    def full(path: object, mode: str = "r", **kwargs: object) -> object:
        if "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real_open(path, mode, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(status_module, "open", full, raising=False)
    write_status(tmp_path, live(state="failed", reason="the disk is full"))
    status = read_status(tmp_path)
    assert status is not None
    assert status.state == "failed"
    json.loads((tmp_path / "status.json").read_text())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (99, "99 s"),
        (103, "1 min 43 s"),
        (120, "2 min"),
        (601, "10 min"),
        (4320, "72 min"),
        (7320, "2 h 2 min"),
        (3e5, "3 d"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_full_disk_can_not_silence_the_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new file can be written: heartbeats, then the end, go into blocks that are there."""
    write_status(tmp_path, live(step=1))
    before = {path.name: path.stat().st_blocks for path in tmp_path.iterdir()}
    real = open

    def full(name: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if mode.startswith("w"):
            raise OSError(errno.ENOSPC, "No space left on device", str(name))
        return real(name, mode, *rest, **named)

    monkeypatch.setattr("builtins.open", full)
    for step in (2, 3, 4):
        write_status(tmp_path, live(step=step))
    write_status(tmp_path, live(step=5, state="failed", reason="the disk is full"))
    monkeypatch.undo()
    found = read_status(tmp_path)
    assert found is not None
    assert (found.step, found.state, found.reason) == (5, "failed", "the disk is full")
    after = {path.name: path.stat().st_blocks for path in tmp_path.iterdir()}
    assert sum(after.values()) <= sum(before.values())
