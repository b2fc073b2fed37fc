"""Many runs at once on one engine: each ends well, and gets the rows that it gets alone.

    python benchmarks/many_runs.py --runs 20

Every run is launched detached on the same server; a dashboard's reader looks at all of them
meanwhile. Prints a line a run; exit code 1 if any run differs from the one that ran alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tinker_cli.engine import start_engine

TEMPLATE = Path(__file__).resolve().parents[1] / "templates" / "sl_chat.yaml"
EXACT = ("step", "train_mean_nll", "learning_rate", "num_tokens", "test/nll")
TOLERANCE = 1e-5  # losses beside others against losses alone


def main() -> int:
    """Launch, wait, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        with start_engine(threads=1, store=root / "store") as engine:
            tinker = Commands(root, engine.url, engine.key, options.steps)
            tinker.train("alone", "--plain")
            alone = tinker.rows("alone")
            started = time.monotonic()
            names = [f"run-{number:02}" for number in range(options.runs)]
            children = [tinker.start(each) for each in names]
            while any(child.poll() is None for child in children):
                tinker.run("ls", "--json")  # a viewer at work all the while
            waited = tinker.run("wait", *names)
            took = time.monotonic() - started
        wrong = 0
        for each in names:
            status = json.loads((root / "runs" / each / "status.json").read_text())
            differs = compare(tinker.rows(each), alone)
            fine = status["state"] == "finished" and not differs
            wrong += not fine
            print(f"{each}  {status['state']}  {differs or 'same'}")
        print(f"{options.runs} runs of {options.steps} steps in {took:.0f} s; {wrong} wrong")
        return int(wrong > 0 or waited.returncode != 0)


class Commands:
    """`tinker` with everything of these runs in one folder."""

    def __init__(self, root: Path, url: str, key: str, steps: int):
        self.root = root
        self._words = [f"base_url={url}", f"max_steps={steps}", "eval_every=3", "save_every=3"]
        self._environment = {
            **os.environ,
            "TINKER_API_KEY": key,
            "TINKER_COOKBOOK_RUNS_DIR": str(root / "runs"),
            "OMP_NUM_THREADS": "1",
        }

    def _train(self, name: str, *words: str) -> list[str]:
        place = f"log_path={self.root / 'runs' / name}"
        command = [sys.executable, "-m", "tinker_cli", "train", "sl", str(TEMPLATE), place]
        return [*command, *self._words, *words]

    def train(self, name: str, *words: str) -> None:
        """Train to the end."""
        subprocess.run(
            self._train(name, *words), env=self._environment, check=True, capture_output=True
        )

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Begin to train."""
        return subprocess.Popen(
            self._train(name, "--plain"),
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Any other command."""
        command = [sys.executable, "-m", "tinker_cli", *words]
        return subprocess.run(command, env=self._environment, capture_output=True, check=False)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A run's metrics."""
        text = (self.root / "runs" / name / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def compare(rows: list[dict[str, Any]], alone: list[dict[str, Any]]) -> str:
    """The first difference in what must be equal, or nothing."""
    if len(rows) != len(alone):
        return f"{len(rows)} rows, not {len(alone)}"
    for row, other in zip(rows, alone, strict=True):
        for key in EXACT:
            if abs((row.get(key) or 0) - (other.get(key) or 0)) > TOLERANCE:
                return f"step {row['step']}: {key} {row.get(key)}, alone {other.get(key)}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
