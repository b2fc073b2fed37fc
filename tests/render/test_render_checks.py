"""The gate: each fault alone triggers its check, and clean data passes."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.renderers import TrainOnWhat, get_renderer

from tinker_cli.app import run
from tinker_cli.data.rows import Row, read_jsonl
from tinker_cli.render.faults import Problem, check_row
from tinker_cli.render.shown import Lens
from tinker_cli.spec.models import load_tokenizer

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


def _check(
    *messages: Any, renderer: str = "qwen3_instruct", max_length: int | None = None
) -> list[Problem]:
    tokenizer = load_tokenizer("tiny")
    what = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    lens = Lens(get_renderer(renderer, tokenizer), tokenizer, renderer, what, max_length)
    return check_row(Row("f.jsonl", 3, {"messages": list(messages)}), lens)


def _kinds(*messages: Any, **options: Any) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.message) for problem in _check(*messages, **options)]


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "options", "found"),
    [
        ([USER], {}, [("ending", 0), ("untrained", None)]),
        ([USER, ANSWER, USER], {}, [("ending", 2)]),
        ([ANSWER], {}, [("order", 0)]),
        ([USER, USER, ANSWER], {}, [("order", 1)]),
        ([USER, {**ANSWER, "weight": 0}], {}, [("lost", 1)]),
        ([USER, {**ANSWER, "reasoning_content": "hm"}], {}, [("lost", 1)]),
        ([{**USER, "content": "what is <|im_end|>?"}, ANSWER], {}, [("control", 0)]),
        ([{**USER, "content": "explain </think> and <tool_call>"}, ANSWER], {},
         [("control", 0), ("control", 0)]),
        ([USER, {**ANSWER, "content": None}], {}, [("form", 1)]),
        ([USER, {"role": "assistnt", "content": "4"}], {}, [("form", 1)]),
        ([USER, {**ANSWER, "content": "one two three four five six"}], {"max_length": 14},
         [("cut", 1)]),
        ([USER, ANSWER], {"max_length": 9}, [("untrained", None)]),
        ([{**USER, "content": [{"type": "input_text", "text": "x"}]}, ANSWER], {}, [("lost", 0)]),
        ([USER, {**ANSWER, "content": "<think>hm</think>4"}],
         {"renderer": "qwen3_disable_thinking"}, [("reasoning", 1)]),
        ([USER, {**ANSWER, "content": [{"type": "thinking", "thinking": "hm"},
                                       {"type": "text", "text": "4"}]}, USER, ANSWER],
         {"renderer": "qwen3"}, [("reasoning", 1)]),
    ],
)  # fmt: skip
def test_each_fault_is_found_alone(
    messages: list[Any], options: dict[str, Any], found: list[tuple[str, int | None]]
) -> None:
    assert _kinds(*messages, **options) == found


@pytest.mark.parametrize(
    "messages",
    [
        [USER, ANSWER],
        [{"role": "system", "content": "Be brief."}, USER, ANSWER, USER, ANSWER],
        [{**USER, "content": "\U0001f525 \u00e9\u4f60 \n\n  code:\n\tx = 1"}, ANSWER],
    ],
)
def test_clean_conversations_pass(messages: list[Any]) -> None:
    assert _check(*messages) == []


def test_no_false_alarm_on_the_cookbook_s_real_conversations() -> None:
    path = Path(str(files("tinker_cookbook").joinpath("example_data/conversations.jsonl")))
    tokenizer = load_tokenizer("tiny")
    what = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    lens = Lens(get_renderer("qwen3_instruct", tokenizer), tokenizer, "qwen3_instruct", what)
    rows = read_jsonl(path)
    assert len(rows) == 128
    assert [problem for row in rows for problem in check_row(row, lens)] == []


def test_tool_calls_that_a_renderer_drops_are_told() -> None:
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    kinds = _kinds(*messages, renderer="role_colon")
    assert ("lost", 1) in kinds or ("refused", None) in kinds


def test_the_command_exits_with_3_and_names_each_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    rows = [{"messages": [USER, ANSWER]}, {"messages": [USER]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    assert run(["render", str(path), "--model", "tiny", "--check", "--json"]) == 3
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["line"], row["kind"]) for row in found] == [
        (2, "ending"),
        (2, "untrained"),
        (3, "form"),
    ]


def test_mixed_forms_in_one_file_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    path = tmp_path / "mixed.jsonl"
    rows = [{"messages": [USER, ANSWER]}, {"conversations": said}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["render", str(path), "--model", "tiny", "--check"]) == 3
    assert "schema" in capsys.readouterr().out
