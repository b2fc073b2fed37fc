"""A run's `checkpoints.jsonl` as values, whatever a crash has done to its last line.

The cookbook appends one row a save. Rows written by `tinker train` carry `step`: how many steps
the saved state holds. Knows nothing of servers: whether a checkpoint still exists is asked
elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKPOINTS_NAME = "checkpoints.jsonl"


@dataclass(frozen=True)
class Checkpoint:
    """One saved checkpoint; `row` is the line as it was written.

    `step` is the number of steps that the state holds, if the row says so. `state_path` is None
    for rows that hold sampler weights only and can't be resumed from.
    """

    name: str
    step: int | None
    batch: int | None
    epoch: int | None
    state_path: str | None
    sampler_path: str | None
    is_rolling: bool
    row: dict[str, Any]

    @property
    def can_resume(self) -> bool:
        """True if training can go on from it (weights and optimizer state)."""
        return self.state_path is not None


def read_checkpoints(run: Path) -> tuple[list[Checkpoint], list[str]]:
    """Return the checkpoints of `run`, oldest first, and a note for each line passed over."""
    try:
        text = (run / CHECKPOINTS_NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [], []
    checkpoints: list[Checkpoint] = []
    notes: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        checkpoint = _parse(line)
        if checkpoint is not None:
            checkpoints.append(checkpoint)
        elif number == len(lines):
            notes.append(f"{CHECKPOINTS_NAME}:{number} is cut off; passed over")
        else:
            notes.append(f"{CHECKPOINTS_NAME}:{number} is no checkpoint; passed over")
    return checkpoints, notes


def _parse(line: str) -> Checkpoint | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    return Checkpoint(
        name=row["name"],
        step=_integer(row.get("step")),
        batch=_integer(row.get("batch")),
        epoch=_integer(row.get("epoch")),
        state_path=_text(row.get("state_path")),
        sampler_path=_text(row.get("sampler_path")),
        is_rolling=bool(row.get("rolling")),
        row=row,
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
