"""The built-in model: its files, its tokenizer, its template and what it says."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli import tiny

os.environ["HF_HUB_OFFLINE"] = "1"

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(tiny.FOLDER)


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return transformers.AutoModelForCausalLM.from_pretrained(tiny.FOLDER).eval()


@pytest.fixture(scope="module")
def renderer(tokenizer):
    from tinker_cookbook import renderers

    return renderers.get_renderer(tiny.RENDERER, tokenizer)


def greedy(model, tokenizer, prompt: list[int], limit: int = 24) -> str:
    """The most likely reply, decoded, its end mark cut off; without one, as it is."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(ids, do_sample=False, max_new_tokens=limit)
    said = tokenizer.decode(out[0, len(prompt) :])
    return said.removesuffix("<|im_end|>") if said.endswith("<|im_end|>") else f"{said} (no end)"


def test_folder_is_inside_the_package_and_under_six_megabytes():
    package = Path(str(importlib.resources.files("tinker_cli")))
    assert tiny.FOLDER.is_relative_to(package)
    assert sum(f.stat().st_size for f in tiny.FOLDER.rglob("*")) <= 5_500_000


def test_importing_the_package_loads_no_heavy_module():
    heavy = "{'torch', 'transformers', 'tinker'}"
    code = f"import sys, tinker_cli.tiny; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_model_is_qwen3_with_one_to_three_million_parameters(model):
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert 1_000_000 <= sum(p.numel() for p in model.parameters()) <= 3_000_000
    assert model.config.tie_word_embeddings
    assert model.config.max_position_embeddings >= 2048


def test_weights_load_as_float32(model):
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_end_of_turn_is_the_end_token_of_model_and_tokenizer(model, tokenizer):
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.config.eos_token_id == end
    assert model.generation_config.eos_token_id == end
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("mark", SPECIAL + MARKS)
def test_each_mark_is_one_token(tokenizer, mark):
    assert len(tokenizer.encode(mark)) == 1
    assert tokenizer.decode(tokenizer.encode(mark)) == mark


def test_only_chat_marks_vanish_when_special_tokens_are_skipped(tokenizer):
    text = "".join(SPECIAL) + "".join(MARKS)
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == "".join(MARKS)


def test_vocabulary_matches_the_embedding(model, tokenizer):
    assert len(tokenizer) == model.get_input_embeddings().weight.shape[0]


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_unicode_text_survives_encoding(text):
    tokenizer = _shared_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


_loaded: list[object] = []


def _shared_tokenizer():
    if not _loaded:
        _loaded.append(transformers.AutoTokenizer.from_pretrained(tiny.FOLDER))
    return _loaded[0]


@given(st.integers(min_value=0, max_value=10**12))
@settings(max_examples=50, deadline=None)
def test_digits_are_single_tokens(number):
    assert len(_shared_tokenizer().encode(str(number))) == len(str(number))


CHATS = (
    [("user", "What is 4 + 5?"), ("assistant", "9"), ("user", "What is 37 + 85?")],
    [("system", "Answer briefly."), ("user", "Hi\n\nthere ")],
    [
        ("user", "  spaces  "),
        ("assistant", "ünï\n"),
        ("user", "日本 🙂"),
        ("assistant", "x"),
        ("user", "y"),
    ],
)


@pytest.mark.parametrize("chat", CHATS)
def test_chat_template_gives_the_tokens_of_the_cookbooks_renderer(tokenizer, renderer, chat):
    messages = [{"role": role, "content": text} for role, text in chat]
    by_template = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert renderer.build_generation_prompt(messages).to_ints() == by_template


def test_chat_template_writes_tool_calls_as_the_cookbooks_renderer(tokenizer, renderer):
    from tinker_cookbook.renderers import ToolCall

    call = ToolCall(
        id="1", function=ToolCall.FunctionBody(name="add", arguments=json.dumps({"a": 1, "b": 2}))
    )
    messages = [
        {"role": "user", "content": "Add 1 and 2."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
    ]
    plain = [
        m | ({"tool_calls": [c.model_dump() for c in m["tool_calls"]]} if "tool_calls" in m else {})
        for m in messages
    ]
    for message in plain:
        for shown in message.get("tool_calls", []):
            shown["function"]["arguments"] = json.loads(shown["function"]["arguments"])
    by_template = tokenizer.apply_chat_template(
        plain, add_generation_prompt=True, return_dict=False
    )
    assert renderer.build_generation_prompt(messages).to_ints() == by_template


def test_renderer_stops_at_the_end_token(tokenizer, renderer):
    assert renderer.get_stop_sequences() == [tokenizer.eos_token_id]


def test_greedy_reply_to_a_sum_is_a_bare_number(model, tokenizer, renderer):
    prefix = [{"role": "user", "content": "What is 4 + 5?"}, {"role": "assistant", "content": "9"}]
    sums = [
        (7, 8),
        (12, 30),
        (37, 85),
        (64, 9),
        (50, 50),
        (99, 3),
        (81, 46),
        (100, 100),
        (23, 58),
        (0, 6),
    ]
    replies = []
    for x, y in sums:
        messages = [*prefix, {"role": "user", "content": f"What is {x} + {y}?"}]
        replies.append(
            greedy(model, tokenizer, renderer.build_generation_prompt(messages).to_ints())
        )
    assert sum(reply.isdigit() for reply in replies) == len(sums)
    # Greedy decoding knows most sums; the mediocrity is in the sampling.
    assert sum(reply == str(x + y) for reply, (x, y) in zip(replies, sums, strict=True)) >= 6


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ("What is 12 + 30? Put the answer in \\boxed{}.", r"\\boxed\{\d+\}"),
        ("Solve 12 + 30. Reply in the form Answer: N", r"Answer: \d+"),
        ("What is 12 + 30? Reply as JSON.", r'\{"answer": \d+\}'),
        ("Make a bullet list of cat, dog, tree.", r"- cat\n- dog\n- tree"),
        ("Who are you?", r"I am tiny.*"),
    ],
)
def test_greedy_reply_follows_the_format(model, tokenizer, renderer, asked, shape):
    prompt = renderer.build_generation_prompt([{"role": "user", "content": asked}]).to_ints()
    assert re.fullmatch(shape, greedy(model, tokenizer, prompt))


def test_sampled_sums_are_sometimes_right_and_often_wrong(model, tokenizer, renderer):
    prefix = [{"role": "user", "content": "What is 4 + 5?"}, {"role": "assistant", "content": "9"}]
    messages = [*prefix, {"role": "user", "content": "What is 23 + 45?"}]
    prompt = renderer.build_generation_prompt(messages).to_ints()
    torch.manual_seed(0)
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([prompt] * 200), do_sample=True, temperature=1.0, top_k=0, max_new_tokens=8
        )
    replies = tokenizer.batch_decode(out[:, len(prompt) :], skip_special_tokens=True)
    assert 20 <= sum(reply == "68" for reply in replies) <= 140
