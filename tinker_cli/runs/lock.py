"""One trainer a run directory: a lock that dies with its holder.

The lock is the kernel's (flock), so a killed trainer leaves none behind; the file's text says who
holds it, for other hosts on a shared disk and for the message. Knows nothing of training.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import IO, Any

from tinker_cli.errors import UsageError
from tinker_cli.runs.paths import run_word
from tinker_cli.runs.status import REMOTE_SILENCE_SECONDS, process_mark, read_status

LOCK_NAME = ".trainer.lock"
PARTING_SECONDS = 15.0  # what a trainer may need, after its last status, to close its session
LOOK_SECONDS = 0.1


class RunLock:
    """The right to write a run directory; held until `release` or the end of the process."""

    def __init__(self, file: IO[str]):
        self._file = file

    def release(self) -> None:
        """Give the lock up."""
        self._file.close()


def acquire_lock(run: Path) -> RunLock:
    """Take the lock of `run`; raises UsageError, naming the holder, if a trainer is at work."""
    file = open(run / LOCK_NAME, "a+", encoding="utf-8")  # noqa: SIM115 - held for a lifetime
    if not _flock(file):
        holder = _holder(file)
        file.close()
        raise UsageError(
            f"a trainer is already at work in {run} (process {holder.get('pid', '?')}"
            f" on {holder.get('host', 'this host')})",
            hint=f"watch it with: tinker watch {run_word(run)}",
        )
    holder = _holder(file)
    if _lives_elsewhere(run, holder):
        file.close()
        raise UsageError(
            f"a trainer on {holder['host']} (process {holder.get('pid')}) is at work in {run}",
            hint="stop it first: tinker stop works over a shared disk",
        )
    file.seek(0)
    file.truncate()
    mine = {"pid": os.getpid(), "pid_started": process_mark(os.getpid())}
    file.write(json.dumps({**mine, "host": socket.gethostname(), "time": time.time()}) + "\n")
    file.flush()
    return RunLock(file)


def is_locked(run: Path) -> bool:
    """True if a trainer of this host holds the lock of `run`."""
    try:
        with open(run / LOCK_NAME, "r+", encoding="utf-8") as file:
            return not _flock(file)
    except OSError:
        return False


def is_at_work(run: Path) -> bool:
    """True if a trainer holds the lock and its run goes on; one that has ended is waited for."""
    deadline = time.monotonic() + PARTING_SECONDS
    while is_locked(run):
        status = read_status(run)
        if status is None or status.is_live or time.monotonic() > deadline:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _flock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # no flock on this system: the holder's text decides
        holder = _holder(file)
        mark = process_mark(int(holder.get("pid", 0) or 0))
        return mark is None or mark != holder.get("pid_started")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks: go on, the status still tells other trainers
        return True
    return True


def _holder(file: IO[str]) -> dict[str, Any]:
    try:
        file.seek(0)
        holder = json.loads(file.read() or "{}")
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _lives_elsewhere(run: Path, holder: dict[str, Any]) -> bool:
    if holder.get("host") in (None, socket.gethostname()):
        return False
    status = read_status(run)
    if status is None or not status.is_live or status.updated is None:
        return False
    return time.time() - status.updated < REMOTE_SILENCE_SECONDS
