"""`tinker train ... --dry-run`: what a spec means, checked whole, nothing started."""

from __future__ import annotations

import os
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tinker_cli import console
from tinker_cli.errors import UsageError

if TYPE_CHECKING:
    from tinker_cli.spec import Spec
    from tinker_cli.spec.check import DataReport, Preview
    from tinker_cli.trainer.request import LaunchRequest

LABEL_WIDTH = 14  # columns before a value
MOST_SHOWN = 1200  # characters of the first example
REHEARSED = {
    "train_mean_nll": "NLL",
    "env/all/reward/total": "reward",
    "optim/kl_sample_train_v1": "KL",
}
NOT_TOLD = (
    *("time/", "tokens/", "optim/", "progress/", "env/", "cost/", "eval/"),
    *("sampling_client/", "training_client/", "async/"),
)
SHOWN_ROWS = 3  # rows named of those that are cut or untrained


def dry_run(request: LaunchRequest, shown_name: str, *, as_json: bool) -> None:
    """Check the spec and its data, and print what a launch would do; raises InputFaults."""
    from tinker_cli.trainer.checks import read_request

    spec = read_request(request)
    from tinker_cli.spec.check import check_data
    from tinker_cli.spec.models import register_tokenizers
    from tinker_cli.spec.prices import estimated_usd
    from tinker_cli.trainer.rehearsal import rehearse

    register_tokenizers()
    report = check_data(spec)
    usd = estimated_usd(spec, report)
    if as_json:
        document = {**_document(spec, report), "estimated_usd": usd}
        if request.local:
            done = rehearse(request, spec.values)
            document["rehearsal"] = {"seconds": done.seconds, "row": done.row}
        console.emit(document)
        return
    console.write(f"{shown_name} is sound. Nothing was started.")
    console.write("")
    for label, value in [*_lines(spec, report), ("cost", _cost(spec, usd))]:
        console.write(_line(label, value))
    if report.preview:
        _show(report.preview)
    if request.local:
        _rehearse(request, spec)


def _line(label: str, value: str) -> str:
    """A label and its value; on a terminal a long value goes on below itself."""
    if not console.is_terminal():
        return f"  {label:<11} {value}"
    width = max(console.width() - LABEL_WIDTH, 20)
    lines = textwrap.wrap(value, width, break_on_hyphens=False) or [""]
    return f"  {label:<11} " + ("\n" + " " * LABEL_WIDTH).join(lines)


def _rehearse(request: LaunchRequest, spec: Spec) -> None:
    """Two steps on this machine, the second resumed from the first's checkpoint."""
    if console.is_interactive():
        console.say("")
        console.say(f"rehearsing two steps on {spec.model_name}, on this machine ...")
    from tinker_cli.trainer.rehearsal import rehearse

    done = rehearse(request, spec.values)
    shown = [
        f"{name} {value:.4g}"
        for key, value in done.row.items()
        if isinstance(value, (int, float)) and (name := _told(key)) is not None
    ]
    console.write("")
    took = f"2 steps in {done.seconds:.0f} s, the second resumed from a checkpoint"
    console.write(_line("rehearsed", took))
    if shown:
        console.write(_line("", ", ".join(shown)))
    if done.smaller:
        console.write(_line("", f"made smaller: {', '.join(done.smaller)}"))


def _told(key: str) -> str | None:
    """What the rehearsal tells of a metric: the run's own numbers and its evaluations."""
    if key in REHEARSED:
        return REHEARSED[key]
    if key.startswith("test/env/"):
        return key if key.endswith("/reward/total") else None
    return key if "/" in key and not key.startswith(NOT_TOLD) else None


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
    from tinker_cli.spec.models import recommended_renderer

    values = spec.values
    held_out = f", {report.held_out:,} held out" if report.held_out else ""
    try:
        usual = recommended_renderer(spec.model_name)
    except UsageError:
        usual = None
    how = {spec.renderer_name: " (recommended)", None: ""}.get(usual, f"; {usual} is recommended")
    lines = [
        ("model", f"{spec.model_name}, LoRA rank {values.get('lora_rank', 32)}"),
        ("renderer", f"{spec.renderer_name}{how}"),
        ("data", f"{_source(values)} · {report.examples:,} {_things(spec)}{held_out}"),
        ("learning", f"{_rate(spec)}{_schedule(values)}"),
        ("steps", _steps(spec, report)),
    ]
    if report.tokens:
        trained = (report.trained_tokens or 0) / report.tokens
        lines.append(("tokens", f"{report.tokens:,} an epoch, {trained:.0%} trained"))
    if report.truncated:
        share = f"{len(report.truncated) / max(report.examples, 1):.1%}"
        lines.append(("cut", f"{_rows(report.truncated)} longer than max_length, {share}"))
    if report.untrained:
        lines.append(("untrained", f"{_rows(report.untrained)} without a trained token"))
    if spec.kind == "rl":
        lines.append(("loss", _loss(values)))
    lines.append(("saves", _saves(values)))
    for guard in spec.guards:
        times = f" for {guard.for_} steps" if guard.for_ > 1 else ""
        lines.append(("guard", f"{guard.do} when {guard.when}{times}"))
    where = "the embedded engine, on this machine" if spec.is_local else spec.base_url or "hosted"
    return [*lines, ("backend", where), ("run", str(spec.log_path))]


