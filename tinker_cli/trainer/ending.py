"""How a run ends: an exception as one sentence and a code, and the user's `on_end` command.

Knows nothing of what was trained.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

from tinker_cli.errors import EXIT_FAILED, EXIT_SERVICE, TinkerError
from tinker_cli.runs.status import Status

_REFUSED = re.compile(r"Error retrieving result: Error code: 40[13]\b")  # the SDK's own words
ON_END_SECONDS = 60.0  # a hook that takes longer is ended
LONGEST_SENTENCE = 300  # characters
LONGEST_ROW = 1_000_000  # bytes of a file's end that are searched for its last whole line
APPENDED_FILES = ("metrics.jsonl", "checkpoints.jsonl", "timing_spans.jsonl", "events.jsonl")


def explain(error: BaseException) -> tuple[str, int]:
    """Return one sentence on what ended a run, and the exit code that goes with it."""
    if isinstance(error, TinkerError):
        return error.message, error.exit_code
    module, name = type(error).__module__.split(".")[0], type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" at {error.filename}" if error.filename else ""
        return f"the disk is full{place}", EXIT_FAILED
    if isinstance(error, MemoryError):
        return "out of memory", EXIT_FAILED
    if _is_refusal(error):
        return "the Tinker service refused the key", EXIT_SERVICE
    if module == "tinker" and name in ("APIConnectionError", "APITimeoutError"):
        return f"the Tinker server stopped answering: {_first_line(error)}", EXIT_SERVICE
    if module == "tinker":
        return f"the Tinker server said: {_first_line(error)}", EXIT_FAILED
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}", EXIT_FAILED
    return f"{name}: {_first_line(error)}", EXIT_FAILED


def _is_refusal(error: BaseException) -> bool:
    """True if the service refused the key, however deep the SDK has wrapped it."""
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ in ("AuthenticationError", "PermissionDeniedError"):
            return True
        seen = seen.__cause__ or seen.__context__
    return _REFUSED.search(str(error)) is not None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= LONGEST_SENTENCE else text[: LONGEST_SENTENCE - 1] + "…"


def run_on_end(command: str, run: Path, status: Status) -> str | None:
    """Run the user's command with the run's facts; return what went wrong, or None.

    The facts are in the environment (`TINKER_RUN`, `TINKER_RUN_STATE`, `TINKER_RUN_EXIT_CODE`,
    `TINKER_RUN_REASON`, `TINKER_RUN_STEP`, `TINKER_RUN_TOTAL_STEPS`, `TINKER_RUN_NAME`) and, with
    the rest of the status, as one JSON object on stdin. It runs in the run directory.
    """
    facts = {"run": str(run), "name": run.name, **asdict(status)}
    environment = {
        **os.environ,
        "TINKER_RUN": str(run),
        "TINKER_RUN_NAME": run.name,
        "TINKER_RUN_STATE": status.state,
        "TINKER_RUN_EXIT_CODE": str(status.exit_code),
        "TINKER_RUN_REASON": status.reason or "",
        "TINKER_RUN_STEP": str(status.step),
        "TINKER_RUN_TOTAL_STEPS": str(status.total_steps or ""),
    }
    try:
        done = subprocess.run(
            command,
            shell=True,
            cwd=run,
            env=environment,
            input=json.dumps(facts),
            text=True,
            timeout=ON_END_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"on_end did not end well: {error}"
    return None if done.returncode == 0 else f"on_end ended with exit code {done.returncode}"


def mend_tails(run: Path) -> None:
    """Cut half a line off the end of the run's files: a full disk may have left one."""
    for name in APPENDED_FILES:
        with contextlib.suppress(OSError), open(run / name, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LONGEST_ROW))
            tail = file.read()
            if tail and not tail.endswith(b"\n") and b"\n" in tail:
                file.truncate(size - len(tail) + tail.rindex(b"\n") + 1)
