"""Batched sampling: rows of many requests that decode together under one set of weights.

`Batch` takes requests in while it decodes others (continuous batching); a row that is done leaves,
and its place is filled. Models that `decoder` does not serve decode in a `waves.Wave`, which takes
nothing in once it has begun. Knows models and requests; knows nothing of HTTP or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from tinker_cli.local.decoder import KEY_BLOCK, PROMPT_TOKENS_AT_ONCE
from tinker_cli.local.drawing import Decoding, Row, SampleJob, Scoring, extend
from tinker_cli.local.faults import ClientFault
from tinker_cli.local.lora import Adapter, BaseModel
from tinker_cli.local.scoring import score_prompt

MAX_ROWS = 256  # rows of one batch; above it a CPU gains nothing
CACHE_BYTES = 4 << 30  # keys and values of one batch at most, if all rows grow to their end
Array = np.ndarray[Any, Any]


class Rows(Protocol):
    """What the scheduler asks of a batch or a wave."""

    rows: list[Row]

    def room_for(self, job: SampleJob, waiting: int) -> bool:
        """True if the job may be taken in now, after `waiting` rows that are about to join."""

    def admit(self, jobs: Sequence[SampleJob]) -> list[SampleJob]:
        """Take jobs in and draw their first tokens; return those that this finished."""

    def step(self) -> list[SampleJob]:
        """Draw a token for every row; return the jobs that this finished."""


class Batch:
    """Rows that decode together; requests come and go."""

    def __init__(self, model: BaseModel, adapter: Adapter | None):
        assert model.decoder is not None
        self.model, self.decoder = model, model.decoder
        with torch.inference_mode():
            self.weights = self.decoder.weights(adapter)
            self.cache = self.decoder.new_cache()
        self.rows: list[Row] = []

    def room_for(self, job: SampleJob, waiting: int) -> bool:
        """True if all of the job's rows fit, by number and by the memory they may come to need."""
        if not self.rows and not waiting:
            return True
        rows = len(self.rows) + waiting + job.num_samples
        longest = max([_end(job), *(_end(row.job) for row in self.rows)])
        return rows <= MAX_ROWS and rows * longest * self.decoder.bytes_per_position <= CACHE_BYTES

    def admit(self, jobs: Sequence[SampleJob]) -> list[SampleJob]:
        """Run the prompts, each different one once, and draw the first tokens."""
        by_prompt: dict[bytes, list[SampleJob]] = {}
        for job in jobs:
            job.completions = [None] * job.num_samples
            by_prompt.setdefault(job.prompt.tobytes(), []).append(job)
        finished: list[SampleJob] = []
        with torch.inference_mode():
            for group in _groups(list(by_prompt.values())):
                finished += self._admit(group)
        return finished

    def _admit(self, groups: Sequence[list[SampleJob]]) -> list[SampleJob]:
        prompts = [torch.from_numpy(group[0].prompt) for group in groups]
        hidden, kept = self.decoder.prompts(self.weights, prompts)
        last = self.decoder.logits(self.weights, torch.stack([h[-1] for h in hidden]))
        rows, picked = [], []
        for i, group in enumerate(groups):
            for job in group:
                self._score(job, hidden[i])
                rows += [Row(job, index) for index in range(job.num_samples)]
                picked += [i] * job.num_samples
        done = set(extend(rows, last[torch.tensor(picked)], self.model.tokenizer))
        staying = [i for i in range(len(rows)) if i not in done]
        start = len(self.rows)
        if staying:
            longest = max(len(rows[i].job.prompt) for i in staying) + 1
            self.cache.ensure(start + len(staying), -(-longest // KEY_BLOCK) * KEY_BLOCK)
        for offset, i in enumerate(staying):
            length = len(rows[i].job.prompt)
            for layer, (k, v) in enumerate(kept[picked[i]]):
                self.cache.k[layer][start + offset, :, :length] = k
                self.cache.v[layer][start + offset, :, :length] = v
            self.rows.append(rows[i])
        return [job for group in groups for job in group if job.done]

    def _score(self, job: SampleJob, hidden: torch.Tensor) -> None:
        if job.scoring.wanted:
            score_prompt(
                job,
                lambda start, end: self.decoder.logits(self.weights, hidden[start:end]),
                self.model.vocab_size,
            )

    def step(self) -> list[SampleJob]:
        """Draw a token for every row; return the jobs that this finished."""
        with torch.inference_mode():
            self._drop([i for i, row in enumerate(self.rows) if row.job.cancelled])
            if not self.rows:
                return []
            tokens = [row.tokens[-1] for row in self.rows]
            lengths = [row.length - 1 for row in self.rows]
            hidden = self.decoder.step(self.weights, self.cache, tokens, lengths)
            logits = self.decoder.logits(self.weights, hidden)
            done = extend(self.rows, logits, self.model.tokenizer)
            finished = {id(self.rows[i].job): self.rows[i].job for i in done}
            self._drop(done)
        return [job for job in finished.values() if job.done]

    def _drop(self, indices: Sequence[int]) -> None:
        """Let rows leave; the last ones move into their places."""
        for index in sorted(indices, reverse=True):
            last = len(self.rows) - 1
            if index != last:
                self.cache.move(last, index, self.rows[last].length)
                self.rows[index] = self.rows[last]
            self.rows.pop()


def new_batch(model: BaseModel, adapter: Adapter | None) -> Rows:
    """A batch, or for architectures that need it a wave."""
    if model.decoder is not None:
        return Batch(model, adapter)
    from tinker_cli.local.waves import Wave

    return Wave(model, adapter)


def _end(job: SampleJob) -> int:
    return len(job.prompt) + job.decoding.max_tokens


def _groups(by_prompt: list[list[SampleJob]]) -> list[list[list[SampleJob]]]:
    """Cut the prompts into runs of bounded length, so that memory is bounded too."""
    runs: list[list[list[SampleJob]]] = []
    size = PROMPT_TOKENS_AT_ONCE
    for group in by_prompt:
        length = len(group[0].prompt)
        if size + length > PROMPT_TOKENS_AT_ONCE:
            runs.append([])
            size = 0
        runs[-1].append(group)
        size += length
    return runs


def checked_job(
    model: BaseModel,
    prompt: Sequence[int],
    num_samples: int,
    params: dict[str, Any],
    *,
    random_key: bytes,
    topk_sample: int = 0,
    scoring: Scoring = Scoring(),
) -> SampleJob:
    """Check a request's numbers against the model; ClientFault says what is out of range."""
    if not prompt:
        raise ClientFault("the prompt is empty")
    if min(prompt) < 0 or max(prompt) >= model.vocab_size:
        raise ClientFault(f"the prompt has a token outside 0 to {model.vocab_size - 1}")
    if not 1 <= num_samples <= MAX_ROWS:
        raise ClientFault(f"num_samples must be between 1 and {MAX_ROWS}, not {num_samples}")
    decoding = _checked_decoding(model, len(prompt), params)
    return SampleJob(
        np.array(prompt, np.int64), num_samples, decoding, random_key, topk_sample, scoring
    )


def _checked_decoding(model: BaseModel, length: int, params: dict[str, Any]) -> Decoding:
    room = model.context - length
    wanted = params.get("max_tokens")
    max_tokens = room if wanted is None else int(wanted)
    if max_tokens < 1 or max_tokens > room:
        raise ClientFault(
            f"{length} prompt tokens + max_tokens {max_tokens} must fit the model's context of "
            f"{model.context}, with max_tokens at least 1"
        )
    temperature, top_p = _number(params, "temperature", 1.0), _number(params, "top_p", 1.0)
    top_k = int(_number(params, "top_k", -1))
    if not 0 <= temperature < float("inf"):
        raise ClientFault(f"temperature must be a number of at least 0, not {temperature}")
    if not 0 < top_p <= 1:
        raise ClientFault(f"top_p must be above 0 and at most 1, not {top_p}")
    if top_k != -1 and top_k < 1:
        raise ClientFault(f"top_k must be -1 (all) or at least 1, not {top_k}")
    tokens, texts = _stops(params.get("stop"), model)
    return Decoding(max_tokens, temperature, top_k, top_p, tokens, texts)


def _number(params: dict[str, Any], name: str, default: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ClientFault(f"{name} must be a number, not {value!r}")
    return float(value)


def _stops(stop: Any, model: BaseModel) -> tuple[frozenset[int], tuple[str, ...]]:
    """None means the model's end tokens; an empty list means no stop at all."""
    if stop is None:
        return frozenset(model.eos_ids), ()
    if isinstance(stop, str):
        stop = [stop]
    if not isinstance(stop, list):
        raise ClientFault(f"stop must be text, a list of texts or of token ids, not {stop!r}")
    if all(isinstance(item, str) for item in stop):
        if "" in stop:
            raise ClientFault("a stop string is empty")
        return frozenset(), tuple(stop)
    if all(isinstance(item, int) for item in stop):
        return frozenset(stop), ()
    raise ClientFault("stop must be strings or token ids, not both")
