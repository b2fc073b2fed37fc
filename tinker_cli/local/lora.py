"""A base model and the LoRA adapters that take turns on it.

An adapted layer computes with one effective weight, W + (alpha/rank) B A, folded once for a whole
batch; backward leaves the gradient of that weight, from which those of A and B follow exactly:
dB = s dW A^T, dA = s B^T dW. Learner and sampler use the same folded weights, so they agree.
Knows torch modules; knows nothing of losses, requests or files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tinker_cli.local.faults import ClientFault

LORA_ALPHA = 32.0  # as the service's adapters: scale = alpha / rank
MAX_RANK = 512


class FoldedLinear(nn.Module):
    """A frozen linear layer whose weight can be exchanged for an effective one."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.weight = base.weight  # (out, in), frozen
        self.bias = base.bias
        self.in_features, self.out_features = base.in_features, base.out_features
        self.effective: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        weight = self.weight if self.effective is None else self.effective
        return F.linear(x, weight, self.bias)


@dataclass(frozen=True)
class LoraShape:
    """What an adapter covers."""

    rank: int
    train_mlp: bool = True
    train_attn: bool = True
    train_unembed: bool = True

    def covers(self, name: str) -> bool:
        """True if the layer of that name gets an adapter."""
        if name == "lm_head":
            return self.train_unembed
        return self.train_attn if "attn" in name or "attention" in name else self.train_mlp


@dataclass
class Adapter:
    """LoRA weights by layer name: A (rank, in) and B (out, rank), float32."""

    shape: LoraShape
    a: dict[str, Tensor]
    b: dict[str, Tensor]
    _digest: str | None = field(default=None, repr=False)

    @property
    def scale(self) -> float:
        """alpha / rank."""
        return LORA_ALPHA / self.shape.rank

    def digest(self) -> str:
        """A hash of the weights' content: equal after save and load, however they came about."""
        if self._digest is None:
            hasher = hashlib.blake2b(digest_size=16)
            for name in self.a:
                for tensor in (self.a[name], self.b[name]):
                    hasher.update(tensor.detach().cpu().contiguous().numpy().tobytes())
            self._digest = hasher.hexdigest()
        return self._digest

    def changed(self) -> None:
        """Forget the hash: the weights have been updated in place."""
        self._digest = None

    def copy(self) -> Adapter:
        """An adapter with the same weights and tensors of its own."""
        return Adapter(
            self.shape,
            {name: tensor.clone() for name, tensor in self.a.items()},
            {name: tensor.clone() for name, tensor in self.b.items()},
            self._digest,
        )


class BaseModel:
    """A causal LM with its tokenizer, its linear layers made exchangeable."""

    def __init__(self, name: str, source: str, network: Any, tokenizer: Any):
        self.name, self.source = name, source
        self.network, self.tokenizer = network, tokenizer
        self.layers: dict[str, FoldedLinear] = _exchange_linears(network)
        self.device = next(network.parameters()).device
        self.vocab_size = int(network.config.vocab_size)
        self.context = int(getattr(network.config, "max_position_embeddings", 2048))
        eos = network.generation_config.eos_token_id if network.generation_config else None
        eos = network.config.eos_token_id if eos is None else eos
        eos = tokenizer.eos_token_id if eos is None else eos
        self.eos_ids: tuple[int, ...] = tuple(eos) if isinstance(eos, list) else (eos,)
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        network.eval()

    def new_adapter(self, shape: LoraShape, seed: int) -> Adapter:
        """A fresh adapter: A uniform as torch's Linear, B zero, so that it changes nothing yet."""
        if not 1 <= shape.rank <= MAX_RANK:
            raise ClientFault(f"lora rank must be between 1 and {MAX_RANK}, not {shape.rank}")
        generator = torch.Generator().manual_seed(seed)
        a, b = {}, {}
        for name, layer in self.layers.items():
            if not shape.covers(name):
                continue
            bound = 1 / math.sqrt(layer.in_features)
            uniform = torch.rand(shape.rank, layer.in_features, generator=generator)
            a[name] = ((2 * uniform - 1) * bound).to(self.device)
            b[name] = torch.zeros(layer.out_features, shape.rank, device=self.device)
        if not a:
            raise ClientFault("the LoRA config trains no layer: set train_mlp, train_attn or both")
        return Adapter(shape, a, b)

    @contextmanager
    def wearing(self, adapter: Adapter | None, *, training: bool = False) -> Iterator[None]:
        """Compute with `adapter` folded in; when training, effective weights collect gradients."""
        try:
            for name, layer in self.layers.items():
                if adapter is None or name not in adapter.a:
                    continue
                with torch.no_grad():
                    delta = (adapter.b[name] @ adapter.a[name]) * adapter.scale
                    effective = layer.weight + delta.to(layer.weight.dtype)
                layer.effective = effective.requires_grad_(training)
            yield
        finally:
            for layer in self.layers.values():
                layer.effective = None

    def adapter_gradients(self, adapter: Adapter) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients of A and B from those of the effective weights, inside `wearing`."""
        grad_a, grad_b = {}, {}
        for name in adapter.a:
            effective = self.layers[name].effective
            if effective is None or effective.grad is None:
                continue
            gradient = effective.grad.float() * adapter.scale  # (out, in)
            grad_a[name] = adapter.b[name].T @ gradient
            grad_b[name] = gradient @ adapter.a[name].T
        return grad_a, grad_b


def _exchange_linears(network: Any) -> dict[str, FoldedLinear]:
    layers = {}
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Linear):
            parent = network.get_submodule(name.rpartition(".")[0]) if "." in name else network
            layer = FoldedLinear(module)
            setattr(parent, name.rpartition(".")[2], layer)
            layers[name] = layer
    return layers


def load_base_model(
    name: str, source: str, *, device: str = "auto", dtype: str = "auto"
) -> BaseModel:
    """Load a causal LM from a folder or a hub name; raises ClientFault in one sentence.

    Eager attention on CPU: for the short sequences of small models it trains faster there than
    torch's fused one. Code inside a model folder is never run.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = _choose_device(device)
    number = torch.float32 if dtype == "auto" and place == "cpu" else _DTYPES.get(dtype)
    number = number or torch.bfloat16
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        network = AutoModelForCausalLM.from_pretrained(
            source, dtype=number, attn_implementation="eager" if place == "cpu" else "sdpa"
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClientFault(f"the model {source} can't be loaded: {first}") from None
    return BaseModel(name, source, network.to(place), tokenizer)


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _choose_device(device: str) -> str:
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
