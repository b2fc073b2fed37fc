"""What a shell offers: commands, runs, templates, metric names, renderers; and what help shows."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinker_cli.app import GROUPS, run
from tinker_cli.commands.completing import RENDERERS

COMMANDS = [entry.name for entries in GROUPS.values() for entry in entries]
SCREEN = 40  # lines
ALL = [*([name] for name in COMMANDS if name != "train"), ["train", "sl"], ["train", "rl"]]


def _offered(line: str) -> list[str]:
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "tinker_cli"],
        env={
            **os.environ,
            "_TINKER_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def one_run(runs_root: Path) -> Path:
    folder = runs_root / "demo"
    folder.mkdir()
    row = {"step": 0, "env/all/reward/total": 0.5, "optim/entropy": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_commands_runs_templates_metrics_and_renderers_are_offered(one_run: Path) -> None:
    assert _offered("tinker sa") == ["sample"]
    assert _offered("tinker watch de") == ["demo"]
    assert _offered("tinker template copy rl_pr") == ["rl_prompts"]
    assert _offered("tinker metrics demo optim/") == ["optim/entropy"]
    assert "reward" in _offered("tinker metrics demo rew")
    assert _offered("tinker render --renderer llama") == ["llama3"]
    assert _offered("tinker sample --run d") == ["demo"]


def test_offered_renderers_are_the_cookbook_s() -> None:
    import tinker_cookbook.renderers

    source = inspect.getsource(tinker_cookbook.renderers)
    assert set(RENDERERS) <= set(re.findall(r'name == "(\w+)"', source))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_a_screen_with_two_examples_and_the_json_shape(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= SCREEN
    examples = [line.strip() for line in lines if _is_example(line)]
    assert len(examples) >= 2, lines
    assert all(" ".join(words) in example for example in examples)
    if words[-1] not in ("sl", "rl"):  # these two: their shape is in `tinker train --help`
        assert any("json" in line and "{" in "".join(lines) for line in lines)


def _is_example(line: str) -> bool:
    return line.startswith(("  tinker ", "  cat ", "  printf "))
