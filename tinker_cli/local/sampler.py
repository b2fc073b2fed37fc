"""Batched sampling: rows of many requests that decode together under one set of weights.

`Batch` takes requests in while it decodes others (continuous batching); a row that is done leaves,
and its place is filled. Models that `decoder` does not serve decode in a `waves.Wave`, which takes
nothing in once it has begun. Knows models and requests; knows nothing of HTTP or files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from tinker_cli.local.drawing import Decoding, Row, SampleJob, Scoring
from tinker_cli.local.faults import ClientFault
from tinker_cli.local.lanes import Lane, Share, Turn
from tinker_cli.local.lora import Adapter, BaseModel

LANE_ROWS = 8  # rows that make another lane worth its while
LARGE_LANE_ROWS = 32  # and for a model whose weights each lane reads from memory
MAX_ROWS = 256  # rows of one batch; above it a CPU gains nothing
CACHE_BYTES = 4 << 30  # keys and values of one batch at most, if all rows grow to their end
Array = np.ndarray[Any, Any]


class Rows(Protocol):
    """What the scheduler asks of a batch or a wave."""

    @property
    def rows(self) -> Sequence[Row]:
        """The completions in the making."""

    def room_for(self, job: SampleJob, waiting: int) -> bool:
        """True if the job may be taken in now, after `waiting` rows that are about to join."""

    def admit(self, jobs: Sequence[SampleJob]) -> list[SampleJob]:
        """Take jobs in and draw their first tokens; return those that this finished."""

    def step(self, is_awaited: Callable[[], bool]) -> list[SampleJob]:
        """Draw a token for every row, and more until awaited; return the jobs that finished."""


class Batch:
    """Rows that decode together; requests come and go.

    The rows are spread over as many lanes as the model may use threads, each lane a smaller batch
    of its own on one thread; a row's numbers are the same in any lane. A lane that is alone with a
    model of some size shares its matrix products between the threads instead.
    """

    def __init__(self, model: BaseModel, adapter: Adapter | None):
        assert model.decoder is not None
        self.model = model
        with torch.inference_mode():
            weights = model.decoder.weights(adapter)
        self.lanes = [Lane(model, weights) for _ in range(model.lanes)]

    @property
    def rows(self) -> list[Row]:
        """Every row of every lane."""
        return [row for lane in self.lanes for row in lane.rows]

    def room_for(self, job: SampleJob, waiting: int) -> bool:
        """True if all of the job's rows fit, by number and by the memory they may come to need."""
        there = self.rows
        if not there and not waiting:
            return True
        rows = len(there) + waiting + job.num_samples
        longest = max([_end(job), *(_end(row.job) for row in there)])
        size = rows * longest * self.lanes[0].decoder.bytes_per_position
        return rows <= MAX_ROWS and size <= CACHE_BYTES

    def admit(self, jobs: Sequence[SampleJob]) -> list[SampleJob]:
        """Run the prompts and draw the first tokens."""
        for job in jobs:
            job.completions = [None] * job.num_samples
        least = LANE_ROWS if self.model.is_small else LARGE_LANE_ROWS
        shares = _spread(jobs, [len(lane.rows) for lane in self.lanes], least)
        busy = [(lane, share) for lane, share in zip(self.lanes, shares, strict=True) if share]
        return self._each([functools.partial(lane.admit, share) for lane, share in busy])

    def step(self, is_awaited: Callable[[], bool]) -> list[SampleJob]:
        """Draw tokens for every row, for a turn's time; return the jobs that this finished."""
        busy, turn = [lane for lane in self.lanes if lane.rows], Turn(is_awaited)
        return self._each([functools.partial(lane.steps, turn) for lane in busy])

    def _each(self, works: Sequence[Callable[[], list[SampleJob]]]) -> list[SampleJob]:
        """Run the lanes' work at once; return the jobs of which no row is left."""
        if len(works) > 1 or (len(self.lanes) > 1 and self.model.is_small):
            touched = list(self.model.pool.map(lambda work: work(), works))
        else:
            touched = [work() for work in works]
        jobs = {id(job): job for part in touched for job in part}
        return [job for job in jobs.values() if job.done]


def _spread(jobs: Sequence[SampleJob], loads: Sequence[int], least: int) -> list[list[Share]]:
    """Deal the jobs' rows to lanes that hold `loads` rows, filling the emptiest first.

    Fewer than `least` stay together, a lane's step costing nearly the same for one row as for many.
    Rows of one prompt stay together where they fit, since each lane runs the prompt once.
    """
    total = sum(loads) + sum(job.num_samples for job in jobs)
    used = min(len(loads), max(total // least, 1))
    order = sorted(range(len(loads)), key=lambda lane: loads[lane] if used > 1 else -loads[lane])
    room = {lane: max(-(-total // used) - loads[lane], 0) for lane in order[:used]}
    shares: list[list[Share]] = [[] for _ in loads]
    places = iter(room)
    lane = next(places)
    for job in sorted(jobs, key=lambda job: job.prompt.tobytes()):
        start = 0
        while start < job.num_samples:
            while room[lane] <= 0 and (other := next(places, None)) is not None:
                lane = other
            count = job.num_samples - start
            if room[lane] > 0:
                count = min(count, room[lane])
            shares[lane].append(Share(job, range(start, start + count)))
            room[lane] -= count
            start += count
    return shares


def new_batch(model: BaseModel, adapter: Adapter | None) -> Rows:
    """A batch, or for architectures that need it a wave."""
    if model.decoder is not None:
        return Batch(model, adapter)
    from tinker_cli.local.waves import Wave

    return Wave(model, adapter)


def _end(job: SampleJob) -> int:
    return len(job.prompt) + job.decoding.max_tokens


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
