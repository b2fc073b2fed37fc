"""What went wrong for others, kept from happening here: one test a known symptom."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.supervised.common import datum_from_model_input_weights

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row
from tinker_cli.render.faults import Problem, check_row
from tinker_cli.render.shown import Lens, Shown
from tinker_cli.spec.models import load_tokenizer

ALL, LAST = TrainOnWhat.ALL_ASSISTANT_MESSAGES, TrainOnWhat.LAST_ASSISTANT_MESSAGE
QUESTION = {"role": "user", "content": "weather?"}


@cache
def _lens(renderer: str, what: Any = ALL) -> Lens:
    tokenizer = load_tokenizer("tiny")
    return Lens(get_renderer(renderer, tokenizer), tokenizer, renderer, what)


def _shown(messages: Any, renderer: str = "qwen3_instruct", what: Any = ALL) -> Shown:
    parsed: Any = parse_conversation(Row("f.jsonl", 1, {"messages": messages}))
    return _lens(renderer, what).show(parsed)


def _text(shown: Shown, trained: bool | None = None) -> str:
    return "".join(t.text for t in shown.tokens if trained is None or t.is_trained == trained)


def _problems(messages: Any, renderer: str = "qwen3_instruct") -> list[Problem]:
    return check_row(Row("f.jsonl", 7, {"messages": messages}), _lens(renderer))


def _say(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _call(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "w", "arguments": arguments}}


def test_the_mask_holds_over_several_turns() -> None:  # 30
    chat = [_say("user", "a"), _say("assistant", "b"), _say("user", "c"), _say("assistant", "d")]
    assert _text(_shown(chat), trained=True) == "b<|im_end|>d<|im_end|>"
    assert _text(_shown(chat, what=LAST), trained=True) == "d<|im_end|>"
    for token in _shown(chat).tokens:
        if token.role == "user" or token.part == "header" or token.text == "<|im_start|>":
            assert token.weight == 0


def test_a_system_message_in_the_middle_keeps_its_place() -> None:  # 42
    chat = [_say("user", "a"), _say("system", "be formal"), _say("assistant", "b")]
    wanted = "<|im_end|>\n<|im_start|>system\nbe formal<|im_end|>\n<|im_start|>assistant\nb"
    assert wanted in _text(_shown(chat))


def test_null_content_is_empty_beside_calls_and_a_fault_without() -> None:  # 43
    null = [QUESTION, _say("assistant", None, tool_calls=[_call("{}")])]
    empty = [QUESTION, _say("assistant", "", tool_calls=[_call("{}")])]
    assert _shown(null) == _shown(empty)
    assert "None" not in _text(_shown(null))
    problem = _problems([QUESTION, _say("assistant", None)])[0]
    assert (problem.line, problem.message, problem.kind) == (7, 1, "form")


def test_arguments_are_encoded_once() -> None:  # 45
    text = _shown([QUESTION, _say("assistant", "", tool_calls=[_call('{"city": "Oslo"}')])])
    value = _shown([QUESTION, _say("assistant", "", tool_calls=[_call({"city": "Oslo"})])])
    assert text == value
    assert '{"name": "w", "arguments": {"city": "Oslo"}}' in _text(text)
    assert '\\"' not in _text(text)


def test_broken_arguments_name_the_function_the_call_and_the_row() -> None:  # 46
    problems = _problems([QUESTION, _say("assistant", "", tool_calls=[_call('{"city": Oslo')])])
    assert [(problem.line, problem.message) for problem in problems] == [(7, 1)]
    assert "arguments of w (call c1)" in problems[0].reason


def test_results_of_tools_are_the_user_s() -> None:  # 48
    chat = [QUESTION, _say("assistant", "", tool_calls=[_call("{}")]),
            _say("tool", "-3 C", tool_call_id="c1")]  # fmt: skip
    shown = _shown(chat)
    wanted = "<|im_start|>user\n<tool_response>\n-3 C\n</tool_response><|im_end|>"
    assert _text(shown).endswith(wanted)
    assert not any(token.is_trained for token in shown.tokens if token.message == 2)


def test_no_thinking_trains_after_its_empty_block() -> None:  # 49
    chat = [_say("user", "2+2?"), _say("assistant", "4")]
    shown = _shown(chat, "qwen3_disable_thinking", LAST)
    block = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert _text(shown).endswith(f"{block}4<|im_end|>")
    assert _text(shown, trained=True) == "4<|im_end|>"


@pytest.mark.parametrize("inline", [True, False])
def test_reasoning_in_history_is_told_in_both_spellings(inline: bool) -> None:  # 51
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Paris"}]
    said = "<think>hm</think>\n\nParis" if inline else parts
    chat = [_say("user", "q1"), _say("assistant", said), _say("user", "q2"),
            _say("assistant", "Rome")]  # fmt: skip
    assert [(p.kind, p.message) for p in _problems(chat, "qwen3")] == [("reasoning", 1)]
    if not inline:
        assert "hm" not in _text(_shown(chat, "qwen3"))


def test_a_closing_think_tag_alone_is_told() -> None:  # 52
    chat = [_say("user", "q"), _say("assistant", "2+2 is 4.\n</think>\n\nFour")]
    shown = _text(_shown(chat, "qwen3"))
    is_right = shown.endswith("assistant\n<think>\n2+2 is 4.\n</think>\n\nFour<|im_end|>")
    told = [(p.kind, p.message) for p in _problems(chat, "qwen3")]
    assert told == ([] if is_right else [("reasoning", 1)])


def test_marks_in_a_question_are_shown_as_control_tokens() -> None:  # 54
    chat = [_say("user", "explain what </think> and <tool_call> mean"), _say("assistant", "x")]
    special = [t.text for t in _shown(chat).of_message(0) if t.is_special]
    assert special == ["</think>", "<tool_call>", "<|im_end|>"]
    assert [(p.kind, p.message) for p in _problems(chat)] == [("control", 0)] * 2


@pytest.mark.parametrize("content", [" lead", "trail ", "  both  ", " "])
def test_white_space_comes_back_or_its_loss_is_told(content: str) -> None:  # 55
    chat = [_say("user", "q"), _say("assistant", content)]
    assert _problems(chat, "role_colon") == []
    assert [p.kind for p in _problems(chat, "qwen3_5")] == ["spaces"]


def test_an_empty_answer_makes_no_empty_chunk() -> None:  # 57
    chat = [_say("user", "say nothing"), _say("assistant", "")]
    longer = [*chat, _say("user", "and now?"), _say("assistant", "b")]
    for each in (chat, longer):
        model_input, weights = _lens("qwen3_instruct").example(each)
        datum = datum_from_model_input_weights(model_input, weights)
        assert all(chunk.length > 0 for chunk in datum.model_input.chunks)
    assert _text(_shown(chat), trained=True) == "<|im_end|>"


def test_text_parts_are_tokenised_together_and_unknown_parts_are_told() -> None:  # 58
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
    answer = _say("assistant", "x")
    assert _shown([_say("user", parts), answer]) == _shown([_say("user", "abcd"), answer])
    for part in ({"type": "input_text", "text": "x"},
                 {"type": "image_url", "image_url": {"url": "data:,"}}):  # fmt: skip
        problems = _problems([_say("user", [part]), answer])
        assert [(p.kind, p.message) for p in problems] == [("lost", 0)], json.dumps(part)
