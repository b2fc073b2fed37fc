"""A checked spec, as a value; and the faults of one that is not.

Knows nothing of how a spec is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tinker_cli.errors import Fault, InputFaults
from tinker_cli.spec.rates import Rate
from tinker_cli.spec.reader import Place

Kind = Literal["sl", "rl"]


@dataclass(frozen=True)
class LocalOptions:
    """How the embedded engine is started for this spec."""

    model: str | None = None
    device: str | None = None
    threads: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class GuardSpec:
    """A rule on each row of metrics: `when` holds for `for_` rows running -> `do`."""

    when: str
    for_: int = 1
    do: str = "warn"


@dataclass(frozen=True)
class Spec:
    """A spec whose every value has been checked and whose every default is known."""

    kind: Kind
    path: Path
    name: str
    values: dict[str, Any]  # plain and resolved: what `write.dump` writes
    config_values: dict[str, Any]  # keyword arguments of the cookbook's Config
    log_path: Path
    is_local: bool
    local: LocalOptions
    guards: tuple[GuardSpec, ...]
    on_end: str | None
    hash: str
    model_name: str
    renderer_name: str
    base_url: str | None
    rate: Rate | None = None  # the learning rate as it was asked for
    places: Mapping[str, Place] = field(default_factory=dict)  # where a dotted key was written

    def fault(self, message: str, key: str) -> Fault:
        """A fault at the place where `key`, or the mapping around it, was written."""
        place = self.places.get(key) or self.places.get(key.rpartition(".")[0])
        if place is None:
            return Fault(message, file=str(self.path), key=key)
        return place.fault(message, key)


class SpecFaults(InputFaults):
    """A spec's faults; `builder` is its dataset builder if that much of it is sound."""

    def __init__(self, path: Path, faults: list[Fault], builder: Any | None):
        count = f"{len(faults)} fault" + ("" if len(faults) == 1 else "s")
        super().__init__(f"{path} has {count}; nothing was started.", faults)
        self.path, self.builder = path, builder


def batch_size(builder: Any) -> int | None:
    """The batch size of a dataset builder; None if it has none by that name."""
    common = getattr(builder, "common_config", None)
    size = getattr(builder, "batch_size", getattr(common, "batch_size", None))
    return size if isinstance(size, int) else None
