"""A run's `run.json`: what was launched, when, by which versions. Written once a launch.

Knows nothing of what the run does.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

RUN_NAME = "run.json"


@dataclass(frozen=True)
class RunDescription:
    """The facts of a launch. `created` is seconds since the epoch, of the first launch."""

    id: str
    kind: str
    name: str
    created: float
    model: str | None = None
    argv: tuple[str, ...] = ()
    spec_path: str | None = None
    host: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    spec_hash: str | None = None
    data_hash: str | None = None
    backend: str | None = None
    launches: int = 1


_FIELDS = {field.name for field in fields(RunDescription)}


def read_run_json(run: Path) -> RunDescription | None:
    """Return the description of `run`, or None if there is none that can be read."""
    try:
        document: Any = json.loads((run / RUN_NAME).read_text(encoding="utf-8"))
        known = {name: value for name, value in document.items() if name in _FIELDS}
        known["argv"] = tuple(known.get("argv") or ())
        return RunDescription(**known)
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def write_run_json(run: Path, description: RunDescription) -> None:
    """Replace the description in one move. Raises OSError."""
    temporary = run / f".{RUN_NAME}.{os.getpid()}"
    temporary.write_text(json.dumps(asdict(description), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, run / RUN_NAME)
