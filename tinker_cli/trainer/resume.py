"""Where a run goes on from, and putting its files in the state they had at that moment.

The newest checkpoint whose state still exists is taken; rows of later steps are dropped (a copy is
kept), so that nothing is ever trained or logged twice. Refuses if what decides the numbers has
changed since. Knows nothing of processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tinker_cli.errors import UsageError
from tinker_cli.runs.checkpoints import CHECKPOINTS_NAME, Checkpoint, read_checkpoints
from tinker_cli.runs.describe import read_run_json

# What may change between two launches: it decides how long and how watched a run is, not its
# numbers. Everything else is drift.
FREE_KEYS = frozenset(
    (
        "max_steps",
        "num_epochs",
        "save_every",
        "save_every_tokens",
        "save_every_seconds",
        "eval_every",
        "infrequent_eval_every",
        "ttl_seconds",
        "rolling_save_every",
        "rolling_ttl_seconds",
        "async_periodic_saves",
        "evaluator_builders",
        "infrequent_evaluator_builders",
        "wandb_project",
        "wandb_name",
        "session_name",
        "enable_trace",
        "span_chart_every",
        "num_groups_to_log",
        "rollout_json_export",
        "submit_ahead",
        "log_path",
        "guards",
        "on_end",
        "base_url",
        "recipe_name",
        "name",
        "kind",
        "local.threads",
        "local.device",
        "local.store",
    )
)
LENGTH_KEYS = frozenset(
    ("num_epochs", "n_batches")
)  # of a dataset: later steps, the same first ones
STEPPED_FILES = ("metrics.jsonl", "timing_spans.jsonl")


@dataclass(frozen=True)
class ResumePoint:
    """The next step to train, the checkpoint that holds the steps before it, and words on both."""

    step: int
    checkpoint: Checkpoint | None
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """What will happen, for the person who resumes."""
        if self.checkpoint is None:
            return "no checkpoint to resume from: starting again from step 0"
        return f"resuming at step {self.step}, from checkpoint {self.checkpoint.name}"


def refuse_drift(run: Path, spec_text: str, data_hash: str | None, *, allow: bool) -> list[str]:
    """Return what has changed since the run was launched; raises UsageError unless `allow`."""
    differing = _spec_differences(run, spec_text)
    changes = [words for key, words in differing.items() if not _is_free(key)]
    described = read_run_json(run)
    before = described.data_hash if described else None
    # A dataset that was only made longer has another hash; its first steps are the same.
    longer = any(_is_length(key) for key in differing)
    if before and data_hash and before != data_hash and not longer:
        changes.append(f"the data: {before[:12]} -> {data_hash[:12]}")
    if changes and not allow:
        raise UsageError(
            "the run can't be resumed exactly, since these have changed: " + "; ".join(changes),
            hint="put them back, or --allow-drift to go on all the same, or --new",
        )
    return changes


def _spec_differences(run: Path, spec_text: str) -> dict[str, str]:
    """What differs between the run's spec and this one: words by dotted key."""
    try:
        old = yaml.safe_load((run / "spec.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    before, after = _flat(old), _flat(yaml.safe_load(spec_text))
    return {
        key: f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    }


def _is_free(key: str) -> bool:
    return key in FREE_KEYS or key.split(".")[0] in FREE_KEYS or _is_length(key)


def _is_length(key: str) -> bool:
    return key.startswith("dataset_builder.") and key.rsplit(".", 1)[-1] in LENGTH_KEYS


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(_flat(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value} if prefix else {}


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def find_point(
    run: Path,
    kind: str,
    *,
    n_batches: int,
    exists: Callable[[str], bool],
    submit_ahead: int = 1,
    total_steps: int | None = None,
) -> ResumePoint:
    """Return the newest point to go on from; `exists` asks the server about a `tinker://` path.

    `n_batches` is the length of an epoch. Rows without `step` were written by the cookbook alone
    and are read by its rules: a supervised row names the batch just finished, while its state may
    hold the `submit_ahead` batches after it.
    """
    checkpoints, notes = read_checkpoints(run)
    placed = [
        (_steps_held(c, kind, n_batches, submit_ahead, total_steps), order, c)
        for order, c in enumerate(checkpoints)
        if c.can_resume
    ]
    for step, _, checkpoint in sorted(placed, key=lambda each: each[:2], reverse=True):
        assert checkpoint.state_path is not None
        if exists(checkpoint.state_path):
            return ResumePoint(step, checkpoint, tuple(notes))
        notes.append(f"checkpoint {checkpoint.name} is no longer on the server; passed over")
    return ResumePoint(0, None, tuple(notes))


def _steps_held(
    checkpoint: Checkpoint, kind: str, n_batches: int, ahead: int, total: int | None
) -> int:
    if checkpoint.step is not None:
        return checkpoint.step
    batch, epoch = checkpoint.batch or 0, checkpoint.epoch or 0
    if kind == "rl":
        return batch
    if checkpoint.name == "final":  # may point past the end of its last epoch
        return epoch * n_batches + (batch if batch < n_batches else 0)
    held = epoch * n_batches + batch + 1 + ahead
    return held if total is None else min(held, total)


def rewind(run: Path, point: ResumePoint, kind: str, n_batches: int) -> int:
    """Drop rows of steps from `point` on, and leave its checkpoint as the last; return how many.

    The files as they were are kept as `NAME.pre_resume_STEP`. Raises OSError.
    """
    dropped = 0
    for name in STEPPED_FILES:
        dropped_here = _truncate(run / name, point.step)
        dropped = dropped_here if name == "metrics.jsonl" else dropped
    _rewrite_checkpoints(run, point, kind, n_batches)
    return dropped


def _truncate(path: Path, step: int) -> int:
    """Keep the whole lines whose `step` is below `step`."""
    if not path.exists():
        return 0
    kept: list[bytes] = []
    dropped = 0
    with open(path, "rb") as file:
        for line in file:
            if _row_step(line) < step and line.endswith(b"\n"):
                kept.append(line)
            else:
                dropped += 1
    if dropped:
        _keep_copy(path, step)
        _replace(path, b"".join(kept))
    return dropped


def _row_step(line: bytes) -> float:
    """The step of a row; rows without one belong to no step and stay; broken lines go."""
    try:
        row = json.loads(line)
        step = row.get("step")
    except (ValueError, AttributeError):
        return float("inf")
    return step if isinstance(step, (int, float)) else -1.0


def _rewrite_checkpoints(run: Path, point: ResumePoint, kind: str, n_batches: int) -> None:
    path = run / CHECKPOINTS_NAME
    if not path.exists():
        return
    rows: list[dict[str, Any]] = []
    if point.checkpoint is not None:
        for checkpoint in read_checkpoints(run)[0]:
            if checkpoint.row == point.checkpoint.row:
                break
            rows.append(checkpoint.row)
        rows.append(_placed_row(point, kind, n_batches))
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if text != path.read_bytes():
        _keep_copy(path, point.step)
        _replace(path, text)


def _placed_row(point: ResumePoint, kind: str, n_batches: int) -> dict[str, Any]:
    """The checkpoint's row, saying in the cookbook's terms that `point.step` comes next."""
    assert point.checkpoint is not None
    row = {**point.checkpoint.row, "step": point.step}
    if kind == "rl":
        return {**row, "batch": point.step}
    epoch, batch = divmod(point.step, max(1, n_batches))
    return {**row, "epoch": epoch, "batch": batch}


def _keep_copy(path: Path, step: int) -> None:
    copy = path.with_name(f"{path.name}.pre_resume_{step:06d}")
    number = 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.pre_resume_{step:06d}.{number}")
    copy.write_bytes(path.read_bytes())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