def _things(spec: Spec) -> str:
    return "conversations" if spec.kind == "sl" else "problems"


def _source(values: dict[str, Any]) -> str:
    builder = values.get("dataset_builder") or {}
    source = builder.get("file_path") or builder.get("path") or builder.get("type")
    if isinstance(source, list):
        source = f"{len(source)} files"
    text = str(source)
    if text.startswith("package://"):
        return text.rpartition("/")[2]
    return os.path.relpath(text) if os.path.isabs(text) and os.path.isfile(text) else text


def _rate(spec: Spec) -> str:
    from tinker_cli.spec.checked import batch_size

    rate = spec.rate
    text = f"{spec.config_values['learning_rate']:.3g}"
    if rate is None:
        return text
    auto = "auto for this model" if rate.is_auto else ""
    if rate.at_batch_size is None:
        return f"{text} ({auto})" if auto else text
    size = batch_size(spec.config_values["dataset_builder"])
    base = f"{rate.base:.3g}{', ' + auto if auto else ''}"
    return f"{text} ({base}, x sqrt({size} / {rate.at_batch_size}))"


def _steps(spec: Spec, report: DataReport) -> str:
    from tinker_cli.spec.checked import batch_size

    builder = spec.config_values["dataset_builder"]
    epochs = (spec.config_values.get("num_epochs") or 1) * getattr(builder, "num_epochs", 1)
    size = batch_size(spec.config_values["dataset_builder"])
    batches = f"{report.examples:,} / {size}" if size else f"{report.batches:,} batches"
    limit = spec.config_values.get("max_steps")
    capped = f", at most {limit:,}" if limit is not None and limit <= report.steps else ""
    each = "" if spec.kind == "sl" else _rollouts(spec)
    return f"{report.steps:,} = {batches} x {epochs} epoch{'s' * (epochs > 1)}{capped}{each}"


def _rollouts(spec: Spec) -> str:
    from tinker_cli.spec.checked import batch_size

    builder = spec.config_values["dataset_builder"]
    size, group = batch_size(builder), getattr(builder, "group_size", None)
    return f", {size * group:,} rollouts a step" if size and isinstance(group, int) else ""


def _loss(values: dict[str, Any]) -> str:
    settings = values.get("loss_fn_config") or {}
    named = ", ".join(f"{key} {value}" for key, value in settings.items())
    parts = [f"{values.get('loss_fn', 'importance_sampling')}{f' ({named})' if named else ''}"]
    if (substeps := values.get("num_substeps") or 1) > 1:
        parts.append(f"{substeps} updates a batch")
    if values.get("stream_minibatch_config"):
        parts.append("minibatches streamed")
    if asynchronous := values.get("async_config"):
        parts.append(f"off-policy by at most {asynchronous.get('max_steps_off_policy')} steps")
    if penalty := values.get("kl_penalty_coef"):
        parts.append(f"KL penalty {penalty}")
    return ", ".join(parts)


def _saves(values: dict[str, Any]) -> str:
    every = values.get("save_every") or 0
    evals = values.get("eval_every") or 0
    saved = f"a checkpoint every {every} steps" if every else "at the end only"
    return f"{saved}, {f'evaluated every {evals}' if evals else 'never evaluated'}"


def _cost(spec: Spec, usd: float | None) -> str:
    if spec.is_local:
        return "none: it runs on this machine"
    if usd is None:
        return "unknown: no prices for this model here"
    most = "at most " if spec.kind == "rl" else "about "
    return f"{most}${usd:,.2f} at today's prices"


def _show(preview: Preview) -> None:
    """The first example or prompt; what is trained is coloured, and stands between marks."""
    from rich.padding import Padding
    from rich.text import Text

    unicode = console.supports_unicode()
    left, right = ("\u258c", "\u2590") if unicode else ("[[", "]]")
    body = Text(overflow="fold", no_wrap=False)
    for piece, trained in preview.pieces:
        shown = piece.replace("\n", "\u21b5" if unicode else "\\n")
        body.append(f"{left}{shown}{right}" if trained else shown, "bold green" if trained else "")
    if len(body) > MOST_SHOWN:
        body.truncate(MOST_SHOWN)
        body.append(" ...", "dim")
    if preview.reward is not None:
        body.append(f"\nits own answer {preview.answer!r} scores {preview.reward:g}", "cyan")
    console.write("")
    console.write(f"  {preview.where}")
    if console.is_terminal():
        console.show(Padding(body, (0, 2)))
    else:
        console.write("\n".join(f"  {line}" for line in body.plain.splitlines()))


def _rows(places: tuple[str, ...]) -> str:
    """How many rows, and the first of them by name."""
    named = ", ".join(places[:SHOWN_ROWS]) + (", ..." if len(places) > SHOWN_ROWS else "")
    return f"{len(places):,} ({named})"


def _schedule(values: dict[str, Any]) -> str:
    schedule = values.get("lr_schedule")
    return f", {schedule}" if schedule else ""
