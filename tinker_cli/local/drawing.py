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
from torch import Tensor

from tinker_cli.local.choice import exact, invert, plain_draw, truncated
from tinker_cli.local.compiled import compiled
from tinker_cli.local.protocol import Completion, TargetCells

STOP_LOOKBACK = 32  # tokens decoded at least to find a stop string at the end
DRAWN_AT_ONCE = 256  # uniform numbers
Array = np.ndarray[Any, Any]
_COMPILED_DRAW = compiled(plain_draw)  # here, since lanes that draw are threads


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
    def is_plain(self) -> bool:
        """True if tokens are drawn from the model's own distribution."""
        return self.temperature == 1 and not self.truncates

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
    chosen, logprobs = draw(logits, decodings, noise)
    taken = logprobs.tolist()
    widest = max(row.job.topk_sample for row in rows)
    top = logits.log_softmax(-1).topk(widest, -1) if widest else None
    finished = []
    for i, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
        row.tokens.append(token)
        row.logprobs.append(taken[i])
        if top is not None and (k := row.job.topk_sample):
            found = top.indices[i, :k], top.values[i, :k]
            row.topk.append((found[0].cpu().numpy(), found[1].cpu().numpy()))
        stopped = _stops(row, tokenizer)
        if stopped or len(row.tokens) >= row.job.decoding.max_tokens:
            row.finish(stopped)
            finished.append(i)
    return finished


def draw(
    logits: Tensor, decodings: Sequence[Decoding], noise: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the token drawn for each row of logits (R, V), and its log-probability (R,).

    The log-probability is that of the model's own distribution, at temperature 1. A row's numbers
    are the same whatever the other rows ask for.
    """
    device = logits.device
    uniform = torch.tensor(noise, dtype=exact(device), device=device)
    if all(d.is_plain for d in decodings):
        plain = _COMPILED_DRAW if device.type == "cpu" else plain_draw
        return plain(logits, uniform)
    own = logits.softmax(-1)  # (R, V)
    heat = torch.tensor([d.temperature or 1.0 for d in decodings], device=device)
    is_hot = heat != 1
    weights = torch.where(is_hot.unsqueeze(-1), (logits / heat.unsqueeze(-1)).softmax(-1), own)
    if any(d.truncates for d in decodings):
        weights = _truncated(weights, decodings)
    drawn = invert(weights, uniform)
    greedy = torch.tensor([d.temperature == 0 for d in decodings], device=device)
    drawn = torch.where(greedy, logits.argmax(-1), drawn)
    at = drawn.unsqueeze(-1)
    # What heat brings up may be too small to be a float: its logarithm is had without it.
    low = logits.gather(-1, at).squeeze(-1) - logits.logsumexp(-1)
    return drawn, torch.where(is_hot, low, own.gather(-1, at).squeeze(-1).log())


def _truncated(weights: Tensor, decodings: Sequence[Decoding]) -> Tensor:
    picked = [i for i, d in enumerate(decodings) if d.truncates]
    size, device = weights.shape[-1], weights.device
    index = torch.tensor(picked, device=device)
    top_k = [decodings[i].top_k if decodings[i].top_k > 0 else size for i in picked]
    top_p = [decodings[i].top_p for i in picked]
    kept = truncated(
        weights[index], torch.tensor(top_k, device=device), torch.tensor(top_p, device=device)
    )
    return weights.index_copy(0, index, kept)


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
