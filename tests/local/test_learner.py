"""The learner: gradients of the adapter, AdamW, batching, what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from small_models import shaken_adapter, small_base_model

from tinker_cli.local.faults import ClientFault
from tinker_cli.local.learner import AdamSettings, Learner
from tinker_cli.local.lora import LORA_ALPHA, LoraShape
from tinker_cli.local.protocol import Datum

TOKENS = np.array([5, 17, 230, 9, 1001, 44], np.int64)


def datum(length: int = 6, seed: int = 0, **inputs: Any) -> Datum:
    random = np.random.default_rng(seed)
    tokens = random.integers(0, 2000, length)
    arrays = {
        "target_tokens": random.integers(0, 2000, length),
        "weights": random.random(length).astype(np.float32),
    }
    return Datum(tokens, {**arrays, **inputs})


@pytest.mark.parametrize("kept", [True, False])
def test_adapter_gradients_equal_finite_differences(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, for both ways of folding; the loss is the network's own, with merged weights."""
    monkeypatch.setattr("tinker_cli.local.lora.KEEP_FOLDED_NUMBERS", 10**9 if kept else 0)
    model = small_base_model(dtype=torch.float64)
    adapter = shaken_adapter(model)
    for tensors in (adapter.a, adapter.b):
        for name in tensors:
            tensors[name] = tensors[name].double()
    learner = Learner(model, adapter)
    data = [datum(6), datum(4, seed=1)]
    learner.forward_backward(data, "cross_entropy", {})
    for name in ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.down_proj", "lm_head"):
        for tensor, gradient in (
            (adapter.a[name], learner._grad_a[name].double()),
            (adapter.b[name], learner._grad_b[name].double()),
        ):
            # Along the gradient the slope is its norm; norms of the network are float32, so the
            # step must not be too small.
            slope, step = float(gradient.norm()), 2e-3
            moved = []
            for sign in (step, -step):
                tensor += sign * gradient / slope
                moved.append(merged_loss(model, adapter, data))
                tensor -= sign * gradient / slope
            difference = (moved[0] - moved[1]) / (2 * step)
            assert slope == pytest.approx(difference, rel=2e-3)


