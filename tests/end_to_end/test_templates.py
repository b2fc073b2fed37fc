"""Each template: sound as it ships, trains for three steps, and runs again as it was resolved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinker_cli.commands.template import folder
from tinker_cli.engine import Engine, start_engine
from tinker_cli.spec import load_spec
from tinker_cli.spec.config import build_config
from tinker_cli.spec.write import dump

TEMPLATES = sorted(path.stem for path in folder().glob("*.yaml"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    store = tmp_path_factory.mktemp("store")
    with start_engine(threads=1, store=store) as running:
        yield running


def tinker(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tinker_cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_trains_and_its_resolved_spec_is_the_same_run(
    name: str, engine: Engine, tmp_path: Path
) -> None:
    """Copied, launched on a server that is already there, for three steps."""
    copied = tinker("template", "copy", name, str(tmp_path / f"{name}.yaml"))
    assert copied.returncode == 0, copied.stderr
    spec, run = tmp_path / f"{name}.yaml", tmp_path / "run"
    smaller = ["dataset_builder.group_size=4"] if name.startswith("rl") else []
    done = tinker(
        *("train", name[:2], str(spec), "max_steps=3", f"log_path={run}", "eval_every=2"),
        *(*smaller, f"base_url={engine.url}", "--plain"),
        TINKER_API_KEY=engine.key,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = {row["step"] for row in rows if "optim/lr" in row or "learning_rate" in row}
    assert trained == {0, 1, 2}
    again = load_spec(run / "spec.yaml")
    first = load_spec(spec, overrides=["max_steps=3", f"log_path={run}", "eval_every=2", *smaller])
    config = build_config(again, base_url=engine.url)
    assert repr(config) == repr(build_config(first, base_url=engine.url))
    assert dump(again).splitlines()[1:] == (run / "spec.yaml").read_text().splitlines()[1:]


def test_the_custom_evaluators_number_is_in_the_rows(engine: Engine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = tinker(
        *("train", "sl", str(folder() / "sl_custom.yaml"), "max_steps=1", f"log_path={run}"),
        *(f"base_url={engine.url}", "--plain"),
        TINKER_API_KEY=engine.key,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("cards/exact" in row for row in rows)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro"])
def test_the_four_losses_with_their_settings(loss: str, engine: Engine, tmp_path: Path) -> None:
    settings = {
        "ppo": "{clip_low_threshold: 0.9, clip_high_threshold: 1.1}",
        "cispo": "{clip_low_threshold: 0.5, clip_high_threshold: 1.5}",
        "dro": "{beta: 0.1}",
    }
    run = tmp_path / "run"
    done = tinker(
        *("train", "rl", str(folder() / "rl_ppo.yaml"), f"log_path={run}", "max_steps=1"),
        *(f"loss_fn={loss}", f"loss_fn_config={settings.get(loss, 'null')}"),
        *("dataset_builder.group_size=4", f"base_url={engine.url}", "--plain"),
        TINKER_API_KEY=engine.key,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "config.json").read_text())["loss_fn"] == loss


def test_a_rehearsal_saves_evaluates_resumes_and_leaves_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = tinker(
        *("train", "rl", str(folder() / "rl_reward.yaml"), "--local", "--dry-run", "--json"),
        TINKER_COOKBOOK_RUNS_DIR=str(runs),
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["rehearsal"]["row"]["step"] >= 1
    assert "test/env/all/reward/total" in document["rehearsal"]["row"]
    assert document["preview"]["reward"] == 1.0
    assert not runs.exists() or not [each for each in runs.iterdir() if each.name[0] != "."]
    assert not list(tmp_path.glob("tinker-rehearsal-*"))


def test_a_rehearsal_tells_what_would_have_failed_late(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    text = (folder() / "sl_chat.yaml").read_text()
    spec.write_text(text + "evaluator_builders: [./broken.py:make]\n")
    (tmp_path / "broken.py").write_text(
        "def make():\n    async def ask(client):\n        return {}\n    return ask\n"
    )
    done = tinker("train", "sl", str(spec), "--local", "--dry-run")
    assert done.returncode == 1
    assert "Unknown evaluator type" in done.stderr


def test_a_step_whose_rewards_are_all_equal_is_no_end(engine: Engine, tmp_path: Path) -> None:
    """Every advantage is 0: the run goes on, and its groups are told as all good."""
    copied = tinker("template", "copy", "rl_prompts", str(tmp_path))
    assert copied.returncode == 0, copied.stderr
    (tmp_path / "even.py").write_text("def score(response, row):\n    return 1.0\n")
    run = tmp_path / "run"
    done = tinker(
        *("train", "rl", str(tmp_path / "rl_prompts.yaml"), f"log_path={run}", "max_steps=2"),
        *("dataset_builder.reward=./even.py:score", "remove_constant_reward_groups=true"),
        *("dataset_builder.group_size=2", "eval_every=0", f"base_url={engine.url}", "--plain"),
        TINKER_API_KEY=engine.key,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["env/all/by_group/frac_all_good"] for row in rows if "optim/lr" in row] == [1, 1]
