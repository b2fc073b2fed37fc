"""The loss functions of the Tinker API, per token, summed over all tokens of all datums.

p is the learner's log-probability of the target, q the sampler's (`logprobs`), A the advantage,
r = exp(p - q). Sources: the service's page on losses for cross_entropy, importance_sampling, ppo,
cispo and dro; arXiv 2507.18071 (section on the token variant) for gspo. This module knows tensors
only: (N, L) padded rows, with zeros in `weights`, `advantages` and masks where a row is padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tinker_cli.local.faults import ClientFault

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Loss:
    """A loss: its name, the arrays it reads, its settings with defaults, and the formula.

    `formula(p, inputs, config)` takes p and inputs of shape (N, L), or (N, L, K) for
    cross_entropy with K targets, and returns the loss of each token in the same shape.
    """

    name: str
    inputs: tuple[str, ...]
    defaults: Mapping[str, float]
    formula: Callable[[Tensor, Inputs, Mapping[str, float]], Tensor]


def _cross_entropy(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    return -inputs["weights"] * p


def _ratio(p: Tensor, inputs: Inputs) -> Tensor:
    return torch.exp(p - inputs["logprobs"])


def _importance_sampling(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    return -_ratio(p, inputs) * inputs["advantages"]


def _clip(ratio: Tensor, config: Mapping[str, float]) -> Tensor:
    return ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])


def _ppo(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    ratio, advantages = _ratio(p, inputs), inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, config) * advantages)


def _cispo(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    return -_clip(_ratio(p, inputs), config).detach() * inputs["advantages"] * p


def _dro(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    drift = p - inputs["logprobs"]
    return -(p * inputs["advantages"] - 0.5 * config["beta"] * drift * drift)


def _gspo(p: Tensor, inputs: Inputs, config: Mapping[str, float]) -> Tensor:
    mask = inputs["sequence_ratio_mask"]
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    mean = ((p - inputs["logprobs"]) * mask).sum(-1, keepdim=True) / count
    # The sequence's ratio in value, each token's own log-probability in gradient.
    ratio = torch.exp(mean.detach() + p - p.detach())
    advantages = inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, config) * advantages)


_POLICY = ("logprobs", "advantages")
LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("cross_entropy", ("weights",), {}, _cross_entropy),
        Loss("importance_sampling", _POLICY, {}, _importance_sampling),
        # Absolute ratios, not distances from 1.
        Loss("ppo", _POLICY, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}, _ppo),
        # One-sided by default: no lower bound.
        Loss("cispo", _POLICY, {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}, _cispo),
        # 0.05 is the value of the service's documented example.
        Loss("dro", _POLICY, {"beta": 0.05}, _dro),
        # 1 - 3e-4 and 1 + 4e-4: the paper's clipping range.
        Loss(
            "gspo",
            (*_POLICY, "sequence_ratio_mask"),
            {"clip_low_threshold": 1 - 3e-4, "clip_high_threshold": 1 + 4e-4},
            _gspo,
        ),
    )
}


def find_loss(name: str, config: Mapping[str, float | str]) -> tuple[Loss, dict[str, float]]:
    """Return the loss and its settings, defaults filled in; ClientFault for unknown names."""
    if name == "stable_reinforce":
        raise ClientFault(
            "the local engine does not compute stable_reinforce: its objective is not published; "
            "use ppo or importance_sampling"
        )
    loss = LOSSES.get(name)
    if loss is None:
        raise ClientFault(f"unknown loss_fn {name!r}; one of {', '.join(LOSSES)}")
    settings = dict(loss.defaults)
    for key, value in config.items():
        if key not in loss.defaults:
            known = ", ".join(loss.defaults) or "no settings"
            raise ClientFault(f"{name} has no setting {key!r}; it takes {known}")
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ClientFault(f"{name}: {key} must be a finite number, not {value!r}")
        settings[key] = float(value)
    return loss, settings
