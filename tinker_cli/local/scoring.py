"""Reporting on a prompt: log-probabilities of its tokens, the best ones, named ones, draws.

Position i of the prompt is scored by the logits at i - 1; position 0 has no context and no score.
Logits come in pieces, so that a long prompt never needs all of them at once. Knows tensors and
requests; knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tinker_cli.local.drawing import SampleJob, draw, generator

LOGITS_AT_ONCE = 1 << 24  # numbers: 64 MB in float32
NO_LOGPROB = -99999.0  # the protocol's mark of an empty cell
ALTERNATIVES_ROW = 1 << 40  # the draws' place among a request's rows of random numbers


def score_prompt(job: SampleJob, logits_of: Callable[[int, int], Tensor], vocab: int) -> None:
    """Fill in what the job asks of its prompt.

    `logits_of(start, end)` gives float32 logits (end - start, V) at prompt positions start to end.
    """
    scoring, length = job.scoring, len(job.prompt)
    first = 0 if scoring.last is None else max(length - 1 - scoring.last, 0)
    if scoring.targets is not None or scoring.alternatives:
        first = 0
    _make_room(job)
    tokens = torch.from_numpy(job.prompt)
    random = generator(job.random_key, ALTERNATIVES_ROW) if scoring.alternatives else None
    step = max(LOGITS_AT_ONCE // vocab, 1)
    for start in range(first, length - 1, step):
        end = min(start + step, length - 1)
        logits = logits_of(start, end).cpu()
        normaliser = torch.logsumexp(logits, -1, keepdim=True)
        given = logits.gather(-1, tokens[start + 1 : end + 1].unsqueeze(-1)) - normaliser
        if job.prompt_logprobs is not None:
            job.prompt_logprobs[start + 1 : end + 1] = given.squeeze(-1).numpy()
        if job.prompt_topk is not None:
            top = logits.topk(scoring.topk, -1)
            job.prompt_topk[0][start + 1 : end + 1] = top.indices.numpy()
            job.prompt_topk[1][start + 1 : end + 1] = (top.values - normaliser).numpy()
        if job.target_logprobs is not None and scoring.targets is not None:
            wanted = torch.from_numpy(scoring.targets.tokens[start:end])
            scores = logits.gather(-1, wanted.clamp(min=0)) - normaliser
            job.target_logprobs[start:end] = scores.masked_fill(wanted < 0, 0.0).numpy()
        if job.alternatives is not None and random is not None:
            for column in range(scoring.alternatives):
                _draw_column(job, logits, normaliser, start, column, random)
    _blank_before(job)


def _make_room(job: SampleJob) -> None:
    scoring, length = job.scoring, len(job.prompt)
    if scoring.logprobs:
        job.prompt_logprobs = np.full(length, np.nan, np.float32)
    if scoring.topk:
        shape = (length, scoring.topk)
        job.prompt_topk = np.zeros(shape, np.int32), np.full(shape, NO_LOGPROB, np.float32)
    if scoring.targets is not None:
        job.target_logprobs = np.zeros(scoring.targets.tokens.shape, np.float32)
    if scoring.alternatives:
        shape = (length - 1, scoring.alternatives)
        job.alternatives = np.zeros(shape, np.int32), np.zeros(shape, np.float32)


def _draw_column(
    job: SampleJob,
    logits: Tensor,
    normaliser: Tensor,
    start: int,
    column: int,
    random: np.random.Generator,
) -> None:
    assert job.alternatives is not None
    count = len(logits)
    drawn, _ = draw(logits, [job.decoding] * count, random.random(count).tolist())
    scores = logits.gather(-1, drawn.unsqueeze(-1)) - normaliser
    job.alternatives[0][start : start + count, column] = drawn.numpy()
    job.alternatives[1][start : start + count, column] = scores.squeeze(-1).numpy()


def _blank_before(job: SampleJob) -> None:
    """Leave no score before the last so many tokens, where only those were asked for."""
    if job.scoring.last is None:
        return
    first = len(job.prompt) - job.scoring.last
    if job.prompt_logprobs is not None:
        job.prompt_logprobs[:first] = np.nan
    if job.prompt_topk is not None:
        job.prompt_topk[0][:first], job.prompt_topk[1][:first] = 0, NO_LOGPROB
