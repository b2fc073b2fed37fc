"""Start a run's child process and hear from it that the run began, or why it did not.

This side is light: it reads no spec and imports no torch. The child checks everything first and
creates the run directory only when all is sound. Knows nothing of terminals.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tinker_cli.errors import RunFailed, TinkerError
from tinker_cli.runs.status import Status, effective_state, end_code, read_status
from tinker_cli.trainer.checks import looks_hosted
from tinker_cli.trainer.request import Answer, LaunchRequest, read_answer
from tinker_cli.trainer.service import check_key

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Launched:
    """A run whose trainer is at work (or that was complete already)."""

    run: Path
    pid: int
    answer: Answer


def launch(request: LaunchRequest) -> Launched:
    """Start the trainer and return once it has taken the run on.

    Raises what the child refused with (InputFaults, UsageError, ServiceError): nothing was started
    then. An interrupt while the child still checks ends the child.
    """
    if looks_hosted(Path(request.spec), request):
        check_key()  # said at once, not after seconds of imports
    with tempfile.TemporaryFile("w+", errors="replace") as noise:
        child = _spawn(request, noise)
        try:
            line = _first_answer(child)
        except KeyboardInterrupt:
            child.kill()
            child.wait()
            raise
        if not line:
            raise _died_silently(child, noise)
    answer = read_answer(line)
    return Launched(Path(answer.run), child.pid, answer)


def _spawn(request: LaunchRequest, noise: IO[str]) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tinker_cli.trainer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=noise,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdin is not None
    try:
        child.stdin.write(request.to_json() + "\n")
        child.stdin.close()
    except BrokenPipeError:
        pass  # it died before it read: its answer, or the lack of one, says why
    return child


def _first_answer(child: subprocess.Popen[str]) -> str:
    """The first line of JSON on the child's stdout; other lines are some import's chatter."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith('{"answer"') or line.startswith('{"refusal"'):
            return line
    return ""


def _died_silently(child: subprocess.Popen[str], noise: IO[str]) -> TinkerError:
    code = child.wait()
    noise.seek(0)
    lines = [line for line in noise.read().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit code {code}"
    if os.environ.get("TINKER_DEBUG") == "1":
        last = "\n".join(lines)
    return RunFailed(f"the trainer ended before the run began: {last}")


def wait_until_begun(run: Path) -> Status:
    """Block until the run's first step has begun or the run has ended; return its status."""
    while True:
        status = read_status(run)
        state, _ = effective_state(run, status)
        if status is not None and state not in ("starting",):
            return status
        time.sleep(POLL_SECONDS)


def wait_until_ended(run: Path, *, poll_seconds: float = POLL_SECONDS) -> tuple[str, int]:
    """Block until no trainer is at work in `run`; return the end's state and exit code."""
    while True:
        ended = end_of(run)
        if ended is not None:
            return ended
        time.sleep(poll_seconds)


def end_of(run: Path) -> tuple[str, int] | None:
    """The state and exit code that `run` ended with, or None while its trainer is at work."""
    status = read_status(run)
    state, _ = effective_state(run, status)
    if state in ("finished", "stopped", "failed", "crashed", "unknown"):
        return state, end_code(run, status)
    return None
