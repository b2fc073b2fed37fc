"""The data of a spec, checked before anything remote exists.

Builds the dataset that training would get and counts: examples, batches, steps, tokens, what is
cut, what has no trained token. For RL, tries the reward on the first row's own answer. Raises every
fault with its file and line. Creates nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinker_cli import progress
from tinker_cli.data.rendering import renderer_of
from tinker_cli.data.rows import locate
from tinker_cli.errors import Fault, InputFaults, TinkerError
from tinker_cli.spec.builders import PATH_FIELDS
from tinker_cli.spec.checked import Spec, SpecFaults, batch_size
from tinker_cli.spec.models import load_tokenizer, register_tokenizers

LENGTH_FIELDS = ("n_batches", "num_epochs")


@dataclass(frozen=True)
class Preview:
    """The first example (SL: pieces of its text, each trained or not) or prompt (RL)."""

    where: str  # file:line, or what it is the first of
    pieces: tuple[tuple[str, bool], ...]
    answer: str | None = None
    reward: float | None = None  # of the row's own answer


@dataclass(frozen=True)
class DataReport:
    """What training would see.

    `batches` is one epoch's, `steps` the whole run's; `tokens` and `trained_tokens` are one
    epoch's; `truncated` and `untrained` name rows as `file:line`, or by their place in the order.
    `prompt_tokens` is the length of the first RL prompt.
    """

    examples: int
    held_out: int
    batches: int
    steps: int
    data_hash: str
    tokens: int | None = None
    trained_tokens: int | None = None
    prompt_tokens: int | None = None
    truncated: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    preview: Preview | None = None


def with_data_faults(error: SpecFaults) -> InputFaults:
    """A spec's faults and those of its rows in one report, as far as its data can be read."""
    builder = error.builder
    rows = getattr(builder, "examples", None) or getattr(builder, "split_rows", None)
    if rows is None:
        return error
    register_tokenizers()
    try:
        rows()
    except InputFaults as found:
        return SpecFaults(error.path, [*error.faults, *found.faults], None)
    except Exception:  # with a faulty spec, anything may go wrong here; its own faults are told
        return error
    return error


def check_data(spec: Spec) -> DataReport:
    """Build and count the spec's data; raises InputFaults."""
    register_tokenizers()
    try:
        load_tokenizer(spec.model_name)
        _check_renderer(spec)
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
        size = batch_size(spec.config_values["dataset_builder"])
        message = f"{report.examples} rows < batch_size {size} -> 0 steps"
        fault = spec.fault(message, "dataset_builder.batch_size")
        raise InputFaults(f"{spec.path} would train nothing; nothing was started.", [fault])
    return report


def _check_renderer(spec: Spec) -> None:
    """A renderer whose end of a turn is no token of the model would never stop a reply."""
    logging.getLogger("tinker_cookbook.renderers.base").addFilter(_once)
    try:
        renderer_of(spec.renderer_name, spec.model_name).get_stop_sequences()
    except (ValueError, AssertionError, KeyError):
        message = f"{spec.renderer_name} does not fit {spec.model_name}"
        reason = "its end of a turn is no token of the model"
        fault = spec.fault(f"{message}: {reason}", "renderer_name")
        raise InputFaults(f"{spec.path} can't be used; nothing was started.", [fault]) from None


def _once(record: logging.LogRecord) -> bool:
    """A warning that the cookbook gives for every row is heard once."""
    message = record.getMessage()
    if message in _HEARD:
        return False
    _HEARD.add(message)
    return True


_HEARD: set[str] = set()


def _check_sl(spec: Spec) -> DataReport:
    builder = spec.config_values["dataset_builder"]
    if hasattr(builder, "examples"):
        return _check_examples(spec, builder)
    train, test = _guarded(spec, builder)
    batches = len(train)
    counted = batches if not getattr(builder, "streaming", False) else min(batches, 1)
    counts = _guarded(spec, lambda: _count(spec, train, counted)) if batches else _Counts()
    whole = counted == batches
    return DataReport(
        examples=counts.examples if whole else batches * (batch_size(builder) or 1),
        held_out=sum(len(test.get_batch(i)) for i in range(len(test))) if test is not None else 0,
        batches=batches,
        steps=_steps(spec, batches),
        data_hash=data_hash(spec),
        tokens=counts.tokens if whole else None,
        trained_tokens=counts.trained if whole else None,
        truncated=tuple(counts.full),
        untrained=tuple(counts.untrained),
        preview=counts.preview,
    )


@dataclass
class _Counts:
    examples: int = 0
    tokens: int = 0
    trained: int = 0
    full: list[str] = field(default_factory=list)
    untrained: list[str] = field(default_factory=list)
    preview: Preview | None = None


