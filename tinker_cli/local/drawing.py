"""Choosing the next token: requests for samples, their rows, and the draw itself.

One uniform number a token, from a generator that belongs to the row, inverts the distribution's
running sum. A row's numbers depend on its request alone, never on what it is batched with. Knows
logits and requests; knows nothing of models or HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tinker_cli.local.protocol import Completion, TargetCells

BLOCK = 128  # tokens of one block of the running sum: sums of blocks first, then inside one
STOP_LOOKBACK = 32  # tokens decoded at least to find a stop string at the end
DRAWN_AT_ONCE = 256  # uniform numbers
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Decoding:
    """How to sample: the protocol's SamplingParams, checked."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    stop_tokens: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()

    @property
    def truncates(self) -> bool:
        """True if some tokens are ruled out before the draw."""
        return self.top_k > 0 or self.top_p < 1


@dataclass(frozen=True)
class Scoring:
    """What to report of the prompt."""

    logprobs: bool = False
    last: int | None = None  # score the last so many tokens only
    topk: int = 0
    targets: TargetCells | None = None
    alternatives: int = 0  # draws at each position

    @property
    def wanted(self) -> bool:
        """True if anything is asked."""
        return bool(self.logprobs or self.topk or self.targets is not None or self.alternatives)


@dataclass
class SampleJob:
    """One request: a prompt, how many completions, and what else to report."""

    prompt: Array  # int64 (P,)
    num_samples: int
    decoding: Decoding
    random_key: bytes  # what the request's random numbers are drawn from
    topk_sample: int = 0
    scoring: Scoring = Scoring()
    cancelled: bool = False
    completions: list[Completion | None] = field(default_factory=list)
    prompt_logprobs: Array | None = None  # float32 (P,), NaN where not scored
    prompt_topk: tuple[Array, Array] | None = None  # (P, K) ids and log-probabilities
    target_logprobs: Array | None = None  # float32 (P - 1, K)
    alternatives: tuple[Array, Array] | None = None  # (P - 1, k) ids and log-probabilities

    @property
    def done(self) -> bool:
        """True when every completion is there."""
        return all(completion is not None for completion in self.completions)


@dataclass
class Row:
    """One completion in the making."""

    job: SampleJob
    index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    topk: list[tuple[Array, Array]] = field(default_factory=list)
    _generator: Any = None
    _numbers: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens so far, the prompt's included."""
        return len(self.job.prompt) + len(self.tokens)

    def next_uniform(self) -> float:
        """The row's next number in [0, 1)."""
        if not self._numbers:
            if self._generator is None:
                self._generator = generator(self.job.random_key, self.index)
            self._numbers = self._generator.random(DRAWN_AT_ONCE)[::-1].tolist()
        return self._numbers.pop()

    def finish(self, stopped: bool) -> None:
        """Hand the completion to the job."""
        topk = None
        if self.job.topk_sample:
            ids, scores = zip(*self.topk, strict=True)
            topk = np.stack(ids), np.stack(scores)
        self.job.completions[self.index] = Completion(
            np.array(self.tokens, np.int32), np.array(self.logprobs, np.float32), stopped, topk
        )


