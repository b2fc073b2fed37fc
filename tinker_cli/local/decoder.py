"""Fast inference for models of the Llama family: prompts in, then one token a row a step.

The same function as the network's own forward (RMS norms, rotary positions, gated MLP, grouped
key-value heads, optional norms of queries and keys), on preallocated key-value caches and without
the per-call costs of a general library. A row's numbers are the same bits whatever it is batched
with, on one thread: rows are padded to whole groups, key lengths to whole blocks, and every
prompt attends within a shape of its own length. Other architectures decode in `waves`.
Knows weights and tensors; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
ROW_GROUP = 8  # rows of a matrix product come in whole groups, so that one kernel serves all
KEY_BLOCK = 32  # keys attended to come in whole blocks, for the same reason
FUSE_NUMBERS = 50_000_000  # weights up to this are copied into fused matrices
PROMPT_TOKENS_AT_ONCE = 8192


def is_served(network: Any) -> bool:
    """True if this module computes what `network` computes."""
    config = network.config
    rope = getattr(config, "rope_parameters", None) or {}
    layers = getattr(getattr(network, "model", None), "layers", None)
    return (
        config.model_type in FAMILIES
        and layers is not None
        and getattr(config, "hidden_act", "") == "silu"
        and rope.get("rope_type", "default") in ("default", "llama3", "linear")
        and not getattr(config, "use_sliding_window", False)
        and (config.model_type != "mistral" or not getattr(config, "sliding_window", None))
    )


@dataclass(frozen=True)
class Projection:
    """Linear layers that read the same input, side by side."""

    weights: tuple[Tensor, ...]  # each (out, in)
    bias: Tensor | None
    low_rank: tuple[tuple[Tensor, Tensor, float] | None, ...]  # per weight: A, B, scale
    sizes: tuple[int, ...]  # outs of the layers

    def __call__(self, x: Tensor) -> Tensor:
        """x (rows, in) -> (rows, sum of outs)."""
        pieces = self._pieces(x)
        y = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        return y if self.bias is None else y + self.bias

    def parts(self, x: Tensor) -> Sequence[Tensor]:
        """x (rows, in) -> a layer's output each, (rows, out)."""
        if self.bias is not None or len(self.weights) == 1:
            return torch.split(self(x), list(self.sizes), -1)
        return self._pieces(x)

    def _pieces(self, x: Tensor) -> list[Tensor]:
        pieces = []
        for weight, lora in zip(self.weights, self.low_rank, strict=True):
            y = F.linear(x, weight)
            if lora is not None:
                a, b, scale = lora
                y.addmm_(F.linear(x, a), b.t(), alpha=scale)
            pieces.append(y)
        return pieces


@dataclass(frozen=True)
class _Layer:
    norm1: Tensor
    qkv: Projection
    qk_norm: Tensor | None  # (query heads + key heads, head_dim)
    out: Projection
    norm2: Tensor
    gate_up: Projection
    down: Projection


@dataclass(frozen=True)
class Weights:
    """A network's weights with one adapter in them, arranged for `Decoder`."""

    layers: tuple[_Layer, ...]
    norm: Tensor
    head: Projection


@dataclass(frozen=True)
class _Window:
    """Views of one layer's keys and values."""

    flat_k: Tensor  # (all rows * heads * positions, head_dim)
    flat_v: Tensor
    k: Tensor  # (rows * heads, head_dim, keys)
    v: Tensor  # (rows * heads, keys, head_dim)


