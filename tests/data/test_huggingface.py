"""Datasets of `datasets`, from files and folders, as the cookbook's own classes serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from tinker_cli.data.huggingface import HuggingFaceBuilder
from tinker_cli.errors import InputFaults, UsageError
from tinker_cli.spec.models import load_tokenizer, register_tokenizers


def _builder(path: Path, **fields: Any) -> HuggingFaceBuilder:
    register_tokenizers()
    common = ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer="tiny",
        renderer_name="qwen3_instruct",
        max_length=None,
        batch_size=fields.pop("batch_size", 2),
    )
    return HuggingFaceBuilder(common_config=common, path=str(path), **fields)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"q": f"q{n}", "a": f"a{n}"}) + "\n" for n in range(7)))
    return path


def _text(datum: Any) -> str:
    return str(load_tokenizer("tiny").decode(datum.model_input.to_ints()))


def test_columns_become_a_user_and_an_assistant(pairs: Path) -> None:
    train, test = _builder(pairs, prompt_column="q", completion_column="a")()
    assert test is None
    assert len(train) == 3  # 7 rows in batches of 2, the last partial one dropped
    wanted = "<|im_start|>user\nq0<|im_end|>\n<|im_start|>assistant\na0"
    assert _text(train.get_batch(0)[0]) == wanted


def test_a_held_out_part_is_no_part_of_training(pairs: Path) -> None:
    train, test = _builder(pairs, prompt_column="q", completion_column="a", test_size=3)()
    assert test is not None
    held = {_text(datum) for datum in test.get_batch(0)}
    trained = {_text(datum) for i in range(len(train)) for datum in train.get_batch(i)}
    assert (len(held), len(trained)) == (3, 4)
    assert not held & trained


def test_messages_of_unequal_keys_survive_the_common_schema(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": "a", "name": "Ann"},
                      {"role": "assistant", "content": "b"}]},
        {"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train, _ = _builder(path)()
    assert _text(train.get_batch(0)[1]).endswith("assistant\nd")


def test_a_stream_has_the_length_it_is_told(pairs: Path) -> None:
    fields = {"prompt_column": "q", "completion_column": "a", "streaming": True}
    train, _ = _builder(pairs, max_prompts=6, buffer_size=2, **fields)()
    assert len(train) == 3
    assert len(train.get_batch(0)) == 2
    with pytest.raises(UsageError, match="max_prompts"):
        _builder(pairs, **fields)()


def test_a_saved_dataset_is_read_from_its_folder(tmp_path: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_list([{"prompt": "p", "completion": "c"}] * 4)
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(str(tmp_path / "saved"))
    train, test = _builder(tmp_path / "saved", prompt_column="prompt", test_split="test")()
    assert (len(train), len(test.get_batch(0)) if test else 0) == (2, 4)


def test_what_is_missing_is_named(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        _builder(pairs, prompt_column="question")()[0].get_batch(0)
    assert caught.value.faults[0].key == "question"
    with pytest.raises(UsageError, match="can't be loaded"):
        _builder(tmp_path / "nowhere")()


def test_prompts_come_from_a_table_too(tmp_path: Path) -> None:
    """A parquet file with columns of its own names, a split cut off for testing."""
    import datasets

    from tinker_cli.spec import load_spec
    from tinker_cli.spec.check import check_data

    table = {"question": [f"{n} + 1?" for n in range(12)], "gold": [str(n + 1) for n in range(12)]}
    datasets.Dataset.from_dict(table).to_parquet(str(tmp_path / "sums.parquet"))
    (tmp_path / "rl.yaml").write_text(
        "kind: rl\nmodel_name: tiny\nbase_url: local\nlearning_rate: auto\nmax_tokens: 8\n"
        "dataset_builder:\n  type: prompts\n  path: sums.parquet\n  split: 'train[:10]'\n"
        "  test_split: 'train[10:]'\n  prompt_template: 'What is {question}'\n"
        "  answer_column: gold\n  reward: numeric\n  batch_size: 5\n  group_size: 2\n"
    )
    report = check_data(load_spec(tmp_path / "rl.yaml"))
    assert (report.examples, report.held_out, report.steps) == (10, 2, 2)
    assert report.preview is not None
    assert "What is 0 + 1?" in report.preview.pieces[0][0]
    assert (report.preview.answer, report.preview.reward) == ("1", 1.0)
