"""Each loss against an independent float64 computation, its gradient against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tinker_cli.local.faults import ClientFault
from tinker_cli.local.losses import LOSSES, find_loss

ROWS, LENGTH = 3, 7


def made_inputs(seed: int = 0) -> dict[str, np.ndarray]:
    """Log-probabilities, advantages and masks in float64, some ratios outside every clip."""
    random = np.random.default_rng(seed)
    p = -random.exponential(1.0, (ROWS, LENGTH))
    q = p + random.normal(0, 0.7, p.shape)
    mask = (random.random(p.shape) < 0.7).astype(float)
    mask[0] = 0  # a sequence without a token to train on
    return {
        "p": p,
        "logprobs": q,
        "weights": random.normal(0, 1, p.shape),
        "advantages": random.normal(0, 1, p.shape) * mask,
        "sequence_ratio_mask": mask,
    }


def expected(name: str, x: dict[str, np.ndarray], c: dict[str, float]) -> float:
    """The summed loss, token by token in plain Python."""
    total = 0.0
    for row in range(ROWS):
        mask = x["sequence_ratio_mask"][row]
        drift = x["p"][row] - x["logprobs"][row]
        mean = float((drift * mask).sum() / mask.sum()) if mask.sum() else 0.0
        for t in range(LENGTH):
            p, q, a = x["p"][row, t], x["logprobs"][row, t], x["advantages"][row, t]
            r = float(np.exp(p - q))
            low, high = c.get("clip_low_threshold", 0.0), c.get("clip_high_threshold", 0.0)
            if name == "cross_entropy":
                total += -x["weights"][row, t] * p
            elif name == "importance_sampling":
                total += -r * a
            elif name == "ppo":
                total += -min(r * a, min(max(r, low), high) * a)
            elif name == "cispo":
                total += -min(max(r, low), high) * a * p
            elif name == "dro":
                total += -(p * a - c["beta"] / 2 * (p - q) ** 2)
            elif name == "gspo":
                s = float(np.exp(mean))
                total += -min(s * a, min(max(s, low), high) * a)
    return total


def summed(name: str, x: dict[str, np.ndarray], p: torch.Tensor) -> torch.Tensor:
    loss, settings = find_loss(name, {})
    inputs = {key: torch.from_numpy(x[key]) for key in loss.inputs}
    return loss.formula(p, inputs, settings).sum()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(5))
def test_loss_equals_float64_arithmetic(name: str, seed: int) -> None:
    x = made_inputs(seed)
    settings = dict(LOSSES[name].defaults)
    single = {key: value.astype(np.float32) for key, value in x.items()}
    value = float(summed(name, single, torch.from_numpy(single["p"])))
    assert value == pytest.approx(expected(name, x, settings), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "importance_sampling", "ppo", "dro"])
def test_gradient_equals_a_finite_difference(name: str) -> None:
    x = made_inputs(7)
    p = torch.from_numpy(x["p"]).requires_grad_()
    summed(name, x, p).backward()
    assert p.grad is not None
    for row, t in [(1, 0), (1, 3), (2, 6), (0, 2)]:
        step = 1e-6
        moved = []
        for sign in (1, -1):
            y = {**x, "p": x["p"].copy()}
            y["p"][row, t] += sign * step
            moved.append(expected(name, y, dict(LOSSES[name].defaults)))
        difference = (moved[0] - moved[1]) / (2 * step)
        assert float(p.grad[row, t]) == pytest.approx(difference, rel=1e-5, abs=1e-7)


def test_cispo_gradient_is_the_clipped_ratio_held_fixed() -> None:
    x = made_inputs(3)
    p = torch.from_numpy(x["p"]).requires_grad_()
    summed("cispo", x, p).backward()
    clipped = np.minimum(np.exp(x["p"] - x["logprobs"]), 4.0)
    np.testing.assert_allclose(p.grad, -clipped * x["advantages"], rtol=1e-9)


def test_gspo_gradient_is_the_sequence_ratio_times_each_tokens_own() -> None:
    x = made_inputs(4)
    p = torch.from_numpy(x["p"]).requires_grad_()
    summed("gspo", x, p).backward()
    wanted = np.zeros_like(x["p"])
    for row in range(ROWS):
        mask = x["sequence_ratio_mask"][row]
        drift = x["p"][row] - x["logprobs"][row]
        s = np.exp((drift * mask).sum() / max(mask.sum(), 1))
        for t in range(LENGTH):
            a = x["advantages"][row, t]
            low, high = 1 - 3e-4, 1 + 4e-4
            clipped = (a > 0 and s > high) or (a < 0 and s < low)
            wanted[row, t] = 0.0 if clipped else -s * a
    np.testing.assert_allclose(p.grad, wanted, rtol=1e-9, atol=1e-12)


def test_ppo_clips_where_the_published_table_says() -> None:
    """Ratios by hand: 0.5, 1, 2 with advantages of both signs; thresholds 0.8 and 1.2."""
    ratios = torch.tensor([0.5, 1.0, 2.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    inputs = {
        "logprobs": torch.zeros(6, dtype=torch.float64),
        "advantages": torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64),
    }
    loss, settings = find_loss("ppo", {})
    values = loss.formula(ratios.log(), inputs, settings)
    torch.testing.assert_close(
        values, torch.tensor([-0.5, -1.0, -1.2, 0.8, 1.0, 2.0], dtype=torch.float64)
    )


def test_settings_change_the_thresholds() -> None:
    _, settings = find_loss("ppo", {"clip_high_threshold": 3, "clip_low_threshold": 0.1})
    assert settings == {"clip_low_threshold": 0.1, "clip_high_threshold": 3.0}


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("stable_reinforce", {}, ["not published", "ppo", "importance_sampling"]),
        ("crossentropy", {}, ["crossentropy", "cross_entropy"]),
        ("ppo", {"epsilon": 0.2}, ["epsilon", "clip_low_threshold"]),
        ("cross_entropy", {"beta": 1.0}, ["beta", "no settings"]),
        ("dro", {"beta": "high"}, ["beta", "number"]),
        ("dro", {"beta": float("nan")}, ["beta", "finite"]),
    ],
)
def test_unknown_losses_and_settings_are_refused_by_name(
    name: str, config: dict[str, float | str], words: list[str]
) -> None:
    with pytest.raises(ClientFault) as refused:
        find_loss(name, config)
    assert all(word in str(refused.value) for word in words)
