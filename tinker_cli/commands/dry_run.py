"""`tinker train ... --dry-run`: what a spec means, checked whole, nothing started."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinker_cli import console

if TYPE_CHECKING:
    from tinker_cli.spec import Spec
    from tinker_cli.spec.check import DataReport
    from tinker_cli.trainer.request import LaunchRequest

SHOWN_ROWS = 3  # rows named of those that are cut or untrained


def dry_run(request: LaunchRequest, shown_name: str, *, as_json: bool) -> None:
    """Check the spec and its data, and print what a launch would do; raises InputFaults."""
    from tinker_cli.trainer.checks import LOCAL_ENVIRONMENT, looks_local

    path = Path(request.spec)
    if looks_local(path, request):
        os.environ.update(LOCAL_ENVIRONMENT)
    from tinker_cli.spec import load_spec
    from tinker_cli.spec.check import check_data
    from tinker_cli.spec.models import register_tokenizers

    kind: Any = request.kind
    spec = load_spec(path, kind=kind, overrides=request.overrides, local=request.local)
    register_tokenizers()
    report = check_data(spec)
    if as_json:
        console.emit(_document(spec, report))
        return
    console.write(f"{shown_name} is sound. Nothing was started.")
    console.write("")
    for label, value in _lines(spec, report):
        console.write(f"  {label:<11} {value}")
    if report.preview:
        console.write("")
        for line in report.preview.splitlines():
            console.write(f"  {line}")


def _document(spec: Spec, report: DataReport) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "name": spec.name,
        "model": spec.model_name,
        "renderer": spec.renderer_name,
        "log_path": str(spec.log_path),
        "local": spec.is_local,
        **asdict(report),
        "spec": spec.values,
    }


def _lines(spec: Spec, report: DataReport) -> list[tuple[str, str]]:
    values = spec.values
    things = "conversations" if spec.kind == "sl" else "problems"
    held_out = f", {report.held_out:,} held out" if report.held_out else ""
    auto = " (auto for this model)" if spec.learning_rate_is_auto else ""
    lines = [
        ("model", f"{spec.model_name}, LoRA rank {values.get('lora_rank', 32)}"),
        ("renderer", str(spec.renderer_name)),
        ("data", f"{report.examples:,} {things}{held_out}"),
        ("learning", f"{values.get('learning_rate')}{auto}{_schedule(values)}"),
        ("steps", f"{report.steps:,}, of {report.batches:,} batches an epoch"),
    ]
    if report.tokens:
        share = (
            f", {report.trained_tokens / report.tokens:.0%} trained"
            if report.trained_tokens
            else ""
        )
        lines.append(("tokens", f"{report.tokens:,} an epoch{share}"))
    if report.truncated:
        lines.append(("cut", f"{_rows(report.truncated)} longer than max_length"))
    if report.untrained:
        lines.append(("untrained", f"{_rows(report.untrained)} without a trained token"))
    where = "the embedded engine, on this machine" if spec.is_local else spec.base_url or "hosted"
    return [*lines, ("backend", where), ("run", str(spec.log_path))]


def _rows(places: tuple[str, ...]) -> str:
    """How many rows, and the first of them by name."""
    named = ", ".join(places[:SHOWN_ROWS]) + (", ..." if len(places) > SHOWN_ROWS else "")
    return f"{len(places):,} ({named})"


def _schedule(values: dict[str, Any]) -> str:
    schedule = values.get("lr_schedule")
    return f", {schedule}" if schedule else ""
