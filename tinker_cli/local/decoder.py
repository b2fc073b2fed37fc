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

from tinker_cli.local.compiled import compiled
from tinker_cli.local.layers import (
    Angles,
    Heads,
    Layer,
    LowRank,
    Projection,
    Weights,
    Window,
    attention_inputs,
    decode,
    logits,
    pack,
    rest,
)

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
ROW_GROUP = 8  # rows of a matrix product come in whole groups, so that one kernel serves all
KEY_BLOCK = 32  # keys attended to come in whole blocks, for the same reason
FOLD_NUMBERS = 20_000_000  # weights up to this are copied for an adapter, which is folded in
PACK_NUMBERS = 500_000_000  # weights up to this are packed once; an adapter computes beside them
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


class KeyValues:
    """Keys and values of many rows, by layer: (2, rows, heads, positions, head_dim), growing.

    A window is as long as the memory behind it, unless that is far too long: products of short
    matrices that follow one another in memory are two to three times as fast as those of matrices
    with gaps between them, which is more than the positions cost that no row has reached yet.
    """

    def __init__(self, layers: int, heads: int, head_dim: int, like: Tensor):
        self._like = like
        self._layers = [like.new_zeros(2, 0, heads, 0, head_dim) for _ in range(layers)]
        self._window: tuple[tuple[int, int], list[Window]] = (0, 0), []
        self._first = torch.empty(0)

    def ensure(self, rows: int, positions: int) -> None:
        """Make room; what is there stays."""
        _, old_rows, heads, old_positions, head_dim = self._layers[0].shape
        if rows <= old_rows and positions <= old_positions:
            return
        rows = max(old_rows, -(-rows // ROW_GROUP) * ROW_GROUP)
        if positions > old_positions > 0:
            positions = max(positions, old_positions + _growth(old_positions))
        positions = -(-max(positions, old_positions) // KEY_BLOCK) * KEY_BLOCK
        for i, old in enumerate(self._layers):
            new = self._like.new_zeros(2, rows, heads, positions, head_dim)
            new[:, :old_rows, :, :old_positions] = old
            self._layers[i] = new
        self._window, self._first = ((0, 0), []), torch.empty(0)

    def window(self, rows: int, keys: int) -> list[Window]:
        """By layer, the keys and values of the first rows and, at least, positions."""
        there = self._layers[0].shape[3]
        keys = there if there < 2 * keys else keys
        if self._window[0] != (rows, keys):
            views = [
                Window(
                    both.view(-1, both.shape[-1]),
                    both[0, :rows, :, :keys].flatten(0, 1).transpose(-1, -2),
                    both[1, :rows, :, :keys].flatten(0, 1),
                )
                for both in self._layers
            ]
            self._window = (rows, keys), views
        return self._window[1]

    def first_cells(self, count: int) -> Tensor:
        """Where keys and values of position 0 of the first rows are in a window's flat view.

        Row by row its keys, a head each, then its values: (count, 2 * heads).
        """
        if len(self._first) != count:
            _, rows, heads, positions, _ = self._layers[0].shape
            device = self._like.device
            row = torch.arange(count, device=device).view(-1, 1, 1)
            kind = torch.arange(2, device=device).view(1, -1, 1)
            head = torch.arange(heads, device=device).view(1, 1, -1)
            self._first = (((kind * rows + row) * heads + head) * positions).flatten(1)
        return self._first

    def put(self, row: int, layer: int, kv: Tensor) -> None:
        """Set a row's keys and values from its beginning: kv (positions, 2 * heads, head_dim)."""
        both = kv.view(len(kv), 2, -1, kv.shape[-1]).permute(1, 2, 0, 3)
        self._layers[layer][:, row, :, : len(kv)] = both

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's keys and values to another row."""
        for both in self._layers:
            both[:, target, :, :length] = both[:, source, :, :length]


def _growth(positions: int) -> int:
    """By how many positions a cache grows.

    A copy costs about what four steps read, and in the mean a step reads half of the growth in
    vain: the sum, growth / (2 positions) + 4 / growth, is least at sqrt(8 positions).
    """
    return int((8 * positions) ** 0.5)


@dataclass(frozen=True)
class _Equals:
    """Prompts of one length in whole blocks, and how they go in and out of a padded batch."""

    cells: Tensor  # (prompts, width): which token of the run; beyond a prompt's end any
    inside: Tensor  # which cells of the flat batch are tokens
    tokens: Tensor  # and which tokens of the run


class Decoder:
    """The forward pass of one base network, for inference."""

    def __init__(self, network: Any, layers: Mapping[str, Any]):
        self._network, self._linears = network, layers
        config = network.config
        self.depth = int(config.num_hidden_layers)
        queries = int(config.num_attention_heads)
        size = int(getattr(config, "head_dim", None) or config.hidden_size // queries)
        eps = float(config.rms_norm_eps)
        self.heads = Heads(queries, int(config.num_key_value_heads), size, eps)
        self._embed: Tensor = network.model.embed_tokens.weight
        self._rotary = network.model.rotary_emb
        numbers = sum(layer.weight.numel() for layer in layers.values())
        self._folds, self._packs = numbers <= FOLD_NUMBERS, numbers <= PACK_NUMBERS
        self._base: dict[tuple[str, ...], Projection] = {}
        self._latest: tuple[str | None, Weights] | None = None  # an adapter's digest, and with it
        self._decode = compiled(decode) if self._embed.device.type == "cpu" else decode
        self._angles: Angles | None = None

    @property
    def bytes_per_position(self) -> int:
        """What one token of one row takes in the cache."""
        return self.depth * 2 * self.heads.keys * self.heads.size * self._embed.element_size()

    def weights(self, adapter: Any | None) -> Weights:
        """The weights with `adapter` in them: folded in, or beside the base."""
        digest = None if adapter is None else adapter.digest()
        if self._latest is None or self._latest[0] != digest:
            self._latest = digest, self._arrange(adapter)
        return self._latest[1]

    def _arrange(self, adapter: Any | None) -> Weights:
        layers = [self._layer(i, adapter) for i in range(self.depth)]
        head = self._projection(["lm_head"], adapter)
        return Weights(self._embed, layers, self._network.model.norm.weight, head)

    def _layer(self, index: int, adapter: Any | None) -> Layer:
        block, name = self._network.model.layers[index], f"model.layers.{index}"
        attention = block.self_attn
        qk_norm = None
        if hasattr(attention, "q_norm"):
            norms = ((attention.q_norm, self.heads.queries), (attention.k_norm, self.heads.keys))
            qk_norm = torch.cat([norm.weight.expand(count, -1) for norm, count in norms])
        return Layer(
            norm1=block.input_layernorm.weight,
            qkv=self._projection([f"{name}.self_attn.{x}_proj" for x in "qkv"], adapter),
            qk_norm=qk_norm,
            out=self._projection([f"{name}.self_attn.o_proj"], adapter),
            norm2=block.post_attention_layernorm.weight,
            gate_up=self._projection([f"{name}.mlp.{x}_proj" for x in ("gate", "up")], adapter),
            down=self._projection([f"{name}.mlp.down_proj"], adapter),
        )

    def _projection(self, names: list[str], adapter: Any | None) -> Projection:
        from tinker_cli.local.lora import fold

        base = self._base_projection(tuple(names))
        if adapter is None or not any(name in adapter.a for name in names):
            return base
        if self._folds:
            weights = []
            for name in names:
                weight = self._linears[name].weight
                if name in adapter.a:
                    weight = fold(weight, adapter.a[name], adapter.b[name], adapter.scale)
                weights.append(weight)
            return _arranged(torch.cat(weights), base.bias)
        outs, end = [], 0
        for name in names:
            outs.append(end)
            end += self._linears[name].out_features
        number, own = self._embed.dtype, [name for name in names if name in adapter.a]
        low_rank = LowRank(
            torch.cat([adapter.a[name] for name in own]).to(number),
            [adapter.b[name].t().to(number) for name in own],
            [out for name, out in zip(names, outs, strict=True) if name in own],
            adapter.scale,
        )
        return base._replace(low_rank=low_rank)

    def _base_projection(self, names: tuple[str, ...]) -> Projection:
        """The layers without an adapter: arranged once, whoever uses them."""
        if names not in self._base:
            linears = [self._linears[name] for name in names]
            weights, bias = [linear.weight for linear in linears], _joint_bias(linears)
            if self._packs:
                joint = torch.cat(weights) if len(weights) > 1 else weights[0]
                self._base[names] = _arranged(joint, bias)
            else:
                self._base[names] = Projection(weights, False, bias, None)
        return self._base[names]

    def new_cache(self) -> KeyValues:
        """An empty cache."""
        return KeyValues(self.depth, self.heads.keys, self.heads.size, self._embed)

    def logits(self, weights: Weights, hidden: Tensor) -> Tensor:
        """Last hidden states (rows, H) -> float32 logits (rows, V)."""
        count = len(hidden)
        if count % ROW_GROUP:
            hidden = F.pad(hidden, (0, 0, 0, -count % ROW_GROUP))
        return logits(weights, hidden, self.heads)[:count]

    def prompts(
        self, weights: Weights, prompts: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Run prompts, each int64 (P,): their hidden states (P, H), and keys and values by layer.

        Keys and values of a prompt in a layer are (P, 2 * heads, head_dim).
        """
        lengths = [len(prompt) for prompt in prompts]
        device = self._embed.device
        flat = torch.cat(list(prompts)).to(device)
        position = torch.cat([torch.arange(n) for n in lengths]).to(device)
        padding = -len(flat) % ROW_GROUP
        flat, position = F.pad(flat, (0, padding)), F.pad(position, (0, padding))
        angles = self._rotation(max(lengths))
        angles = Angles(angles.cos[position], angles.sin[position])
        x = self._embed[flat]
        equals = _equals(lengths, device)
        kept: list[list[Tensor]] = [[] for _ in prompts]
        for layer in weights.layers:
            q, kv = attention_inputs(layer, x, angles, self.heads)
            attended = torch.zeros_like(q)
            for each in equals:
                attended[each.tokens] = self._attend_prompts(each, q, kv)
            for i, start, length in _spans(lengths):
                kept[i].append(kv[start : start + length])
            x = rest(layer, x, attended.flatten(1), self.heads.eps)
        return [x[start : start + length] for _, start, length in _spans(lengths)], kept

    def _attend_prompts(self, equals: _Equals, q: Tensor, kv: Tensor) -> Tensor:
        """Causal attention inside each prompt -> (tokens, heads, head_dim).

        What stands beyond a prompt's end comes after all of its tokens, which don't look there.
        """
        k, v = kv.chunk(2, 1)
        batch = [each[equals.cells].transpose(1, 2) for each in (q, k, v)]
        group = self.heads.queries // self.heads.keys
        if group > 1:
            batch[1:] = [each.repeat_interleave(group, 1) for each in batch[1:]]
        out = F.scaled_dot_product_attention(batch[0], batch[1], batch[2], is_causal=True)
        return out.transpose(1, 2).flatten(0, 1)[equals.inside]

    def step(
        self, weights: Weights, cache: KeyValues, tokens: Sequence[int], lengths: Sequence[int]
    ) -> Tensor:
        """Feed row r its token at position lengths[r]; return float32 logits (rows, V)."""
        count = len(tokens)
        padding = [0] * (-count % ROW_GROUP)
        keys = -(-(max(lengths) + 1) // KEY_BLOCK) * KEY_BLOCK
        cache.ensure(count + len(padding), keys)
        rows = torch.tensor([[*tokens, *padding], [*lengths, *padding]], device=self._embed.device)
        return self._decode(
            rows[0],
            rows[1],
            self._rotation(max(lengths)),
            cache.first_cells(rows.shape[1]),
            weights,
            cache.window(rows.shape[1], keys),
            self.heads,
        )[:count]

    def _rotation(self, last: int) -> Angles:
        """A table that holds position `last`; it grows."""
        if self._angles is None or len(self._angles.cos) <= last:
            device = self._embed.device
            table = torch.arange(max(last + 1, 512) * 2, device=device)
            cos, sin = self._rotary(self._embed, table.unsqueeze(0))
            left, right = sin[0].chunk(2, -1)
            self._angles = Angles(cos[0].unsqueeze(1), torch.cat((-left, right), -1).unsqueeze(1))
        return self._angles


def _arranged(weight: Tensor, bias: Tensor | None) -> Projection:
    packed = pack(weight)
    return Projection([weight if packed is None else packed], packed is not None, bias, None)


def _joint_bias(linears: Sequence[Any]) -> Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat(
        [
            linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
            for linear in linears
        ]
    )


def _spans(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    spans, start = [], 0
    for i, length in enumerate(lengths):
        spans.append((i, start, length))
        start += length
    return spans


def _equals(lengths: Sequence[int], device: Any) -> list[_Equals]:
    """Group a run of prompts by their length in whole blocks."""
    by_width: dict[int, list[tuple[int, int]]] = {}
    for _, start, length in _spans(lengths):
        by_width.setdefault(-(-length // KEY_BLOCK) * KEY_BLOCK, []).append((start, length))
    equals = []
    for width, members in by_width.items():
        begin, size = torch.tensor(members).unsqueeze(-1).unbind(1)  # (prompts, 1) each
        column = torch.arange(width)
        cells = (begin + column).clamp(max=sum(lengths) - 1)
        inside = (column < size).flatten().nonzero().squeeze(-1)
        tokens = cells.flatten()[inside]
        equals.append(_Equals(cells.to(device), inside.to(device), tokens.to(device)))
    return equals