def generator(key: bytes, row: int) -> np.random.Generator:
    """Random numbers that depend on the key and the row only (Philox)."""
    digest = hashlib.blake2b(key + row.to_bytes(8, "big"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


def extend(rows: Sequence[Row], logits: Tensor, tokenizer: Any) -> list[int]:
    """Draw a token a row from logits (R, V), record it; return the indices of finished rows."""
    decodings = [row.job.decoding for row in rows]
    noise = [0.0 if d.temperature == 0 else r.next_uniform() for r, d in zip(rows, decodings)]  # noqa: B905
    chosen, normaliser = draw(logits, decodings, noise)
    taken = (logits.gather(-1, chosen.unsqueeze(-1)).squeeze(-1) - normaliser).tolist()
    widest = max(row.job.topk_sample for row in rows)
    top = logits.topk(widest, -1) if widest else None
    finished = []
    for i, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
        row.tokens.append(token)
        row.logprobs.append(taken[i])
        if top is not None and (k := row.job.topk_sample):
            scores = top.values[i, :k] - normaliser[i]
            row.topk.append((top.indices[i, :k].cpu().numpy(), scores.cpu().numpy()))
        stopped = _stops(row, tokenizer)
        if stopped or len(row.tokens) >= row.job.decoding.max_tokens:
            row.finish(stopped)
            finished.append(i)
    return finished


def draw(
    logits: Tensor, decodings: Sequence[Decoding], noise: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the token drawn for each row of logits (R, V), and each row's log-normaliser (R,).

    The normaliser is that of the model's own distribution, at temperature 1.
    """
    weights = logits.softmax(-1)  # (R, V)
    # The greatest probability is exp(greatest logit - normaliser).
    normaliser = logits.amax(-1) - weights.amax(-1).log()
    if any(d.temperature not in (0.0, 1.0) for d in decodings):
        heat = torch.tensor([d.temperature or 1.0 for d in decodings], device=logits.device)
        weights = (logits / heat.unsqueeze(-1)).softmax(-1)
    if any(d.truncates for d in decodings):
        picked = [i for i, d in enumerate(decodings) if d.truncates]
        index = torch.tensor(picked, device=logits.device)
        weights = weights.index_copy(
            0, index, _truncated(weights[index], [decodings[i] for i in picked])
        )
    drawn = _invert(weights, noise)
    if any(d.temperature == 0 for d in decodings):
        greedy = torch.tensor([d.temperature == 0 for d in decodings], device=logits.device)
        drawn = torch.where(greedy, logits.argmax(-1), drawn)
    return drawn, normaliser


def _invert(weights: Tensor, noise: Sequence[float]) -> Tensor:
    """The index where the running sum of each row of weights (R, V) reaches its share of noise."""
    rows, size = weights.shape
    if size % BLOCK:
        weights = F.pad(weights, (0, -size % BLOCK))
    blocks = weights.view(rows, -1, BLOCK)
    double = torch.float64 if weights.device.type != "mps" else torch.float32
    sums = blocks.sum(-1).to(double).cumsum(-1)  # (R, V / BLOCK)
    share = torch.tensor(noise, dtype=double, device=weights.device) * sums[:, -1]
    block = _first_above(sums, share)
    before = sums.gather(-1, (block - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    before = torch.where(block > 0, before, torch.zeros_like(before))
    inside = blocks[torch.arange(rows, device=weights.device), block].to(double).cumsum(-1)
    return block * BLOCK + _first_above(inside, share - before)


def _first_above(sums: Tensor, share: Tensor) -> Tensor:
    """First index whose running sum exceeds `share`; never one that adds nothing."""
    found = (sums <= share.unsqueeze(-1)).sum(-1)
    last = (sums < sums[:, -1:]).sum(-1)
    return torch.minimum(found, last)


def _truncated(weights: Tensor, decodings: Sequence[Decoding]) -> Tensor:
    """Keep each row's top_k tokens, then the smallest set whose probability reaches top_p."""
    ordered, order = weights.sort(-1, descending=True)
    size, device = weights.shape[-1], weights.device
    rank = torch.arange(size, device=device).unsqueeze(0)
    top_k = torch.tensor([d.top_k if d.top_k > 0 else size for d in decodings], device=device)
    top_p = torch.tensor([d.top_p for d in decodings], device=device)
    ordered = ordered.masked_fill(rank >= top_k.unsqueeze(-1), 0.0)
    running = ordered.double().cumsum(-1) if device.type != "mps" else ordered.cumsum(-1)
    before = (running - ordered) / running[:, -1:]
    # top_p of 1 cuts nothing, even where rounding has the running sum reach 1 early.
    cut = (before >= top_p.unsqueeze(-1)) & (top_p < 1).unsqueeze(-1)
    return torch.zeros_like(weights).scatter(-1, order, ordered.masked_fill(cut, 0.0))


def _stops(row: Row, tokenizer: Any) -> bool:
    decoding = row.job.decoding
    if row.tokens[-1] in decoding.stop_tokens:
        return True
    if not decoding.stop_texts:
        return False
    # A token holds at least one byte, so this many reach back over the longest stop string.
    back = max(STOP_LOOKBACK, max(len(text.encode()) for text in decoding.stop_texts) + 1)
    tail = tokenizer.decode(row.tokens[-back:])
    return any(stop in tail for stop in decoding.stop_texts)
