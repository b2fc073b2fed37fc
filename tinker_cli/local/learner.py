"""Training one adapter: log-probabilities, losses, accumulated gradients, AdamW.

Datums are sorted by length and packed into rectangles under a token budget, so that little of a
batch is padding. Losses are sums over tokens, and gradients add up over calls until `step`.
Knows tensors and adapters; knows nothing of requests or files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tinker_cli.local.faults import ClientFault
from tinker_cli.local.lora import Adapter, BaseModel
from tinker_cli.local.losses import Loss, find_loss
from tinker_cli.local.protocol import Datum

TOKEN_BUDGET = 8192  # tokens of one rectangle: keeps activations in the cache of a small CPU
LOGIT_BUDGET = 1 << 27  # numbers of one rectangle's logits, half a gigabyte in float32
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class AdamSettings:
    """One step's settings, with the service's defaults."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass
class Moments:
    """Adam's state: first and second moments by parameter name, and the steps taken."""

    first: dict[str, Tensor] = field(default_factory=dict)
    second: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0


class Learner:
    """An adapter in training, with its gradients and optimizer state."""

    def __init__(self, model: BaseModel, adapter: Adapter, moments: Moments | None = None):
        self.model, self.adapter = model, adapter
        self.moments = moments or Moments()
        self._grad_a: dict[str, Tensor] = {}
        self._grad_b: dict[str, Tensor] = {}

    def forward_backward(
        self,
        data: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float | str],
        *,
        forward_only: bool = False,
    ) -> tuple[list[dict[str, Array]], dict[str, float]]:
        """Return each datum's `logprobs` (N,) or (N, K), and `loss:sum` among the metrics.

        Unless `forward_only`, adds the gradient of the summed loss. Raises ClientFault and changes
        nothing if a datum is wrong.
        """
        loss, settings = find_loss(loss_fn, config)
        if not data:
            raise ClientFault("the request has no datums")
        checked = [_checked(i, datum, loss, self.model) for i, datum in enumerate(data)]
        outputs: list[dict[str, Array]] = [{} for _ in data]
        total = 0.0
        with self.model.training(self.adapter) as (leaves_a, leaves_b):
            for members in self._rectangles(data):
                batch = _Rectangle(
                    [data[i] for i in members], [checked[i] for i in members], self.model.device
                )
                with torch.set_grad_enabled(not forward_only):
                    logprobs = target_logprobs(self.model, batch.tokens, batch.targets)
                    summed = loss.formula(logprobs, batch.inputs, settings).sum()
                if not forward_only:
                    summed.backward()  # type: ignore[no-untyped-call]
                total += float(summed.detach())
                rows = logprobs.detach().float().cpu().numpy()
                for row, index in zip(rows, members, strict=True):
                    outputs[index] = {"logprobs": _cut(row, checked[index]["target_tokens"])}
        if not forward_only:
            _add(self._grad_a, leaves_a)
            _add(self._grad_b, leaves_b)
        tokens = sum(len(datum.tokens) for datum in data)
        return outputs, {"loss:sum": total, "num_tokens:sum": float(tokens)}

    def _rectangles(self, data: Sequence[Datum]) -> Iterator[list[int]]:
        """Indices of datums, longest first, cut so that no rectangle exceeds the budget."""
        budget = min(TOKEN_BUDGET, max(LOGIT_BUDGET // self.model.vocab_size, 1))
        order = sorted(range(len(data)), key=lambda i: (-len(data[i].tokens), i))
        start = 0
        while start < len(order):
            width = len(data[order[start]].tokens)
            rows = max(budget // width, 1)
            yield order[start : start + rows]
            start += rows

    def step(self, settings: AdamSettings) -> dict[str, float]:
        """One AdamW step (decoupled weight decay) on the accumulated gradient, then clear it."""
        parameters = {f"{name}.a": tensor for name, tensor in self.adapter.a.items()}
        parameters |= {f"{name}.b": tensor for name, tensor in self.adapter.b.items()}
        gradients = {f"{name}.a": g for name, g in self._grad_a.items()}
        gradients |= {f"{name}.b": g for name, g in self._grad_b.items()}
        norm = math.sqrt(math.fsum(float(g.double().pow(2).sum()) for g in gradients.values()))
        if not math.isfinite(norm):
            self._grad_a, self._grad_b = {}, {}
            raise ClientFault("the gradient is not finite; the step was not taken")
        clip = 1.0
        if settings.grad_clip_norm > 0 and norm > settings.grad_clip_norm:
            clip = settings.grad_clip_norm / norm
        self.moments.steps += 1
        self._adam(parameters, gradients, settings, clip)
        self.adapter.changed()
        self._grad_a, self._grad_b = {}, {}
        return {"grad_norm:max": norm, "learning_rate:max": settings.learning_rate}

    def _adam(
        self,
        parameters: dict[str, Tensor],
        gradients: dict[str, Tensor],
        settings: AdamSettings,
        clip: float,
    ) -> None:
        moments, step = self.moments, self.moments.steps
        correction1 = 1 - settings.beta1**step
        correction2 = 1 - settings.beta2**step
        for name, parameter in parameters.items():
            gradient = gradients.get(name)
            gradient = torch.zeros_like(parameter) if gradient is None else gradient * clip
            first = moments.first.setdefault(name, torch.zeros_like(parameter))
            second = moments.second.setdefault(name, torch.zeros_like(parameter))
            first.mul_(settings.beta1).add_(gradient, alpha=1 - settings.beta1)
            second.mul_(settings.beta2).addcmul_(gradient, gradient, value=1 - settings.beta2)
            parameter.mul_(1 - settings.learning_rate * settings.weight_decay)
            denominator = (second / correction2).sqrt_().add_(settings.eps)
            parameter.addcdiv_(first / correction1, denominator, value=-settings.learning_rate)


def _add(totals: dict[str, Tensor], leaves: Mapping[str, Tensor]) -> None:
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            totals[name] = totals[name] + leaf.grad if name in totals else leaf.grad


def _cut(row: Array, targets: Array) -> Array:
    """A datum's part of a padded row: its length, and its own number of targets a token."""
    row = row[: len(targets)]
    if row.ndim == 2:
        row = row[:, 0] if targets.ndim == 1 else row[:, : targets.shape[1]]
    return row.copy()


class _Pick(torch.autograd.Function):
    """Log-softmax at some targets; backward reuses the logits' memory for their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """logits (N, L, V) float32, targets (N, L, K) -> (N, L, K)."""
        normaliser = torch.logsumexp(logits, -1, keepdim=True)
        ctx.save_for_backward(targets, normaliser)
        ctx.logits = logits
        return logits.gather(-1, targets) - normaliser

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        targets, normaliser = ctx.saved_tensors
        gradient = ctx.logits.sub_(normaliser).exp_().mul_(-grad.sum(-1, keepdim=True))
        ctx.logits = None
        return gradient.scatter_add_(-1, targets, grad), None


def target_logprobs(model: BaseModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """Log-probability (nats) of each target: tokens (N, L); targets (N, L) or (N, L, K)."""
    logits = model.network(input_ids=tokens, use_cache=False).logits.float()  # (N, L, V)
    wanted = targets if targets.dim() == 3 else targets.unsqueeze(-1)
    picked: Tensor = _Pick.apply(logits, wanted)  # type: ignore[no-untyped-call]
    return picked if targets.dim() == 3 else picked.squeeze(-1)


def _checked(index: int, datum: Datum, loss: Loss, model: BaseModel) -> dict[str, Array]:
    """The arrays that the loss reads, shaped as the targets; ClientFault if one is wrong."""
    length = len(datum.tokens)
    known = {"target_tokens", "weights", *loss.inputs, "mask"}
    if unknown := sorted(set(datum.inputs) - known):
        raise ClientFault(f"datum {index}: {loss.name} has no input {', '.join(unknown)}")
    targets = datum.inputs.get("target_tokens")
    if targets is None:
        raise ClientFault(f"datum {index}: target_tokens is missing")
    if length > model.context:
        raise ClientFault(f"datum {index}: {length} tokens; the model's context is {model.context}")
    arrays: dict[str, Array] = {"target_tokens": targets.astype(np.int64)}
    for name in loss.inputs:
        value = datum.inputs.get(name)
        if value is None:
            raise ClientFault(f"datum {index}: {loss.name} needs {name}")
        arrays[name] = value.astype(np.float32)
    lengths = {name: value.shape for name, value in arrays.items()}
    if targets.shape[:1] != (length,) or any(s != targets.shape for s in lengths.values()):
        raise ClientFault(f"datum {index}: {length} tokens, but {_shapes(lengths)}")
    if targets.ndim == 2 and loss.name != "cross_entropy":
        raise ClientFault(f"datum {index}: {loss.name} takes one target a token")
    for name, ids in (("model_input", datum.tokens), ("target_tokens", arrays["target_tokens"])):
        if ids.min() < 0 or ids.max() >= model.vocab_size:
            raise ClientFault(
                f"datum {index}: {name} has a token outside 0 to {model.vocab_size - 1}"
            )
    for name in loss.inputs:
        if not np.isfinite(arrays[name]).all():
            raise ClientFault(f"datum {index}: {name} is not finite")
    return arrays


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


class _Rectangle:
    """Datums padded on the right to one length; padding has weight, advantage and mask zero."""

    def __init__(
        self, data: Sequence[Datum], arrays: Sequence[Mapping[str, Array]], device: torch.device
    ):
        self._device = device
        width = max(len(datum.tokens) for datum in data)
        self.tokens = self._tensor([d.tokens for d in data], width, np.int64)
        targets = [a["target_tokens"] for a in arrays]
        top = max((t.shape[1] for t in targets if t.ndim == 2), default=0)
        if top:  # (N, L, K): rows with one target a token get K - 1 of weight zero
            arrays = [{name: _widened(value, top) for name, value in a.items()} for a in arrays]
        self.targets = self._tensor([a["target_tokens"] for a in arrays], width, np.int64)
        self.inputs = {
            name: self._tensor([a[name] for a in arrays], width, np.float32)
            for name in arrays[0]
            if name != "target_tokens"
        }

    def _tensor(self, rows: Sequence[Array], width: int, dtype: Any) -> Tensor:
        return torch.from_numpy(_padded(rows, width, dtype)).to(self._device)


def _widened(value: Array, top: int) -> Array:
    value = value[:, None] if value.ndim == 1 else value
    return np.pad(value, ((0, 0), (0, top - value.shape[1])))


def _padded(rows: Sequence[Array], width: int, dtype: Any) -> Array:
    out = np.zeros((len(rows), width, *rows[0].shape[1:]), dtype)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return out
