"""Sampling for architectures that `decoder` does not serve: the network's own forward and cache.

The rows of a wave begin together; those that are done leave, and nothing joins. Knows networks of
`transformers`; knows nothing of HTTP or files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tinker_cli.local.drawing import Row, SampleJob, extend
from tinker_cli.local.lora import Adapter, BaseModel
from tinker_cli.local.scoring import score_prompt

MAX_ROWS = 256  # rows of one wave


class Wave:
    """Rows that begin together under one set of weights."""

    def __init__(self, model: BaseModel, adapter: Adapter | None):
        self.model = model
        self._folded = model.fold(adapter)
        self.rows: list[Row] = []

    def room_for(self, job: SampleJob, waiting: int) -> bool:
        """True while nothing decodes; what is admitted then begins together."""
        return not self.rows and (not waiting or waiting + job.num_samples <= MAX_ROWS)

    def admit(self, jobs: Sequence[SampleJob]) -> list[SampleJob]:
        """Run the prompts, padded on the left, and draw the first tokens."""
        width = max(len(job.prompt) for job in jobs)
        tokens = np.zeros((len(jobs), width), np.int64)
        mask = np.zeros((len(jobs), width), np.int64)
        for i, job in enumerate(jobs):
            job.completions = [None] * job.num_samples
            tokens[i, width - len(job.prompt) :] = job.prompt
            mask[i, width - len(job.prompt) :] = 1
        with torch.inference_mode(), self.model.wearing(self._folded):
            self._prefill(jobs, tokens, mask)
        return [job for job in jobs if job.done]

    def _prefill(
        self,
        jobs: Sequence[SampleJob],
        tokens: np.ndarray[tuple[int, int], np.dtype[np.int64]],
        mask: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    ) -> None:
        device, width = self.model.device, tokens.shape[1]
        self.mask = torch.from_numpy(mask).to(device)
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        scored = any(job.scoring.wanted for job in jobs)
        out = self.model.network(
            input_ids=torch.from_numpy(tokens).to(device),
            attention_mask=self.mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=0 if scored else 1,
        )
        for i, job in enumerate(jobs):
            if job.scoring.wanted:
                logits = out.logits[i, width - len(job.prompt) :].float()
                score_prompt(job, _slices(logits), self.model.vocab_size)
        repeat = [i for i, job in enumerate(jobs) for _ in range(job.num_samples)]
        self.rows = [Row(job, index) for job in jobs for index in range(job.num_samples)]
        picked = torch.tensor(repeat, device=device)
        self.cache = out.past_key_values
        self.cache.batch_select_indices(picked)
        self.mask = self.mask[picked]
        self.positions = positions[picked, -1]
        self._drop(extend(self.rows, out.logits[picked, -1].float(), self.model.tokenizer))

    def step(self, is_awaited: Callable[[], bool]) -> list[SampleJob]:
        """Draw a token for every row; return the jobs that this finished."""
        self._drop([i for i, row in enumerate(self.rows) if row.job.cancelled])
        if not self.rows:
            return []
        with torch.inference_mode(), self.model.wearing(self._folded):
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
            done = extend(self.rows, out.logits[:, -1].float(), self.model.tokenizer)
            finished = {id(self.rows[i].job): self.rows[i].job for i in done}
            self._drop(done)
        return [job for job in finished.values() if job.done]

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


def _slices(logits: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    return lambda start, end: logits[start:end]
