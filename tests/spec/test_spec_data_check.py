"""Data checked before anything remote: counts, cuts, faults, steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.errors import InputFaults
from tinker_cli.spec import load_spec
from tinker_cli.spec.check import DataReport, check_data
from tinker_cli.spec.models import load_tokenizer


def _chat(user: str, assistant: str | None = None) -> dict[str, Any]:
    messages = [{"role": "user", "content": user}]
    if assistant is not None:
        messages.append({"role": "assistant", "content": assistant})
    return {"messages": messages}


def _sl(folder: Path, rows: list[dict[str, Any]], *extra: str) -> DataReport:
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sl.yaml").write_text(
        "kind: sl\nmodel_name: tiny\nbase_url: local\ndataset_builder:\n"
        "  type: conversations\n  file_path: chat.jsonl\n  batch_size: 4\n"
    )
    return check_data(load_spec(folder / "sl.yaml", overrides=extra))


def test_steps_are_full_batches_times_epochs_at_most_max_steps(tmp_path: Path) -> None:
    rows = [_chat("q", "a")] * 10
    report = _sl(tmp_path, rows, "max_steps=100")
    assert (report.examples, report.batches, report.steps) == (10, 2, 2)
    assert _sl(tmp_path, rows, "num_epochs=3").steps == 6
    assert _sl(tmp_path, rows, "num_epochs=3", "max_steps=5").steps == 5


def test_fewer_rows_than_a_batch_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        _sl(tmp_path, [_chat("q", "a")] * 3, "num_epochs=5")
    assert caught.value.faults[0].message == "3 rows < batch_size 4 -> 0 steps"


def test_an_answer_that_is_cut_away_is_no_example(tmp_path: Path) -> None:
    rows = [_chat("hello " * 60, "Yes.")] + [_chat("q", "a")] * 4
    report = _sl(tmp_path, rows, "dataset_builder.max_length=16")
    assert report.untrained == (f"{tmp_path / 'chat.jsonl'}:1",)
    assert report.truncated == report.untrained
    assert report.examples == 4


def test_a_file_without_a_trained_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFaults, match="train nothing"):
        _sl(tmp_path, [_chat("q")] * 5)


def test_trained_tokens_are_tokens_not_weights(tmp_path: Path) -> None:
    report = _sl(tmp_path, [_chat("q", "a")] * 4)
    tokenizer = load_tokenizer("tiny")
    answer = len(tokenizer.encode("a<|im_end|>"))
    assert report.trained_tokens == 4 * answer


def test_faulty_rows_are_all_named(tmp_path: Path) -> None:
    rows = [_chat("q", "a"), {"text": "x"}, _chat("q", "a"), {"messages": []}]
    with pytest.raises(InputFaults) as caught:
        _sl(tmp_path, rows)
    assert [fault.line for fault in caught.value.faults] == [2, 4]


def _rl(folder: Path, rows: list[dict[str, Any]], *extra: str) -> DataReport:
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rl.yaml").write_text(
        "kind: rl\nmodel_name: tiny\nbase_url: local\nlearning_rate: auto\nmax_tokens: 8\n"
        "dataset_builder:\n  type: prompts\n  file_path: q.jsonl\n  batch_size: 2\n"
        "  group_size: 2\n  reward: numeric\n"
    )
    return check_data(load_spec(folder / "rl.yaml", overrides=extra))


QUESTIONS = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]


def test_prompts_are_counted_and_the_reward_is_tried(tmp_path: Path) -> None:
    report = _rl(tmp_path, QUESTIONS, "dataset_builder.test_size=2")
    assert (report.examples, report.held_out, report.batches, report.steps) == (4, 2, 2, 2)
    assert report.preview is not None
    assert (report.preview.answer, report.preview.reward) == ("1", 1.0)


def test_rows_without_an_answer_are_named(tmp_path: Path) -> None:
    rows = [*QUESTIONS, {"prompt": "x"}, {"answer": "3"}]
    with pytest.raises(InputFaults) as caught:
        _rl(tmp_path, rows)
    assert [(f.line, f.key) for f in caught.value.faults] == [(7, "answer"), (8, "prompt")]


def test_a_reward_that_fails_is_told_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(response, row):\n    return row['gold']\n")
    with pytest.raises(InputFaults) as caught:
        _rl(tmp_path, QUESTIONS, "dataset_builder.reward=./mine.py:score")
    assert "KeyError" in caught.value.faults[0].message
    assert caught.value.faults[0].line is not None


def test_the_data_hash_follows_the_bytes(tmp_path: Path) -> None:
    first = _rl(tmp_path, QUESTIONS).data_hash
    assert _rl(tmp_path, QUESTIONS).data_hash == first
    assert _rl(tmp_path, QUESTIONS[::-1]).data_hash != first


@pytest.mark.parametrize("renderer", ["llama3", "deepseekv3", "gpt_oss_no_sysprompt"])
def test_a_renderer_of_another_family_is_refused_at_its_line(tmp_path: Path, renderer: str) -> None:
    """Its end of a turn is several tokens of this model: no reply would ever stop."""
    (tmp_path / "q.jsonl").write_text(json.dumps(QUESTIONS[0]) + "\n")
    (tmp_path / "rl.yaml").write_text(
        "kind: rl\nmodel_name: tiny\nbase_url: local\nlearning_rate: auto\nmax_tokens: 8\n"
        f"renderer_name: {renderer}\ndataset_builder:\n  type: prompts\n  file_path: q.jsonl\n"
        "  batch_size: 1\n  group_size: 2\n  reward: numeric\n"
    )
    with pytest.raises(InputFaults) as caught:
        check_data(load_spec(tmp_path / "rl.yaml"))
    (fault,) = caught.value.faults
    assert (fault.line, fault.key) == (6, "renderer_name")
    assert f"{renderer} does not fit tiny" in fault.message


def test_faults_of_the_data_know_their_line_of_the_spec(tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        _sl(tmp_path, [_chat("q", "a")] * 3)
    assert caught.value.faults[0].line == 7  # batch_size
