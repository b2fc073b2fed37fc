"""The learning rate of a spec: a number, `auto`, or one that grows with the batch size.

`{base: auto, at_batch_size: 128}` is the base rate x sqrt(batch_size / 128): the rule that keeps
the noise of an Adam step alike when the batch grows. Knows nodes and models; knows no datasets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import UsageError, nearest
from tinker_cli.spec.convert import MISSING, Converter
from tinker_cli.spec.models import recommended_learning_rate
from tinker_cli.spec.reader import Mapping, Node, Place, Scalar

AUTO = "auto"
FIELDS = ("base", "at_batch_size")


@dataclass(frozen=True)
class Rate:
    """A learning rate as written: `base`, and the batch size that it is meant for."""

    base: float
    is_auto: bool
    at_batch_size: int | None
    place: Place

    def at(self, batch_size: int | None) -> float:
        """The rate at this batch size."""
        if self.at_batch_size is None or batch_size is None:
            return self.base
        return self.base * math.sqrt(batch_size / self.at_batch_size)


def read_rate(node: Node, model: str | None, converter: Converter) -> Rate | None:
    """The rate that a spec's `learning_rate` asks for, or None with faults noted."""
    if not isinstance(node, Mapping):
        base = _base(node, model, converter, "learning_rate")
        return None if base is None else Rate(base, _is_auto(node), None, node.place)
    before = len(converter.faults)
    for name, place in node.keys.items():
        if name not in FIELDS:
            near = nearest(name, FIELDS)
            key = f"learning_rate.{name}"
            converter.faults.append(place.fault("no such field", key, suggestion=near))
    for name in FIELDS:
        if name not in node.items:
            converter.faults.append(node.place.fault("missing", f"learning_rate.{name}"))
    if len(converter.faults) > before:
        return None
    base = _base(node.items["base"], model, converter, "learning_rate.base")
    key = "learning_rate.at_batch_size"
    size = converter.value(node.items["at_batch_size"], int, key)
    if size is not MISSING and size < 1:
        place = node.items["at_batch_size"].place
        converter.faults.append(place.fault(f"{size} must be at least 1", key))
    if len(converter.faults) > before or base is None:
        return None
    return Rate(base, _is_auto(node.items["base"]), size, node.place)


def _is_auto(node: Node) -> bool:
    return isinstance(node, Scalar) and node.text == AUTO


def _base(node: Node, model: str | None, converter: Converter, key: str) -> float | None:
    if not _is_auto(node):
        value: Any = converter.value(node, float, key)
        return None if value is MISSING else float(value)
    if model is None:
        return None
    try:
        return recommended_learning_rate(model)
    except UsageError as error:
        converter.faults.append(node.place.fault(error.message, key))
        return None
