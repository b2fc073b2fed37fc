"""`tinker metrics` and `tinker watch` against other readers of the same values, in one run.

    python benchmarks/metrics.py
    python benchmarks/metrics.py --wandb /tmp/venv/bin/python     and `wandb leet inspect --summary`
    python benchmarks/metrics.py --long                           and a file of 1,000,000 rows

Two files: 50,000 rows x 20 metrics, and 5,000 x 80 (a row of a real RL run). Every side is a
process of its own that reads the file and sums up each metric (first, last, lowest, highest, mean
of the last tenth, slope); its CPU seconds count from its start, imports included, and its peak
memory. The median of `--rounds`. Then the cost of a poll against the length of the file, the CPU
of a dashboard, idle and at 10 rows a second, and how long a row takes to the screen.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SHAPES = ((50_000, 20), (5_000, 80))
SUMMARY_SECONDS, PLOT_SECONDS, MEMORY_MIB = 1.0, 0.8, 150.0
IDLE_PERCENT, BUSY_PERCENT, ON_SCREEN_SECONDS = 2.0, 10.0, 0.5
TINKER = [sys.executable, "-m", "tinker_cli"]

SUM_UP = """
def sum_up(steps, columns):
    import numpy as np
    x = np.asarray(steps, dtype=float)
    for values in columns:
        y = np.asarray(values, dtype=float)
        first, last, low, high = y[0], y[-1], y.min(), y.max()
        tenth = y[-max(len(y) // 10, 1):].mean()
        slope = np.polyfit(x, y, 1)[0]
"""
PANDAS = (
    SUM_UP
    + """
import sys, pandas
frame = pandas.read_json(sys.argv[1], lines=True)
sum_up(frame["step"], [frame[key] for key in frame.columns if key != "step"])
"""
)
COOKBOOK = (
    SUM_UP
    + """
import sys, pathlib
from tinker_cookbook.stores.storage import LocalStorage
from tinker_cookbook.stores.training_store import TrainingRunStore
rows = TrainingRunStore(LocalStorage(pathlib.Path(sys.argv[1]).parent)).read_metrics()
keys = [key for key in rows[0] if key != "step"]
sum_up([row["step"] for row in rows], [[row[key] for row in rows] for key in keys])
"""
)
WANDB = """
import json, os, sys
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=sys.argv[2])
import wandb
run = wandb.init(project="benchmark", settings=wandb.Settings(x_disable_stats=True, console="off"))
for line in open(sys.argv[1]):
    row = json.loads(line)
    run.log(row, step=row.pop("step"))
run.finish()
"""


@dataclass(frozen=True)
class Cost:
    """What a process took: CPU and wall seconds, peak memory in MiB."""

    cpu: float
    wall: float
    memory: float


def main() -> int:
    """Measure, print tables, exit 1 if a budget or a comparison is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wandb", metavar="PYTHON", help="a Python that has wandb")
    parser.add_argument("--long", action="store_true", help="a file of 1,000,000 rows too")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", NO_COLOR="1", PYTHONIOENCODING="utf-8")
    met = []
    with tempfile.TemporaryDirectory() as folder:
        for rows, metrics in SHAPES:
            run = Path(folder) / f"{rows}x{metrics}"
            write_run(run, rows, metrics)
            met += compare(run, options.rounds, options.wandb)
        met += polls(Path(folder))
        met += dashboard(Path(folder) / f"{SHAPES[1][0]}x{SHAPES[1][1]}")
        if options.long:
            run = Path(folder) / "long"
            write_run(run, 1_000_000, 4)
            met += long_file(run)
    return int(not all(met))


def write_run(run: Path, rows: int, metrics: int) -> None:
    """A run directory with rows of random values; `reward` is among the metrics."""
    run.mkdir()
    chance = random.Random(7)
    keys = ["env/all/reward/total", "optim/entropy"]
    keys += [f"env/all/metric_{i:02d}" for i in range(metrics - len(keys))]
    with (run / "metrics.jsonl").open("w") as stream:
        for step in range(rows):
            row = {"step": step, **{key: chance.random() for key in keys}}
            stream.write(json.dumps(row) + "\n")


def cost(argv: list[str]) -> Cost:
    """Run a program to its end; SystemExit with its stderr if it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{argv} failed: {said.decode()[-400:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(cpu, time.perf_counter() - began, usage.ru_maxrss / 1024)


def middle(argv: list[str], rounds: int) -> Cost:
    """The median of each cost."""
    costs = [cost(argv) for _ in range(rounds)]
    return Cost(*(median(getattr(c, name) for c in costs) for name in ("cpu", "wall", "memory")))


def compare(run: Path, rounds: int, wandb: str | None) -> list[bool]:
    """The command and its rivals on one file, the rounds of all interleaved by side."""
    file = str(run / "metrics.jsonl")
    sides: dict[str, list[str]] = {
        "tinker metrics --summary": [*TINKER, "metrics", str(run), "*", "--summary"],
        "tinker metrics reward --plot": [*TINKER, "metrics", str(run), "reward", "--plot"],
        "pandas.read_json": [sys.executable, "-c", PANDAS, file],
        "cookbook's store reader": [sys.executable, "-c", COOKBOOK, file],
    }
    if wandb is not None:
        logs = run / "wandb_logs"
        logs.mkdir()
        subprocess.run([wandb, "-c", WANDB, file, str(logs)], check=True, capture_output=True)
        log = str(next(logs.rglob("*.wandb")))
        cli = str(Path(wandb).parent / "wandb")
        sides["wandb leet inspect --summary"] = [cli, "leet", "inspect", "--summary", log]
    size = (run / "metrics.jsonl").stat().st_size / 1e6
    print(f"\n{run.name.replace('x', ' rows x ')} metrics, {size:.1f} MB")
    print(f"{'':<32}{'CPU s':>8}{'wall s':>8}{'MiB':>8}  {'CPU against the summary':>8}")
    costs = {name: middle(argv, rounds) for name, argv in sides.items()}
    ours, plot, *rivals = costs.values()
    for name, one in costs.items():
        ratio = f"{one.cpu / ours.cpu:.1f}x" if name not in list(costs)[:2] else ""
        print(f"{name:<32}{one.cpu:>8.2f}{one.wall:>8.2f}{one.memory:>8.0f}  {ratio:>8}")
    return [
        verdict("summary", ours.cpu, SUMMARY_SECONDS, "s CPU"),
        verdict("first plot", plot.cpu, PLOT_SECONDS, "s CPU"),
        verdict("memory", max(ours.memory, plot.memory), MEMORY_MIB, "MiB"),
        all(ours.cpu < rival.cpu for rival in rivals),
    ]


def verdict(what: str, value: float, budget: float, unit: str) -> bool:
    """Print a value beside its budget; True if it is met."""
    word = "met" if value <= budget else "MISSED"
    print(f"  {what}: {value:.2f} of {budget:g} {unit}, {word}")
    return value <= budget


def polls(folder: Path) -> list[bool]:
    """Microseconds of a poll that finds one new row, by the rows that were there before."""
    from tinker_cli.runs.metrics import MetricsReader

    print("\na poll that finds one row, by the rows there before")
    found = []
    for rows in (1_000, 10_000, 100_000):
        run = folder / f"poll{rows}"
        write_run(run, rows, 20)
        reader = MetricsReader(run)
        reader.poll()
        line = (run / "metrics.jsonl").read_text().split("\n", 1)[0]
        times = []
        for i in range(200):
            with (run / "metrics.jsonl").open("a") as stream:
                stream.write(line.replace('"step": 0', f'"step": {rows + i}') + "\n")
            began = time.perf_counter()
            reader.poll()
            times.append(1e6 * (time.perf_counter() - began))
        found.append(median(times))
        print(f"  {rows:>9,} rows: {found[-1]:.0f} us")
    return [found[-1] < 3 * found[0]]


def dashboard(run: Path) -> list[bool]:
    """`tinker watch` on a terminal of 120 x 40: idle, then at 10 rows a second."""
    print("\ntinker watch, 120 x 40, a run of 5,000 rows x 80 metrics")
    status = {"state": "running", "pid": os.getpid(), "step": 5000, "total_steps": 9000}
    (run / "status.json").write_text(json.dumps({**status, "started": time.time()}))
    row = json.loads((run / "metrics.jsonl").read_text().split("\n", 1)[0])
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    argv = [*TINKER, "watch", str(run)]
    process = subprocess.Popen(argv, stdin=child, stdout=child, stderr=child)
    os.close(child)
    try:
        listen(parent, 4.0)
        idle = share(process.pid, lambda: listen(parent, 10.0))
        step, delays = 5000, []

        def busy() -> None:
            nonlocal step
            for _ in range(100):
                row.update({"step": step, "env/all/reward/total": round(2 + step / 1e4, 4)})
                with (run / "metrics.jsonl").open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                step += 1
                listen(parent, 0.1)

        percent = share(process.pid, busy)
        for i in range(10):
            listen(parent, 0.7 + random.random() / 3)
            row.update({"step": step, "env/all/reward/total": 3 + 0.11 * (i + 1)})
            with (run / "metrics.jsonl").open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            began, wanted = time.perf_counter(), f"{row['env/all/reward/total']:.3g}"
            listen(parent, 3.0, until=wanted.encode())
            delays.append(time.perf_counter() - began)
            step += 1
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    return [
        verdict("idle", idle, IDLE_PERCENT, "% of a core"),
        verdict("at 10 rows/s", percent, BUSY_PERCENT, "% of a core"),
        verdict("a row to the screen, at most", max(delays), ON_SCREEN_SECONDS, "s"),
    ]


def listen(terminal: int, seconds: float, until: bytes | None = None) -> None:
    """Take what is written on a terminal for so long, or until `until` is on it."""
    end, seen = time.perf_counter() + seconds, b""
    while (left := end - time.perf_counter()) > 0:
        if select.select([terminal], [], [], left)[0]:
            seen += os.read(terminal, 65536)
            if until is not None and until in re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", seen):
                return


def share(pid: int, during: Callable[[], None]) -> float:
    """Percent of a core that a process uses meanwhile."""
    import psutil

    process = psutil.Process(pid)
    before, began = process.cpu_times(), time.perf_counter()
    during()
    after, took = process.cpu_times(), time.perf_counter() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


def long_file(run: Path) -> list[bool]:
    """A million rows: CPU of a summary, a plot, and a row that is followed; and of a tenth."""
    short = run.with_name("short")
    write_run(short, 100_000, 4)
    print("\n1,000,000 rows x 4 metrics, and a tenth of it")
    met = []
    for what in ("--summary", "--plot"):
        whole = cost([*TINKER, "metrics", str(run), what])
        tenth = cost([*TINKER, "metrics", str(short), what])
        print(f"  {what:<10} {whole.cpu:.2f} s, {whole.memory:.0f} MiB; a tenth: {tenth.cpu:.2f} s")
        met.append(whole.cpu < 11 * tenth.cpu)
    first, appended = followed(run)
    first_short, _ = followed(short)
    print(f"  --follow   first line {first:.2f} s, a tenth: {first_short:.2f} s, by the clock")
    met.append(first < 11 * first_short)
    met.append(verdict("a row that is appended is followed within", appended, 0.5, "s"))
    drawn, percent = watched(run)
    print(f"  watch      first frame {drawn:.2f} s by the clock")
    met.append(verdict("watch, idle", percent, IDLE_PERCENT, "% of a core"))
    return met


def followed(run: Path) -> tuple[float, float]:
    """Seconds until `--follow` prints the last row there is, and then until an appended one."""
    began = time.perf_counter()
    argv = [*TINKER, "metrics", str(run), "reward", "--follow", "--last", "1"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        last = process.stdout.readline().split()
        first, delays = time.perf_counter() - began, []
        for step in range(int(last[1]) + 1, int(last[1]) + 6):
            with (run / "metrics.jsonl").open("a") as stream:
                stream.write(json.dumps({"step": step, "env/all/reward/total": 0.5}) + "\n")
            began = time.perf_counter()
            assert process.stdout.readline().split()[1] == str(step).encode()
            delays.append(time.perf_counter() - began)
    finally:
        process.kill()
        process.wait()
    return first, max(delays)


def watched(run: Path) -> tuple[float, float]:
    """Seconds until the dashboard has drawn a curve, and percent of a core when it idles then."""
    status = {"state": "running", "pid": os.getpid(), "step": 1_000_000, "total_steps": 2_000_000}
    (run / "status.json").write_text(json.dumps({**status, "started": time.time()}))
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen([*TINKER, "watch", str(run)], stdin=child, stdout=child)
    os.close(child)
    try:
        listen(parent, 60.0, until=b"entropy")
        drawn = time.perf_counter() - began
        listen(parent, 3.0)
        return drawn, share(process.pid, lambda: listen(parent, 10.0))
    finally:
        process.kill()
        process.wait()
        os.close(parent)


if __name__ == "__main__":
    sys.exit(main())
