"""From a checked request to a run directory that is ready to train: made, locked, described.

Knows nothing of the loop itself.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tinker_cli import __version__
from tinker_cli.errors import UsageError
from tinker_cli.runs.describe import RunDescription, read_run_json, write_run_json
from tinker_cli.runs.lock import RunLock, acquire_lock
from tinker_cli.runs.status import read_status
from tinker_cli.trainer.checks import Backend, Checked
from tinker_cli.trainer.guards import Guards
from tinker_cli.trainer.journal import Journal
from tinker_cli.trainer.request import Answer, LaunchRequest
from tinker_cli.trainer.resume import ResumePoint, find_point, refuse_drift, rewind
from tinker_cli.trainer.rundir import prepare_directory

if TYPE_CHECKING:
    from tinker_cli.spec import Spec


@dataclass(frozen=True)
class Prepared:
    """A run directory that this process holds, and where its training begins."""

    run: Path
    spec: Spec  # with its log_path set to `run`
    start: int
    journal: Journal
    lock: RunLock | None
    answer: Answer


def prepare_run(request: LaunchRequest, checked: Checked, backend: Backend) -> Prepared:
    """Make or take up the run directory; raises UsageError if it may not be used."""
    spec, report = checked.spec, checked.report
    run, is_resumed = prepare_directory(spec.log_path, request.mode, total_steps=report.steps)
    lock = acquire_lock(run)
    spec = _at(spec, run, request)
    if not is_resumed:
        note = ("no run there yet: starting from step 0",) if request.mode == "resume" else ()
        _describe(run, request, spec, report.data_hash, backend)
        journal = _journal(run, request, spec, backend, step=0)
        journal.event("launched", argv=list(request.argv), step=0)
        return Prepared(run, spec, 0, journal, lock, Answer(str(run), note))
    return _take_up(run, request, checked, spec, backend, lock)


def _take_up(
    run: Path,
    request: LaunchRequest,
    checked: Checked,
    spec: Spec,
    backend: Backend,
    lock: RunLock,
) -> Prepared:
    from tinker_cli.spec.write import dump

    report = checked.report
    drift = refuse_drift(run, dump(spec), report.data_hash, allow=request.allow_drift)
    point = _find_point(run, checked, backend)
    messages = [*point.notes, *(f"changed since the launch: {change}" for change in drift)]
    if point.step >= report.steps:
        words = f"complete already: {point.step} of {report.steps} steps; to go on, raise max_steps"
        answer = Answer(str(run), (*messages, words), complete=True, step=point.step)
        return Prepared(run, spec, point.step, _journal_of_end(run), lock, answer)
    dropped = rewind(run, point, spec.kind, report.batches)
    messages.append(point.sentence())
    if dropped:
        messages.append(f"{dropped} rows from step {point.step} on are trained again")
    _describe(run, request, spec, report.data_hash, backend)
    journal = _journal(run, request, spec, backend, step=point.step)
    checkpoint = point.checkpoint.name if point.checkpoint else None
    journal.status = journal.status.with_changes(
        total_steps=report.steps, last_checkpoint=checkpoint
    )
    journal.event("resumed", step=point.step, checkpoint=checkpoint, messages=messages)
    return Prepared(
        run, spec, point.step, journal, lock, Answer(str(run), tuple(messages), step=point.step)
    )


def _find_point(run: Path, checked: Checked, backend: Backend) -> ResumePoint:
    from tinker_cli.trainer.service import checkpoint_exists

    url, values = backend.wait(), checked.spec.values
    point = find_point(
        run,
        checked.spec.kind,
        n_batches=checked.report.batches,
        exists=lambda path: checkpoint_exists(url, backend.key, path),
        submit_ahead=int(values.get("submit_ahead") or 1),
        total_steps=checked.report.steps,
    )
    if point.checkpoint is None and any("no longer" in note for note in point.notes):
        raise UsageError(
            f"none of the checkpoints of {run} is on the server any more",
            hint="--overwrite moves the run aside and starts afresh",
        )
    return point


def _at(spec: Spec, run: Path, request: LaunchRequest) -> Spec:
    """The spec with the directory that it really runs in."""
    if spec.log_path == run:
        return spec
    from tinker_cli.spec import load_spec

    overrides = (*request.overrides, f"log_path={run}")
    return load_spec(
        Path(request.spec),
        kind=spec.kind,
        overrides=overrides,
        local=request.local,
    )


def _journal(
    run: Path, request: LaunchRequest, spec: Spec, backend: Backend, *, step: int
) -> Journal:
    guards = Guards(spec.guards, max_usd=None if spec.is_local else request.max_usd)
    server = "local" if spec.is_local else str(backend.url)
    return Journal(run, guards, server=server, step=step)


def _journal_of_end(run: Path) -> Journal:
    journal = Journal(run, Guards(), server="")
    journal.status = read_status(run) or journal.status
    return journal


def _describe(
    run: Path, request: LaunchRequest, spec: Spec, data_hash: str | None, backend: Backend
) -> None:
    from tinker_cli.spec.write import dump

    before = read_run_json(run)
    write_run_json(
        run,
        RunDescription(
            id=before.id if before else secrets.token_hex(6),
            kind=spec.kind,
            name=run.name,
            created=before.created if before else time.time(),
            model=spec.model_name,
            argv=request.argv,
            spec_path=request.spec,
            host=socket.gethostname(),
            versions=_versions(),
            spec_hash=spec.hash,
            data_hash=data_hash,
            backend="local" if spec.is_local else str(backend.url),
            launches=before.launches + 1 if before else 1,
        ),
    )
    temporary = run / f".spec.yaml.{os.getpid()}"
    temporary.write_text(dump(spec), encoding="utf-8")
    os.replace(temporary, run / "spec.yaml")


def _versions() -> dict[str, str]:
    versions = {"tinker-cli": __version__}
    for name in ("tinker", "tinker-cookbook", "torch", "transformers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
