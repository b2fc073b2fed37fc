"""How fast `tinker render --stats` counts, against the cookbook's renderer in one thread.

    python benchmarks/render.py [CONVERSATIONS]

Makes a file of conversations (100,000 by default: the cookbook's 128 examples and made ones, in
turn), times the cookbook's own `build_supervised_example` over some of them in one thread, then
the command over all. Prints the ratio to that rate times the cores, by the clock and by CPU time
(the second holds on a machine that is busy with other things, and is held against the budget), the
most memory that all the command's processes held at once (shared pages counted once), and how soon
a stream's first object comes after start-up. Exit code 1 if a budget is missed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import psutil
from parity import conversations

CONVERSATIONS = 100_000
SAMPLE = 4_000  # conversations that the one thread renders
RATE_BUDGET = 0.9  # of the one-thread rate times the cores
MEMORY_BUDGET = 600  # MB
FIRST_BUDGET = 0.2  # s, from start-up's end to the first object
TINKER = [sys.executable, "-m", "tinker_cli", "render"]


def one_thread() -> tuple[float, float]:
    """(seconds, CPU seconds) a conversation of the renderer alone; the best of three."""
    from tinker_cookbook.renderers import TrainOnWhat, get_renderer

    from tinker_cli.spec.models import load_tokenizer

    renderer = get_renderer("qwen3_instruct", load_tokenizer("tiny"))
    chats = conversations()
    best = (float("inf"), float("inf"))
    for _ in range(3):
        started, spent = time.perf_counter(), time.process_time()
        for index in range(SAMPLE):
            renderer.build_supervised_example(
                chats[index % len(chats)], train_on_what=TrainOnWhat.ALL_ASSISTANT_MESSAGES
            )
        wall, cpu = time.perf_counter() - started, time.process_time() - spent
        best = min(best[0], wall / SAMPLE), min(best[1], cpu / SAMPLE)
    return best


def write_file(path: Path, count: int) -> None:
    """`count` conversations, one a line."""
    lines = [json.dumps({"messages": chat}) + "\n" for chat in conversations()]
    with path.open("w") as stream:
        for index in range(count):
            stream.write(lines[index % len(lines)])


def command(path: Path) -> tuple[float, float, float]:
    """(seconds, CPU seconds of all processes, most MB) of `tinker render --stats` over the file."""
    started, spent = time.perf_counter(), _children()
    process = subprocess.Popen(
        [*TINKER, str(path), "--model", "tiny", "--stats", "--json"], stdout=subprocess.PIPE
    )
    most = [0.0]
    watching = threading.Thread(target=_watch, args=(process, most), daemon=True)
    watching.start()
    out, _ = process.communicate()
    seconds = time.perf_counter() - started
    counts = json.loads(out)
    assert counts["faulty"] == 0, counts
    return seconds, _children() - spent, most[0]


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(process: subprocess.Popen[bytes], most: list[float]) -> None:
    root = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            family = [root, *root.children(recursive=True)]
            used = sum(each.memory_full_info().pss for each in family) / 1e6
        except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, AttributeError):
            used = 0.0
        most[0] = max(most[0], used)
        time.sleep(0.3)


def first_object(path: Path) -> tuple[float, float]:
    """(start-up, first object) in seconds, the input held open.

    Start-up is the time to the same answer for one row whose input has ended: import, tokenizer
    and renderer. The stream may take no longer than that and a little.
    """
    line = path.open("rb").readline()
    arguments = [*TINKER, "-", "--model", "tiny", "--json"]
    startups, streams = [], []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(arguments, input=line, stdout=subprocess.DEVNULL, check=True)
        startups.append(time.perf_counter() - started)
        started = time.perf_counter()
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line)
            process.stdin.flush()  # and kept open
            process.stdout.readline()
            streams.append(time.perf_counter() - started)
            process.stdin.close()
    return min(startups), min(streams)


def main() -> int:
    """Print the numbers; 1 if a budget is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        path, single = Path(place) / "chats.jsonl", Path(place) / "one.jsonl"
        write_file(path, count)
        write_file(single, 1)
        before = one_thread()
        startup, startup_cpu, _ = command(single)
        seconds, cpu, memory = command(path)
        after = one_thread()
        alone, first = first_object(path)
    wall_each, cpu_each = (min(pair) for pair in zip(before, after, strict=True))
    by_clock = wall_each / cores / ((seconds - startup) / count)
    by_cpu = cpu_each / ((cpu - startup_cpu) / count)
    print(f"one thread      {1e6 * wall_each:>8.0f} us a conversation, {1e6 * cpu_each:.0f} us CPU")
    print(f"--stats         {1e6 * (seconds - startup) / count:>8.0f} us a conversation on {cores} "
          f"cores, {1e6 * (cpu - startup_cpu) / count:.0f} us CPU in all")  # fmt: skip
    print(f"share           {by_cpu:>8.2f} by CPU time (budget {RATE_BUDGET}), "
          f"{by_clock:.2f} by the clock")  # fmt: skip
    print(f"memory          {memory:>8.0f} MB (budget {MEMORY_BUDGET})")
    print(f"first object    {first - alone:>8.2f} s after start-up's {alone:.2f} s "
          f"(budget {FIRST_BUDGET})")  # fmt: skip
    good = by_cpu >= RATE_BUDGET and memory < MEMORY_BUDGET and first - alone < FIRST_BUDGET
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
