"""Make or find the run directory of a launch, and never mix two runs in one.

A directory that exists is resumed, moved aside, or left alone for a new name: only on request.
Knows nothing of the cookbook.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tinker_cli.errors import UsageError
from tinker_cli.runs.describe import read_run_json
from tinker_cli.runs.lock import is_at_work
from tinker_cli.runs.paths import run_word
from tinker_cli.runs.status import effective_state, read_status

RUN_FILES = ("run.json", "status.json", "metrics.jsonl", "checkpoints.jsonl", "config.json")


def prepare_directory(path: Path, mode: str, *, total_steps: int | None) -> tuple[Path, bool]:
    """Return the directory to run in, made if need be, and whether it is to be resumed.

    `mode` is fresh, resume, new or overwrite. Raises UsageError with the choices if `path` is
    taken, and if it can't be made.
    """
    if not _is_taken(path):
        _make(path)
        return path, False
    if mode == "new":
        path = _free_name(path)
        _make(path)
        return path, False
    if not _is_run(path):
        raise UsageError(
            f"{path} exists and is no run directory",
            hint="give the run another log_path, or use --new",
        )
    if is_at_work(path):
        raise UsageError(
            f"a trainer is already at work in {path}",
            hint=f"watch it with: tinker watch {run_word(path)}",
        )
    if mode == "resume":
        _make(path)  # it is there; this says so if it can't be written
        return path, True
    if mode == "overwrite":
        _move_aside(path)
        _make(path)
        return path, False
    raise UsageError(_taken(path, total_steps), hint=CHOICES)


CHOICES = (
    "--resume goes on with it, --new starts beside it under the next free name,"
    " --overwrite moves it aside and starts afresh"
)


def _is_taken(path: Path) -> bool:
    """True if it holds anything but hidden files, which a launch cut short may have left."""
    try:
        return any(not entry.name.startswith(".") for entry in path.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise UsageError(f"{path} is a file; a run needs a directory") from None
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None


def _is_run(path: Path) -> bool:
    return any((path / name).exists() for name in RUN_FILES)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"can't write the run directory {path}: {error.strerror}",
            hint="set log_path, or TINKER_COOKBOOK_RUNS_DIR, to a place that can be written",
        ) from None


def _free_name(path: Path) -> Path:
    for number in range(2, 10_000):
        candidate = path.with_name(f"{path.name}-{number}")
        if not candidate.exists():
            return candidate
    raise UsageError(f"no free name beside {path}")


def _move_aside(path: Path) -> None:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.name}.old-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.old-{stamp}-{number}")
    try:
        path.rename(target)
    except OSError as error:
        raise UsageError(f"can't move {path} aside: {error.strerror}") from None


def _taken(path: Path, total_steps: int | None) -> str:
    status, described = read_status(path), read_run_json(path)
    state, _ = effective_state(path, status)
    what = f"{path} already holds a run"
    if status is None or described is None:
        return what
    so_far = f"{state} at step {status.step}"
    if status.total_steps:
        so_far = f"{state}, {status.step} of {status.total_steps} steps"
    if state == "finished" and total_steps is not None and total_steps > status.step:
        return f"{what} ({so_far}); this spec asks for {total_steps}: --resume trains the rest"
    return f"{what} ({so_far})"
