"""Guards: expressions over a row's metrics that warn, save a checkpoint, or stop the run.

Two are built in: a KL between sampler and learner above 0.01 warns, a loss or reward that isn't
a number stops. Knows nothing of how a run is stopped or saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KL_WARNING = 0.01  # the level above which the cookbook's docs call training unstable
KL_KEYS = ("optim/kl_sample_train_v2", "optim/kl_sample_train_v1")
REWARD_SUFFIX = "reward/total"
LOSS_KEYS = ("train_mean_nll",)
COST_KEY = "cost/cumulative_usd"


@dataclass(frozen=True)
class Verdict:
    """What a guard says of a row: `action` is warn, checkpoint or stop."""

    action: str
    message: str
    guard: str
    poisoned: bool = False  # the weights may hold NaN: not worth a checkpoint


class Guard:
    """A user's guard: fires when its expression has been true on `for_` rows in a row."""

    def __init__(self, when: str, for_: int, action: str):
        from tinker_cli.runs.expressions import parse

        self.when = when
        self.action = action
        self._for = max(1, for_)
        self._expression = parse(when)
        self._count = 0

    def look(self, row: Mapping[str, Any], step: int) -> Verdict | None:
        """Judge one row; a row without the guard's metrics leaves its count as it is."""
        numbers = {key: value for key, value in row.items() if isinstance(value, (int, float))}
        answer = self._expression.evaluate(numbers)
        if answer is None:
            return None
        self._count = self._count + 1 if answer else 0
        if self._count == 0 or self._count % self._for:
            return None
        times = f" for {self._count} rows" if self._for > 1 else ""
        return Verdict(self.action, f"{self.when}{times} at step {step}", self.when)


class Guards:
    """All guards of a run. `max_usd` stops the run when its cost reaches that many dollars."""

    def __init__(self, specs: Sequence[Any] = (), *, max_usd: float | None = None):
        self._guards = [Guard(spec.when, spec.for_, spec.do) for spec in specs]
        self._max_usd = max_usd

    def look(self, row: Mapping[str, Any], step: int) -> list[Verdict]:
        """Return what the guards say of the row of `step`."""
        verdicts = [guard.look(row, step) for guard in self._guards]
        verdicts += [_not_a_number(row, step), _kl_high(row, step), self._cost(row, step)]
        return [verdict for verdict in verdicts if verdict is not None]

    def _cost(self, row: Mapping[str, Any], step: int) -> Verdict | None:
        if self._max_usd is None:
            return None
        cost = row.get(COST_KEY)
        if not isinstance(cost, (int, float)):
            return Verdict(
                "stop", f"the cost isn't known at step {step}, so --max-usd can't hold", "max-usd"
            )
        if cost < self._max_usd:
            return None
        return Verdict("stop", f"cost ${cost:.2f} reached --max-usd {self._max_usd:g}", "max-usd")


def _not_a_number(row: Mapping[str, Any], step: int) -> Verdict | None:
    for key, value in row.items():
        watched = key in LOSS_KEYS or key.endswith(REWARD_SUFFIX)
        if watched and isinstance(value, float) and not math.isfinite(value):
            return Verdict("stop", f"{key} is {value} at step {step}", f"nan({key})", poisoned=True)
    return None


def _kl_high(row: Mapping[str, Any], step: int) -> Verdict | None:
    for key in KL_KEYS:
        value = row.get(key)
        if isinstance(value, (int, float)) and value > KL_WARNING:
            label = "KL " + key.rsplit("_", 1)[-1]
            return Verdict(
                "warn",
                f"{label} {value:.4f} > {KL_WARNING} at step {step}",
                f"{key} > {KL_WARNING}",
            )
    return None