def test_adapter_gradients_equal_those_of_merged_weights(small_model: Any) -> None:
    """Every entry, against autograd through W + (alpha/rank) B A written out."""
    adapter = shaken_adapter(small_model)
    learner = Learner(small_model, adapter)
    data = [datum(6), datum(4, seed=1)]
    learner.forward_backward(data, "cross_entropy", {})
    a = {name: tensor.clone().requires_grad_() for name, tensor in adapter.a.items()}
    b = {name: tensor.clone().requires_grad_() for name, tensor in adapter.b.items()}
    scale = LORA_ALPHA / adapter.shape.rank
    merged = {
        f"{name}.weight": small_model.layers[name].weight + scale * (b[name] @ a[name])
        for name in a
    }
    total = torch.zeros(())
    for each in data:
        ids = {"input_ids": torch.from_numpy(each.tokens)[None]}
        logits = torch.func.functional_call(small_model.network, merged, kwargs=ids).logits[0]
        p = torch.log_softmax(logits, -1).gather(
            -1, torch.from_numpy(each.inputs["target_tokens"])[:, None]
        )
        total = total - (p[:, 0] * torch.from_numpy(each.inputs["weights"])).sum()
    total.backward()
    for name in a:
        torch.testing.assert_close(learner._grad_a[name], a[name].grad, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(learner._grad_b[name], b[name].grad, rtol=1e-3, atol=1e-4)


def merged_loss(model: Any, adapter: Any, data: list[Datum]) -> float:
    """The summed cross-entropy of the network with W + (alpha/rank) B A written into it."""
    network = copy.deepcopy(model.network)
    layers = dict(network.named_modules())
    with torch.no_grad():
        for name in adapter.a:
            delta = adapter.b[name] @ adapter.a[name] * (LORA_ALPHA / adapter.shape.rank)
            layers[name].weight = torch.nn.Parameter(model.layers[name].weight + delta)
        total = 0.0
        for each in data:
            logits = network(input_ids=torch.from_numpy(each.tokens)[None]).logits[0].double()
            scores = torch.log_softmax(logits, -1)
            targets = torch.from_numpy(each.inputs["target_tokens"])
            p = scores.gather(-1, targets[:, None])[:, 0]
            total -= float((p * torch.from_numpy(each.inputs["weights"]).double()).sum())
    return total


def test_a_batch_is_the_sum_of_its_datums(small_model: Any) -> None:
    data = [datum(length, seed=length) for length in (3, 40, 7, 7, 120, 1)]
    together = Learner(small_model, shaken_adapter(small_model))
    outputs, metrics = together.forward_backward(data, "cross_entropy", {})
    apart = Learner(small_model, shaken_adapter(small_model))
    losses = []
    for each, output in zip(data, outputs, strict=True):
        alone, more = apart.forward_backward([each], "cross_entropy", {})
        losses.append(more["loss:sum"])
        assert alone[0]["logprobs"].shape == (len(each.tokens),)
        np.testing.assert_allclose(output["logprobs"], alone[0]["logprobs"], atol=1e-5)
    assert metrics["loss:sum"] == pytest.approx(sum(losses), rel=1e-5)
    for name, gradient in together._grad_a.items():
        torch.testing.assert_close(gradient, apart._grad_a[name], rtol=1e-3, atol=1e-4)


def test_a_token_budget_changes_nothing(small_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [datum(length, seed=length) for length in (3, 40, 7, 90)]
    whole = Learner(small_model, shaken_adapter(small_model))
    _, metrics = whole.forward_backward(data, "cross_entropy", {})
    monkeypatch.setattr("tinker_cli.local.learner.TOKEN_BUDGET", 50)
    cut = Learner(small_model, shaken_adapter(small_model))
    _, more = cut.forward_backward(data, "cross_entropy", {})
    assert more["loss:sum"] == pytest.approx(metrics["loss:sum"], rel=1e-6)
    for name, gradient in whole._grad_b.items():
        torch.testing.assert_close(gradient, cut._grad_b[name], rtol=1e-3, atol=1e-4)


def test_adamw_follows_its_definition(small_model: Any) -> None:
    """Three steps of one matrix, against the textbook recursion in float64."""
    learner = Learner(small_model, shaken_adapter(small_model))
    name = "model.layers.0.mlp.up_proj"
    settings = AdamSettings(learning_rate=0.01, weight_decay=0.1, beta2=0.99, eps=1e-8)
    theta = learner.adapter.b[name].double().numpy().copy()
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, 4):
        learner.forward_backward([datum(9, seed=step)], "cross_entropy", {})
        g = learner._grad_b[name].double().numpy().copy()
        learner.step(settings)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        theta -= 0.01 * 0.1 * theta
        theta -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
        np.testing.assert_allclose(learner.adapter.b[name].numpy(), theta, rtol=2e-5, atol=1e-7)


def test_gradients_add_up_until_a_step_and_are_clipped_by_their_global_norm(
    small_model: Any,
) -> None:
    learner = Learner(small_model, shaken_adapter(small_model))
    learner.forward_backward([datum(8)], "cross_entropy", {})
    once = learner._grad_b["lm_head"].clone()
    learner.forward_backward([datum(8)], "cross_entropy", {})
    torch.testing.assert_close(learner._grad_b["lm_head"], 2 * once)
    everything = [*learner._grad_a.values(), *learner._grad_b.values()]
    norm = float(torch.cat([g.flatten() for g in everything]).double().norm())
    first = learner.step(AdamSettings(grad_clip_norm=norm / 10, beta1=0.0))
    assert first["grad_norm:max"] == pytest.approx(norm, rel=1e-6)
    torch.testing.assert_close(
        learner.moments.first["lm_head.b"], 2 * once / 10, rtol=1e-4, atol=1e-7
    )
    assert learner.step(AdamSettings())["grad_norm:max"] == 0.0


def test_forward_leaves_no_gradient(small_model: Any) -> None:
    learner = Learner(small_model, shaken_adapter(small_model))
    outputs, metrics = learner.forward_backward([datum(8)], "cross_entropy", {}, forward_only=True)
    assert learner._grad_a == {}
    again, more = learner.forward_backward([datum(8)], "cross_entropy", {})
    assert more["loss:sum"] == metrics["loss:sum"]
    np.testing.assert_array_equal(outputs[0]["logprobs"], again[0]["logprobs"])


def test_several_targets_a_token(small_model: Any) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, 2000, 5)
    targets, weights = random.integers(0, 2000, (5, 3)), random.random((5, 3)).astype(np.float32)
    learner = Learner(small_model, shaken_adapter(small_model))
    many = Datum(tokens, {"target_tokens": targets, "weights": weights})
    outputs, metrics = learner.forward_backward([many, datum(4)], "cross_entropy", {})
    assert outputs[0]["logprobs"].shape == (5, 3)
    assert outputs[1]["logprobs"].shape == (4,)
    columns = [
        Datum(tokens, {"target_tokens": targets[:, k], "weights": weights[:, k]}) for k in range(3)
    ]
    one_by_one, more = learner.forward_backward(
        [*columns, datum(4)], "cross_entropy", {}, forward_only=True
    )
    assert metrics["loss:sum"] == pytest.approx(more["loss:sum"], rel=1e-5)
    for k in range(3):
        np.testing.assert_allclose(
            outputs[0]["logprobs"][:, k], one_by_one[k]["logprobs"], atol=1e-5
        )