def _count(spec: Spec, dataset: Any, batches: int) -> _Counts:
    """Look at the datums of anyone's dataset: those that fill max_length were cut, or just fit."""
    common = getattr(spec.config_values["dataset_builder"], "common_config", None)
    most = getattr(common, "max_length", None)
    counts = _Counts()
    with progress.counting("reading data", batches) as advance:
        for index in range(batches):
            for datum in dataset.get_batch(index):
                counts.examples += 1
                place = f"example {counts.examples}"
                trained = int((datum.loss_fn_inputs["weights"].to_numpy() != 0).sum())
                counts.tokens += datum.model_input.length
                counts.trained += trained
                if most is not None and datum.model_input.length >= most - 1:
                    counts.full.append(place)
                if not trained:
                    counts.untrained.append(place)
                elif counts.preview is None:
                    counts.preview = Preview(place, _pieces(spec, datum))
            advance(1)
    return counts


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
        preview=Preview(_where(kept[0]), _pieces(spec, kept[0].datum)),
    )


def _where(example: Any) -> str:
    return f"{example.row.file}:{example.row.line}"


def _pieces(spec: Spec, datum: Any) -> tuple[tuple[str, bool], ...]:
    """The datum's text, cut where training begins and ends; images and the like by name."""
    tokenizer = load_tokenizer(spec.model_name)
    targets = datum.loss_fn_inputs["target_tokens"].to_numpy().tolist()
    weights = datum.loss_fn_inputs["weights"].to_numpy().tolist()
    first = datum.model_input.chunks[0]
    start = list(getattr(first, "tokens", ()))[:1]
    pieces: list[tuple[str, bool]] = []
    tokens = [*((token, False) for token in start)]
    tokens += [(token, weight != 0) for token, weight in zip(targets, weights, strict=True)]
    for trained, group in itertools.groupby(tokens, key=lambda each: each[1]):
        pieces.append((tokenizer.decode([token for token, _ in group]), trained))
    return tuple(pieces)


def _check_rl(spec: Spec) -> DataReport:
    builder = spec.config_values["dataset_builder"]
    train, test = _guarded(spec, builder)
    batches = len(train)
    groups = _guarded(spec, lambda: train.get_batch(0)) if batches else []
    preview, length = _first_prompt(spec, builder, groups)
    counted = hasattr(builder, "split_rows")
    examples = len(builder.split_rows()[0]) if counted else batches * len(groups)
    held_out = sum(len(test.get_batch(i)) for i in range(len(test))) if test is not None else 0
    return DataReport(
        examples=examples,
        held_out=held_out,
        batches=batches,
        steps=_steps(spec, batches),
        data_hash=data_hash(spec),
        prompt_tokens=length,
        preview=preview,
    )


def _first_prompt(
    spec: Spec, builder: Any, groups: Sequence[Any]
) -> tuple[Preview | None, int | None]:
    """The first prompt, the reward of its own answer where there is one, and its length."""
    if hasattr(builder, "environment"):
        row = builder.split_rows()[0][0]
        environment, where = builder.environment(row), f"{row.file}:{row.line}"
        answer: str | None = str(row.value.get("answer", ""))
        reward = _try_reward(spec, environment, row)
    elif groups:
        environments = _guarded(spec, lambda: groups[0].make_envs())
        environment, where, answer, reward = environments[0], "the first problem", None, None
    else:
        return None, None
    prompt, _ = _guarded(spec, environment.initial_observation)
    tokens = [token for chunk in prompt.chunks for token in getattr(chunk, "tokens", ())]
    text = load_tokenizer(spec.model_name).decode(tokens)
    return Preview(where, ((text, False),), answer, reward), prompt.length


def _try_reward(spec: Spec, environment: Any, row: Any) -> float:
    """The reward of a row's own answer."""
    answer, where = str(row.value.get("answer", "")), f"{row.file}:{row.line}"
    try:
        return float(asyncio.run(environment.reward(answer, row.value, where)).value)
    except TinkerError as error:
        fault = Fault(error.message, file=row.file, line=row.line, key="reward")
        raise InputFaults(f"{spec.path} can't be used; nothing was started.", [fault]) from None


def _guarded(spec: Spec, work: Callable[[], Any]) -> Any:
    """Run a builder's work; what the cookbook or a user's class raises is a fault of the spec."""
    try:
        built = work()
        return asyncio.run(built) if asyncio.iscoroutine(built) else built
    except TinkerError:
        raise
    except Exception as error:  # builders are anyone's code and may raise anything
        message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        fault = spec.fault(message.rstrip(": "), "dataset_builder")
        raise InputFaults(
            f"{spec.path} can't build its data; nothing was started.", [fault]
        ) from None


def _steps(spec: Spec, batches: int) -> int:
    steps = batches * int(spec.config_values.get("num_epochs") or 1)
    limit = spec.config_values.get("max_steps")
    return min(steps, limit) if limit is not None else steps


def data_hash(spec: Spec) -> str:
    """Of the builder's fields and of every local file that they name, byte for byte.

    Not of fields that only say how long to go on: a run may be extended on the same data.
    """
    values = dict(spec.values.get("dataset_builder") or {})
    for name in LENGTH_FIELDS:
        values.pop(name, None)
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
