"""A run's `events.jsonl`: what happened, when, one JSON object a line, only ever appended.

Kinds: launched resumed checkpoint guard paused unpaused stopping stopped finished failed. Knows
nothing of what the events mean.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVENTS_NAME = "events.jsonl"


def append_event(run: Path, kind: str, **fields: Any) -> None:
    """Append one event in one write; `time` is seconds since the epoch. Raises OSError."""
    row = {"time": time.time(), "kind": kind, **fields}
    line = json.dumps(row, default=str) + "\n"
    descriptor = os.open(run / EVENTS_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_events(run: Path) -> list[dict[str, Any]]:
    """Return all events of `run` that can be read, oldest first; torn lines are passed over."""
    return list(_events(run))


def last_event(run: Path, *kinds: str) -> dict[str, Any] | None:
    """Return the newest event of one of `kinds`, or None."""
    found = [event for event in read_events(run) if event["kind"] in kinds]
    return found[-1] if found else None


def _events(run: Path) -> Iterator[dict[str, Any]]:
    try:
        text = (run / EVENTS_NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            yield event
