"""Seeds follow a rollout's place, whatever order its requests are made in."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tinker import types

from tinker_cli.trainer import draws as module
from tinker_cli.trainer.draws import Draws, place_rollouts


class Client:
    """Something that requests are made of."""


PROMPT = types.ModelInput.from_ints([1, 2, 3])


def _seeds(monkeypatch: pytest.MonkeyPatch, order: int) -> dict[tuple[int, int], list[int]]:
    """Seeds of 3 groups of 4 rollouts of 2 turns, all with one prompt, that race each other."""
    from tinker_cookbook.rl import rollouts, train

    noise = random.Random(order)
    draws, client = Draws(7, lambda: 5), Client()
    found: dict[tuple[int, int], list[int]] = {}

    async def one(policy: Any, environment: tuple[int, int]) -> None:
        for _ in range(2):
            await asyncio.sleep(noise.random() / 100)
            found.setdefault(environment, []).append(draws.next_seed(client, PROMPT))

    async def group(client: Any, builder: list[int]) -> None:
        await asyncio.sleep(noise.random() / 100)
        rolls = [rollouts.do_single_rollout(None, (builder[0], i)) for i in range(4)]
        await asyncio.gather(*rolls)

    name = "do_group_rollout_and_filter_constant_reward"
    monkeypatch.setattr(train, name, group)
    monkeypatch.setattr(rollouts, "do_single_rollout", one)
    place_rollouts(draws)
    builders = [[0], [1], [2]]
    draws.name_groups(9, builders)

    async def loop() -> None:
        await asyncio.gather(*[getattr(train, name)(client, each) for each in builders])

    asyncio.run(loop())
    return found


def test_a_rollout_draws_the_same_whoever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _seeds(monkeypatch, 1), _seeds(monkeypatch, 2)
    assert first == second
    assert len({seed for seeds in first.values() for seed in seeds}) == 3 * 4 * 2


def test_outside_rollouts_a_prompt_is_counted() -> None:
    assert module._ROLLOUT.get() is None
    one, other, client = Draws(7, lambda: 5), Draws(7, lambda: 5), Client()
    first = [one.next_seed(client, PROMPT) for _ in range(3)]
    assert len(set(first)) == 3
    assert [other.next_seed(client, PROMPT) for _ in range(3)] == first
    assert Draws(8, lambda: 5).next_seed(client, PROMPT) not in first
