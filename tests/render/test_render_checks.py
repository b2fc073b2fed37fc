"""The gate: each fault has a minimal file that triggers it alone, and clean data passes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from transformers import PreTrainedTokenizerFast

from tinker_cli import tiny
from tinker_cli.app import run
from tinker_cli.data.rows import Row, read_jsonl, scan_jsonl
from tinker_cli.render.faults import Problem, check_batch, check_row
from tinker_cli.render.shown import Lens
from tinker_cli.spec.models import load_tokenizer

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "-3 C"}
SPECIAL = (  # of other families, one id each
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    *("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<|im_user|>", "<|im_assistant|>"),
    *("<|im_system|>", "<|im_middle|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>"),
    *("<|return|>", "<|call|>"),
)
FAMILIES = ("qwen3_instruct", "qwen3", "llama3", "role_colon", "deepseekv3", "kimi_k2", "nemotron3",
            "gpt_oss_no_sysprompt", "qwen3_5")  # fmt: skip


@cache
def lens(renderer: str = "qwen3_instruct", max_length: int | None = None) -> Lens:
    """The tiny tokenizer, taught the control tokens of the other families."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny.FOLDER)  # not the one all share
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    what = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    return Lens(get_renderer(renderer, tokenizer), tokenizer, renderer, what, max_length)


