"""`tinker train ... --dry-run`: what a spec means, checked whole, nothing started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinker_cli import console

if TYPE_CHECKING:
    from tinker_cli.trainer.request import LaunchRequest


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
    preview = getattr(report, "preview", None)
    if preview:
        console.write("")
        console.write(f"  {preview}" if isinstance(preview, str) else f"  row 1  {preview}")


def _document(spec: Any, report: Any) -> dict[str, Any]:
    names = ("examples", "batches", "steps", "tokens", "truncated", "untrained", "data_hash")
    numbers = {name: getattr(report, name, None) for name in names}
    return {
        "kind": spec.kind,
        "name": spec.name,
        "model": spec.model_name,
        "renderer": spec.renderer_name,
        "log_path": str(spec.log_path),
        "local": spec.is_local,
        **numbers,
        "spec": spec.values,
    }


def _lines(spec: Any, report: Any) -> list[tuple[str, str]]:
    values = spec.values
    where = "embedded engine on this machine" if spec.is_local else (spec.base_url or "hosted")
    lines = [
        ("model", f"{spec.model_name}, LoRA rank {values.get('lora_rank', 32)}"),
        ("renderer", str(spec.renderer_name)),
        (
            "data",
            f"{_count(report.examples)} {'conversations' if spec.kind == 'sl' else 'problems'}",
        ),
        ("learning", f"{values.get('learning_rate', 'default')}{_schedule(values)}"),
        ("steps", f"{_count(report.steps)} ({_count(report.batches)} batches in the data)"),
    ]
    if getattr(report, "tokens", None):
        lines.append(("tokens", f"{_count(report.tokens)} in the data"))
    truncated = _size(getattr(report, "truncated", 0))
    if truncated:
        lines.append(("cut", f"{_count(truncated)} conversations are longer than max_length"))
    untrained = _size(getattr(report, "untrained", 0))
    if untrained:
        lines.append(("untrained", f"{_count(untrained)} conversations have no trained token"))
    return [*lines, ("backend", where), ("run", str(spec.log_path))]


def _schedule(values: dict[str, Any]) -> str:
    schedule = values.get("lr_schedule")
    return f", {schedule}" if schedule else ""


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else int(value or 0)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