class KeyValues:
    """Keys and values of many rows: per layer (rows, heads, positions, head_dim), growing."""

    def __init__(self, layers: int, heads: int, head_dim: int, like: Tensor):
        self._shape = (heads, head_dim)
        self._like = like
        self.k: list[Tensor] = [like.new_zeros(0, heads, 0, head_dim) for _ in range(layers)]
        self.v: list[Tensor] = [like.new_zeros(0, heads, 0, head_dim) for _ in range(layers)]
        self._window: tuple[tuple[int, int], list[_Window]] = (0, 0), []

    def ensure(self, rows: int, positions: int) -> None:
        """Make room; what is there stays."""
        old_rows, _, old_positions, _ = self.k[0].shape
        if rows <= old_rows and positions <= old_positions:
            return
        rows = max(old_rows, -(-rows // ROW_GROUP) * ROW_GROUP)
        if positions > old_positions:  # half as much again, so that growth is seldom
            positions = max(positions, old_positions * 3 // 2)
        positions = -(-max(positions, old_positions) // KEY_BLOCK) * KEY_BLOCK
        heads, head_dim = self._shape
        for buffers in (self.k, self.v):
            for i, old in enumerate(buffers):
                new = self._like.new_zeros(rows, heads, positions, head_dim)
                new[:old_rows, :, :old_positions] = old
                buffers[i] = new
        self._window = (0, 0), []

    def window(self, rows: int, keys: int) -> list[_Window]:
        """By layer, the keys and values of the first rows and positions."""
        if self._window[0] != (rows, keys):
            views = [
                _Window(
                    k.view(-1, k.shape[-1]),
                    v.view(-1, v.shape[-1]),
                    k[:rows, :, :keys].flatten(0, 1).transpose(-1, -2),
                    v[:rows, :, :keys].flatten(0, 1),
                )
                for k, v in zip(self.k, self.v, strict=True)
            ]
            self._window = (rows, keys), views
        return self._window[1]

    def places(self, position: Tensor) -> Tensor:
        """Where row r's keys at position[r] are in a window's flat views: (rows * heads,)."""
        heads, positions = self._shape[0], self.k[0].shape[2]
        row = torch.arange(len(position) * heads, device=position.device)
        return row * positions + position.repeat_interleave(heads)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's keys and values to another row."""
        for buffers in (self.k, self.v):
            for buffer in buffers:
                buffer[target, :, :length] = buffer[source, :, :length]


class Decoder:
    """The forward pass of one base network, for inference."""

    def __init__(self, network: Any, layers: Mapping[str, Any]):
        self._network, self._linears = network, layers
        config = network.config
        self.depth = int(config.num_hidden_layers)
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        dim = getattr(config, "head_dim", None)
        self.head_dim = int(dim or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self._embed: Tensor = network.model.embed_tokens.weight
        self._rotary = network.model.rotary_emb
        numbers = sum(layer.weight.numel() for layer in layers.values())
        self._fuse = numbers <= FUSE_NUMBERS
        self._angles: tuple[Tensor, Tensor] | None = None

    @property
    def bytes_per_position(self) -> int:
        """What one token of one row takes in the cache."""
        return self.depth * 2 * self.kv_heads * self.head_dim * self._embed.element_size()

    def weights(self, adapter: Any | None) -> Weights:
        """Arrange the weights with `adapter` in them: folded and fused, or beside the base."""
        layers = tuple(self._layer(i, adapter) for i in range(self.depth))
        head = self._projection(["lm_head"], adapter)
        return Weights(layers, self._network.model.norm.weight, head)

    def _layer(self, index: int, adapter: Any | None) -> _Layer:
        block, name = self._network.model.layers[index], f"model.layers.{index}"
        attention = block.self_attn
        qk_norm = None
        if hasattr(attention, "q_norm"):
            norms = ((attention.q_norm, self.heads), (attention.k_norm, self.kv_heads))
            qk_norm = torch.cat([norm.weight.expand(count, -1) for norm, count in norms])
        return _Layer(
            norm1=block.input_layernorm.weight,
            qkv=self._projection([f"{name}.self_attn.{x}_proj" for x in "qkv"], adapter),
            qk_norm=qk_norm,
            out=self._projection([f"{name}.self_attn.o_proj"], adapter),
            norm2=block.post_attention_layernorm.weight,
            gate_up=self._projection([f"{name}.mlp.{x}_proj" for x in ("gate", "up")], adapter),
            down=self._projection([f"{name}.mlp.down_proj"], adapter),
        )

    def _projection(self, names: Sequence[str], adapter: Any | None) -> Projection:
        from tinker_cli.local.lora import fold

        linears = [self._linears[name] for name in names]
        biases = [linear.bias for linear in linears]
        bias = None
        if any(b is not None for b in biases):
            bias = torch.cat(
                [
                    linear.weight.new_zeros(linear.out_features) if b is None else b
                    for linear, b in zip(linears, biases, strict=True)
                ]
            )
        adapted = [adapter if adapter is not None and name in adapter.a else None for name in names]
        sizes = tuple(linear.out_features for linear in linears)
        if not self._fuse:
            low = tuple(
                None if own is None else (_as(own.a[n], w), _as(own.b[n], w), own.scale)
                for n, own, w in zip(names, adapted, linears, strict=True)
            )
            return Projection(tuple(linear.weight for linear in linears), bias, low, sizes)
        weights = [
            linear.weight
            if own is None
            else fold(linear.weight, own.a[name], own.b[name], own.scale)
            for linear, name, own in zip(linears, names, adapted, strict=True)
        ]
        fused = weights[0] if len(weights) == 1 else torch.cat(weights)
        return Projection((fused,), bias, (None,), sizes)

    def new_cache(self) -> KeyValues:
        """An empty cache."""
        return KeyValues(self.depth, self.kv_heads, self.head_dim, self._embed)

    def logits(self, weights: Weights, hidden: Tensor) -> Tensor:
        """Last hidden states (rows, H) -> float32 logits (rows, V)."""
        count = len(hidden)
        if count % ROW_GROUP:
            hidden = F.pad(hidden, (0, 0, 0, -count % ROW_GROUP))
        return weights.head(_rms(hidden, weights.norm, self.eps))[:count].float()

    def prompts(
        self, weights: Weights, prompts: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[list[tuple[Tensor, Tensor]]]]:
        """Run prompts, each int64 (P,): their hidden states (P, H), and keys and values by layer.

        Keys and values of a prompt in a layer are (heads, P, head_dim).
        """
        lengths = [len(prompt) for prompt in prompts]
        device = self._embed.device
        flat = torch.cat(list(prompts)).to(device)
        position = torch.cat([torch.arange(n) for n in lengths]).to(device)
        padding = -len(flat) % ROW_GROUP
        flat, position = F.pad(flat, (0, padding)), F.pad(position, (0, padding))
        cos, sin = self._rotation(position, max(lengths))
        x = self._embed[flat]
        shapes = _blocks_of_equal_shape(lengths)
        kept: list[list[tuple[Tensor, Tensor]]] = [[] for _ in prompts]
        for layer in weights.layers:
            q, k, v = self._qkv(layer, x, cos, sin)
            attended = torch.zeros_like(q)
            for width, members in shapes:
                self._attend_prompts(width, members, q, k, v, attended)
            for i, start, length in _spans(lengths):
                kept[i].append(
                    (
                        k[start : start + length].transpose(0, 1),
                        v[start : start + length].transpose(0, 1),
                    )
                )
            x = self._rest(layer, x, attended.flatten(1))
        return [x[start : start + length] for _, start, length in _spans(lengths)], kept

    def _attend_prompts(
        self,
        width: int,
        members: Sequence[tuple[int, int]],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attended: Tensor,
    ) -> None:
        """Causal attention of the prompts at `members` (start, length), padded to `width`."""
        rows = torch.cat([torch.full((n,), i) for i, (_, n) in enumerate(members)]).to(q.device)
        columns = torch.cat([torch.arange(n) for _, n in members]).to(q.device)
        index = torch.cat([torch.arange(s, s + n) for s, n in members]).to(q.device)
        padded = []
        for source in (q, k, v):
            target = source.new_zeros(len(members), width, *source.shape[1:])
            target[rows, columns] = source[index]
            padded.append(target.transpose(1, 2))
        group = self.heads // self.kv_heads
        if group > 1:
            padded[1:] = [t.repeat_interleave(group, 1) for t in padded[1:]]
        out = F.scaled_dot_product_attention(padded[0], padded[1], padded[2], is_causal=True)
        attended[index] = out.transpose(1, 2)[rows, columns]

    def step(
        self, weights: Weights, cache: KeyValues, tokens: Sequence[int], lengths: Sequence[int]
    ) -> Tensor:
        """Feed row r its token at position lengths[r]; return the hidden states (rows, H)."""
        count = len(tokens)
        padding = [0] * (-count % ROW_GROUP)
        keys = -(-(max(lengths) + 1) // KEY_BLOCK) * KEY_BLOCK
        cache.ensure(count + len(padding), keys)
        device = self._embed.device
        token = torch.tensor([*tokens, *padding], device=device)
        position = torch.tensor([*lengths, *padding], device=device)
        cos, sin = self._rotation(position, max(lengths))
        bias = torch.zeros(len(token), keys, dtype=self._embed.dtype, device=device)
        bias.masked_fill_(torch.arange(keys, device=device) > position[:, None], float("-inf"))
        bias = bias.repeat_interleave(self.kv_heads, 0).unsqueeze(1)  # (rows * kv heads, 1, keys)
        places, windows = cache.places(position), cache.window(len(token), keys)
        x = self._embed[token]
        for layer, window in zip(weights.layers, windows, strict=True):
            q, k, v = self._qkv(layer, x, cos, sin)
            window.flat_k.index_copy_(0, places, k.reshape(-1, self.head_dim))
            window.flat_v.index_copy_(0, places, v.reshape(-1, self.head_dim))
            x = self._rest(layer, x, self._attend_step(window, q, bias))
        return x[:count]

    def _attend_step(self, window: _Window, q: Tensor, bias: Tensor) -> Tensor:
        """One query a row, q (rows, heads, head_dim), attends to the row's keys -> (rows, H)."""
        grouped = q.reshape(len(bias), -1, self.head_dim)
        scores = torch.baddbmm(bias, grouped, window.k, alpha=self.head_dim**-0.5)
        chance = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
        return torch.bmm(chance, window.v).view(len(q), -1)

    def _qkv(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both rotated) and values: each (rows, heads, head_dim)."""
        joint = layer.qkv(_rms(x, layer.norm1, self.eps)).view(len(x), -1, self.head_dim)
        qk, v = torch.split(joint, [self.heads + self.kv_heads, self.kv_heads], 1)
        if layer.qk_norm is not None:
            qk = _rms(qk, layer.qk_norm, self.eps)
        # Rotary positions: x cos + (-right, left) sin, the signs being in the table of sines.
        qk = torch.addcmul(qk * cos, qk.roll(self.head_dim // 2, -1), sin)
        return qk[:, : self.heads], qk[:, self.heads :], v

    def _rest(self, layer: _Layer, x: Tensor, attended: Tensor) -> Tensor:
        x = layer.out(attended).add_(x)
        gate, up = layer.gate_up.parts(_rms(x, layer.norm2, self.eps))
        return layer.down(F.silu(gate).mul_(up)).add_(x)

    def _rotation(self, position: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (rows, 1, head_dim) at these positions, from a table that grows.

        The left half of the sines is negated.
        """
        if self._angles is None or len(self._angles[0]) <= last:
            table = torch.arange(max(last + 1, 512) * 2, device=position.device)
            cos, sin = self._rotary(self._embed, table.unsqueeze(0))
            left, right = sin[0].chunk(2, -1)
            self._angles = cos[0].unsqueeze(1), torch.cat((-left, right), -1).unsqueeze(1)
        return self._angles[0][position], self._angles[1][position]


def _as(tensor: Tensor, linear: Any) -> Tensor:
    return tensor.to(linear.weight.dtype)


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension, in float32 as the networks have it."""
    width = x.shape[-1:]
    if x.dtype is not torch.float32:
        return weight * F.rms_norm(x.float(), width, eps=eps).to(x.dtype)
    if weight.dim() == 1:
        return F.rms_norm(x, width, weight, eps)
    return F.rms_norm(x, width, eps=eps).mul_(weight)


def _spans(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    spans, start = [], 0
    for i, length in enumerate(lengths):
        spans.append((i, start, length))
        start += length
    return spans


def _blocks_of_equal_shape(lengths: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Prompts (start, length) by their length in whole blocks."""
    shapes: dict[int, list[tuple[int, int]]] = {}
    for _, start, length in _spans(lengths):
        shapes.setdefault(-(-length // KEY_BLOCK) * KEY_BLOCK, []).append((start, length))
    return list(shapes.items())
