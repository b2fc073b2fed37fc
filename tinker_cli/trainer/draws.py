"""Make sampling on the embedded engine repeatable: the same draws in every launch of a run.

Every unseeded request gets a seed of its own, chosen when the request is made, so that the order
in which requests reach the engine does not matter; what they are batched with does not either.
Knows nothing of runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
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


def steady_sampling(draws: Draws) -> None:
    """Put `draws` between the loop and the SDK's sampling clients, for the process's lifetime."""
    from tinker import SamplingClient

    original = SamplingClient.sample

    def sample(
        self: Any, prompt: Any, num_samples: int, sampling_params: Any, *more: Any, **named: Any
    ) -> Any:
        if sampling_params.seed is None:
            seed = draws.next_seed(self, prompt)
            sampling_params = sampling_params.model_copy(update={"seed": seed})
        return original(self, prompt, num_samples, sampling_params, *more, **named)

    SamplingClient.sample = sample  # type: ignore[method-assign]
