"""The layers of a model of the Llama family, as functions of tensors.

They are written in the part of Python that TorchScript compiles. Compiled, the layers of a whole
step run without the interpreter's lock, so that threads decode side by side; as they stand they
compute the same. A weight of a CPU is packed once into the blocks that oneDNN's kernels read, which
makes a product of few rows up to twice as fast as `F.linear`, where the weight is arranged anew in
every call. Rows that come in whole groups of eight have the same bits in a product of any height.
Knows tensors only.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PACKED_FOR_ROWS = 32


class LowRank(NamedTuple):
    """What adapters add to layers that read the same input: scale (x A^T) B^T, layer by layer."""

    a: Tensor  # (sum of ranks, in)
    b: list[Tensor]  # a layer's (rank, out)
    outs: list[int]  # where the layer's outputs begin
    scale: float


class Projection(NamedTuple):
    """Linear layers that read the same input, side by side."""

    weights: list[Tensor]  # a layer's (out, in) each, or one for all of them
    packed: bool
    bias: Tensor | None  # (sum of outs,)
    low_rank: LowRank | None


class Layer(NamedTuple):
    """One block of the network."""

    norm1: Tensor
    qkv: Projection
    qk_norm: Tensor | None  # (query heads + key heads, head_dim)
    out: Projection
    norm2: Tensor
    gate_up: Projection
    down: Projection


class Heads(NamedTuple):
    """The shape of attention, and what keeps a norm from dividing by zero."""

    queries: int
    keys: int
    size: int
    eps: float


class Weights(NamedTuple):
    """A network's weights with one adapter in them."""

    embed: Tensor  # (V, H)
    layers: list[Layer]
    norm: Tensor
    head: Projection


class Angles(NamedTuple):
    """Of every position up to some, (positions, 1, head_dim)."""

    cos: Tensor
    sin: Tensor  # its left half negated


class Window(NamedTuple):
    """Views of one layer's keys and values."""

    flat: Tensor  # (2 * all rows * heads * positions, head_dim)
    k: Tensor  # (rows * heads, head_dim, keys)
    v: Tensor  # (rows * heads, keys, head_dim)


class Place(NamedTuple):
    """Where the rows of a step stand."""

    angles: Angles  # of the rows
    mask: Tensor  # (rows * key heads, 1, keys): 0 where a row may look, else minus infinity
    cells: Tensor  # (rows * 2 * key heads,): where new keys and values go in a window's flat view


def decode(
    token: Tensor,
    position: Tensor,
    angles: Angles,
    first_cells: Tensor,
    weights: Weights,
    windows: list[Window],
    heads: Heads,
) -> Tensor:
    """Logits (rows, V) after a token a row (rows,) at its position; keys and values are kept.

    `first_cells` (rows, 2 * key heads) is where keys and values of position 0 are in a window.
    """
    x = weights.embed.index_select(0, token)
    place = places(position, angles, first_cells, windows[0].k.size(2), x.dtype)
    for i in range(len(weights.layers)):
        layer, window = weights.layers[i], windows[i]
        q, kv = attention_inputs(layer, x, place.angles, heads)
        window.flat.index_copy_(0, place.cells, kv.reshape(-1, heads.size))
        x = rest(layer, x, attend(q, window, place.mask, heads), heads.eps)
    return logits(weights, x, heads)


def logits(weights: Weights, x: Tensor, heads: Heads) -> Tensor:
    """Last hidden states (rows, H) -> float32 logits (rows, V)."""
    return project(weights.head, rms(x, weights.norm, heads.eps)).float()


def places(
    position: Tensor, angles: Angles, first_cells: Tensor, keys: int, dtype: torch.dtype
) -> Place:
    """What the layers need to know of each row's position."""
    heads = first_cells.size(1) // 2
    by_head = position.unsqueeze(1).expand(-1, heads).reshape(-1, 1, 1)
    hidden = torch.arange(keys, device=position.device) > by_head
    mask = torch.zeros(hidden.size(), dtype=dtype, device=position.device)
    return Place(
        Angles(angles.cos.index_select(0, position), angles.sin.index_select(0, position)),
        mask.masked_fill_(hidden, float("-inf")),
        (first_cells + position.unsqueeze(1)).flatten(),
    )


def attend(q: Tensor, window: Window, mask: Tensor, heads: Heads) -> Tensor:
    """One query a row, q (rows, heads, head_dim), attends to the row's keys -> (rows, H)."""
    grouped = q.reshape(mask.size(0), -1, heads.size)
    scores = torch.baddbmm(mask, grouped, window.k, beta=1, alpha=heads.size**-0.5)
    chance = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(chance, window.v).view(q.size(0), -1)


def attention_inputs(
    layer: Layer, x: Tensor, angles: Angles, heads: Heads
) -> tuple[Tensor, Tensor]:
    """Queries (rows, heads, head_dim); keys and values (rows, 2 * key heads, head_dim).

    Queries and keys are rotated: x cos + (-right, left) sin.
    """
    joint = project(layer.qkv, rms(x, layer.norm1, heads.eps)).view(x.size(0), -1, heads.size)
    qk = joint[:, : heads.queries + heads.keys]
    qk_norm = layer.qk_norm
    if qk_norm is not None:
        qk.copy_(rms(qk, qk_norm, heads.eps))
    turned = qk.roll(heads.size // 2, -1)
    qk.mul_(angles.cos).addcmul_(turned, angles.sin)
    return joint[:, : heads.queries], joint[:, heads.queries :]


def rest(layer: Layer, x: Tensor, attended: Tensor, eps: float) -> Tensor:
    """What follows attention: its projection, and the gated MLP."""
    x = project(layer.out, attended).add_(x)
    gate, up = torch.chunk(project(layer.gate_up, rms(x, layer.norm2, eps)), 2, -1)
    return project(layer.down, F.silu(gate).mul_(up)).add_(x)


def project(layers: Projection, x: Tensor) -> Tensor:
    """x (rows, in) -> (rows, sum of outs)."""
    if layers.packed:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, layers.weights[0], None, "none", [], "")
    elif len(layers.weights) == 1:
        y = F.linear(x, layers.weights[0])
    else:
        y = torch.cat([F.linear(x, weight) for weight in layers.weights], -1)
    low_rank = layers.low_rank
    if low_rank is not None:
        low = F.linear(x, low_rank.a)
        rank = 0
        for i in range(len(low_rank.b)):
            b = low_rank.b[i]
            out = y.narrow(1, low_rank.outs[i], b.size(1))
            out.addmm_(low.narrow(1, rank, b.size(0)), b, alpha=low_rank.scale)
            rank += b.size(0)
    bias = layers.bias
    if bias is not None:
        y.add_(bias)
    return y


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension, in float32 as the networks have it."""
    wide = x.float()
    scale = (wide * wide).sum([-1], keepdim=True).div_(float(x.size(-1))).add_(eps).rsqrt_()
    return (wide * scale).to(x.dtype).mul_(weight)


def pack(weight: Tensor) -> Tensor | None:
    """The weight (out, in) in blocks of its own memory; None where that can't be."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not _can_pack():
        return None
    return _pack(weight)


@functools.cache
def _can_pack() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    weight, x = torch.arange(64.0).view(16, 4), torch.arange(32.0).view(8, 4)
    try:
        y = project(Projection([_pack(weight)], True, None, None), x)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(y, F.linear(x, weight))


def _pack(weight: Tensor) -> Tensor:
    # What torch's own compiler emits for frozen linear layers.
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS)
    return packed
