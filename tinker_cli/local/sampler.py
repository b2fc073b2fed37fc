"""Batched decoding: prompts in, completions out, many requests at once.

Requests under the same weights decode together in a wave, one forward a token for all rows; rows
that are done leave the wave. The random numbers of a row depend on its request alone (seed, prompt,
row), never on what it is batched with. Knows tensors; knows nothing of HTTP or files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tinker_cli.local.faults import ClientFault
from tinker_cli.local.lora import Adapter, BaseModel
from tinker_cli.local.protocol import Completion

MAX_ROWS = 256  # rows of one wave; above it a CPU gains nothing
STOP_LOOKBACK = 32  # tokens decoded at most to find a stop string at the end
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


@dataclass
class SampleJob:
    """One request: a prompt, how many completions, and what else to report."""

    prompt: Array  # int64 (P,)
    num_samples: int
    decoding: Decoding
    random_key: bytes  # what the request's random numbers are drawn from
    prompt_logprobs: bool = False
    topk_prompt: int = 0
    topk_sample: int = 0
    cancelled: bool = False
    completions: list[Completion | None] = field(default_factory=list)
    scored_prompt: Array | None = None
    prompt_topk: tuple[Array, Array] | None = None

    @property
    def done(self) -> bool:
        """True when every completion is there."""
        return all(completion is not None for completion in self.completions)


@dataclass
class _Row:
    job: SampleJob
    index: int
    uniforms: Array  # float64 (max_tokens,)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    topk: list[tuple[Array, Array]] = field(default_factory=list)

    def finish(self, stopped: bool) -> None:
        topk = None
        if self.job.topk_sample:
            ids, scores = zip(*self.topk, strict=True)
            topk = np.stack(ids), np.stack(scores)
        self.job.completions[self.index] = Completion(
            np.array(self.tokens, np.int32), np.array(self.logprobs, np.float32), stopped, topk
        )


def uniforms(key: bytes, row: int, count: int) -> Array:
    """`count` numbers in [0, 1) that depend on the key and the row only (Philox)."""
    digest = hashlib.blake2b(key + row.to_bytes(4, "big"), digest_size=16).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))
    return generator.random(count)


class Wave:
    """Rows that decode together under one set of weights."""

    def __init__(self, model: BaseModel, adapter: Adapter | None, jobs: Sequence[SampleJob]):
        self.model, self.adapter, self.jobs = model, adapter, list(jobs)
        for job in jobs:
            job.completions = [None] * job.num_samples
        self.rows: list[_Row] = []
        with torch.inference_mode(), model.wearing(adapter):
            self._prefill()

    def _prefill(self) -> None:
        width = max(len(job.prompt) for job in self.jobs)
        tokens = np.zeros((len(self.jobs), width), np.int64)
        mask = np.zeros((len(self.jobs), width), np.int64)
        for i, job in enumerate(self.jobs):
            tokens[i, width - len(job.prompt) :] = job.prompt
            mask[i, width - len(job.prompt) :] = 1
        self.mask = torch.from_numpy(mask).to(self.model.device)
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        scored = any(job.prompt_logprobs or job.topk_prompt for job in self.jobs)
        out = self.model.network(
            input_ids=torch.from_numpy(tokens).to(self.model.device),
            attention_mask=self.mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=0 if scored else 1,
        )
        if scored:
            self._score_prompts(torch.log_softmax(out.logits.float(), -1), tokens, width)
        repeat = []
        for i, job in enumerate(self.jobs):
            for index in range(job.num_samples):
                noise = uniforms(job.random_key, index, job.decoding.max_tokens)
                self.rows.append(_Row(job, index, noise))
                repeat.append(i)
        picked = torch.tensor(repeat, device=self.model.device)
        self.cache = out.past_key_values
        self.cache.batch_select_indices(picked)
        self.mask = self.mask[picked]
        self.positions = positions[picked, -1]
        self._choose(out.logits[picked, -1].float())

    def _score_prompts(self, scores: Tensor, tokens: Array, width: int) -> None:
        for i, job in enumerate(self.jobs):
            start = width - len(job.prompt)
            rows = scores[i, start : width - 1].cpu()  # (P - 1, V): row j scores token j + 1
            if job.prompt_logprobs:
                ids = torch.from_numpy(tokens[i, start + 1 :]).unsqueeze(-1)
                given = rows.gather(-1, ids).squeeze(-1).numpy()
                job.scored_prompt = np.concatenate([[np.nan], given]).astype(np.float32)
            if job.topk_prompt:
                top = rows.topk(job.topk_prompt, -1)
                blank_ids = np.zeros((1, job.topk_prompt), np.int32)
                blank = np.full((1, job.topk_prompt), -99999.0, np.float32)
                job.prompt_topk = (
                    np.concatenate([blank_ids, top.indices.numpy().astype(np.int32)]),
                    np.concatenate([blank, top.values.numpy()]),
                )

    def step(self) -> list[SampleJob]:
        """Decode one token for every row; return the jobs that this finished."""
        with torch.inference_mode(), self.model.wearing(self.adapter):
            self._step()
        finished = [job for job in self.jobs if job.done]
        self.jobs = [job for job in self.jobs if not job.done and not job.cancelled]
        return finished

    def _step(self) -> None:
        self._drop([i for i, row in enumerate(self.rows) if row.job.cancelled])
        if not self.rows:
            return
        last = torch.tensor([[row.tokens[-1]] for row in self.rows], device=self.model.device)
        self.positions = self.positions + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], -1)
        out = self.model.network(
            input_ids=last,
            attention_mask=self.mask,
            position_ids=self.positions.unsqueeze(-1),
            past_key_values=self.cache,
            use_cache=True,
        )
        self._choose(out.logits[:, -1].float())

    def _choose(self, logits: Tensor) -> None:
        """Draw a token a row from logits (R, V), record it, and let finished rows leave."""
        scores = torch.log_softmax(logits, -1)
        chosen = self._draw(logits)
        taken = scores.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).tolist()
        done = []
        widest = max(row.job.topk_sample for row in self.rows)
        top = scores.topk(widest, -1) if widest else None
        for i, (row, token) in enumerate(zip(self.rows, chosen.tolist(), strict=True)):
            row.tokens.append(token)
            row.logprobs.append(taken[i])
            if top is not None and (k := row.job.topk_sample):
                ids, values = top.indices[i, :k].cpu().numpy(), top.values[i, :k].cpu().numpy()
                row.topk.append((ids, values))
            stopped = self._stops(row)
            if stopped or len(row.tokens) >= row.job.decoding.max_tokens:
                row.finish(stopped)
                done.append(i)
        self._drop(done)

    def _draw(self, logits: Tensor) -> Tensor:
        """Inverse-CDF sampling: one uniform number a row, compared with the running sum."""
        decodings = [row.job.decoding for row in self.rows]
        temperature = torch.tensor([d.temperature for d in decodings], device=logits.device)
        greedy = temperature == 0
        scaled = logits / torch.where(greedy, 1.0, temperature).unsqueeze(-1)
        if any(d.top_k > 0 or d.top_p < 1 for d in decodings):
            scaled = _truncate(scaled, decodings)
        noise = torch.tensor(
            [row.uniforms[len(row.tokens)] for row in self.rows], dtype=torch.float64
        ).to(logits.device)
        running = torch.softmax(scaled.double(), -1).cumsum(-1)
        below = running <= (noise * running[:, -1]).unsqueeze(-1)
        drawn = below.sum(-1).clamp(max=logits.shape[-1] - 1)
        return torch.where(greedy, logits.argmax(-1), drawn)

    def _stops(self, row: _Row) -> bool:
        decoding = row.job.decoding
        if row.tokens[-1] in decoding.stop_tokens:
            return True
        if not decoding.stop_texts:
            return False
        tail = self.model.tokenizer.decode(row.tokens[-STOP_LOOKBACK:])
        newest = self.model.tokenizer.decode(row.tokens[-STOP_LOOKBACK:-1])
        return any(stop in tail and stop not in newest for stop in decoding.stop_texts)

    def _drop(self, indices: Sequence[int]) -> None:
        if not indices:
            return
        gone = set(indices)
        keep = [i for i in range(len(self.rows)) if i not in gone]
        self.rows = [self.rows[i] for i in keep]
        if keep:
            picked = torch.tensor(keep, device=self.mask.device)
            self.cache.batch_select_indices(picked)
            self.mask, self.positions = self.mask[picked], self.positions[picked]


def _truncate(scaled: Tensor, decodings: Sequence[Decoding]) -> Tensor:
    """Keep each row's top_k tokens, then the smallest set whose probability reaches top_p."""
    ordered, order = scaled.sort(-1, descending=True)
    size = scaled.shape[-1]
    rank = torch.arange(size, device=scaled.device).unsqueeze(0)
    top_k = torch.tensor([d.top_k if d.top_k > 0 else size for d in decodings]).unsqueeze(-1)
    top_p = torch.tensor([d.top_p for d in decodings], dtype=torch.float64).unsqueeze(-1)
    ordered = ordered.masked_fill(rank >= top_k.to(scaled.device), float("-inf"))
    chance = torch.softmax(ordered.double(), -1)
    before = chance.cumsum(-1) - chance
    ordered = ordered.masked_fill(before >= top_p.to(scaled.device), float("-inf"))
    return torch.full_like(scaled, float("-inf")).scatter(-1, order, ordered)


