"""Prompts in, answers out: options, input forms, order, what the model is really shown."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from tinker_cli.errors import InputFaults
from tinker_cli.sampling.ask import IN_FLIGHT, Asker
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.prompts import from_lines, from_text
from tinker_cli.spec.models import load_tokenizer


def test_every_option_out_of_range_is_reported_at_once() -> None:
    options = SamplingOptions(0, -1.0, 2.0, 0, None, ("",), 0)
    with pytest.raises(InputFaults) as caught:
        options.check()
    keys = [fault.key for fault in caught.value.faults]
    assert keys == ["--temperature", "--top-p", "--top-k", "--max-tokens", "-n", "--stop"]
    with pytest.raises(InputFaults):
        SamplingOptions(temperature=float("nan")).check()
    SamplingOptions(temperature=1e-4).check()


def test_every_form_of_a_line_is_a_prompt() -> None:
    lines = [
        b'\xef\xbb\xbf{"prompt": "a", "id": 7}\r\n',
        b"\n",
        b'{"messages": [{"role": "user", "content": "b"}]}\n',
        b"plain words\n",
    ]
    found = list(from_lines(lines, "stdin", system="S"))
    assert [prompt.id for prompt in found] == [7, None, None]
    assert [prompt.index for prompt in found] == [0, 1, 2]
    assert [m["content"] for m in found[1].messages] == ["S", "b"]
    assert found[2].messages[-1]["content"] == "plain words"


def test_a_row_without_a_prompt_names_its_line() -> None:
    with pytest.raises(InputFaults) as caught:
        list(from_lines([b'{"prompt": "a"}\n', b'{"text": "b"}\n'], "q.jsonl"))
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
    """Answers each request with its own prompt, and counts how many are unanswered."""

    tokenizer: Any
    requests: list[Any] = field(default_factory=list)

    def sample(
        self, *, prompt: Any, num_samples: int, sampling_params: Any
    ) -> Future[FakeResponse]:
        self.requests.append((prompt.to_ints(), num_samples, sampling_params))
        future: Future[FakeResponse] = Future()
        text = f"answer {len(self.requests)}<|im_end|>"
        tokens = self.tokenizer.encode(text)
        future.set_result(FakeResponse([FakeSequence(tokens)] * num_samples))
        return future


def _asker(options: SamplingOptions, *, raw: bool = False) -> tuple[Asker, FakeClient]:
    from tinker_cookbook.renderers import get_renderer

    tokenizer = load_tokenizer("tiny")
    client = FakeClient(tokenizer)
    renderer = None if raw else get_renderer("qwen3_instruct", tokenizer)
    return Asker(client, tokenizer, renderer, options), client


def test_answers_come_in_the_order_of_the_prompts() -> None:
    asker, _ = _asker(SamplingOptions(num_samples=2))
    lines = [f'{{"prompt": "{n}"}}\n'.encode() for n in range(IN_FLIGHT * 2)]
    got = [
        (prompt.index, [a.text for a in answers])
        for prompt, answers in asker.ask_all(from_lines(lines, "x"))
    ]
    assert got == [(n, [f"answer {n + 1}"] * 2) for n in range(IN_FLIGHT * 2)]


def test_the_model_sees_the_renderer_s_prompt_and_stops_where_it_was_trained_to() -> None:
    asker, client = _asker(SamplingOptions())
    list(asker.ask_all([from_text("hi")]))
    tokens, _, params = client.requests[0]
    shown = asker.tokenizer.decode(tokens)
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert list(params.stop) == [asker.tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_raw_prompts_are_not_templated_and_stop_strings_do_not_show() -> None:
    asker, client = _asker(SamplingOptions(stop=("wer",)), raw=True)
    ((_, answers),) = list(asker.ask_all([from_text("hi")]))
    assert asker.tokenizer.decode(client.requests[0][0]) == "hi"
    assert answers[0].text == "ans"


def test_missing_logprobs_are_null_in_json() -> None:
    asker, _ = _asker(SamplingOptions())
    ((_, answers),) = list(asker.ask_all([from_text("hi")]))
    assert answers[0].as_json(logprobs=True)["logprobs"] is None
