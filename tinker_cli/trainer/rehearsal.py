"""A rehearsal: the whole of a spec, run for two steps on the embedded engine, before it costs.

The first step saves a checkpoint and evaluates; the second resumes from it in a new process. What
only makes a run long is made small; everything else is the spec's own. The run is thrown away.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tinker_cli.errors import EXIT_DONE, RunFailed
from tinker_cli.runs.status import read_status
from tinker_cli.runs.stop_request import request_stop
from tinker_cli.trainer.launch import launch, wait_until_ended
from tinker_cli.trainer.request import LaunchRequest

STEPS = 2
MOST = {"max_tokens": 64}  # of the spec's own fields, and below of its dataset's
MOST_OF_DATA = {"batch_size": 8, "group_size": 4, "test_size": 8, "n_batches": STEPS}
FIXED_BATCH = ("stream_minibatch_config", "async_config")  # these fix the batch size
SAVES = ("save_every=1", "eval_every=1")


@dataclass(frozen=True)
class Rehearsal:
    """What happened: `row` is the last step's metrics, `smaller` what was cut down and to what."""

    seconds: float
    row: Mapping[str, Any]
    smaller: tuple[str, ...]


def rehearse(request: LaunchRequest, values: Mapping[str, Any]) -> Rehearsal:
    """Run `request` for two steps; `values` are its resolved spec. Raises what a run raises."""
    smaller = tuple(_smaller(values))
    folder = Path(tempfile.mkdtemp(prefix="tinker-rehearsal-"))
    run = folder / "run"
    started = time.monotonic()
    try:
        for step in range(1, STEPS + 1):
            overrides = (*request.overrides, *smaller, *SAVES, f"log_path={run}")
            asked = replace(
                request,
                overrides=(*overrides, f"max_steps={step}"),
                local=True,
                mode="fresh" if step == 1 else "resume",
            )
            launch(asked)
            _ended_well(run, step)
        return Rehearsal(time.monotonic() - started, _last_row(run), smaller)
    except KeyboardInterrupt:
        request_stop(run, now=True)
        wait_until_ended(run)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _smaller(values: Mapping[str, Any]) -> list[str]:
    """Overrides that make the run short, for the fields that are larger."""
    found = [f"{key}={most}" for key, most in MOST.items() if _above(values.get(key), most)]
    builder = values.get("dataset_builder") or {}
    keep_batch = (
        any(values.get(key) for key in FIXED_BATCH) or (values.get("num_substeps") or 1) > 1
    )
    for key, most in MOST_OF_DATA.items():
        if key == "batch_size" and keep_batch:
            continue
        for place in (builder, builder.get("common_config") or {}):
            if _above(place.get(key), most):
                found.append(f"dataset_builder.{key}={most}")
    return found


def _above(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > most


def _ended_well(run: Path, step: int) -> None:
    state, code = wait_until_ended(run)
    if code == EXIT_DONE:
        return
    status = read_status(run)
    reason = status.reason if status and status.reason else state
    raise RunFailed(f"the rehearsal {state} at step {step} of {STEPS}: {reason}")


def _last_row(run: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        merged |= json.loads(line)
    return merged