def checked_job(
    model: BaseModel, prompt: Sequence[int], num_samples: int, params: dict[str, Any], **more: Any
) -> SampleJob:
    """Check a request's numbers against the model; ClientFault says what is out of range."""
    if not prompt:
        raise ClientFault("the prompt is empty")
    if min(prompt) < 0 or max(prompt) >= model.vocab_size:
        raise ClientFault(f"the prompt has a token outside 0 to {model.vocab_size - 1}")
    if not 1 <= num_samples <= MAX_ROWS:
        raise ClientFault(f"num_samples must be between 1 and {MAX_ROWS}, not {num_samples}")
    room = model.context - len(prompt)
    wanted = params.get("max_tokens")
    max_tokens = room if wanted is None else int(wanted)
    if max_tokens < 1 or max_tokens > room:
        raise ClientFault(
            f"prompt of {len(prompt)} tokens + max_tokens {max_tokens} must fit the context of "
            f"{model.context}, with max_tokens at least 1"
        )
    temperature, top_p = float(params.get("temperature", 1)), float(params.get("top_p", 1))
    top_k = int(params.get("top_k", -1))
    if not temperature >= 0 or temperature == float("inf"):
        raise ClientFault(f"temperature must be a number of at least 0, not {temperature}")
    if not 0 < top_p <= 1:
        raise ClientFault(f"top_p must be above 0 and at most 1, not {top_p}")
    if top_k != -1 and top_k < 1:
        raise ClientFault(f"top_k must be -1 (all) or at least 1, not {top_k}")
    tokens, texts = _stops(params.get("stop"), model)
    decoding = Decoding(max_tokens, temperature, top_k, top_p, tokens, texts)
    return SampleJob(np.array(prompt, np.int64), num_samples, decoding, **more)


def _stops(stop: Any, model: BaseModel) -> tuple[frozenset[int], tuple[str, ...]]:
    """None means the model's end tokens; an empty list means no stop at all."""
    if stop is None:
        return frozenset(model.eos_ids), ()
    if isinstance(stop, str):
        stop = [stop]
    if all(isinstance(item, str) for item in stop):
        if "" in stop:
            raise ClientFault("a stop string is empty")
        return frozenset(), tuple(stop)
    if all(isinstance(item, int) for item in stop):
        return frozenset(stop), ()
    raise ClientFault("stop must be strings or token ids, not both")
