"""Tokens that uniform numbers pick from distributions: functions of tensors.

A number inverts the running sum of a row's probabilities: sums of blocks first, then inside one.
Each row's answer depends on that row alone. Like `layers`, this is written in the part of Python
that TorchScript compiles. Knows tensors only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def plain_draw(logits: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from logits (R, V) as they are: tokens (R,) and their log-probabilities (R,)."""
    weights = logits.softmax(-1)
    chosen = invert(weights, noise)
    return chosen, weights.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).log()


def invert(weights: Tensor, noise: Tensor, block: int = 128) -> Tensor:
    """Where the running sum of each row of weights (R, V) exceeds its share of noise (R,).

    `noise` is from 0 to below 1, float64 where the device has it; never a token of no weight.
    """
    rows = weights.size(0)
    over = weights.size(1) % block
    if over > 0:
        weights = F.pad(weights, [0, block - over])
    blocks = weights.view(rows, -1, block)
    sums = blocks.sum(-1).to(noise.dtype).cumsum(-1)  # (R, V / block)
    share = (noise * sums[:, -1]).unsqueeze(-1)
    found = first_above(sums, share)
    before = F.pad(sums, [1, 0]).gather(-1, found)
    index = found.unsqueeze(-1).expand(-1, -1, block)
    inside = blocks.gather(1, index).squeeze(1).to(noise.dtype).cumsum(-1)
    return (found * block + first_above(inside, share - before)).squeeze(-1)


def first_above(sums: Tensor, share: Tensor) -> Tensor:
    """First index whose running sum exceeds `share` (R, 1); never one that adds nothing."""
    found = torch.searchsorted(sums, share, right=True)
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    return torch.minimum(found, last).clamp(max=sums.size(1) - 1)  # where the sums are NaN


def truncated(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep of weights (R, V) the top_k (R,) greatest, then the fewest that reach top_p (R,)."""
    ordered, order = weights.sort(-1, descending=True)
    rank = torch.arange(weights.size(-1), device=weights.device).unsqueeze(0)
    ordered = ordered.masked_fill(rank >= top_k.unsqueeze(-1), 0.0)
    running = ordered.to(exact(weights.device)).cumsum(-1)
    before = (running - ordered) / running[:, -1:]
    # top_p of 1 cuts nothing, even where rounding has the running sum reach 1 early.
    cut = (before >= top_p.unsqueeze(-1)) & (top_p < 1).unsqueeze(-1)
    return torch.zeros_like(weights).scatter(-1, order, ordered.masked_fill(cut, 0.0))


def exact(device: torch.device) -> torch.dtype:
    """The widest float of a device."""
    return torch.float32 if device.type == "mps" else torch.float64
