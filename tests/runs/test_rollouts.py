"""Rollouts as a real run's loop logged them, and `tinker rollouts` on them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tinker_cli.app import run
from tinker_cli.commands.template import folder
from tinker_cli.runs.rollouts import logged_splits, logged_steps, read_rollouts

GROUPS, GROUP, LOGGED, LONGEST = 4, 6, 2, 3
TRAIN = [sys.executable, "-m", "tinker_cli", "train", "rl"]
HEAD = ["group", "rollouts", "reward", "min", "max", "tokens", "stopped", "cut", "off"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of RL on sums, with replies of at most three tokens: some are cut off."""
    where = tmp_path_factory.mktemp("real") / "sums"
    overrides = [
        *("max_steps=2", "eval_every=1", f"num_groups_to_log={LOGGED}", f"max_tokens={LONGEST}"),
        *(f"dataset_builder.group_size={GROUP}", f"dataset_builder.batch_size={GROUPS}"),
        *("dataset_builder.test_size=4", "temperature=1.5", f"log_path={where}"),
    ]
    subprocess.run(
        [*TRAIN, str(folder() / "rl_prompts.yaml"), *overrides, "--plain"],
        env={**os.environ, "TINKER_ENGINE_STORE": str(where.parent / "store")},
        check=True,
        capture_output=True,
        timeout=200,
    )
    return where


def test_every_rollout_is_there_and_the_logged_ones_have_their_text(real: Path) -> None:
    assert logged_steps(real) == [0, 1]
    assert "train" in logged_splits(real, 0)
    for step in (0, 1):
        found = read_rollouts(real, step)
        assert len(found) == GROUPS * GROUP
        assert {r.group for r in found if r.text is not None} == set(range(LOGGED))
        assert {r.group for r in found if r.text is None} == set(range(LOGGED, GROUPS))


def test_a_text_belongs_to_its_reward_and_prompt(real: Path) -> None:
    """The reward is worked out here from prompt and reply: numeric, and 0.1 off if cut off."""
    checked = 0
    for rollout in (r for step in (0, 1) for r in read_rollouts(real, step)):
        if rollout.text is None:
            continue
        assert rollout.prompt is not None
        terms = [int(word) for word in re.findall(r"\d+", rollout.prompt)]
        numbers = re.findall(r"-?\d+", rollout.text)
        right = bool(numbers) and int(numbers[-1]) == sum(terms)
        off = 0.1 * (1 - rollout.metrics["format"])
        assert rollout.reward == pytest.approx(right - off, abs=1e-3)
        checked += 1
    assert checked == 2 * LOGGED * GROUP


def test_cut_off_means_as_long_as_max_tokens_without_a_stop(real: Path) -> None:
    reasons = set()
    for rollout in (r for step in (0, 1) for r in read_rollouts(real, step)):
        ended = rollout.metrics["format"] == 1
        assert rollout.truncated == (rollout.tokens == LONGEST and not ended)
        reasons.add(rollout.stop_reason)
    assert reasons == {"stop", "length"}


def test_a_bad_format_is_not_a_cut_off_reply(real: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(real, copied)
    path = copied / "iteration_000000" / "train_rollout_summaries.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    row["steps"][0] |= {"ac_len": 1, "metrics": {"format": 0.0, "correct": 0.0}}
    path.write_text(json.dumps(row) + "\n")
    (found,) = read_rollouts(copied, 0)
    assert found.stop_reason == "stop"
    (copied / "config.json").unlink()
    (found,) = read_rollouts(copied, 0)
    assert found.stop_reason is None


def _rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_command_s_table_replies_and_what_was_not_logged(
    real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rollouts", str(real), "--show", "worst", "-n", "3"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split() == HEAD
    assert [line.split()[:2] for line in lines[1:5]] == [[str(g), str(GROUP)] for g in range(4)]
    rewards = [float(x) for x in re.findall(r"reward (-?[\d.]+)  \d+ tokens", shown.out)]
    assert len(rewards) == 3
    assert rewards == sorted(rewards)
    assert "2 of 4 groups have no text" in shown.err
    assert "num_groups_to_log" in shown.err


def test_conditions_groups_steps_and_evaluations(
    real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(real)
    assert run(["rollouts", name, "--step", "all", "--where", "reward < 0.2", "--json"]) == 0
    rows = _rows(capsys.readouterr().out)
    wanted = [r for step in (0, 1) for r in read_rollouts(real, step) if r.reward < 0.2]
    assert [(r["step"], r["group"], r["index"]) for r in rows] == [
        (r.step, r.group, r.index) for r in wanted
    ]
    assert run(["rollouts", name, "--step", "0", "--group", "1", "--json"]) == 0
    rows = _rows(capsys.readouterr().out)
    assert {(r["step"], r["group"]) for r in rows} == {(0, 1)}
    assert set(rows[0]) == {
        *("step", "group", "index", "reward", "tokens", "metrics", "prompt", "text"),
        *("stop_reason", "truncated"),
    }
    assert run(["rollouts", name, "--eval", "test", "--json"]) == 0
    assert len(_rows(capsys.readouterr().out)) == 4
    assert run(["rollouts", name, "--step", "all"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:3]] == ["24", "24"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "7"], "there are 0 to 1"),
        (["--step", "x"], "a number or all"),
        (["--eval", "tst"], "there are: test"),
        (["--where", "rewrd < 1"], "did you mean reward?"),
        (["--show", "wurst"], "did you mean worst?"),
    ],
)
def test_wrong_words_name_the_right_ones(
    arguments: list[str], said: str, real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rollouts", str(real), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_run_without_rollouts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert run(["rollouts", str(tmp_path)]) == 1
    assert "no rollouts" in capsys.readouterr().err
