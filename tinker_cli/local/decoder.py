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
KEY_BLOCK = 64  # keys attended to come in whole blocks, for the same reason
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

    def __call__(self, x: Tensor) -> Tensor:
        """x (rows, in) -> (rows, sum of outs)."""
        pieces = []
        for weight, lora in zip(self.weights, self.low_rank, strict=True):
            y = F.linear(x, weight)
            if lora is not None:
                a, b, scale = lora
                y = y + (F.linear(F.linear(x, a), b) * scale)
            pieces.append(y)
        y = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True)
class _Layer:
    norm1: Tensor
    qkv: Projection
    q_norm: Tensor | None
    k_norm: Tensor | None
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


class KeyValues:
    """Keys and values of many rows: per layer (rows, heads, positions, head_dim), growing."""

    def __init__(self, layers: int, heads: int, head_dim: int, like: Tensor):
        self._shape = (heads, head_dim)
        self._like = like
        self.k: list[Tensor] = [like.new_zeros(0, heads, 0, head_dim) for _ in range(layers)]
        self.v: list[Tensor] = [like.new_zeros(0, heads, 0, head_dim) for _ in range(layers)]

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
        q_norm = getattr(attention, "q_norm", None)
        k_norm = getattr(attention, "k_norm", None)
        return _Layer(
            norm1=block.input_layernorm.weight,
            qkv=self._projection([f"{name}.self_attn.{x}_proj" for x in "qkv"], adapter),
            q_norm=None if q_norm is None else q_norm.weight,
            k_norm=None if k_norm is None else k_norm.weight,
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
        if not self._fuse:
            low = tuple(
                None if own is None else (_as(own.a[n], w), _as(own.b[n], w), own.scale)
                for n, own, w in zip(names, adapted, linears, strict=True)
            )
            return Projection(tuple(linear.weight for linear in linears), bias, low)
        weights = [
            linear.weight
            if own is None
            else fold(linear.weight, own.a[name], own.b[name], own.scale)
            for linear, name, own in zip(linears, names, adapted, strict=True)
        ]
        fused = weights[0] if len(weights) == 1 else torch.cat(weights)
        return Projection((fused,), bias, (None,))

    def new_cache(self) -> KeyValues:
        """An empty cache."""
        return KeyValues(self.depth, self.kv_heads, self.head_dim, self._embed)

    def logits(self, weights: Weights, hidden: Tensor) -> Tensor:
        """Last hidden states (rows, H) -> float32 logits (rows, V)."""
        count = len(hidden)
        padded = F.pad(hidden, (0, 0, 0, -count % ROW_GROUP))
        return weights.head(_rms(padded, weights.norm, self.eps))[:count].float()

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
        cos, sin = self._rotation(position)
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
        rows = torch.arange(len(token), device=device)
        hidden_keys = torch.arange(keys, device=device) > position[:, None]
        hidden_keys = hidden_keys[:, None, None, :]  # (rows, 1, 1, keys)
        cos, sin = self._rotation(position)
        x = self._embed[token]
        group = self.heads // self.kv_heads
        for index, layer in enumerate(weights.layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            cache.k[index][rows, :, position] = k
            cache.v[index][rows, :, position] = v
            q = q.view(len(token), self.kv_heads, group, self.head_dim)
            keys_there = cache.k[index][: len(token), :, :keys]
            scores = (q @ keys_there.transpose(-1, -2)) * self.head_dim**-0.5
            chance = torch.softmax(scores.masked_fill_(hidden_keys, float("-inf")).float(), -1)
            attended = chance.to(x.dtype) @ cache.v[index][: len(token), :, :keys]
            x = self._rest(layer, x, attended.flatten(1))
        return x[:count]

    def _qkv(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both rotated) and values: each (rows, heads, head_dim)."""
        joint = layer.qkv(_rms(x, layer.norm1, self.eps)).view(len(x), -1, self.head_dim)
        q, k, v = torch.split(joint, [self.heads, self.kv_heads, self.kv_heads], 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = _rms(q, layer.q_norm, self.eps), _rms(k, layer.k_norm, self.eps)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def _rest(self, layer: _Layer, x: Tensor, attended: Tensor) -> Tensor:
        x = x + layer.out(attended)
        gate, up = layer.gate_up(_rms(x, layer.norm2, self.eps)).chunk(2, -1)
        return x + layer.down(F.silu(gate) * up)

    def _rotation(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (rows, 1, head_dim) at these positions, from a table that grows."""
        needed = int(position.max()) + 1
        if self._angles is None or len(self._angles[0]) < needed:
            table = torch.arange(max(needed, 512) * 2, device=position.device)
            cos, sin = self._rotary(self._embed, table.unsqueeze(0))
            self._angles = cos[0].unsqueeze(1), sin[0].unsqueeze(1)
        return self._angles[0][position], self._angles[1][position]


def _as(tensor: Tensor, linear: Any) -> Tensor:
    return tensor.to(linear.weight.dtype)


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    full = x.float()
    return weight * (full * torch.rsqrt(full.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


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
