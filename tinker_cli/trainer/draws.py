"""Make sampling on the embedded engine repeatable: the same draws in every launch of a run.

Every unseeded request gets a seed of its own, and with `one_at_a_time` none shares a batch with
another: the last bits of a logit depend on what else is in the batch. Knows nothing of runs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any
from weakref import WeakKeyDictionary


class Draws:
    """Seeds for the requests of one process.

    A seed comes from `seed`, the step under way, the prompt, and how often that prompt was asked
    of the same client before: neither arrival order nor batching on the server matters.
    """

    def __init__(self, seed: int, step: Callable[[], int]):
        self._seed = seed
        self._step = step
        self._asked: WeakKeyDictionary[Any, Counter[bytes]] = WeakKeyDictionary()

    def next_seed(self, client: Any, prompt: Any) -> int:
        """The seed of the next request with `prompt` to `client`: 31 bits."""
        tokens = repr(prompt.to_ints()).encode()
        counts = self._asked.setdefault(client, Counter())
        counts[tokens] += 1
        key = repr((self._seed, self._step(), counts[tokens])).encode() + tokens
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


class QueuedRequest:
    """A future whose request is sent when its turn comes."""

    def __init__(self, submit: Callable[[], Any], turn: asyncio.Lock):
        self._submit = submit
        self._turn = turn

    def result(self, timeout: float | None = None) -> Any:
        """The result, for callers outside the loop; these don't queue."""
        return self._submit().result(timeout)

    async def result_async(self, timeout: float | None = None) -> Any:
        """The result, once those before it have theirs."""
        async with self._turn:
            return await self._submit().result_async(timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result_async().__await__()


def steady_sampling(draws: Draws, *, one_at_a_time: bool) -> None:
    """Put `draws` between the loop and the SDK's sampling clients, for the process's lifetime."""
    from tinker import SamplingClient

    original = SamplingClient.sample
    turn = asyncio.Lock()

    def sample(
        self: Any, prompt: Any, num_samples: int, sampling_params: Any, *more: Any, **named: Any
    ) -> Any:
        if sampling_params.seed is None:
            seed = draws.next_seed(self, prompt)
            sampling_params = sampling_params.model_copy(update={"seed": seed})

        def submit() -> Any:
            return original(self, prompt, num_samples, sampling_params, *more, **named)

        return QueuedRequest(submit, turn) if one_at_a_time else submit()

    SamplingClient.sample = sample  # type: ignore[method-assign]
