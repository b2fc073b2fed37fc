"""Prompts in, answers out: options, input forms, order, what the model is really shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from tinker_cli.app import run
from tinker_cli.commands import sample_views
from tinker_cli.errors import InputFaults, UsageError
from tinker_cli.sampling.ask import IN_FLIGHT, Answer, Asker
from tinker_cli.sampling.compare import Comparer, compared_as_json
from tinker_cli.sampling.flight import fly
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.prompts import Prompt, from_lines, from_text
from tinker_cli.spec.models import load_tokenizer


def test_every_option_out_of_range_is_reported_at_once() -> None:
    options = SamplingOptions(0, -1.0, 2.0, 0, None, ("",), 0)
    with pytest.raises(InputFaults) as caught:
        options.check()
    keys = [fault.key for fault in caught.value.faults]
    assert keys == ["--temperature", "--top-p", "--top-k", "--max-tokens", "-n", "--stop"]
    assert all(fault.expected for fault in caught.value.faults)
    with pytest.raises(InputFaults):
        SamplingOptions(temperature=float("nan")).check()
    SamplingOptions(temperature=1e-4).check()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--temperature", "nan"], "0 or more"),
        (["--temperature", "-1"], "0 or more"),
        (["--top-p", "2"], "at most 1"),
        (["--top-k", "0"], "-1 (all) or 1 and more"),
        (["--max-tokens", "0"], "1 or more"),
        (["--seed", "1e3"], "--seed"),
        (["--max-token", "5"], "--max-tokens"),
        (["--temprature", "1"], "--temperature"),
    ],
)
def test_odd_settings_are_refused_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sample", "hi", "--model", "tiny", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_every_form_of_a_line_is_a_prompt() -> None:
    lines = [
        b'\xef\xbb\xbf{"prompt": "a", "id": 7}\r\n',
        b"\n",
        b'{"messages": [{"role": "user", "content": "b"}]}\n',
        b"plain words\n",
    ]
    found = list(from_lines(lines, "stdin", system="S"))
    assert [prompt.id for prompt in found] == [7, None, None]
    assert [prompt.name for prompt in found] == [7, 1, 2]
    assert [m["content"] for m in found[1].messages] == ["S", "b"]
    assert found[2].messages[-1]["content"] == "plain words"


@pytest.mark.parametrize("line", [b'{"text": "b"}\n', b'{"prompt": "b"\n', b"[1]\n"])
def test_a_row_without_a_prompt_names_its_line(line: bytes) -> None:
    with pytest.raises(InputFaults) as caught:
        list(from_lines([b'{"prompt": "a"}\n', line], "q.jsonl"))
    assert caught.value.faults[0].line == 2


@dataclass
class FakeSequence:
    tokens: Sequence[int]
    stop_reason: str = "stop"
    logprobs: Sequence[float] | None = None


@dataclass
class FakeResponse:
    sequences: list[FakeSequence]


@dataclass
class FakeClient:
    """Answers each request by `reply`; scores a text by minus its number of tokens."""

    tokenizer: Any
    reply: Callable[[int], str] = "answer {}<|im_end|>".format
    requests: list[Any] = field(default_factory=list)

    def sample(
        self, *, prompt: Any, num_samples: int, sampling_params: Any
    ) -> Future[FakeResponse]:
        self.requests.append((prompt.to_ints(), num_samples, sampling_params))
        future: Future[FakeResponse] = Future()
        tokens = self.tokenizer.encode(self.reply(len(self.requests)))
        future.set_result(FakeResponse([FakeSequence(tokens)] * num_samples))
        return future

    def compute_logprobs(self, shown: Any) -> Future[list[float | None]]:
        future: Future[list[float | None]] = Future()
        future.set_result([None, *[-1.0] * (shown.length - 1)])
        return future


def _asker(options: SamplingOptions, *, raw: bool = False, **more: Any) -> tuple[Asker, FakeClient]:
    from tinker_cookbook.renderers import get_renderer

    tokenizer = load_tokenizer("tiny")
    reply = more.pop("reply", None)
    client = FakeClient(tokenizer) if reply is None else FakeClient(tokenizer, reply)
    renderer = None if raw else get_renderer("qwen3_instruct", tokenizer)
    return Asker(client, tokenizer, renderer, options, **more), client


def _ask(asker: Asker, text: str) -> list[Answer]:
    return asker.ask(from_text(text)).result()


def test_answers_come_in_the_order_of_the_prompts() -> None:
    asker, _ = _asker(SamplingOptions(num_samples=2))
    lines = [f'{{"prompt": "{n}"}}\n'.encode() for n in range(IN_FLIGHT * 2)]
    flight = fly(from_lines(lines, "x"), asker.ask, in_flight=IN_FLIGHT)
    got = [(one.question.index, [a.text for a in one.answer or []]) for one in flight]
    assert got == [(n, [f"answer {n + 1}"] * 2) for n in range(IN_FLIGHT * 2)]


def _futures() -> tuple[dict[int, Future[int]], Callable[[int], Future[int]]]:
    sent: dict[int, Future[int]] = {}

    def send(question: int) -> Future[int]:
        sent[question] = Future()
        return sent[question]

    return sent, send


def test_a_slow_first_answer_does_not_empty_the_flight_and_order_is_kept() -> None:
    sent, send = _futures()
    flight = fly(range(1, 101), send, in_flight=4)
    got: list[int] = []
    reader = threading.Thread(target=lambda: got.extend(one.answer or 0 for one in flight))
    reader.start()
    for number in range(2, 101):  # the first is still unanswered
        while number not in sent:
            pass
        sent[number].set_result(number)
    sent[1].set_result(1)
    reader.join(10)
    assert got == list(range(1, 101))


def test_unordered_answers_come_as_they_land() -> None:
    sent, send = _futures()
    flight = fly([1, 2, 3], send, in_flight=3, in_order=False)
    for number in (3, 1, 2):
        threading.Timer(0.1 * (4 - number), lambda n=number: sent[n].set_result(n)).start()
    assert [one.answer for one in flight] == [3, 2, 1]


def test_after_an_error_that_ends_all_what_is_in_flight_still_lands() -> None:
    sent, send = _futures()

    def settle() -> None:
        sent[2].set_exception(OSError("gone"))
        sent[1].set_result(1)

    threading.Timer(0.2, settle).start()
    landed = list(fly(iter(range(1, 1000)), send, in_flight=2))
    assert [(one.question, one.answer) for one in landed] == [(1, 1), (2, None)]
    assert sorted(sent) == [1, 2]


def test_rows_before_a_faulty_one_are_answered_and_then_the_fault_is_told() -> None:
    asker, _ = _asker(SamplingOptions())
    lines = [b'{"prompt": "a"}\n', b'{"text": "b"}\n']
    flight = fly(from_lines(lines, "x"), asker.ask, in_flight=4)
    assert next(flight).question.index == 0
    with pytest.raises(InputFaults):
        next(flight)


def test_a_slow_source_holds_no_answer_back() -> None:
    gate = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        gate.wait(10)
        yield 2

    sent, send = _futures()
    flight = fly(source(), send, in_flight=8)
    threading.Timer(0.1, lambda: sent[1].set_result(1)).start()
    assert next(flight).answer == 1
    gate.set()
    threading.Timer(0.1, lambda: sent[2].set_result(2)).start()
    assert [one.answer for one in flight] == [2]


def test_the_model_sees_the_renderer_s_prompt_and_stops_where_it_was_trained_to() -> None:
    asker, client = _asker(SamplingOptions())
    _ask(asker, "hi")
    tokens, _, params = client.requests[0]
    shown = asker.tokenizer.decode(tokens)
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert list(params.stop) == [asker.tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_own_stops_are_added_to_the_renderer_s() -> None:
    asker, client = _asker(SamplingOptions(stop=("wer",)))
    (answer,) = _ask(asker, "hi")
    assert list(client.requests[0][2].stop) == ["wer", "<|im_end|>"]
    assert answer.text == "ans"


def test_raw_prompts_are_not_templated_and_stop_strings_do_not_show() -> None:
    asker, client = _asker(SamplingOptions(stop=("wer",)), raw=True)
    (answer,) = _ask(asker, "hi")
    assert asker.tokenizer.decode(client.requests[0][0]) == "hi"
    assert answer.text == "ans"


def test_a_prompt_that_overflows_is_refused_with_its_length_and_the_limit() -> None:
    asker, client = _asker(SamplingOptions(max_tokens=1), raw=True, context=32768)
    tokens = asker.tokenizer.encode("a b" * 16_500)[:33_000]
    text = asker.tokenizer.decode(tokens)
    length = len(asker.tokenizer.encode(text))
    with pytest.raises(UsageError, match=rf"{length} tokens \+ 1 to sample > 32768"):
        asker.ask(from_text(text))
    assert client.requests == []


def test_the_default_length_gives_way_to_a_long_prompt() -> None:
    asker, client = _asker(SamplingOptions(256, max_tokens_given=False), raw=True, context=10)
    length = len(asker.tokenizer.encode("one two three"))
    _ask(asker, "one two three")
    assert client.requests[0][2].max_tokens == 10 - length
    stated, _ = _asker(SamplingOptions(256), raw=True, context=10)
    with pytest.raises(UsageError):
        stated.ask(from_text("one two three"))


def test_missing_logprobs_are_null_in_json_and_told_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asker, _ = _asker(SamplingOptions())
    answers = _ask(asker, "hi")
    assert answers[0].as_json(logprobs=True)["logprobs"] is None
    sample_views.show_answers(answers, asker.options, logprobs=True)
    shown = capsys.readouterr()
    assert shown.out == "answer 1\n"
    assert "n/a" in shown.err


def test_each_of_several_scores_every_answer() -> None:
    askers = {
        name: _asker(SamplingOptions(num_samples=2), reply=lambda _, text=text: text)[0]
        for name, text in {"base": "12", "final": "1 2 3"}.items()
    }
    comparer = Comparer(askers, 2)
    compared = comparer.ask(Prompt(0, ({"role": "user", "content": "x"},))).result()
    comparer.close()
    rows = compared_as_json(compared)
    assert [row["checkpoint"] for row in rows] == ["base", "final"]
    for row in rows:
        for sample in row["samples"]:
            count = float(len(sample["tokens"]))
            assert sample["logprob"] == {"base": -count, "final": -count}
    json.dumps(rows, allow_nan=False)


def test_a_model_s_control_characters_do_nothing_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_views.console, "is_terminal", lambda *_: True)
    assert sample_views.safe("a\x1b[2Jb\nc\x07") == "a\ufffd[2Jb\nc\ufffd"