def _file(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _problems(path: Path, **options: Any) -> list[Problem]:
    return list(check_batch(lens(**options), list(scan_jsonl(path))).problems)


def _think(thought: str, text: str) -> list[dict[str, str]]:
    return [{"type": "thinking", "thinking": thought}, {"type": "text", "text": text}]


FAULTS: list[tuple[str, list[Any], dict[str, Any], list[tuple[str, int | None]]]] = [
    ("no trained token: cut to nothing", [USER, ANSWER], {"max_length": 9}, [("untrained", None)]),
    ("answer cut", [USER, {**ANSWER, "content": "one two three four five six"}],
     {"max_length": 14}, [("cut", 1)]),
    ("end token cut", [USER, ANSWER], {"max_length": 13}, [("cut", 1)]),
    ("end of turn not trained", [USER, {"role": "assistant", "tool_calls": [CALL]}],
     {"renderer": "deepseekv3"}, [("end", 1)]),
    ("reasoning dropped", [USER, {**ANSWER, "content": _think("hm", "4")}, USER, ANSWER],
     {"renderer": "qwen3"}, [("reasoning", 1)]),
    ("reasoning refused", [USER, {**ANSWER, "content": "<think>hm</think>4"}],
     {"renderer": "qwen3_disable_thinking"}, [("reasoning", 1)]),
    ("reasoning as text in history",
     [USER, {**ANSWER, "content": "<think>hm</think>4"}, USER, ANSWER],
     {"renderer": "qwen3"}, [("reasoning", 1)]),
    ("only the end of a think block", [USER, {**ANSWER, "content": "4.\n</think>\n\nFour"}],
     {"renderer": "qwen3"}, [("reasoning", 1)]),
    ("unknown part", [{**USER, "content": [{"type": "input_text", "text": "x"}]}, ANSWER], {},
     [("lost", 0)]),
    ("call dropped",
     [USER, {**ANSWER, "tool_calls": [CALL]}], {"renderer": "llama3"}, [("lost", 1)]),
    ("name of a call dropped",
     [USER, {**ANSWER, "tool_calls": [CALL]}], {"renderer": "kimi_k2"}, [("lost", 1)]),
    ("image on a text renderer",
     [{**USER, "content": [{"type": "text", "text": "look"}, {"type": "image", "image": "x.png"}]},
      ANSWER], {}, [("lost", 0)]),
    ("image refused by a text renderer",
     [{**USER, "content": [{"type": "image", "image": "x.png"}]}, ANSWER],
     {"renderer": "llama3"}, [("refused", 0)]),
    ("null content", [USER, {**ANSWER, "content": None}], {}, [("form", 1)]),
    ("empty content", [USER, {**ANSWER, "content": ""}], {}, [("empty", 1)]),
    ("key weight", [USER, {**ANSWER, "weight": 0}], {}, [("lost", 1)]),
    ("key reasoning_content", [USER, {**ANSWER, "reasoning_content": "hm"}], {}, [("lost", 1)]),
    ("name", [{**USER, "name": "Bob"}, ANSWER], {}, [("lost", 0)]),
    ("unknown role", [USER, {"role": "assistnt", "content": "4"}], {}, [("form", 1)]),
    ("two users", [USER, USER, ANSWER], {}, [("order", 1)]),
    ("assistant first", [ANSWER], {}, [("order", 0)]),
    ("result without a call", [USER, RESULT, ANSWER], {}, [("order", 1)]),
    ("ends with the user", [USER, ANSWER, USER], {}, [("ending", 2)]),
    ("control token of the family", [{**USER, "content": "what is <|eot_id|>"}, ANSWER],
     {"renderer": "llama3"}, [("control", 0)]),
    ("mark that is not flagged special", [{**USER, "content": "explain </think>"}, ANSWER], {},
     [("control", 0)]),
    ("control token in an answer", [USER, {**ANSWER, "content": "use <|eot_id|>, ok"}],
     {"renderer": "llama3"}, [("control", 1)]),
    ("reads back otherwise", [USER, {**ANSWER, "content": "\n\nUser: and you?"}],
     {"renderer": "role_colon"}, [("parse", 1)]),
    ("white space lost", [USER, {**ANSWER, "content": " 4 "}], {"renderer": "qwen3_5"},
     [("spaces", 1)]),
    ("refused by its place", [USER, {"role": "system", "content": "formal"}, ANSWER],
     {"renderer": "deepseekv3"}, [("refused", 1)]),
    ("trainable without customized", [USER, {**ANSWER, "trainable": True}], {}, [("refused", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "options", "found"), [f[1:] for f in FAULTS],
                         ids=[f[0] for f in FAULTS])  # fmt: skip
def test_each_fault_is_found_alone(
    tmp_path: Path, messages: list[Any], options: dict[str, Any], found: list[Any]
) -> None:
    problems = _problems(_file(tmp_path / "bad.jsonl", {"messages": messages}), **options)
    assert [(problem.kind, problem.message) for problem in problems] == found
    assert {(problem.file, problem.line) for problem in problems} == {
        (str(tmp_path / "bad.jsonl"), 1)
    }


@pytest.mark.parametrize("renderer", FAMILIES)
@pytest.mark.parametrize(
    "messages",
    [
        [USER, ANSWER],
        [{"role": "system", "content": "Be brief."}, USER, ANSWER, USER, ANSWER],
        [{**USER, "content": "\U0001f525 \u00e9\u4f60 \n\n  code:\n\tx = 1"}, ANSWER],
    ],
)
def test_clean_conversations_pass(renderer: str, messages: list[Any], tmp_path: Path) -> None:
    path = _file(tmp_path / "clean.jsonl", {"messages": messages}, {"messages": [USER, ANSWER]})
    assert _problems(path, renderer=renderer) == []


@pytest.mark.parametrize(
    "content", ["<think>\nhm\n</think>\n\n4", _think("hm", "4")], ids=["text", "parts"]
)
def test_reasoning_of_the_last_answer_passes_on_a_thinking_renderer(
    content: Any, tmp_path: Path
) -> None:
    path = _file(tmp_path / "clean.jsonl", {"messages": [USER, {**ANSWER, "content": content}]})
    assert _problems(path, renderer="qwen3") == []


def test_calls_and_results_pass_where_they_are_rendered(tmp_path: Path) -> None:
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT, ANSWER]
    path = _file(tmp_path / "clean.jsonl", {"messages": messages})
    assert _problems(path) == []


def test_a_control_token_s_name_passes_where_the_renderer_keeps_it_text(tmp_path: Path) -> None:
    asked = {**USER, "content": "what is <|im_end|>?"}
    path = _file(
        tmp_path / "clean.jsonl", {"messages": [asked, {**ANSWER, "content": "<|im_end|>"}]}
    )
    assert _problems(path, renderer="qwen3_instruct") == []
    assert [p.kind for p in _problems(path, renderer="nemotron3")] == ["control"] * 2


def test_notes_of_a_row_pass_and_what_the_model_should_have_had_does_not(tmp_path: Path) -> None:
    rows = [{"messages": [USER, ANSWER], "id": 1, "source": "x", **more} for more in (
        {}, {"tools": []}, {"tools": [{"name": "weather"}]}, {"system": "Be brief."})]  # fmt: skip
    found = _problems(_file(tmp_path / "rows.jsonl", *rows))
    assert [(problem.line, problem.kind) for problem in found] == [(3, "lost"), (4, "lost")]


@pytest.mark.parametrize("renderer", FAMILIES)
def test_no_false_alarm_on_the_cookbook_s_real_conversations(renderer: str) -> None:
    rows = read_jsonl("package://tinker_cookbook/example_data/conversations.jsonl")
    assert len(rows) == 128
    assert [problem for row in rows for problem in check_row(row, lens(renderer))] == []


def test_no_false_alarm_with_a_renderer_of_whole_conversations() -> None:
    tokenizer = load_tokenizer("thinkingmachines/Inkling")
    what = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    view = Lens(get_renderer("tml_v0", tokenizer), tokenizer, "tml_v0", what)
    rows = read_jsonl("package://tinker_cookbook/example_data/conversations.jsonl")
    typed = {"messages": [{**USER, "content": "what is <|end_message|>?"}, ANSWER]}
    called = {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                           RESULT, ANSWER]}  # fmt: skip
    rows += [Row("f", 1, typed), Row("f", 2, called)]
    assert [problem for row in rows for problem in check_row(row, view)] == []
    kept = {"messages": [USER, {**ANSWER, "weight": 0}]}
    assert [p.kind for p in check_row(Row("f", 1, kept), view)] == ["lost"]


def test_the_command_exits_with_3_and_names_each_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path / "bad.jsonl", {"messages": [USER, ANSWER]}, {"messages": [USER]})
    path.write_text(path.read_text() + "{\n")
    assert run(["render", str(path), "--model", "tiny", "--check", "--json"]) == 3
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert [(row["line"], row["kind"]) for row in found] == [
        (2, "ending"),
        (2, "untrained"),
        (3, "form"),
    ]
    assert "3 problems in 2 of 3 conversations" in captured.err


def test_a_clean_file_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path / "clean.jsonl", {"messages": [USER, ANSWER]})
    assert run(["render", str(path), "--model", "tiny", "--check"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "1 conversation, nothing lost" in captured.err


def test_mixed_forms_in_one_file_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    rows = [{"messages": [USER, ANSWER]}, {"conversations": said}]
    path = _file(tmp_path / "mixed.jsonl", *rows)
    assert run(["render", str(path), "--model", "tiny", "--check"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("the file  schema")
    assert len(out.splitlines()) == 1
    for row in rows:
        assert run(["render", str(_file(path, row)), "--model", "tiny", "--check"]) == 0