def test_an_adapter_that_trains_some_layers_only(small_model: Any) -> None:
    attention = small_model.new_adapter(LoraShape(2, train_mlp=False, train_unembed=False), 0)
    assert all("self_attn" in name for name in attention.a)
    mlp = small_model.new_adapter(LoraShape(2, train_attn=False, train_unembed=False), 0)
    assert all("mlp" in name for name in mlp.a)
    with pytest.raises(ClientFault, match="trains no layer"):
        small_model.new_adapter(LoraShape(2, False, False, False), 0)
    with pytest.raises(ClientFault, match="rank"):
        small_model.new_adapter(LoraShape(0), 0)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"weights": np.ones(5, np.float32)}, ["6 tokens", "weights [5]"]),
        ({"target_tokens": np.arange(5)}, ["6 tokens", "target_tokens [5]"]),
        ({"target_tokens": np.arange(6) + 2045}, ["outside 0 to 2047"]),
        ({"target_tokens": np.arange(6) - 1}, ["outside 0 to 2047"]),
        ({"weights": np.array([1, 1, np.nan, 1, 1, 1], np.float32)}, ["weights is not finite"]),
        ({"advantages": np.ones(6, np.float32)}, ["no input advantages"]),
    ],
)
def test_a_wrong_datum_is_named_and_changes_nothing(
    small_model: Any, inputs: dict[str, Any], words: list[str]
) -> None:
    learner = Learner(small_model, shaken_adapter(small_model))
    with pytest.raises(ClientFault) as refused:
        learner.forward_backward([datum(6), datum(6, **inputs)], "cross_entropy", {})
    assert all(word in str(refused.value) for word in ["datum 1", *words])
    assert learner._grad_a == {}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "gpt2", "gemma2"])
def test_lora_trains_models_of_other_families(kind: str) -> None:
    more = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256} if kind == "gpt2" else {}
    window = 64 if kind == "gemma2" else None
    model = small_base_model(kind, sliding_window=window, **more)
    learner = Learner(model, model.new_adapter(LoraShape(4), 0))
    losses = []
    for _ in range(4):
        _, metrics = learner.forward_backward([datum(12)], "cross_entropy", {})
        losses.append(metrics["loss:sum"])
        learner.step(AdamSettings(learning_rate=5e-3))
    assert losses[-1] < losses[0] * 0.95
