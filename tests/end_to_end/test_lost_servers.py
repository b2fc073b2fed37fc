"""A server that goes away under a run, comes back, or refuses the key; and other bad ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.commands.template import folder
from tinker_cli.engine import Engine, start_engine
from tinker_cli.errors import UsageError

SPEC = folder() / "sl_chat.yaml"


def environment(root: Path, key: str, **more: str) -> dict[str, str]:
    names = {"TINKER_COOKBOOK_RUNS_DIR": str(root / "runs"), "TINKER_API_KEY": key}
    return {**os.environ, "OMP_NUM_THREADS": "1", **names, **more}


def launch(root: Path, url: str, key: str, *words: str, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tinker_cli", "train", "sl", str(SPEC), f"base_url={url}"]
    return subprocess.Popen(
        [*command, "eval_every=0", "save_every=2", "--plain", *words],
        env=environment(root, key, **more),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def tinker(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tinker_cli", *words],
        env=environment(root, "tml-none"),
        capture_output=True,
        text=True,
        timeout=120,
    )


def status(root: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((root / "runs/sl_chat/status.json").read_text())
    except (OSError, ValueError):
        return {"step": -1, "state": "none"}
    return found


def wait_until(root: Path, what: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what(status(root)):
        assert time.monotonic() < deadline, status(root)
        time.sleep(0.05)


@contextmanager
def another(store: Path, url: str, key: str | None = None) -> Iterator[Engine]:
    """A new server where the old one was."""
    port = int(url.rsplit(":", 1)[1])
    deadline = time.monotonic() + 60
    while True:
        try:
            with start_engine(threads=1, store=store, port=port, key=key) as engine:
                yield engine
            return
        except UsageError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def killed_under_way(root: Path, **more: str) -> tuple[subprocess.Popen[str], Engine]:
    """A run past its first steps whose server has just been killed."""
    with start_engine(threads=1, store=root / "store") as engine:
        run = launch(root, engine.url, engine.key, **more)
        wait_until(root, lambda now: now["step"] >= 3)
        os.kill(engine.pid, signal.SIGKILL)
    return run, engine


def test_a_server_that_stays_away_ends_the_run_with_4(tmp_path: Path) -> None:
    run, engine = killed_under_way(tmp_path, TINKER_SERVER_PATIENCE="4")
    wait_until(tmp_path, lambda now: now["state"] == "paused")
    assert engine.url in status(tmp_path)["reason"]
    assert run.wait(timeout=120) == 4
    assert run.stderr is not None
    told = run.stderr.read()
    assert "no Tinker server answered" in told
    assert "--resume" in told
    assert tinker(tmp_path, "wait", "sl_chat").returncode == 4
    assert tinker(tmp_path, "stop", "sl_chat").returncode == 4
    events = (tmp_path / "runs/sl_chat/events.jsonl").read_text()
    assert '"paused"' in events


def test_a_server_that_refuses_the_key_under_way_ends_the_run_with_4(tmp_path: Path) -> None:
    run, engine = killed_under_way(tmp_path, TINKER_SERVER_PATIENCE="60")
    with another(tmp_path / "store", engine.url):
        assert run.wait(timeout=180) == 4, status(tmp_path)["reason"]
    assert "refused the key" in status(tmp_path)["reason"]


def test_a_bug_in_the_users_code_ends_the_run_with_1_and_leaves_its_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.py").write_text(
        "from tinker_cookbook.eval.evaluators import SamplingClientEvaluator\n\n\n"
        "class Broken(SamplingClientEvaluator):\n"
        "    async def __call__(self, sampling_client):\n"
        "        raise RuntimeError('the judge is out')\n"
    )
    with start_engine(threads=1, store=tmp_path / "store") as engine:
        words = [f"evaluator_builders=[{tmp_path}/broken.py:Broken]", "eval_every=2"]
        run = launch(tmp_path, engine.url, engine.key, *words)
        assert run.wait(timeout=120) == 1
    assert "the judge is out" in status(tmp_path)["reason"]
    (failed,) = [
        event
        for event in map(json.loads, (tmp_path / "runs/sl_chat/events.jsonl").open())
        if event["kind"] == "failed"
    ]
    assert "Traceback" in failed["traceback"]
    assert tinker(tmp_path, "wait", "sl_chat").returncode == 1
    assert tinker(tmp_path, "stop", "sl_chat").returncode == 1


@pytest.mark.parametrize("command", ["wait", "stop", "watch"])
def test_a_run_that_is_not_there_is_2(command: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert tinker(tmp_path, command, "nothing").returncode == 2
