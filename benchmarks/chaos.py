"""Kill runs at random moments, resume them, and compare with one that was never interrupted.

    python benchmarks/chaos.py                       25 runs of each kind, the full table
    python benchmarks/chaos.py --runs 3 --kinds sl   a short one

Each run is launched with `tinker train`, and killed with SIGKILL (its trainer, its engine, or both)
after a random time; then it is resumed, killed again up to two more times, and resumed to its end.
Rows (times aside) and the bytes of the final weights must equal those of the uninterrupted run.
Exit code 1 if any run differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

KINDS = ("sl", "rl", "stream")
TARGETS = ("trainer", "engine", "both")
EARLY_KILLS = 0.15  # share of kills at a moment after the launch, whatever the run does then
LAUNCH_SECONDS = 240.0  # a launch that takes longer is stuck

COMMON = """\
model_name: tiny
base_url: local
local: {threads: 1}
lora_rank: 4
save_every: 2
"""
SPECS = {
    "sl": COMMON
    + """\
learning_rate: 1e-3
num_epochs: 2
eval_every: 4
dataset_builder:
  {type: conversations, file_path: chats.jsonl, batch_size: 8, max_length: 64, test_size: 8}
""",
    "rl": COMMON
    + """\
learning_rate: 1e-3
max_tokens: 8
max_steps: 8
eval_every: 0
dataset_builder: {type: arithmetic, batch_size: 4, group_size: 4, n_batches: 8}
""",
}
SPECS["stream"] = (
    SPECS["rl"] + "stream_minibatch_config: {groups_per_batch: 4, num_minibatches: 2}\n"
)


@dataclass
class Outcome:
    """What came of one run: `kills` says what was killed and after which step."""

    kind: str
    number: int
    kills: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """Rows without times, and a fingerprint of the final weights."""

    rows: list[dict[str, Any]]
    weights: str


class Field:
    """A folder with specs, data, a runs root and an engine store of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.root = folder / "runs"
        self.root.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "messages": [
                    {"role": "user", "content": f"What is {n} + {n + 3}?"},
                    {"role": "assistant", "content": f"It is {2 * n + 3}."},
                ]
            }
            for n in range(48)
        ]
        (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for kind, text in SPECS.items():
            (folder / f"{kind}.yaml").write_text(text)
        self.environment = {
            **os.environ,
            "TINKER_COOKBOOK_RUNS_DIR": str(self.root),
            "TINKER_ENGINE_STORE": str(folder / "store"),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
        }

    def command(self, kind: str, name: str, *options: str) -> list[str]:
        """The command line that launches run `name` of `kind`."""
        train = "sl" if kind == "sl" else "rl"
        spec, path = str(self.folder / f"{kind}.yaml"), f"log_path={self.root / name}"
        return [sys.executable, "-m", "tinker_cli", "train", train, spec, path, *options]

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LAUNCH_SECONDS,
            check=False,
        )

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Run a command beside this process."""
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def result(self, name: str) -> Result:
        """Read what a finished run left."""
        run = self.root / name
        lines = (run / "metrics.jsonl").read_text().splitlines()
        rows = [_timeless(json.loads(line)) for line in lines]
        last = json.loads((run / "checkpoints.jsonl").read_text().splitlines()[-1])
        folder = self.folder / "store" / last["state_path"].removeprefix("tinker://")
        digest = hashlib.sha256()
        for file in sorted(folder.glob("*.safetensors")):
            digest.update(file.name.encode() + file.read_bytes())
        return Result(rows, digest.hexdigest())


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times; NaN compares equal to itself as text."""
    return {
        key: repr(value)
        for key, value in row.items()
        if "time/" not in key and not key.endswith("_seconds")
    }


