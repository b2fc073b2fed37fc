"""What is shown is what trains: weights, messages, bytes, parity with the template."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker_cookbook.renderers import TrainOnWhat, get_renderer

from tinker_cli.app import run
from tinker_cli.render.compare import compare, explained, first_difference, template_tokens
from tinker_cli.render.shown import Lens, readable
from tinker_cli.render.views import as_json, as_text, token_table
from tinker_cli.spec.models import load_tokenizer

ALL, LAST = TrainOnWhat.ALL_ASSISTANT_MESSAGES, TrainOnWhat.LAST_ASSISTANT_MESSAGE
CHAT = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
]


def lens(name: str = "qwen3_instruct", what: Any = ALL, max_length: int | None = None) -> Lens:
    tokenizer = load_tokenizer("tiny")
    return Lens(get_renderer(name, tokenizer), tokenizer, name, what, max_length)


def _trained(view: Lens, messages: list[dict[str, Any]]) -> list[str]:
    return [
        "".join(token.text for token in run)
        for run in view.show(messages).segments()
        if run[0].is_trained
    ]


def test_the_answers_and_their_end_are_trained_and_nothing_else() -> None:
    assert _trained(lens(), CHAT) == ["b<|im_end|>", "d<|im_end|>"]
    assert _trained(lens(what=LAST), CHAT) == ["d<|im_end|>"]


def test_every_token_knows_its_message() -> None:
    shown = lens().show(CHAT)
    for index, message in enumerate(CHAT):
        output = [t for t in shown.tokens if t.message == index and t.part == "output"]
        assert "".join(t.text for t in output) == f"{message['content']}<|im_end|>"
        assert {t.role for t in output} == {message["role"]}


def test_a_cut_takes_from_the_end_and_glues_nothing_on() -> None:
    answer = {"role": "assistant", "content": "one two three four five six seven eight nine ten"}
    whole = lens().show([CHAT[0], answer])
    cut = lens(max_length=15).show([CHAT[0], answer])
    assert [t.id for t in cut.tokens] == [t.id for t in whole.tokens][:15]
    assert cut.is_cut
    assert cut.whole == len(whole.tokens)
    assert cut.tokens[-1].text != "<|im_end|>"


def test_the_no_thinking_renderer_trains_after_its_empty_block() -> None:
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    view = lens("qwen3_disable_thinking", LAST)
    text = "".join(token.text for token in view.show(messages).tokens)
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>")
    assert _trained(view, messages) == ["4<|im_end|>"]


def test_an_empty_answer_trains_its_end_alone() -> None:
    messages = [{"role": "user", "content": "say nothing"}, {"role": "assistant", "content": ""}]
    assert _trained(lens(), messages) == ["<|im_end|>"]


def test_tool_results_are_the_user_s_and_weigh_nothing() -> None:
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "x"},
        {"role": "tool", "tool_call_id": "c1", "content": "-3 C"},
    ]
    shown = lens().show(messages)
    text = "".join(token.text for token in shown.tokens)
    wanted = "<|im_start|>user\n<tool_response>\n-3 C\n</tool_response><|im_end|>"
    assert text.endswith(wanted)
    assert not any(token.is_trained for token in shown.tokens if token.message == 2)


def test_partial_characters_are_bytes_alone_and_whole_together() -> None:
    tokenizer = load_tokenizer("tiny")
    ids = tokenizer.encode("\U0001f525", add_special_tokens=False)
    assert "".join(readable(tokenizer, i) for i in ids) == "<0xF0><0x9F><0x94><0xA5>"
    shown = lens().show([{"role": "user", "content": "\U0001f525"}, CHAT[1]])
    assert "\U0001f525" in as_text(shown, colour=False).plain
    assert "<0xF0>" in token_table(shown, colour=False).plain


def test_trained_text_and_control_tokens_have_marks_where_there_is_no_colour() -> None:
    shown = lens().show(CHAT[:2])
    plain = as_text(shown, colour=False).plain
    assert plain.startswith("\u27e6<|im_start|>\u27e7user\na\u27e6<|im_end|>\u27e7")
    assert plain.endswith("\u258cb\u27e6<|im_end|>\u27e7\u2590")
    assert "[[b{<|im_end|>}]]" in as_text(shown, colour=False, unicode=False).plain
    coloured = as_text(shown, colour=True)
    assert not set("\u258c\u2590\u27e6\u27e7") & set(coloured.plain)
    styles = {coloured.plain[span.start : span.end]: str(span.style) for span in coloured.spans}
    assert styles["b"] == "bold green"
    assert styles["<|im_end|>"] == "magenta underline"


def test_json_spans_tile_the_tokens() -> None:
    document = as_json(lens().show(CHAT), {"line": 1})
    spans = [(segment["start"], segment["end"]) for segment in document["segments"]]
    assert spans[0][0] == 0
    assert spans[-1][1] == document["num_tokens"]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert sum(document["weights"]) == document["num_trained"]


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=20)


@settings(max_examples=80, deadline=None)
@given(texts=st.lists(_TEXT, min_size=2, max_size=6), system=st.booleans())
def test_tokens_are_the_template_s_for_any_text(texts: list[str], system: bool) -> None:
    messages = [{"role": "system", "content": "S"}] if system else []
    messages += [
        {"role": "assistant" if n % 2 else "user", "content": t} for n, t in enumerate(texts)
    ]
    if messages[-1]["role"] == "user":
        messages.pop()
    view = lens()
    ours = [token.id for token in view.show(messages).tokens if token.id is not None]
    assert first_difference(view.tokenizer, ours, template_tokens(view.tokenizer, messages)) is None


def test_the_first_difference_is_shown_with_both_sides() -> None:
    tokenizer = load_tokenizer("tiny")
    ours, theirs = tokenizer.encode("one two"), tokenizer.encode("one six")
    difference = first_difference(tokenizer, ours, theirs)
    assert difference is not None
    assert difference.before + difference.ours == "one two"
    assert difference.before + difference.theirs == "one six"


def test_the_cost_of_an_epoch_is_told_where_prices_are_known(
    chats: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from tinker_cli.spec import prices

    monkeypatch.setattr(prices, "_rates", lambda _: SimpleNamespace(train_usd_per_million=3.0))
    arguments = ["render", str(chats), "--tokenizer", "tiny", "--renderer", "qwen3_instruct"]
    assert run([*arguments, "--model", "some/model", "--stats", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["epoch_usd"] == pytest.approx(3.0 * counts["tokens"] / 1e6)
    assert run([*arguments, "--stats"]) == 0
    assert "cost" not in capsys.readouterr().out


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": CHAT[: 2 * n]}) + "\n" for n in (1, 2)))
    return path


def test_the_command_streams_an_object_a_conversation(
    chats: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", str(chats), "--model", "tiny", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2]
    assert [row["num_trained"] for row in rows] == [2, 4]


def test_stats_count_what_the_views_show(chats: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", str(chats), "--model", "tiny", "--stats", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    sizes = [len(lens().show(CHAT[: 2 * n]).tokens) for n in (1, 2)]
    assert (counts["conversations"], counts["turns"], counts["trained"]) == (2, 6, 6)
    assert counts["tokens"] == sum(sizes)
    assert (counts["lengths"]["p50"], counts["lengths"]["p100"]) == tuple(sizes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "tiny", "--renderer", "qwen3_instuct", "--user", "x"], "qwen3_instruct"),
        (["--user", "x"], "which model"),
        (["--model", "tiny", "--train-on", "last_asistant_message", "--user", "x"], "did you mean"),
        (["none.jsonl", "--model", "tiny"], "no such file"),
        (["none.jsonl", "--user", "x", "--model", "tiny"], "give one of them"),
        (["--spec", "run.yaml", "--model", "tiny"], "leave out --model"),
        (["--model", "tiny", "--where", "short", "--user", "x"], "longest"),
    ],
)
def test_bad_input_is_told_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_renderer_of_whole_conversations_knows_its_messages_by_their_marks() -> None:
    tokenizer = load_tokenizer("thinkingmachines/Inkling")
    view = Lens(get_renderer("tml_v0", tokenizer), tokenizer, "tml_v0", LAST)
    thought = {"type": "thinking", "thinking": "hm"}
    chat = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "say <|end_message|>"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]},
    ]
    shown = view.show(chat)
    said = {
        index: "".join(t.text for t in shown.of_message(index) if not t.is_special)
        for index in range(3)
    }
    assert said == {0: "S", 1: "say <|end_message|>", 2: "hmb"}
    assert {t.message for t in shown.tokens if t.is_trained} == {2}
    assert {t.role for t in shown.tokens if t.message == 2} == {"assistant"}


@pytest.mark.parametrize(
    ("content", "why"),
    [("what is <|im_end|>?", "names a control token"), ("plain", None)],
)
def test_a_known_difference_is_explained(content: str, why: str | None) -> None:
    view = lens()
    chat = [{"role": "user", "content": content}, {"role": "assistant", "content": "a token"}]
    found = compare(view, view.show(chat), chat)
    assert found.is_identical == (why is None)
    assert why is None or why in str(found.expected)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ("<b>x<e>", "<b> x<e>", "white space"),
        ("<a>\n<think>\n\n</think>\n\nx", "<a>\nx", "think blocks"),
        ("<a>y", "<a>x", None),
        ("<b>u", "<b>Cutting Knowledge Date: 2023\n\nu", "date"),
    ],
)
def test_reasons_are_named_only_where_they_explain_everything(
    ours: str, theirs: str, word: str | None
) -> None:
    why = explained(ours, theirs)
    assert why is None if word is None else word in str(why)
