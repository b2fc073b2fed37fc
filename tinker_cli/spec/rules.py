"""What the loops refuse late, refused early: combinations of fields, ranges, names by version.

Each rule looks at converted values and puts its fault where the value was written. Knows the
loops' own conditions (the source of each is the cookbook's train module); knows no files.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from tinker_cli.errors import Fault, nearest
from tinker_cli.spec.convert import FieldType
from tinker_cli.spec.reader import Mapping, Place

SHORTEST_TTL = 3600  # seconds; the service refuses less
HIGHEST_SANE_RATE = 0.1
# What tinker-cookbook 0.6 has and 0.5.8 lacks, by dotted key and by renderer's name.
NEWER_FIELDS = {"num_epochs": "0.6", "async_config.loss_fn": "0.6"}
NEWER_RENDERERS = {"kimi_k31_pro_": "0.6"}
POSITIVE = ("num_epochs", "lora_rank", "num_substeps", "max_tokens")
NOT_NEGATIVE = (
    *("save_every", "save_every_tokens", "save_every_seconds", "rolling_save_every"),
    *("eval_every", "infrequent_eval_every", "submit_ahead", "num_groups_to_log"),
    *("kl_penalty_coef", "kl_discount_factor"),
)
NOT_LOCAL_LOSSES = ("stable_reinforce", "custom")


def check(kind: str, values: dict[str, Any], root: Mapping, faults: list[Fault]) -> None:
    """Note every rule that the values break."""

    def note(key: str, message: str) -> None:
        node = root.items.get(key)
        faults.append((node.place if node is not None else root.place).fault(message, key))

    for key in POSITIVE:
        if isinstance(values.get(key), (int, float)) and values[key] < 1:
            note(key, f"{values[key]} must be at least 1")
    for key in NOT_NEGATIVE:
        if isinstance(values.get(key), (int, float)) and values[key] < 0:
            note(key, f"{values[key]} must not be negative")
    rate = values.get("learning_rate")
    if isinstance(rate, float) and not 0 < rate <= HIGHEST_SANE_RATE:
        note("learning_rate", f"{rate:g} must be above 0 and at most {HIGHEST_SANE_RATE}")
    steps = values.get("max_steps")
    if isinstance(steps, int) and steps < 1:
        note("max_steps", f"{steps} must be at least 1; leave it out for all of the data")
    for key in ("ttl_seconds", "rolling_ttl_seconds"):
        if isinstance(values.get(key), int) and values[key] < SHORTEST_TTL:
            note(key, f"{values[key]} is too short: at least {SHORTEST_TTL} s, or null for ever")
    if kind == "rl":
        _check_rl(values, note)


def _check_rl(values: dict[str, Any], note: Any) -> None:
    temperature = values.get("temperature")
    if isinstance(temperature, float) and temperature <= 0:
        note("temperature", f"{temperature:g} must be above 0: the rollouts of a group must differ")
    penalty = values.get("kl_penalty_coef") or 0
    if penalty > 0 and values.get("kl_reference_config") is None:
        note("kl_penalty_coef", "needs kl_reference_config: {base_model: ...}")
    if penalty > 0 and temperature not in (None, 1.0):
        message = f"{temperature:g} with kl_penalty_coef: the KL is that of temperature 1"
        note("temperature", message)
    loss, asynchronous = values.get("loss_fn"), values.get("async_config")
    async_loss = getattr(asynchronous, "loss_fn", None)
    if asynchronous is not None and async_loss and loss not in ("importance_sampling", async_loss):
        note("loss_fn", f"{loss} and async_config.loss_fn {async_loss} must be the same")
    if values.get("base_url") == "local":
        for key, name in (("loss_fn", loss), ("async_config", async_loss)):
            if name in NOT_LOCAL_LOSSES:
                note(key, f"the local engine has no {name}; use ppo or importance_sampling")
    stream, substeps = values.get("stream_minibatch_config"), values.get("num_substeps") or 1
    if stream is not None:
        _check_stream(stream, substeps, values.get("dataset_builder"), note)


def _check_stream(stream: Any, substeps: int, builder: Any, note: Any) -> None:
    groups, parts = stream.groups_per_batch, stream.num_minibatches
    if groups < 1 or parts < 1 or substeps < 1:
        note("stream_minibatch_config", "groups_per_batch and num_minibatches must be at least 1")
        return
    if groups % substeps or (groups // substeps) % parts:
        message = f"groups_per_batch {groups} must divide by num_substeps {substeps} x "
        note("stream_minibatch_config", f"{message}num_minibatches {parts}")
    size = getattr(builder, "batch_size", groups)
    if size != groups:
        message = f"groups_per_batch {groups} must equal dataset_builder.batch_size {size}"
        note("stream_minibatch_config", message)


def other_version(key: str, known: dict[str, FieldType]) -> str | None:
    """The cookbook version that has a field which the installed one lacks."""
    version = NEWER_FIELDS.get(key)
    name = key.rpartition(".")[2]
    return f"tinker-cookbook {version}" if version and name not in known else None


@functools.cache
def renderer_names() -> tuple[str, ...]:
    """Every renderer that the installed cookbook can make, read from its `get_renderer`."""
    from tinker_cookbook import renderers

    source = Path(renderers.__file__).read_text(encoding="utf-8")
    body = source[source.index("def get_renderer") :]
    names = re.findall(r'name == "([a-z0-9_]+)"', body)
    for group in re.findall(r"name in [\(\{\[]([^\)\}\]]*)[\)\}\]]", body):
        names += re.findall(r'"([a-z0-9_]+)"', group)
    names += re.findall(r'case "([a-z0-9_]+)"', body)
    registered: list[str] = getattr(renderers, "get_registered_renderer_names", list)()
    return tuple(dict.fromkeys([*names, *registered]))


def known_renderer(name: str, place: Place, faults: list[Fault]) -> str | None:
    """The name itself, or None with a fault if the cookbook has no such renderer."""
    names = renderer_names()
    if name in names or not names or ":" in name:
        return name
    for prefix, version in NEWER_RENDERERS.items():
        if name.startswith(prefix):
            message = f"the installed tinker-cookbook has no {name}; {version} has"
            faults.append(place.fault(message, "renderer_name"))
            return None
    near = nearest(name, names)
    faults.append(place.fault(f"no renderer {name!r}", "renderer_name", suggestion=near))
    return None
