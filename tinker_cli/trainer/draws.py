"""Make sampling on the embedded engine repeatable: the same draws in every launch of a run.

Every unseeded request gets a seed of its own. In a rollout it comes from the rollout's place, that
is its group in the batch and its number in the group, so that neither the order in which rollouts
get to their requests nor what these are batched with matters. Knows nothing of runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

BATCHES_REMEMBERED = 64  # an asynchronous loop has several batches under way


@dataclass
class _Group:
    """A group of rollouts under way: its place, and how many of them have begun."""

    place: tuple[int, int]  # batch, position in it
    begun: int = 0


@dataclass
class _Rollout:
    """A rollout under way: its place, and how many requests it has made."""

    place: tuple[int, int, int]  # batch, position in it, number in the group
    asked: int = 0


_GROUP: ContextVar[_Group | None] = ContextVar("group", default=None)
_ROLLOUT: ContextVar[_Rollout | None] = ContextVar("rollout", default=None)


class Draws:
    """Seeds for the requests of one process.

    A seed comes from `seed`, the step under way, the prompt, and the place of the rollout; outside
    rollouts, from how often that prompt was asked of the same client before.
    """

    def __init__(self, seed: int, step: Callable[[], int]):
        self._seed = seed
        self._step = step
        self._asked: WeakKeyDictionary[Any, Counter[bytes]] = WeakKeyDictionary()
        self._batches: deque[tuple[int, Sequence[Any]]] = deque(maxlen=BATCHES_REMEMBERED)

    def name_groups(self, batch: int, builders: Sequence[Any]) -> None:
        """Give the groups of a batch their places; they are known by identity."""
        self._batches.append((batch, builders))

    def place_of(self, builder: Any) -> tuple[int, int] | None:
        """The place of a group that `name_groups` has named."""
        for batch, builders in reversed(self._batches):
            for position, each in enumerate(builders):
                if each is builder:
                    return batch, position
        return None

    def next_seed(self, client: Any, prompt: Any) -> int:
        """The seed of the next request with `prompt` to `client`: 31 bits."""
        tokens = repr(prompt.to_ints()).encode()
        if (rollout := _ROLLOUT.get()) is not None:
            rollout.asked += 1
            key = repr((self._seed, self._step(), rollout.place, rollout.asked)).encode()
        else:
            counts = self._asked.setdefault(client, Counter())
            counts[tokens] += 1
            key = repr((self._seed, self._step(), counts[tokens])).encode()
        return int.from_bytes(hashlib.sha256(key + tokens).digest()[:4], "big") >> 1


def place_rollouts(draws: Draws) -> None:
    """Let every rollout of the RL loop know its place, for the process's lifetime."""
    from tinker_cookbook.rl import rollouts, train

    name = "do_group_rollout_and_filter_constant_reward"
    roll_group, roll_one = getattr(train, name), rollouts.do_single_rollout

    async def group(client: Any, builder: Any, *more: Any, **named: Any) -> Any:
        place = draws.place_of(builder)
        token = _GROUP.set(None if place is None else _Group(place))
        try:
            return await roll_group(client, builder, *more, **named)
        finally:
            _GROUP.reset(token)

    def one(policy: Any, environment: Any) -> Any:
        """Numbered here, where the loop calls; run later, when the loop awaits."""
        mine = _GROUP.get()
        rollout = None
        if mine is not None:
            rollout = _Rollout((*mine.place, mine.begun))
            mine.begun += 1

        async def run() -> Any:
            _ROLLOUT.set(rollout)
            return await roll_one(policy, environment)

        return run()

    setattr(train, name, group)
    rollouts.do_single_rollout = one


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
