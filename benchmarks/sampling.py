"""How fast `tinker sample - --json` answers, against a plain SDK script on the same engine.

    python benchmarks/sampling.py [PROMPTS]

Starts one engine of the built-in model and asks it the same prompts (1,000 by default) three
times each by a script that keeps as many requests in flight with the SDK's own client, and by the
command; in turn, so that both meet the same machine. Prints the rates from a process's start to
its end and from the first answer to the last, and their ratios; the ratio of the best whole runs
is held against the budget. Exit code 1 if it is missed, or if answers are missing or out of order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tinker_cli.engine import start_engine
from tinker_cli.sampling.ask import IN_FLIGHT

PROMPTS = 1000
ROUNDS = 3
MAX_TOKENS = 32
RATE_BUDGET = 0.9  # of the script's rate
SCRIPT = """
import asyncio, json, os, sys
import tinker
from tinker_cookbook.renderers import get_renderer
from transformers import AutoTokenizer
folder, url, in_flight, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    tokenizer = AutoTokenizer.from_pretrained(folder)
    renderer = get_renderer("qwen3_instruct", tokenizer)
    client = await tinker.ServiceClient(base_url=url).create_sampling_client(base_model="tiny")
    params = tinker.SamplingParams(max_tokens=most, stop=renderer.get_stop_sequences())
    gate = asyncio.Semaphore(in_flight)

    async def ask(line):
        row = json.loads(line)
        prompt = renderer.build_generation_prompt([{"role": "user", "content": row["prompt"]}])
        async with gate:
            got = await client.sample(prompt, 1, params)
        tokens = list(got.sequences[0].tokens)
        print(json.dumps({"id": row["id"], "tokens": tokens, "text": tokenizer.decode(tokens)}),
              flush=True)

    await asyncio.gather(*map(ask, sys.stdin))

asyncio.run(main())
"""


@dataclass(frozen=True)
class Timed:
    """Answers a second: of the whole process, and between its first and its last answer."""

    whole: float
    flow: float
    ids: list[int]


def timed(command: list[str], prompts: Path, key: str) -> Timed:
    """Run a command on the prompts."""
    started = time.perf_counter()
    with prompts.open("rb") as stdin:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            env={**os.environ, "TINKER_API_KEY": key, "TINKER_TELEMETRY": "0"},
        )
    assert process.stdout is not None
    first, ids = 0.0, []
    for line in process.stdout:
        first = first or time.perf_counter()
        ids.append(json.loads(line)["id"])
    last = time.perf_counter()
    if process.wait() != 0:
        raise SystemExit(f"{command[:4]} failed")
    whole = time.perf_counter() - started
    return Timed(len(ids) / whole, len(ids) / (last - first), ids)


def main() -> int:
    """Run the rounds, print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PROMPTS
    from tinker_cli import tiny

    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder, start_engine(store=Path(folder)) as engine:
        prompts = Path(folder) / "prompts.jsonl"
        rows = [{"prompt": f"What is {n % 97} + {n % 89}?", "id": n} for n in range(count)]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        script = [sys.executable, "-c", SCRIPT, str(tiny.FOLDER), engine.url]
        script += [str(IN_FLIGHT), str(MAX_TOKENS)]
        ours = [sys.executable, "-m", "tinker_cli", "sample", "-", "--model", "tiny", "--json"]
        ours += ["--base-url", engine.url, "--max-tokens", str(MAX_TOKENS)]
        theirs_timed, ours_timed = [], []
        for _ in range(ROUNDS):
            theirs_timed.append(timed(script, prompts, engine.key))
            ours_timed.append(timed(ours, prompts, engine.key))
    kept = all(one.ids == list(range(count)) for one in ours_timed)
    print(f"{count} prompts, {IN_FLIGHT} in flight, at most {MAX_TOKENS} tokens; best of {ROUNDS}")
    print(f"{'':<22}{'script':>10}{'command':>10}{'ratio':>8}")
    ratios = []
    for name in ("whole", "flow"):
        theirs = max(getattr(one, name) for one in theirs_timed)
        mine = max(getattr(one, name) for one in ours_timed)
        ratios.append(mine / theirs)
        label = "answers/s, " + {"whole": "process", "flow": "flowing"}[name]
        print(f"{label:<22}{theirs:>10.1f}{mine:>10.1f}{mine / theirs:>8.2f}")
    print(f"order kept: {'yes' if kept else 'NO'}; budget {RATE_BUDGET} of the script's process")
    return 0 if kept and ratios[0] >= RATE_BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
