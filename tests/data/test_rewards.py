"""Rewards: named checks, functions, and what they refuse."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.data.rewards import Reward, boxed, last_number, resolve_reward
from tinker_cli.errors import RunFailed, UsageError


def _score(spec: Any, response: str, answer: str = "", base: Path | None = None) -> float:
    reward = resolve_reward(spec, base)
    return asyncio.run(reward(response, {"answer": answer}, "q.jsonl:1")).value


@pytest.mark.parametrize(
    ("spec", "response", "answer", "value"),
    [
        ("exact", " 4 \n", "4", 1.0),
        ("exact", "4.0", "4", 0.0),
        ({"type": "exact", "ignore_case": True}, "YES", "yes", 1.0),
        ("contains", "it is 4, I think", "4", 1.0),
        ("numeric", "so 1,234.50 in all", "1234.5", 1.0),
        ("numeric", "no idea", "3", 0.0),
        ("numeric", "first 3, then 5", "3", 0.0),
        ("math", r"thus \boxed{ \frac{1}{2} }", r"\frac{1}{2}", 1.0),
        ("math", "12", "12", 0.0),
        ({"type": "regex", "pattern": "Answer: {answer}$"}, "Answer: 1+1", "1+1", 1.0),
        ("json", '{"b": 2, "a": 1}', '{"a": 1, "b": 2}', 1.0),
        ("json", "{", "{}", 0.0),
        ({"type": "format", "pattern": "^[0-9]+$"}, "12", "", 1.0),
    ],
)
def test_named_rewards(spec: Any, response: str, answer: str, value: float) -> None:
    assert _score(spec, response, answer) == value


def test_a_weighted_list_adds_up() -> None:
    spec = [
        {"type": "exact", "weight": 2},
        {"type": "format", "pattern": "[0-9]", "weight": 0.5},
    ]
    assert _score(spec, "4", "4") == 2.5
    assert _score(spec, "5", "4") == 0.5


def test_a_function_of_a_file_gives_the_whole_reward(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "async def score(response, row):\n    return len(response) / 2, {'length': len(response)}\n"
    )
    reward = resolve_reward("./mine.py:score", tmp_path)
    assert reward.is_whole
    got = asyncio.run(reward("abc", {}, "q:1"))
    assert (got.value, got.metrics) == (1.5, {"length": 3})


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1"])
def test_what_is_no_finite_number_is_refused_with_its_row(value: Any) -> None:
    reward = Reward("mine", lambda response, row: value, is_whole=True)
    with pytest.raises(RunFailed, match=r"q\.jsonl:9"):
        asyncio.run(reward("x", {}, "q.jsonl:9"))


def test_a_failing_function_is_never_a_silent_zero() -> None:
    def fail(response: str, row: Any) -> float:
        raise KeyError("gold")

    with pytest.raises(RunFailed, match=r"mine failed on q\.jsonl:2: KeyError"):
        asyncio.run(Reward("mine", fail, is_whole=True)("x", {}, "q.jsonl:2"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nummeric", "did you mean numeric"),
        ({"type": "exact", "casing": 1}, "casing"),
        ("regex", "needs pattern"),
        (3, "not a name"),
        ("./none.py:score", "no such file"),
        ("json:lodas", "did you mean loads"),
    ],
)
def test_unknown_rewards_are_refused_in_words(spec: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        resolve_reward(spec, tmp_path)


def test_boxed_takes_the_last_and_balances_braces() -> None:
    assert boxed(r"\boxed{1} then \boxed{a{b}c}") == "a{b}c"
    assert boxed(r"\boxed{1") is None
    assert last_number("x = -3.5e2.") == -350.0
