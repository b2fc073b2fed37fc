"""An existing directory is never mixed into: resume, new and overwrite only on request."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinker_cli.errors import UsageError
from tinker_cli.runs.describe import RunDescription, write_run_json
from tinker_cli.runs.lock import acquire_lock
from tinker_cli.runs.status import Status, write_status
from tinker_cli.trainer.rundir import prepare_directory

NOBODY = 65534


def finished_run(path: Path, step: int = 10) -> Path:
    path.mkdir()
    write_status(path, Status(state="finished", step=step, total_steps=step, exit_code=0))
    write_run_json(path, RunDescription(id="a", kind="sl", name="x", created=1.0))
    (path / "metrics.jsonl").write_text(json.dumps({"step": 0}) + "\n")
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_fresh_directory_is_made(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    assert prepare_directory(run, "fresh", total_steps=5) == (run, False)
    assert run.is_dir()


def test_existing_run_is_left_alone_and_the_choices_named(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    before = contents(run)
    with pytest.raises(UsageError) as caught:
        prepare_directory(run, "fresh", total_steps=10)
    for choice in ("--resume", "--new", "--overwrite"):
        assert choice in str(caught.value.hint)
    assert "finished, 10 of 10" in caught.value.message
    assert contents(run) == before


def test_finished_run_that_needs_more_steps_says_so(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    with pytest.raises(UsageError, match="asks for 20: --resume trains the rest"):
        prepare_directory(run, "fresh", total_steps=20)


def test_new_takes_the_next_free_name(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    finished_run(tmp_path / "run-2")
    assert prepare_directory(run, "new", total_steps=5) == (tmp_path / "run-3", False)


def test_overwrite_moves_the_old_run_aside_whole(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    before = contents(run)
    assert prepare_directory(run, "overwrite", total_steps=5) == (run, False)
    (aside,) = tmp_path.glob("run.old-*")
    assert contents(aside) == before
    assert contents(run) == {}


def test_overwrite_refuses_what_is_no_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="no run directory"):
        prepare_directory(home, "overwrite", total_steps=5)
    assert (home / "thesis.tex").exists()


@pytest.mark.parametrize("mode", ["resume", "overwrite"])
def test_run_with_a_trainer_at_work_is_refused(tmp_path: Path, mode: str) -> None:
    run = finished_run(tmp_path / "run")
    lock = acquire_lock(run)
    with pytest.raises(UsageError, match="already at work"):
        prepare_directory(run, mode, total_steps=5)
    lock.release()


def test_directory_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        prepare_directory(tmp_path / "file", "fresh", total_steps=5)
    with pytest.raises(UsageError):
        prepare_directory(tmp_path / "file" / "below", "fresh", total_steps=5)


@contextlib.contextmanager
def no_superuser() -> Iterator[None]:
    """Be somebody whom permissions bind: root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_read_only_place_is_said() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # a parent that anybody may enter
        Path(name).chmod(0o555)
        with no_superuser(), pytest.raises(UsageError, match="Permission"):
            prepare_directory(Path(name) / "run", "fresh", total_steps=5)


def test_directory_with_hidden_files_only_is_free(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".trainer.lock").write_text("")  # a launch was cut short here
    assert prepare_directory(run, "fresh", total_steps=5) == (run, False)
