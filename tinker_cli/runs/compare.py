"""Several runs side by side: values aligned by step, and where their configs differ.

Knows run directories and frames; knows nothing of tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinker_cli.errors import RunFailed
from tinker_cli.runs.derived import all_keys, column_of
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.stats import better

SPEC_NAME, CONFIG_NAME = "spec.yaml", "config.json"
_OWN = ("log_path", "base_url")  # differ between any two runs, or name a port of the moment


@dataclass(frozen=True)
class Aligned:
    """One metric of several runs by step: a value or None for each run."""

    key: str
    steps: list[int]
    values: list[list[float | None]]  # [step][run]; NaN where it was written but isn't finite

    def best(self, row: int) -> int | None:
        """The run with the best value at a step; None where nobody can say or all are equal."""
        found = {i: v for i, v in enumerate(self.values[row]) if v is not None and v == v}
        sign = better(self.key)
        if not sign or len(found) < 2 or len(set(found.values())) < 2:
            return None
        return max(found, key=lambda i: sign * found[i])


def align(frames: Sequence[Frame], key: str) -> Aligned:
    """The values of a metric in each of the frames, at every step that any of them has."""
    by_run: list[dict[int, float]] = []
    for frame in frames:
        if key not in all_keys(frame):
            by_run.append({})
            continue
        column = column_of(frame, key)
        finite = (v if v < float("inf") else float("nan") for v in column.values)
        by_run.append(dict(zip(column.steps, finite, strict=True)))
    steps = sorted({step for values in by_run for step in values})
    return Aligned(key, steps, [[values.get(step) for values in by_run] for step in steps])


@dataclass(frozen=True)
class Difference:
    """A setting whose value isn't the same in all runs; None where a run doesn't have it."""

    key: str
    values: list[Any]


def config_differences(runs: Sequence[Path]) -> list[Difference]:
    """The settings in which runs differ, by dotted name; RunFailed if a run has no config."""
    name = SPEC_NAME if all((run / SPEC_NAME).is_file() for run in runs) else CONFIG_NAME
    configs = [_flat(_read(run / name)) for run in runs]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    found = []
    for key in keys:
        values = [config.get(key) for config in configs]
        if key not in _OWN and any(value != values[0] for value in values):
            found.append(Difference(key, values))
    return found


def _read(path: Path) -> Any:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise RunFailed(
            f"{path.parent.name} has no readable {path.name}: {error.strerror or error}"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        raise RunFailed(f"{path} can't be read: {error}") from error


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return found
