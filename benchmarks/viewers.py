"""What a dashboard costs the run that it looks at: step times with and without one, in turn.

    python benchmarks/viewers.py
    python benchmarks/viewers.py --windows 60 --steps 8

One RL run with the built-in model; in every other window of steps `tinker watch` is attached, on a
terminal of 120 x 40. It attaches before its window, so that the start of a program isn't counted
as its cost. Each window is set against the mean of its two neighbours, which drift alike; printed
is the mean of these ratios with its standard error, and the CPU that the viewer took meanwhile.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

TINKER = [sys.executable, "-m", "tinker_cli"]
SPEC = """\
kind: rl
model_name: tiny
base_url: local
local: {threads: 1}
dataset_builder: {type: arithmetic, batch_size: 4, group_size: 8, n_batches: 100000}
learning_rate: 1e-5
max_tokens: 8
lora_rank: 8
save_every: 0
eval_every: 0
"""
BUDGET_PERCENT = 1.0
SETTLED_SECONDS = 3.0  # from a viewer's start to the first step that counts


def main() -> int:
    """Measure, print, exit 1 if the cost is above the budget by more than its own error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=41)
    parser.add_argument("--steps", type=int, default=10, help="a window")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        (Path(folder) / "spec.yaml").write_text(SPEC)
        argv = [*TINKER, "train", "rl", f"{folder}/spec.yaml", f"log_path={run}", "--detach"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        try:
            times, percent = measure(run, options.windows, options.steps)
        finally:
            subprocess.run([*TINKER, "stop", str(run), "--now"], check=False, capture_output=True)
    alone, watched = times[::2], times[1::2]
    ratios = [
        seen / ((before + after) / 2)
        for before, seen, after in zip(alone, watched, alone[1:], strict=False)
    ]
    cost = 100 * (statistics.mean(ratios) - 1)
    error = 100 * statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"a step alone   {1e3 * statistics.mean(alone):.0f} ms")
    print(f"a step watched {1e3 * statistics.mean(watched):.0f} ms")
    print(f"the viewer     {percent:.2f} % of a core")
    print(f"cost           {cost:+.2f} % of a step, standard error {error:.2f} %")
    met = cost - 2 * error <= BUDGET_PERCENT
    print(f"               at most {BUDGET_PERCENT:g} %: {'met' if met else 'MISSED'}")
    return int(not met)


def measure(run: Path, windows: int, steps: int) -> tuple[list[float], float]:
    """(seconds a step of each window, percent of a core of the viewers); the odd are watched."""
    times, shares = [], []
    for window in range(windows):
        if window % 2 == 0:
            times.append(seconds_a_step(run, steps))
            continue
        with viewer(run) as process:
            time.sleep(SETTLED_SECONDS)
            before, began = process.cpu_times(), time.perf_counter()
            times.append(seconds_a_step(run, steps))
            after, took = process.cpu_times(), time.perf_counter() - began
            shares.append((after.user + after.system - before.user - before.system) / took)
    return times, 100 * statistics.mean(shares)


def seconds_a_step(run: Path, steps: int) -> float:
    """The mean `time/total` of the next so many steps, the one that is under way left out."""
    path = run / "metrics.jsonl"
    while not path.exists():
        time.sleep(0.05)
    lines = path.read_bytes().count(b"\n")
    while path.read_bytes().count(b"\n") < lines + 1 + steps:
        time.sleep(0.05)
    rows = path.read_text().split("\n")[lines + 1 : lines + 1 + steps]
    return statistics.mean(json.loads(row)["time/total"] for row in rows)


@contextmanager
def viewer(run: Path) -> Iterator[psutil.Process]:
    """`tinker watch` on a terminal whose output is read and thrown away."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen([*TINKER, "watch", str(run)], stdin=child, stdout=child)
    os.close(child)
    ended = threading.Event()

    def read() -> None:
        with suppress(OSError):  # the viewer has closed it
            while not ended.is_set():
                if select.select([parent], [], [], 0.2)[0]:
                    os.read(parent, 65536)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
        ended.set()
        reading.join()
        os.close(parent)


if __name__ == "__main__":
    sys.exit(main())
