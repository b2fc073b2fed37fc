"""A base model and the LoRA adapters that take turns on it.

An adapted layer computes with one effective weight, W + (alpha/rank) B A. For training it is folded
inside an autograd function whose backward needs no gradient of W: dB = s g^T (x A^T) and
dA = s (g B)^T x, both of low rank. Learner and sampler compute the same function.
Knows torch modules; knows nothing of losses, requests or files.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tinker_cli.local.decoder import Decoder, is_served
from tinker_cli.local.faults import ClientFault

SMALL_MODEL_NUMBERS = 20_000_000
LORA_ALPHA = 32.0  # as the service's adapters: scale = alpha / rank
MAX_RANK = 512
KEEP_FOLDED_NUMBERS = 50_000_000  # adapted weights up to this are kept folded, not folded per use


def fold(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale B A in W's type: weight (out, in), a (rank, in), b (out, rank)."""
    return torch.add(weight, (b @ a).to(weight.dtype), alpha=scale)


class _Adapted(torch.autograd.Function):
    """y = x (W + s B A)^T + bias, with gradients of x, A and B only."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        a: Tensor,
        b: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: float,
        folded: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x, a, b, weight, folded)
        ctx.scale = scale
        return F.linear(x, fold(weight, a, b, scale) if folded is None else folded, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, a, b, weight, folded = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ (fold(weight, a, b, ctx.scale) if folded is None else folded)
        g = grad.reshape(-1, grad.shape[-1])  # (tokens, out)
        flat = x.reshape(-1, x.shape[-1])  # (tokens, in)
        low_a, low_b = a.to(x.dtype), b.to(x.dtype)
        grad_b = (g.T @ (flat @ low_a.T)).float() * ctx.scale  # (out, rank)
        grad_a = ((g @ low_b).T @ flat).float() * ctx.scale  # (rank, in)
        return grad_x, grad_a, grad_b, None, None, None, None


@dataclass(frozen=True)
class _Training:
    """What a layer trains with: the adapter's leaves, and the folded weight where it is kept."""

    a: Tensor
    b: Tensor
    scale: float
    folded: Tensor | None


class FoldedLinear(nn.Module):
    """A frozen linear layer whose weight can be exchanged for an effective one."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)  # (out, in)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = weight.shape
        self.effective: Tensor | None = None
        self.training_with: _Training | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        if (lora := self.training_with) is not None:
            out: Tensor = _Adapted.apply(  # type: ignore[no-untyped-call]
                x, lora.a, lora.b, self.weight, self.bias, lora.scale, lora.folded
            )
            return out
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
        if name.rpartition(".")[2] in ("lm_head", "embed_out"):
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
            for name in sorted(self.a):
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
        self.decoder = Decoder(network, self.layers) if is_served(network) else None
        self.lanes = 1  # threads that sampling may use at once, each with rows of its own

    @functools.cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The threads of the lanes, each of which computes alone."""
        return ThreadPoolExecutor(self.lanes, "lane", torch.set_num_threads, (1,))

    @functools.cached_property
    def is_small(self) -> bool:
        """True if a matrix product is too short a piece of work to be shared between threads."""
        numbers = sum(parameter.numel() for parameter in self.network.parameters())
        return bool(self.device.type == "cpu" and numbers < SMALL_MODEL_NUMBERS)

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

    def fold(self, adapter: Adapter | None) -> dict[str, Tensor]:
        """The effective weight of each adapted layer."""
        if adapter is None:
            return {}
        with torch.no_grad():
            return {
                name: fold(
                    self.layers[name].weight, adapter.a[name], adapter.b[name], adapter.scale
                )
                for name in adapter.a
            }

    @contextmanager
    def wearing(self, folded: Mapping[str, Tensor]) -> Iterator[None]:
        """Compute with these effective weights."""
        try:
            for name, weight in folded.items():
                self.layers[name].effective = weight
            yield
        finally:
            for name in folded:
                self.layers[name].effective = None

    @contextmanager
    def training(self, adapter: Adapter) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Compute with `adapter`; gradients collect in the leaves A and B that this gives."""
        leaves_a = {name: tensor.detach().requires_grad_() for name, tensor in adapter.a.items()}
        leaves_b = {name: tensor.detach().requires_grad_() for name, tensor in adapter.b.items()}
        numbers = sum(self.layers[name].weight.numel() for name in adapter.a)
        folded = self.fold(adapter) if numbers <= KEEP_FOLDED_NUMBERS else {}
        try:
            for name, a in leaves_a.items():
                self.layers[name].training_with = _Training(
                    a, leaves_b[name], adapter.scale, folded.get(name)
                )
            yield leaves_a, leaves_b
        finally:
            for name in leaves_a:
                self.layers[name].training_with = None


def _exchange_linears(network: Any) -> dict[str, FoldedLinear]:
    from transformers.pytorch_utils import Conv1D

    layers = {}
    for name, module in list(network.named_modules()):
        if not isinstance(module, (nn.Linear, Conv1D)):
            continue
        # GPT-2's Conv1D is a linear layer whose weight is stored as (in, out).
        weight = module.weight if isinstance(module, nn.Linear) else module.weight.T.contiguous()
        parent = network.get_submodule(name.rpartition(".")[0]) if "." in name else network
        layer = FoldedLinear(weight.detach(), module.bias)
        setattr(parent, name.rpartition(".")[2], layer)
        layers[name] = layer
    return layers


def load_base_model(
    name: str, source: str, *, device: str = "auto", dtype: str = "auto"
) -> BaseModel:
    """Load a causal LM from a folder or a hub name; raises ClientFault in one sentence.

    `auto` is CUDA (bfloat16), else MPS or CPU (float32). Code inside a model folder is never run.
    """
    place = _choose_device(device)
    if dtype not in ("auto", *_DTYPES):
        raise ClientFault(f"dtype {dtype!r} is not one of auto, {', '.join(_DTYPES)}")
    number = _DTYPES.get(dtype, torch.bfloat16 if place.startswith("cuda") else torch.float32)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    folder = Path(source).expanduser()
    source = str(folder.resolve()) if folder.is_dir() else source
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        network = AutoModelForCausalLM.from_pretrained(
            source, dtype=number, attn_implementation="sdpa"
        )
        return BaseModel(name, source, network.to(place), tokenizer)
    except Exception as error:  # files of others, read by libraries of others: anything may come
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClientFault(f"the model {source} can't be loaded: {first}") from None


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _choose_device(device: str) -> str:
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0]
        raise ClientFault(f"device {device!r} can't be used: {first}") from None
    return device
