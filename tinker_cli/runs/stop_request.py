"""How a run is asked to stop: a file in its directory that its trainer looks for.

A file works from any terminal, for any user who may write the directory, and over a shared disk.
Knows nothing of processes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

REQUEST_NAME = ".stop"


def request_stop(run: Path, *, now: bool = False) -> None:
    """Ask the trainer of `run` to stop after its step, or at once if `now`. Raises OSError."""
    (run / REQUEST_NAME).write_text("now\n" if now else "after the step\n", encoding="utf-8")


def read_stop_request(run: Path) -> str | None:
    """Return `step` or `now` if a stop was asked for, else None."""
    try:
        text = (run / REQUEST_NAME).read_text(encoding="utf-8")
    except OSError:
        return None
    return "now" if text.strip() == "now" else "step"


def clear_stop_request(run: Path) -> None:
    """Forget a stop that was asked for."""
    with contextlib.suppress(OSError):
        (run / REQUEST_NAME).unlink()
