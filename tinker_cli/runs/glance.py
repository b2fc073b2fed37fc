"""A run at a glance, for a list of runs: its state, its place, its last numbers.

Reads the small files whole and only the end of `metrics.jsonl`. Knows nothing of columns and
colours.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinker_cli.runs.describe import read_run_json
from tinker_cli.runs.status import Status, effective_state, read_status

TAIL_BYTES = 65_536  # of metrics.jsonl, enough for several rows
REWARD_KEYS = ("env/all/reward/total",)
NLL_KEYS = ("train_mean_nll", "test/nll")
KL_KEYS = ("optim/kl_sample_train_v2", "optim/kl_sample_train_v1")


@dataclass(frozen=True)
class Glance:
    """One run in a list. `age` is seconds since it was created; `note` explains its state."""

    run: Path
    name: str
    kind: str | None
    state: str
    note: str | None
    step: int | None
    total_steps: int | None
    reward: float | None
    nll: float | None
    kl: float | None
    model: str | None
    backend: str | None
    age: float | None
    exit_code: int | None

    def as_json(self) -> dict[str, Any]:
        """The fields, with the path as text."""
        return {**self.__dict__, "run": str(self.run)}


def glance(run: Path, *, now: float | None = None) -> Glance:
    """Look at one run directory, made by this program or by the cookbook alone."""
    now = time.time() if now is None else now
    status, described = read_status(run), read_run_json(run)
    state, note = effective_state(run, status, now=now)
    row = last_training_row(run / "metrics.jsonl")
    created = described.created if described else _modified(run)
    return Glance(
        run=run,
        name=run.name,
        kind=described.kind if described else _kind_of(row),
        state=state,
        note=note,
        step=_step(status, row),
        total_steps=status.total_steps if status else None,
        reward=_first(row, REWARD_KEYS),
        nll=_first(row, NLL_KEYS),
        kl=_first(row, KL_KEYS),
        model=described.model if described else _configured_model(run),
        backend=described.backend if described else None,
        age=None if created is None else max(0.0, now - created),
        exit_code=status.exit_code if status else None,
    )


def last_training_row(path: Path) -> dict[str, Any]:
    """The last whole row that holds a loss, a reward or a KL; {} if there is none near the end."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and any(key in row for key in (*REWARD_KEYS, *NLL_KEYS, *KL_KEYS)):
            return row
    return {}


def _first(row: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    for key in keys:
        value = row.get(key)
        if isinstance(value, (int, float)):
            return float(value)
    return None


def _step(status: Status | None, row: dict[str, Any]) -> int | None:
    if status is not None:
        return status.step
    step = row.get("step")
    return step + 1 if isinstance(step, int) else None


def _kind_of(row: dict[str, Any]) -> str | None:
    if any(key in row for key in REWARD_KEYS):
        return "rl"
    return "sl" if any(key in row for key in NLL_KEYS) else None


def _configured_model(run: Path) -> str | None:
    try:
        name = json.loads((run / "config.json").read_text(encoding="utf-8")).get("model_name")
    except (OSError, ValueError, AttributeError):
        return None
    return name if isinstance(name, str) else None


def _modified(run: Path) -> float | None:
    try:
        return run.stat().st_mtime
    except OSError:
        return None
