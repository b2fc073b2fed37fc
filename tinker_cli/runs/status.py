"""A run's `status.json`: what its trainer last said of itself, and whether to believe it.

The trainer writes it atomically; viewers read it and ask `effective_state`, which knows that a
dead process can't update its own file. Knows nothing of training, servers or terminals.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

STATUS_NAME = "status.json"
SPARE_NAME = ".status.spare"
SPARE_BYTES = 8192  # room kept on the disk, so that a full disk can't silence the last status

LIVE_STATES = ("starting", "running", "paused", "stopping")
END_STATES = ("finished", "stopped", "failed", "crashed")

STALL_FACTOR = 5.0  # times the median step time without a step: stalled
STALL_FLOOR_SECONDS = 120.0  # shorter silences are normal
REMOTE_SILENCE_SECONDS = 60.0  # a trainer on another host that hasn't written for so long


@dataclass(frozen=True)
class Status:
    """What a trainer says of itself. Times are seconds since the epoch; steps count finished ones.

    `pid_started` is an opaque mark of the process (see `process_mark`), so that a reused pid is
    recognised. `step_seconds` is the median time of the recent steps.
    """

    state: str
    pid: int | None = None
    pid_started: str | None = None
    host: str | None = None
    step: int = 0
    total_steps: int | None = None
    started: float | None = None
    updated: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    last_checkpoint: str | None = None
    server: str | None = None
    last_step_at: float | None = None
    step_seconds: float | None = None

    @property
    def is_live(self) -> bool:
        """True if the trainer says that it is at work."""
        return self.state in LIVE_STATES

    def with_changes(self, **changes: Any) -> Status:
        """A copy with some fields changed."""
        return replace(self, **changes)


_FIELDS = {field.name for field in fields(Status)}


def read_status(run: Path) -> Status | None:
    """Return the status of `run`, or None if there is none that can be read."""
    try:
        document = json.loads((run / STATUS_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("state"), str):
        return None
    return Status(**{name: value for name, value in document.items() if name in _FIELDS})


def write_status(run: Path, status: Status) -> None:
    """Replace the status file in one move; on a full disk, use the room kept for it.

    Raises OSError if neither way works.
    """
    text = json.dumps(asdict(status), indent=1) + "\n"
    target, temporary = run / STATUS_NAME, run / f".{STATUS_NAME}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        _write_into_spare(run, text.encode())
    else:
        _keep_spare(run)


def _keep_spare(run: Path) -> None:
    spare = run / SPARE_NAME
    if not spare.exists():
        with contextlib.suppress(OSError):
            spare.write_bytes(b" " * SPARE_BYTES)


def _write_into_spare(run: Path, text: bytes) -> None:
    """Overwrite the spare's bytes in place (no new block needed) and move it over the status.

    What was the status becomes the next spare: its block is enough for another.
    """
    spare, target = run / SPARE_NAME, run / STATUS_NAME
    with open(spare, "r+b") as file:
        file.write(text.ljust(os.fstat(file.fileno()).st_size, b" "))
    previous = run / f"{SPARE_NAME}.next"
    with contextlib.suppress(OSError):
        os.link(target, previous)
    os.replace(spare, target)
    with contextlib.suppress(OSError):
        os.replace(previous, spare)


def process_mark(pid: int) -> str | None:
    """A mark that no other process of this machine has ever had, or None if `pid` is not alive.

    On Linux it is the boot's id and the start in clock ticks since boot, which a change of the
    wall clock doesn't touch; elsewhere the start time that psutil knows.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        if after_name[0] in (b"Z", b"X"):
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{int(after_name[19])}"
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    except (OSError, IndexError, ValueError):
        return None
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return None


def is_alive(status: Status) -> bool | None:
    """Whether the process that wrote `status` lives; None if it is on another host."""
    if status.host is not None and status.host != socket.gethostname():
        return None
    if status.pid is None:
        return False
    mark = process_mark(status.pid)
    return mark is not None and (status.pid_started is None or mark == status.pid_started)


def effective_state(
    run: Path, status: Status | None, *, now: float | None = None
) -> tuple[str, str | None]:
    """Return the state to show and a note on it (None if there is nothing to add).

    Adds two states that a trainer can't write: `crashed` (its process is gone) and `stalled` (no
    step for 5 times the median step time, at least 2 minutes; or silence from another host).
    """
    now = time.time() if now is None else now
    if status is None:
        return ("unknown", None)
    if not status.is_live:
        return (status.state, status.reason)
    alive = is_alive(status)
    if alive is False:
        return ("crashed", _crash_note(status))
    silence = max(0.0, now - (status.updated or now))  # a clock set back is no silence
    if alive is None and silence > REMOTE_SILENCE_SECONDS:
        return ("stalled", f"no sign from {status.host} for {duration(silence)}")
    if status.state == "paused":
        return ("paused", status.reason)
    if status.step_seconds and status.last_step_at:
        waited = now - status.last_step_at
        if waited > max(STALL_FLOOR_SECONDS, STALL_FACTOR * status.step_seconds):
            return ("stalled", f"no step for {duration(waited)}")
    return (status.state, status.reason)


def _crash_note(status: Status) -> str:
    at = f"step {status.step}" if status.step else "the first step"
    return status.reason or f"process {status.pid} is gone, at {at}"


def duration(seconds: float) -> str:
    """`seconds` as a person says it: 40 s, 1 min 43 s, 6 min, 1 h 12 min, 3 d."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 5:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d"


def end_code(run: Path, status: Status | None) -> int:
    """The exit code that says how the run ended: its trainer's own, or 1 for a crash."""
    if status is None:
        return 1
    if status.is_live:
        return 1  # crashed: a trainer that ends writes a code
    return status.exit_code if status.exit_code is not None else int(status.state != "finished")
