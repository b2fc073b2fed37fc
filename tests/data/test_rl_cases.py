"""What goes wrong in RL runs, and what the prompts environment and the loop make of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from tinker_cli.data.prompts import PromptEnv, PromptsBuilder
from tinker_cli.data.rewards import Reward
from tinker_cli.errors import InputFaults, RunFailed
from tinker_cli.spec import load_spec
from tinker_cli.spec.models import load_tokenizer


def _environment(folder: Path, renderer: str, reward: Any = "numeric") -> PromptEnv:
    load_tokenizer("tiny")
    (folder / "q.jsonl").write_text('{"prompt": "2 + 2?", "answer": "4"}\n')
    builder = PromptsBuilder(
        file_path=str(folder / "q.jsonl"),
        batch_size=1,
        group_size=2,
        model_name_for_tokenizer="tiny",
        renderer_name=renderer,
        reward=reward,
    )
    return builder.environment(builder.split_rows()[0][0])


def _score(environment: PromptEnv, text: str) -> tuple[float, dict[str, float], Any]:
    tokens = load_tokenizer("tiny").encode(text)
    return asyncio.run(environment.score(tokens))


def test_a_reply_cut_at_max_tokens_is_no_finished_one(tmp_path: Path) -> None:
    """The answer is right, but without the stop token the format term costs 0.1."""
    environment = _environment(tmp_path, "qwen3_instruct")
    cut, cut_metrics, _ = _score(environment, "The answer is 4")
    whole, whole_metrics, _ = _score(environment, "The answer is 4<|im_end|>")
    assert (cut, cut_metrics["format"], cut_metrics["correct"]) == (pytest.approx(0.9), 0.0, 1.0)
    assert (whole, whole_metrics["format"], whole_metrics["correct"]) == (1.0, 1.0, 1.0)


def test_two_delimiters_in_one_sample_end_nothing(tmp_path: Path) -> None:
    environment = _environment(tmp_path, "role_colon")
    value, metrics, message = _score(environment, "4\n\nUser: and 5?\n\nUser:")
    assert message["content"].strip() == "4"
    assert metrics["format"] == 0.0
    assert value == pytest.approx(0.9)


def test_only_what_the_model_wrote_is_graded(tmp_path: Path) -> None:
    """The right answer is in the prompt; the reply does not have it."""
    environment = _environment(tmp_path, "qwen3_instruct", "contains")
    environment.question = "the tool said 4"
    value, _, _ = _score(environment, "I do not know<|im_end|>")
    assert value == 0.0


def test_rewards_that_are_no_numbers_stop_the_step() -> None:
    nothing = Reward("mine", lambda response, row: float("nan"), is_whole=True)
    with pytest.raises(RunFailed, match=r"row\.jsonl:3"):
        asyncio.run(nothing("x", {}, "row.jsonl:3"))


def test_advantages_are_centred_and_not_scaled() -> None:
    """The loop's rule: rewards [0.2, 0.8, 0.5] -> [-0.3, 0.3, 0.0]."""
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    trajectories = [Trajectory(transitions=[], final_ob=None) for _ in range(3)]  # type: ignore
    group = TrajectoryGroup(trajectories, [0.2, 0.8, 0.5], [{}, {}, {}])
    (advantages,) = compute_advantages([group])
    torch.testing.assert_close(advantages, torch.tensor([-0.3, 0.3, 0.0]))


def test_a_kl_penalty_and_another_temperature_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "rl.yaml").write_text(
        "kind: rl\nmodel_name: tiny\nbase_url: local\nlearning_rate: 1e-4\nmax_tokens: 8\n"
        "dataset_builder: {type: arithmetic, batch_size: 2, group_size: 2, n_batches: 1}\n"
        "temperature: 0.5\nkl_penalty_coef: 0.05\nkl_reference_config: {base_model: tiny}\n"
    )
    with pytest.raises(InputFaults) as caught:
        load_spec(tmp_path / "rl.yaml")
    assert [(fault.line, fault.key) for fault in caught.value.faults] == [(7, "temperature")]
