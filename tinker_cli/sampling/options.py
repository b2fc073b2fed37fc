"""How to sample, checked: every value out of range is reported at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinker_cli.errors import Fault, InputFaults


@dataclass(frozen=True)
class SamplingOptions:
    """The settings of a request; `stop` empty means the renderer's own stops."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    num_samples: int = 1
    max_tokens_given: bool = True  # False: as many as fit, at most max_tokens

    def check(self) -> None:
        """Raise InputFaults with everything that is out of range."""
        faults = []
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            faults.append(_fault("--temperature", self.temperature, "0 or more"))
        if not 0 < self.top_p <= 1:
            faults.append(_fault("--top-p", self.top_p, "above 0, at most 1"))
        if self.top_k != -1 and self.top_k < 1:
            faults.append(_fault("--top-k", self.top_k, "-1 (all) or 1 and more"))
        if self.max_tokens < 1:
            faults.append(_fault("--max-tokens", self.max_tokens, "1 or more"))
        if self.num_samples < 1:
            faults.append(_fault("-n", self.num_samples, "1 or more"))
        if any(not text for text in self.stop):
            faults.append(_fault("--stop", "''", "not empty"))
        if faults:
            raise InputFaults("nothing was sampled:", faults)


def _fault(option: str, value: object, expected: str) -> Fault:
    return Fault(f"{value} must be {expected}", key=option, expected=expected)
