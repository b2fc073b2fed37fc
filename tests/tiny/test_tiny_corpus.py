"""What `scripts/pretrain_tiny.py` learns from: right where it must be, wrong as often as asked."""

from __future__ import annotations

import importlib.resources
import json
import re
import sys
from pathlib import Path
from random import Random

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def corpus():
    sys.path.insert(0, str(SCRIPTS))
    try:
        import tiny_corpus
    finally:
        sys.path.remove(str(SCRIPTS))
    return tiny_corpus


def sums_of(corpus, slip: float) -> list[tuple[int, int, int]]:
    """(x, y, said) of the last question in each of 2000 chats in the cookbook's wording."""
    found = []
    rng = Random(3)
    for _ in range(2000):
        chat = corpus.sum_drill(rng, slip, exact=True)
        x, y = map(int, re.fullmatch(r"What is (\d+) \+ (\d+)\?", chat[-2][1]).groups())
        found.append((x, y, int(chat[-1][1])))
    return found


def test_sums_are_right_without_slips(corpus):
    assert all(said == x + y for x, y, said in sums_of(corpus, 0.0))


def test_slips_come_as_often_as_asked_and_stay_near(corpus):
    sums = sums_of(corpus, 0.6)
    wrong = [abs(said - x - y) for x, y, said in sums if said != x + y]
    assert 0.56 <= len(wrong) / len(sums) <= 0.64  # three standard deviations of 2000 draws
    assert max(wrong) <= 11


def test_same_seed_gives_the_same_text(corpus):
    first, second = (
        [corpus.chat(r, sums=0.3, slip=0.5) for _ in range(50)] for r in map(Random, (7, 7))
    )
    assert first == second


def test_every_chat_ends_with_the_assistant(corpus):
    rng = Random(5)
    for _ in range(2000):
        chat = corpus.chat(rng, sums=0.2, slip=0.0)
        roles = [role for role, _ in chat if role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(text for _, text in chat)


def test_no_example_conversation_of_the_cookbook_is_in_the_corpus(corpus):
    pytest.importorskip("tinker_cookbook")
    file = importlib.resources.files("tinker_cookbook") / "example_data" / "conversations.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    held_out = {m["content"] for row in rows for m in row["messages"] if m["role"] == "assistant"}
    rng = Random(11)
    said = {text for _ in range(30_000) for _, text in corpus.chat(rng, sums=0.1, slip=0.0)}
    assert len(held_out) > 100
    assert not held_out & said
