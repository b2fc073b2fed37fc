"""A lane: rows of many requests that go through the network together, on one thread.

A row that is done leaves, and the last one takes its place. A row's numbers are the same bits in
any lane, beside any other rows. Knows a model and its rows; knows nothing of other lanes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tinker_cli.local.decoder import PROMPT_TOKENS_AT_ONCE
from tinker_cli.local.drawing import Row, SampleJob, extend
from tinker_cli.local.layers import Weights
from tinker_cli.local.lora import BaseModel
from tinker_cli.local.scoring import score_prompt

TURN_SECONDS, TURN_WITH_NEWS_SECONDS = 0.2, 0.02
FIRST_TOKENS = 64  # for which a row has room before its cache grows


@dataclass(frozen=True)
class Share:
    """Some of a job's completions."""

    job: SampleJob
    indices: range


class Turn:
    """For how long lanes decode before they wait for one another.

    Waiting costs each a part of a step, so that a turn is long; but what a lane has finished is
    handed out after a short one, and whoever comes for the engine ends it at once.
    """

    def __init__(self, is_awaited: Callable[[], bool]):
        self._is_awaited, self._started = is_awaited, time.perf_counter()
        self.has_news = False  # a row is finished

    def is_over(self) -> bool:
        """True if the lanes are to come together."""
        took = time.perf_counter() - self._started
        most = TURN_WITH_NEWS_SECONDS if self.has_news else TURN_SECONDS
        return took >= most or self._is_awaited()


class Lane:
    """Rows that go through the network together, on one thread."""

    def __init__(self, model: BaseModel, weights: Weights):
        assert model.decoder is not None
        self.model, self.decoder, self.weights = model, model.decoder, weights
        with torch.inference_mode():
            self.cache = self.decoder.new_cache()
        self.rows: list[Row] = []

    def admit(self, shares: Sequence[Share]) -> list[SampleJob]:
        """Run the prompts, each different one once, and draw the first tokens.

        Returns the jobs of which a row was finished.
        """
        by_prompt: dict[bytes, list[Share]] = {}
        for share in shares:
            by_prompt.setdefault(share.job.prompt.tobytes(), []).append(share)
        finished: list[SampleJob] = []
        with torch.inference_mode():
            for group in _groups(list(by_prompt.values())):
                finished += self._admit(group)
        return finished

    def _admit(self, groups: Sequence[list[Share]]) -> list[SampleJob]:
        prompts = [torch.from_numpy(group[0].job.prompt) for group in groups]
        hidden, kept = self.decoder.prompts(self.weights, prompts)
        last = self.decoder.logits(self.weights, torch.stack([h[-1] for h in hidden]))
        rows, picked = [], []
        for i, group in enumerate(groups):
            for share in group:
                if share.indices.start == 0:
                    self._score(share.job, hidden[i])
                rows += [Row(share.job, index) for index in share.indices]
                picked += [i] * len(share.indices)
        done = set(extend(rows, last[torch.tensor(picked)], self.model.tokenizer))
        staying = [i for i in range(len(rows)) if i not in done]
        start = len(self.rows)
        if staying:
            self.cache.ensure(start + len(staying), max(_room(rows[i].job) for i in staying))
        for offset, i in enumerate(staying):
            for layer, kv in enumerate(kept[picked[i]]):
                self.cache.put(start + offset, layer, kv)
            self.rows.append(rows[i])
        return [rows[i].job for i in done]

    def _score(self, job: SampleJob, hidden: torch.Tensor) -> None:
        if job.scoring.wanted:
            score_prompt(
                job,
                lambda start, end: self.decoder.logits(self.weights, hidden[start:end]),
                self.model.vocab_size,
            )

    def steps(self, turn: Turn) -> list[SampleJob]:
        """Step to the turn's end, at least once; return the jobs of the rows that finished."""
        finished = self._step()
        turn.has_news |= bool(finished)
        while self.rows and not turn.is_over():
            finished += self._step()
            turn.has_news |= bool(finished)
        return finished

    def _step(self) -> list[SampleJob]:
        with torch.inference_mode():
            self._drop([i for i, row in enumerate(self.rows) if row.job.cancelled])
            if not self.rows:
                return []
            tokens = [row.tokens[-1] for row in self.rows]
            lengths = [row.length - 1 for row in self.rows]
            logits = self.decoder.step(self.weights, self.cache, tokens, lengths)
            done = extend(self.rows, logits, self.model.tokenizer)
            finished = [self.rows[i].job for i in done]
            self._drop(done)
        return finished

    def _drop(self, indices: Sequence[int]) -> None:
        """Let rows leave; the last ones move into their places."""
        for index in sorted(indices, reverse=True):
            last = len(self.rows) - 1
            if index != last:
                self.cache.move(last, index, self.rows[last].length)
                self.rows[index] = self.rows[last]
            self.rows.pop()


def _room(job: SampleJob) -> int:
    """Positions that a row gets at first."""
    return len(job.prompt) + min(job.decoding.max_tokens, FIRST_TOKENS)


def _groups(by_prompt: list[list[Share]]) -> list[list[list[Share]]]:
    """Cut the prompts into runs of bounded length, so that memory is bounded too."""
    runs: list[list[list[Share]]] = []
    size = PROMPT_TOKENS_AT_ONCE
    for group in by_prompt:
        length = len(group[0].job.prompt)
        if size + length > PROMPT_TOKENS_AT_ONCE:
            runs.append([])
            size = 0
        runs[-1].append(group)
        size += length
    return runs
