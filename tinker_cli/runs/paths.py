"""Which runs there are and which one is meant."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tinker_cli.errors import UsageError, nearest

RUN_FILES = ("run.json", "status.json", "metrics.jsonl", "config.json")
NEWEST = "-"


def runs_root() -> Path:
    """`$TINKER_COOKBOOK_RUNS_DIR`, or `~/tinker-runs`."""
    return Path(os.environ.get("TINKER_COOKBOOK_RUNS_DIR") or "~/tinker-runs").expanduser()


def is_run(path: Path) -> bool:
    """True if the directory holds a file that only a run has."""
    return any((path / name).is_file() for name in RUN_FILES)


def list_runs(root: Path) -> list[Path]:
    """The runs below `root`, the one that was touched last first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if not path.name.startswith(".") and is_run(path)]
    return sorted(found, key=_touched, reverse=True)


def _touched(run: Path) -> float:
    times = []
    for name in RUN_FILES:
        try:
            times.append((run / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def run_word(run: Path) -> str:
    """What to type for a run: its name where that names it, else its path; quoted for a shell."""
    with_name = runs_root() / run.name
    is_named = with_name.absolute() == run.absolute() and not Path(run.name).is_dir()
    return shlex.quote(run.name if is_named else str(run))


def resolve_run(name: str) -> Path:
    """The run that `name` means: a directory, a name under the root, or `-` for the newest."""
    root = runs_root()
    if name == NEWEST:
        runs = list_runs(root)
        if not runs:
            raise UsageError(f"no runs under {root} yet", hint="start one: tinker train rl SPEC")
        return runs[0]
    for path in (Path(name).expanduser(), root / name):
        if path.is_dir():
            return path
    near = nearest(name, [run.name for run in list_runs(root)])
    hint = f"did you mean {near}?" if near else "tinker ls shows the runs there are"
    raise UsageError(f"no run {name!r}: neither a directory nor a name under {root}", hint=hint)
