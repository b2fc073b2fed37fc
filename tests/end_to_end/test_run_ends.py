"""Real runs through the command line, to each of their ends: one test a row of docs/exit-codes.md.

The runs train the built-in model on the embedded engine with one thread.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest


@pytest.fixture(scope="module")
def whole(place: Any) -> Any:
    """The supervised run that was never interrupted."""
    done = place.run(place.command("sl", "whole", "--plain"))
    assert done.returncode == 0, done.stderr
    return done


def tinker(place: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return place.run([sys.executable, "-m", "tinker_cli", *arguments])


def status(place: Any, name: str) -> dict[str, Any]:
    return json.loads((place.root / name / "status.json").read_text())


def wait_for_step(place: Any, name: str, step: int) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            found = status(place, name)
        except (OSError, ValueError):
            found = {"step": -1}
        if found["step"] >= step:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{name} did not reach step {step}")


def test_finished_run_exits_with_0_and_leaves_a_whole_directory(place: Any, whole: Any) -> None:
    run = place.root / "whole"
    assert status(place, "whole")["state"] == "finished"
    assert tinker(place, "wait", "whole").returncode == 0
    assert tinker(place, "stop", "whole").returncode == 0
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open()]
    assert steps == list(range(10))
    for name in ("spec.yaml", "run.json", "events.jsonl", "trainer.log", "config.json"):
        assert (run / name).exists()
    assert "Traceback" not in whole.stderr + whole.stdout
    for file in run.rglob("*"):  # no secret in any file
        if file.is_file():
            assert re.search(rb"tml-[\w-]{8,}", file.read_bytes()) is None, file


def test_stopped_run_exits_with_130_and_resumes_exactly(place: Any, whole: Any, chaos: Any) -> None:
    launched = tinker(place, *place.command("sl", "stopped", "--detach")[3:])
    assert launched.returncode == 0, launched.stderr
    assert tinker(place, "stop", "stopped").returncode == 0
    assert status(place, "stopped")["state"] == "stopped"
    assert tinker(place, "wait", "stopped").returncode == 130
    resumed = place.run(place.command("sl", "stopped", "--plain", "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming at step" in resumed.stderr
    assert chaos.compare(place.result("stopped"), place.result("whole")) == []


def test_killed_run_is_crashed_and_resumes_exactly(place: Any, whole: Any, chaos: Any) -> None:
    process = place.start(place.command("sl", "killed", "--plain"))
    os.kill(wait_for_step(place, "killed", 5)["pid"], signal.SIGKILL)
    assert process.wait(timeout=60) == 1
    assert tinker(place, "wait", "killed").returncode == 1
    assert tinker(place, "stop", "killed").returncode == 1
    listed = json.loads(tinker(place, "ls", "--json").stdout)
    assert {each["name"]: each["state"] for each in listed}["killed"] == "crashed"
    resumed = place.run(place.command("sl", "killed", "--plain", "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert chaos.compare(place.result("killed"), place.result("whole")) == []


def test_run_whose_engine_is_killed_fails_with_1(place: Any) -> None:
    process = place.start(place.command("sl", "orphan", "--plain"))
    trainer = psutil.Process(wait_for_step(place, "orphan", 1)["pid"])
    for engine in trainer.children(recursive=True):
        engine.kill()
    assert process.wait(timeout=60) == 1
    ended = status(place, "orphan")
    assert ended["state"] == "failed"
    assert "the local engine ended" in ended["reason"]
    assert tinker(place, "wait", "orphan").returncode == 1


def test_guard_stops_with_3(place: Any) -> None:
    guard = 'guards=[{when: "train_mean_nll > 0", for: 2, do: stop}]'
    done = place.run(place.command("sl", "guarded", "--plain", guard))
    assert done.returncode == 3, done.stderr
    assert "train_mean_nll > 0" in status(place, "guarded")["reason"]
    assert status(place, "guarded")["last_checkpoint"]
    assert tinker(place, "wait", "guarded").returncode == 3
    assert tinker(place, "stop", "guarded").returncode == 0


def test_existing_directory_is_left_alone_with_2(place: Any, whole: Any) -> None:
    before = sorted((place.root / "whole").iterdir())
    done = place.run(place.command("sl", "whole", "--plain"))
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert sorted((place.root / "whole").iterdir()) == before


def test_no_key_no_server_and_bad_key_exit_with_4_and_make_nothing(place: Any) -> None:
    hosted = place.command("sl", "hosted", "--plain", "base_url=http://127.0.0.1:9")
    for key, words in ((None, "TINKER_API_KEY"), ("sk-1", "tml-"), ("tml-1", "no Tinker server")):
        environment = {k: v for k, v in place.environment.items() if k != "TINKER_API_KEY"}
        environment |= {"TINKER_API_KEY": key} if key else {}
        done = subprocess.run(
            hosted, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 4, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (place.root / "hosted").exists()


def test_faults_of_a_spec_exit_with_2_and_make_nothing(place: Any) -> None:
    command = place.command("sl", "faulty", "--plain", "learning_rat=1", "num_epochs=x")
    done = place.run(command)
    assert done.returncode == 2
    assert "learning_rate" in done.stderr
    assert "num_epochs" in done.stderr
    as_json = place.run([*command, "--json"])
    assert len(json.loads(as_json.stderr)["faults"]) >= 2
    missing = tinker(place, "train", "sl", "nowhere.yaml")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert not (place.root / "faulty").exists()


def test_second_trainer_on_a_directory_is_refused(place: Any) -> None:
    process = place.start(place.command("sl", "shared", "--plain"))
    wait_for_step(place, "shared", 1)
    second = place.run(place.command("sl", "shared", "--plain", "--resume"))
    assert process.wait(timeout=120) == 0
    if "complete already" not in second.stderr:  # the first had not ended by then
        assert second.returncode == 2
        assert "already at work" in second.stderr


@pytest.mark.parametrize("kind", ["sl", "rl", "stream"])
def test_short_storm(tmp_path: Path, kind: str, chaos: Any) -> None:
    (outcome,) = chaos.storm(tmp_path, [kind], 1, seed=3)
    assert outcome.faults == []