def interrupted_run(
    field_: Field, kind: str, number: int, whole: Result, *, longest: float, rng: random.Random
) -> Outcome:
    """Launch, kill and resume one run; compare it with `whole`."""
    outcome = Outcome(kind, number)
    name = f"{kind}-{number}"
    resume: list[str] = []
    for _ in range(rng.randint(1, 3)):
        process = field_.start(field_.command(kind, name, "--plain", *resume))
        _wait_for_a_moment(field_.root / name, process, longest, rng)
        outcome.kills.append(_kill(field_.root / name, process, rng.choice(TARGETS)))
        _settle(process)
        resume = ["--resume"] if (field_.root / name / "run.json").exists() else ["--overwrite"]
    done = field_.run(field_.command(kind, name, "--plain", *resume))
    if done.returncode != 0:
        outcome.faults.append(f"resume ended with {done.returncode}: {done.stderr[-300:]}")
        return outcome
    result = field_.result(name)
    outcome.faults += compare(result, whole)
    return outcome


def _wait_for_a_moment(
    run: Path, launcher: subprocess.Popen[str], longest: float, rng: random.Random
) -> None:
    """Wait for a random moment: sometimes of the launch, mostly of the training itself."""
    if rng.random() < EARLY_KILLS:
        time.sleep(rng.uniform(0.0, longest))
        return
    while launcher.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            status = json.loads((run / "status.json").read_text())
            if status["state"] == "running" and psutil.pid_exists(status["pid"]):
                break
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(timeout=rng.uniform(0.0, longest))


def compare(result: Result, whole: Result) -> list[str]:
    """What differs between two results, in words."""
    faults = []
    steps, expected = ([row.get("step") for row in each.rows] for each in (result, whole))
    if steps != expected:
        faults.append(f"steps {steps} instead of {expected}")
    for row, other in zip(result.rows, whole.rows, strict=False):
        keys = [key for key in {*row, *other} if row.get(key) != other.get(key)]
        if keys and steps == expected:
            faults.append(f"step {row.get('step')}: {sorted(keys)[:4]} differ")
    if result.weights != whole.weights:
        faults.append("final weights differ")
    return faults


def _kill(run: Path, launcher: subprocess.Popen[str], target: str) -> str:
    """Kill the trainer, its engine, or both; whatever of them is there yet."""
    try:
        status = json.loads((run / "status.json").read_text())
        trainer = psutil.Process(status["pid"])
        engines = trainer.children(recursive=True)
    except (OSError, ValueError, psutil.Error):
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(launcher.pid).children(recursive=True):
                process.kill()
        return "before the run began"
    victims = {"trainer": [trainer], "engine": engines, "both": [trainer, *engines]}[target]
    for process in victims:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    return f"{target} at step {status['step']}"


def _settle(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(timeout=LAUNCH_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def storm(folder: Path, kinds: list[str], runs: int, seed: int) -> list[Outcome]:
    """Run the whole storm in `folder` and return every outcome."""
    rng = random.Random(seed)
    place = Field(folder)
    outcomes = []
    for kind in kinds:
        done = place.run(place.command(kind, f"{kind}-whole", "--plain"))
        if done.returncode != 0:
            raise SystemExit(f"the uninterrupted {kind} run failed: {done.stderr}")
        status = json.loads((place.root / f"{kind}-whole" / "status.json").read_text())
        longest = float(status["ended"] - status["started"])
        whole = place.result(f"{kind}-whole")
        for number in range(runs):
            outcome = interrupted_run(place, kind, number, whole, longest=longest, rng=rng)
            outcomes.append(outcome)
            words = "same" if not outcome.faults else "; ".join(outcome.faults)
            print(f"{kind:7} {number:3}  {words:8}  {', '.join(outcome.kills)}", flush=True)
    return outcomes


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        outcomes = storm(Path(folder), options.kinds, options.runs, options.seed)
    kills = sum(len(outcome.kills) for outcome in outcomes)
    bad = [outcome for outcome in outcomes if outcome.faults]
    print(f"\n{len(outcomes)} runs, {kills} kills, {len(bad)} that differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
