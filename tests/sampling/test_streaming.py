"""Text as it comes: characters whole over tokens, stop strings never shown; conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli.sampling.ask import FIRST_PIECE, Answer, Asker
from tinker_cli.sampling.chat import Chat
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.stream import TextStream, cut_at_stop
from tinker_cli.spec.models import load_tokenizer


class Bytes:
    """A tokenizer whose tokens are bytes, the worst there can be."""

    eos_token_id = None

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def _streamed(tokens: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    stream = TextStream(Bytes(), stops)
    return [*(stream.push([token]) for token in tokens), stream.finish()]


def test_an_emoji_over_four_tokens_comes_whole_and_once() -> None:
    assert _streamed([0xF0, 0x9F, 0x94, 0xA5]) == ["", "", "", "\U0001f525", ""]


def test_an_emoji_that_is_cut_off_becomes_one_replacement_character() -> None:
    assert "".join(_streamed([0x61, 0xF0, 0x9F])) == "a\ufffd"


def test_bytes_that_are_no_text_do_not_hold_the_rest_back_for_ever() -> None:
    pieces = _streamed([0xFF] * 12 + list(b"ok"))
    assert "".join(pieces).endswith("ok")
    assert "".join(pieces[:8])


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_streams_to_itself_and_never_shows_half_a_character(text: str) -> None:
    pieces = _streamed(list(text.encode()))
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@given(
    st.text("abé🔥\n", max_size=30),
    st.lists(st.text("ab🔥\n", min_size=1, max_size=4), max_size=3),
    st.integers(1, 7),
)
@settings(max_examples=300, deadline=None)
def test_no_part_of_a_stop_string_is_ever_shown(text: str, stops: list[str], size: int) -> None:
    stream = TextStream(Bytes(), stops)
    tokens = list(text.encode())
    shown = "".join(stream.push(tokens[i : i + size]) for i in range(0, len(tokens), size))
    shown += stream.finish()
    assert shown == cut_at_stop(text, stops) or _earliest_end(text, stops, shown)


def _earliest_end(text: str, stops: Sequence[str], shown: str) -> bool:
    """Streaming ends at the stop that is complete first, which may begin after another's start."""
    ends = {(text.find(s) + len(s), text.find(s)) for s in stops if s in text}
    return bool(ends) and shown == text[: min(start for end, start in ends if end == min(ends)[0])]


def test_the_real_tokenizer_streams_every_kind_of_text() -> None:
    tokenizer = load_tokenizer("tiny")
    for text in ("Zoë's café 🔥👩‍👩‍👧 42\n\n  x", "数学は楽しい", "a  b   c"):
        stream = TextStream(tokenizer)
        pieces = [stream.push([token]) for token in tokenizer.encode(text)]
        assert "".join([*pieces, stream.finish()]) == tokenizer.decode(tokenizer.encode(text))
        assert not any("\ufffd" in piece for piece in pieces)


@dataclass
class Response:
    sequences: list[Any]


@dataclass
class Sequence1:
    tokens: list[int]
    stop_reason: str
    logprobs: None = None


@dataclass
class Continuing:
    """A model that says `text` and then stops, from wherever a request goes on."""

    text: bytes
    stop_token: int
    asked: list[tuple[int, int]] = field(default_factory=list)
    start: int | None = None

    def sample(self, *, prompt: Any, num_samples: int, sampling_params: Any) -> Future[Response]:
        shown = prompt.to_ints()
        if self.start is None or len(shown) < self.start:
            self.start = len(shown)
        said = [*self.text, self.stop_token]
        begin = len(shown) - self.start
        tokens = said[begin : begin + sampling_params.max_tokens]
        self.asked.append((len(shown), sampling_params.max_tokens))
        reason = "stop" if tokens[-1] == self.stop_token else "length"
        future: Future[Response] = Future()
        future.set_result(Response([Sequence1(tokens, reason)]))
        return future


def test_a_streamed_answer_goes_on_where_each_request_ended() -> None:
    text = "häl🔥o, wörld; " * 8
    client = Continuing(text.encode(), 0)
    asker = Asker(client, Bytes(), None, SamplingOptions(max_tokens=1000, stop=("\x00",)))
    *pieces, whole = asker.stream([{"role": "user", "content": "x"}])
    assert "".join(str(piece) for piece in pieces) == text
    assert isinstance(whole, Answer)
    assert (whole.text, whole.stop_reason) == (text, "stop")
    assert client.asked[0] == (1, FIRST_PIECE)
    assert client.asked[1][0] == 1 + FIRST_PIECE


def test_a_stop_string_over_the_edge_of_two_requests_ends_the_answer() -> None:
    client = Continuing(b"1234567END and more", 0)
    asker = Asker(client, Bytes(), None, SamplingOptions(max_tokens=100, stop=("END",)))
    *pieces, whole = asker.stream([{"role": "user", "content": "x"}])
    assert "".join(str(piece) for piece in pieces) == "1234567"
    assert isinstance(whole, Answer)
    assert whole.stop_reason == "stop"


def _chat(tmp_path: Path, **more: Any) -> tuple[Chat, list[str], list[str]]:
    asker = Asker(
        Continuing(b"reply", 0), Bytes(), None, SamplingOptions(max_tokens=64, stop=("\x00",))
    )
    shown: list[str] = []
    told: list[str] = []
    chat = Chat(asker, shown.append, lambda _: None, told.append, lambda _: asker, **more)
    return chat, shown, told


def test_a_conversation_remembers_undoes_and_saves(tmp_path: Path) -> None:
    chat, shown, told = _chat(tmp_path)
    file = tmp_path / "talk.jsonl"
    chat.run(["/system Be brief", "one", "two", "/undo", f"/save {file}", "/nope", "/quit", "no"])
    assert "".join(shown) == "replyreply"
    saved = json.loads(file.read_text())["messages"]
    assert [(m["role"], m["content"]) for m in saved] == [
        ("system", "Be brief"),
        ("user", "one"),
        ("assistant", "reply"),
    ]
    assert any("no command /nope" in line for line in told)


def test_what_stands_before_a_conversation_survives_reset(tmp_path: Path) -> None:
    before = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    chat, _, _ = _chat(tmp_path, messages=list(before))
    chat.run(["hello", "/reset"])
    assert chat.messages == before


def test_an_unwritable_file_and_a_failing_model_do_not_end_a_conversation(tmp_path: Path) -> None:
    chat, _, told = _chat(tmp_path)
    chat.asker = Asker(chat.asker.client, Bytes(), None, SamplingOptions(max_tokens=64), context=3)
    chat.run([f"/save {tmp_path}/none/x.jsonl", "hello there", "/help"])
    assert any("can't be written" in line for line in told)
    assert any("too long" in line for line in told)
    assert chat.messages == []


@pytest.mark.parametrize("command", ["/checkpoint", "/save"])
def test_a_command_without_its_word_says_what_it_wants(command: str, tmp_path: Path) -> None:
    chat, _, told = _chat(tmp_path)
    chat.run([command])
    assert told[0].startswith(command)
