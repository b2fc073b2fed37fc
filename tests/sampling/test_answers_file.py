"""`--output`: gone on with after any end, no prompt twice, none lost, order restored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli.errors import UsageError
from tinker_cli.sampling.answers_file import AnswersFile, settings_digest
from tinker_cli.sampling.prompts import Prompt

SETTINGS = settings_digest({"model": "tiny", "temperature": 1.0})


def _prompt(index: int, text: str = "x") -> Prompt:
    return Prompt(index, ({"role": "user", "content": text},), f"id{index}")


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_land_in_any_order_and_end_in_the_order_of_the_prompts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.jsonl"
    with AnswersFile(path, SETTINGS) as file:
        for index in (2, 0, 1):
            file.add(_prompt(index), {"samples": [index]})
        assert [row["index"] for row in _rows(path)] == [2, 0, 1]
        file.sort()
    assert [(row["index"], row["id"], row["samples"]) for row in _rows(path)] == [
        (n, f"id{n}", [n]) for n in range(3)
    ]


@given(st.integers(0, 400), st.permutations(range(6)))
@settings(max_examples=60, deadline=None)
def test_cut_off_anywhere_it_goes_on_without_loss(
    tmp_path_factory: pytest.TempPathFactory, cut: int, order: list[int]
) -> None:
    path = tmp_path_factory.mktemp("cut") / "answers.jsonl"
    with AnswersFile(path, SETTINGS) as file:
        for index in order:
            file.add(_prompt(index), {"samples": ["é"]})
    path.write_bytes(path.read_bytes()[:cut])
    whole = path.read_bytes().count(b"\n")
    with AnswersFile(path, SETTINGS) as file:
        assert file.count == whole
        missing = [n for n in range(6) if not file.done(_prompt(n))]
        for index in missing:
            file.add(_prompt(index), {"samples": ["é"]})
        file.sort()
    assert [row["index"] for row in _rows(path)] == list(range(6))


def test_answers_to_other_prompts_or_settings_are_not_taken_for_these(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswersFile(path, SETTINGS) as file:
        file.add(_prompt(0), {})
        with pytest.raises(UsageError, match="index 0"):
            file.done(_prompt(0, "another"))
    with AnswersFile(path, settings_digest({"model": "other"})) as file, pytest.raises(UsageError):
        file.done(_prompt(0))


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "precious"}\n')
    with pytest.raises(UsageError, match=r"prompts\.jsonl:1"):
        AnswersFile(path, SETTINGS).__enter__()
    assert path.read_text() == '{"prompt": "precious"}\n'


def test_two_writers_of_one_file_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswersFile(path, SETTINGS), pytest.raises(UsageError, match="another tinker sample"):
        AnswersFile(path, SETTINGS).__enter__()
