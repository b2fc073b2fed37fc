"""Training loops that were written for the service, unchanged, against the engine."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.xdist_group("engine"), pytest.mark.filterwarnings("ignore")]
SCRIPTS = Path(__file__).parent / "scripts"
QUESTIONS = [f"What is {i} + {i + 1}?" for i in range(12)]


@pytest.fixture
def cookbook(service: Any) -> None:
    """The cookbook knows `tiny`, and the engine is the one of the environment."""
    from tinker_cli.spec.models import register_tokenizers

    register_tokenizers()


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def last_checkpoint(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "checkpoints.jsonl").read_text().splitlines()[-1]))


def common(batch_size: int = 4) -> Any:
    from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

    return ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer="tiny",
        renderer_name="qwen3_instruct",
        max_length=128,
        batch_size=batch_size,
    )


def test_the_supervised_loop(cookbook: None, tmp_path: Path) -> None:
    from tinker_cookbook.supervised import train
    from tinker_cookbook.supervised.data import FromConversationFileBuilder

    talk = tmp_path / "talk.jsonl"
    with talk.open("w") as file:
        for i, question in enumerate(QUESTIONS):
            answer = {"role": "assistant", "content": str(2 * i + 1)}
            row = {"messages": [{"role": "user", "content": question}, answer]}
            file.write(json.dumps(row) + "\n")
    config = train.Config(
        log_path=str(tmp_path / "run"),
        model_name="tiny",
        renderer_name="qwen3_instruct",
        recipe_name="test",
        dataset_builder=FromConversationFileBuilder(common_config=common(), file_path=str(talk)),
        learning_rate=1e-3,
        lora_rank=4,
        num_epochs=1,
        eval_every=0,
        save_every=0,
    )
    asyncio.run(train.main(config))
    losses = [row["train_mean_nll"] for row in rows(tmp_path / "run")]
    assert len(losses) == 3
    assert all(0 < loss < math.log(2048) * 1.5 for loss in losses)
    assert last_checkpoint(tmp_path / "run")["state_path"].startswith("tinker://")


def rl_config(run: Path, **fields: Any) -> Any:
    import chz
    from tinker_cookbook import renderers
    from tinker_cookbook.rl import train
    from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
    from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    class Sums(ProblemEnv):
        """Rewards answers by their length, so that any group has a spread."""

        def get_question(self) -> str:
            return QUESTIONS[0]

        def check_format(self, sample_str: str) -> bool:
            return True

        def check_answer(self, sample_str: str) -> bool:
            return len(sample_str) % 2 == 0

        def get_reference_answer(self) -> str:
            return "1"

    class Dataset(RLDataset):
        def __init__(self) -> None:
            self.renderer = renderers.get_renderer("qwen3_instruct", get_tokenizer("tiny"))

        def get_batch(self, index: int) -> Any:
            def new() -> Sums:
                return Sums(self.renderer)

            return [ProblemGroupBuilder(env_thunk=new, num_envs=4) for _ in range(4)]

        def __len__(self) -> int:
            return 3

    @chz.chz
    class Builder(RLDatasetBuilder):
        async def __call__(self) -> Any:
            return Dataset(), None

    return train.Config(
        log_path=str(run),
        model_name="tiny",
        renderer_name="qwen3_instruct",
        recipe_name="test",
        dataset_builder=Builder(),
        learning_rate=1e-4,
        lora_rank=4,
        max_tokens=6,
        eval_every=0,
        save_every=0,
        num_groups_to_log=0,
        **fields,
    )


@pytest.mark.parametrize("mode", ["sync", "stream", "async"])
def test_the_rl_loop_in_its_three_modes(cookbook: None, tmp_path: Path, mode: str) -> None:
    from tinker_cookbook.rl import train

    fields: dict[str, Any] = {}
    if mode == "stream":
        fields["stream_minibatch_config"] = train.StreamMinibatchConfig(
            groups_per_batch=4, num_minibatches=2
        )
    if mode == "async":
        fields["async_config"] = train.AsyncConfig(max_steps_off_policy=2, groups_per_batch=4)
    asyncio.run(train.main(rl_config(tmp_path / "run", **fields)))
    steps = [row for row in rows(tmp_path / "run") if "env/all/reward/total" in row]
    assert len(steps) == 3
    assert last_checkpoint(tmp_path / "run")["sampler_path"].startswith("tinker://")
    if mode == "sync":
        assert all(abs(row["optim/kl_sample_train_v1"]) < 1e-4 for row in steps)


def test_direct_preference_optimization(cookbook: None, tmp_path: Path) -> None:
    import chz
    import datasets
    from tinker_cookbook.preference import train_dpo
    from tinker_cookbook.preference.dpo_datasets import DPODatasetBuilderFromComparisons
    from tinker_cookbook.preference.preference_datasets import ComparisonDatasetBuilder
    from tinker_cookbook.preference.types import Comparison, LabeledComparison

    @chz.chz
    class Pairs(ComparisonDatasetBuilder):
        def get_train_and_test_datasets(self) -> Any:
            return datasets.Dataset.from_list([{"question": q} for q in QUESTIONS]), None

        def example_to_labeled_comparison(self, example: dict[str, Any]) -> Any:
            comparison = Comparison(
                prompt_conversation=[{"role": "user", "content": example["question"]}],
                completion_A=[{"role": "assistant", "content": "A number."}],
                completion_B=[{"role": "assistant", "content": "No."}],
            )
            return LabeledComparison(comparison=comparison, label="A")

    config = train_dpo.Config(
        log_path=str(tmp_path / "run"),
        model_name="tiny",
        renderer_name="qwen3_instruct",
        recipe_name="test",
        dataset_builder=DPODatasetBuilderFromComparisons(
            comparison_builder=Pairs(), common_config=common()
        ),
        learning_rate=1e-3,
        lora_rank=4,
        eval_every=0,
        save_every=0,
    )
    train_dpo.main(config)
    steps = rows(tmp_path / "run")
    assert len(steps) == 3
    assert steps[0]["dpo_loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert steps[-1]["dpo_loss"] < steps[0]["dpo_loss"]


@pytest.mark.parametrize("script", ["sl_loop", "rl_loop"])
def test_a_flat_script_with_two_variables_set(engine: Any, tmp_path: Path, script: str) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("TINKER_")},
        "TINKER_BASE_URL": engine.url,
        "TINKER_API_KEY": engine.key,
    }
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    steps = rows(tmp_path)
    assert len(steps) == 3
    if script == "sl_loop":
        assert steps[-1]["train_mean_nll"] < steps[0]["train_mean_nll"]
    assert last_checkpoint(tmp_path)["sampler_path"].startswith("tinker://")
