"""The data of a spec, checked before anything remote exists.

Builds the dataset that training would get and counts: examples, batches, steps, tokens, what is
cut, what has no trained token. For RL, tries the reward on the first row's own answer. Raises every
fault with its file and line. Creates nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinker_cli.data.rows import locate
from tinker_cli.errors import Fault, InputFaults, TinkerError
from tinker_cli.spec.builders import PATH_FIELDS
from tinker_cli.spec.load import Spec
from tinker_cli.spec.models import load_tokenizer, register_tokenizers


@dataclass(frozen=True)
class DataReport:
    """What training would see.

    `batches` is one epoch's, `steps` the whole run's; `tokens` and `trained_tokens` are one
    epoch's; `truncated` and `untrained` name rows as `file:line`.
    """

    examples: int
    held_out: int
    batches: int
    steps: int
    data_hash: str
    tokens: int | None = None
    trained_tokens: int | None = None
    truncated: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    preview: str | None = None


def check_data(spec: Spec) -> DataReport:
    """Build and count the spec's data; raises InputFaults."""
    register_tokenizers()
    try:
        load_tokenizer(spec.model_name)
        report = _check_sl(spec) if spec.kind == "sl" else _check_rl(spec)
    except InputFaults:
        raise
    except TinkerError as error:
        raise InputFaults(
            f"{spec.path} can't be used; nothing was started.",
            [Fault(error.message, file=str(spec.path))],
            hint=error.hint,
        ) from None
    if report.steps < 1:
        size = getattr(spec.config_values["dataset_builder"], "batch_size", None)
        size = size or getattr(_common(spec), "batch_size", "?")
        message = f"{report.examples} rows < batch_size {size} -> 0 steps"
        fault = Fault(message, file=str(spec.path), key="dataset_builder.batch_size")
        raise InputFaults(f"{spec.path} would train nothing; nothing was started.", [fault])
    return report


def _common(spec: Spec) -> Any:
    return getattr(spec.config_values["dataset_builder"], "common_config", None)


def _check_sl(spec: Spec) -> DataReport:
    builder = spec.config_values["dataset_builder"]
    if hasattr(builder, "examples"):
        return _check_examples(spec, builder)
    train, test = _guarded(spec, builder)
    batches = len(train)
    return DataReport(
        examples=batches * getattr(_common(spec), "batch_size", 1),
        held_out=len(test) if test is not None else 0,
        batches=batches,
        steps=_steps(spec, batches),
        data_hash=data_hash(spec),
    )


def _check_examples(spec: Spec, builder: Any) -> DataReport:
    train, held_out = builder.examples()
    kept = [example for example in train if example.trained]
    untrained = tuple(_where(e) for e in [*train, *held_out] if not e.trained)
    if not kept:
        fault = Fault("no row has a trained token", file=train[0].row.file if train else None)
        raise InputFaults(f"{spec.path} would train nothing; nothing was started.", [fault])
    batches = len(kept) // builder.common_config.batch_size
    return DataReport(
        examples=len(kept),
        held_out=len(held_out),
        batches=batches,
        steps=_steps(spec, batches),
        data_hash=data_hash(spec),
        tokens=sum(e.datum.model_input.length for e in kept),
        trained_tokens=sum(e.trained for e in kept),
        truncated=tuple(_where(e) for e in train if e.truncated),
        untrained=untrained,
        preview=_preview(spec, kept[0]),
    )


def _where(example: Any) -> str:
    return f"{example.row.file}:{example.row.line}"


def _preview(spec: Spec, example: Any) -> str:
    """The first example's text; what is trained stands between marks."""
    tokenizer = load_tokenizer(spec.model_name)
    targets = example.datum.loss_fn_inputs["target_tokens"].to_numpy().tolist()
    weights = example.datum.loss_fn_inputs["weights"].to_numpy().tolist()
    pieces: list[str] = []
    run: list[int] = []
    trained = False
    for token, weight in [*zip(targets, weights, strict=True), (None, -1)]:
        if run and (token is None or (weight != 0) != trained):
            text = tokenizer.decode(run).replace("\n", "\u21b5")
            pieces.append(f"\u258c{text}\u2590" if trained else text)
            run = []
        trained = weight != 0
        run.append(token)
    return " ".join(pieces)[:400]


def _check_rl(spec: Spec) -> DataReport:
    builder = spec.config_values["dataset_builder"]
    train, test = _guarded(spec, builder)
    batches = len(train)
    group = len(train.get_batch(0)) if batches else 0
    preview = _try_reward(spec, builder) if hasattr(builder, "environment") else None
    examples = len(builder.split_rows()[0]) if hasattr(builder, "split_rows") else batches * group
    held_out = sum(len(test.get_batch(i)) for i in range(len(test))) if test is not None else 0
    return DataReport(
        examples=examples,
        held_out=held_out,
        batches=batches,
        steps=_steps(spec, batches),
        data_hash=data_hash(spec),
        preview=preview,
    )


def _try_reward(spec: Spec, builder: Any) -> str:
    """The first prompt, and the reward of its own answer."""
    row = builder.split_rows()[0][0]
    environment = builder.environment(row)
    answer = str(row.value.get("answer", ""))
    where = f"{row.file}:{row.line}"
    try:
        score = asyncio.run(environment.reward(answer, row.value, where))
    except TinkerError as error:
        fault = Fault(error.message, file=row.file, line=row.line, key="reward")
        raise InputFaults(f"{spec.path} can't be used; nothing was started.", [fault]) from None
    return f"{environment.question!r}, its own answer {answer!r} scores {score.value:g}"


def _guarded(spec: Spec, builder: Any) -> Any:
    """Build the dataset; what the cookbook raises becomes a fault of the spec."""
    try:
        built = builder()
        return asyncio.run(built) if asyncio.iscoroutine(built) else built
    except TinkerError:
        raise
    except Exception as error:  # builders are anyone's code and may raise anything
        message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        fault = Fault(message.rstrip(": "), file=str(spec.path), key="dataset_builder")
        raise InputFaults(
            f"{spec.path} can't build its data; nothing was started.", [fault]
        ) from None


def _steps(spec: Spec, batches: int) -> int:
    steps = batches * int(spec.config_values.get("num_epochs") or 1)
    limit = spec.config_values.get("max_steps")
    return min(steps, limit) if limit is not None else steps


def data_hash(spec: Spec) -> str:
    """Of the builder's fields and of every local file that they name, byte for byte."""
    values = spec.values.get("dataset_builder")
    hasher = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode())
    for path in sorted(_files(values)):
        with path.open("rb") as stream:
            for piece in iter(lambda: stream.read(1 << 20), b""):
                hasher.update(piece)
    return hasher.hexdigest()[:16]


def _files(value: Any) -> Iterator[Path]:
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key in (*PATH_FIELDS, "path"):
            for name in item if isinstance(item, list) else [item]:
                if isinstance(name, str) and locate(name).is_file():
                    yield locate(name)
        else:
            yield from _files(item)
