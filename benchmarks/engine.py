"""The embedded engine against plain torch and transformers, in one run, as ratios.

    python benchmarks/engine.py                       the built-in model
    python benchmarks/engine.py --model ./SmolLM2     and a model's folder
    python benchmarks/engine.py --rounds 2            fewer repetitions

For each model: one supervised step through the SDK and HTTP against a bare torch LoRA loop of the
same shape; 64 rows of 64 tokens through the SDK against `transformers.generate`; peak memory of the
two; CPU of the server for an empty request and when idle. Each side runs in a process of its own,
and counts at its better number of threads. The sides take turns, and the best of each side's turns
counts, since a machine may be slower for minutes. Lower is better for step and memory, higher for
tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROWS, NEW_TOKENS, PROMPT_TOKENS = 64, 64, 32
BATCH, LENGTH, RANK = 16, 128, 16
RATE = 1e-4
REQUESTS = 200
THREADS = (1, 2)
TARGETS = {"step": 1.3, "sampling": {"tiny": 2.0, "other": 1.5}, "memory": 1.3, "request_ms": 5.0}


def main() -> int:
    """Measure, print a table, exit 1 if a ratio misses its target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", action="append", default=[], help="a model's folder; repeatable")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3, help="of each side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--bare", nargs=3, help=argparse.SUPPRESS, metavar=("KIND", "MODEL", "THREADS")
    )
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TINKER_TELEMETRY="0", OMP_WAIT_POLICY="passive")
    if options.bare:
        kind, model, threads = options.bare
        print(json.dumps(BARE[kind](model, int(threads), options.rounds)))
        return 0
    missed = False
    for model in ["tiny", *options.model]:
        rows = measure(model, options.rounds, options.turns)
        missed |= any(not row["met"] for row in rows)
        if options.json:
            print(json.dumps({"model": model, "rows": rows}))
        else:
            show(model, rows)
    return int(missed)


def measure(model: str, rounds: int, turns: int) -> list[dict[str, Any]]:
    """Every row of one model's table."""
    steps, samples, ours = [], [], []
    for _ in range(turns):
        for threads in THREADS:
            steps.append(bare("step", model, threads, rounds))
            samples.append(bare("sample", model, threads, rounds))
            ours.append(engine(model, threads, rounds))
    bare_step, bare_sample = best(steps, "seconds"), best(samples, "seconds")
    step, sample = best(ours, "step"), best(ours, "sample")
    target = TARGETS["sampling"]["tiny" if model == "tiny" else "other"]
    tokens = ROWS * NEW_TOKENS
    request = min(each["request_ms"] for each in ours)
    return [
        row(
            f"SL step, {BATCH} x {LENGTH} tokens, rank {RANK}",
            f"{1000 * step['step']:.0f} ms ({step['threads']} thr)",
            f"{1000 * bare_step['seconds']:.0f} ms ({bare_step['threads']} thr)",
            step["step"] / bare_step["seconds"],
            most=TARGETS["step"],
        ),
        row(
            f"sampling, {ROWS} x {NEW_TOKENS} tokens",
            f"{tokens / sample['sample']:.0f} tokens/s ({sample['threads']} thr)",
            f"{tokens / bare_sample['seconds']:.0f} tokens/s ({bare_sample['threads']} thr)",
            bare_sample["seconds"] / sample["sample"],
            least=target,
        ),
        row(
            "peak memory of the step",
            f"{step['memory_mb']:.0f} MB",
            f"{bare_step['memory_mb']:.0f} MB",
            step["memory_mb"] / bare_step["memory_mb"],
            most=TARGETS["memory"],
        ),
        row(
            "server CPU of an empty request", f"{request:.1f} ms", "", request, most=5.0, unit="ms"
        ),
        row(
            "CPU when idle",
            f"{100 * ours[0]['idle']:.1f} %",
            "",
            100 * ours[0]["idle"],
            most=2.0,
            unit="%",
        ),
    ]


def row(
    what: str,
    ours: str,
    theirs: str,
    value: float,
    *,
    most: float | None = None,
    least: float | None = None,
    unit: str = "x",
) -> dict[str, Any]:
    met = value <= most if most is not None else least is not None and value >= least
    bound = f"<= {most:g}" if most is not None else f">= {least:g}"
    return {
        "what": what,
        "engine": ours,
        "bare": theirs,
        "value": f"{value:.2f} {unit}",
        "target": bound,
        "met": met,
    }


def show(model: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{Path(model).name}")
    keys = ("what", "engine", "bare", "value", "target")
    table = [keys, *(tuple(each[key] for key in keys) for each in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(keys))]
    for number, line in enumerate(table):
        mark = "" if number == 0 or rows[number - 1]["met"] else "  MISSED"
        print("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + mark)


def best(results: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return min(results, key=lambda each: float(each[key]))


def bare(kind: str, model: str, threads: int, rounds: int) -> dict[str, Any]:
    """Run a bare measurement in a process of its own."""
    command = [sys.executable, __file__, "--rounds", str(rounds)]
    command += ["--bare", kind, model, str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout.splitlines()[-1]), "threads": threads}


def folder(model: str) -> str:
    from tinker_cli import tiny

    return str(tiny.FOLDER) if model == "tiny" else model


def timed(work: Callable[[], object], rounds: int) -> float:
    """Median seconds, after one call to warm up."""
    work()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def tokens_of(row: int, count: int) -> list[int]:
    return [(row * 7 + 3 * i) % 1500 + 100 for i in range(count)]


def bare_step(model: str, threads: int, rounds: int) -> dict[str, Any]:
    """A LoRA loop as one writes it: side branches on every linear layer, AdamW, cross-entropy."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)

    class Branch(nn.Module):
        def __init__(self, base: nn.Linear):
            super().__init__()
            self.base = base
            self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
            self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

        def forward(self, x: Any) -> Any:
            return self.base(x) + F.linear(F.linear(x, self.a), self.b) * (32 / RANK)

    network = AutoModelForCausalLM.from_pretrained(folder(model), dtype=torch.float32)
    network.requires_grad_(False)
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Linear):
            parent = network.get_submodule(name.rpartition(".")[0]) if "." in name else network
            setattr(parent, name.rpartition(".")[2], Branch(module))
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE)
    whole = torch.tensor([tokens_of(i, LENGTH + 1) for i in range(BATCH)])

    def step() -> None:
        logits = network(input_ids=whole[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), whole[:, 1:].flatten(), reduction="sum")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"seconds": timed(step, rounds), "memory_mb": peak_mb(os.getpid())}


def bare_sample(model: str, threads: int, rounds: int) -> dict[str, Any]:
    """`transformers.generate` of the whole batch at once."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    network = AutoModelForCausalLM.from_pretrained(folder(model), dtype=torch.float32)
    prompts = torch.tensor([tokens_of(i, PROMPT_TOKENS) for i in range(ROWS)])

    def sample() -> None:
        out = network.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            top_k=0,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=0,
        )
        assert out.shape[1] == PROMPT_TOKENS + NEW_TOKENS

    with torch.inference_mode():
        return {"seconds": timed(sample, rounds), "memory_mb": peak_mb(os.getpid())}


BARE: dict[str, Any] = {"step": bare_step, "sample": bare_sample}


def engine(model: str, threads: int, rounds: int) -> dict[str, Any]:
    """The same work through the SDK and HTTP, on an engine in its own process."""
    import numpy as np
    import psutil
    import tinker
    from tinker import types

    from tinker_cli.engine import start_engine

    with (
        tempfile.TemporaryDirectory() as store,
        start_engine(model=model, threads=threads, store=Path(store)) as running,
    ):
        os.environ["TINKER_API_KEY"] = running.key
        process = psutil.Process(running.pid)
        service = tinker.ServiceClient(base_url=running.url)
        trainer = service.create_lora_training_client(base_model=model, rank=RANK).result()
        data = []
        for i in range(BATCH):
            ids = tokens_of(i, LENGTH + 1)
            inputs = {
                "target_tokens": np.array(ids[1:]),
                "weights": np.ones(LENGTH, np.float32),
            }
            data.append(
                types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)
            )

        def step() -> None:
            forward = trainer.forward_backward(data, "cross_entropy")
            update = trainer.optim_step(types.AdamParams(learning_rate=RATE))
            forward.result()
            update.result()

        seconds = timed(step, rounds)
        memory = peak_mb(running.pid)
        sampler = trainer.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=NEW_TOKENS, stop=[])
        prompts = [types.ModelInput.from_ints(tokens_of(i, PROMPT_TOKENS)) for i in range(ROWS)]

        def sample() -> None:
            for future in [sampler.sample(prompt, 1, params) for prompt in prompts]:
                assert len(future.result().sequences[0].tokens) == NEW_TOKENS

        drawn = timed(sample, rounds)
        before = cpu(process)
        rest = tinker.RestClient(base_url=running.url)
        for _ in range(REQUESTS):
            rest.get_sampler(sampler._sampling_session_id).result()
        request = 1000 * (cpu(process) - before) / REQUESTS
        before = cpu(process)
        time.sleep(3)
        idle = (cpu(process) - before) / 3
        service.close("success").result()
    return {
        "threads": threads,
        "step": seconds,
        "memory_mb": memory,
        "sample": drawn,
        "request_ms": request,
        "idle": idle,
    }


def cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def peak_mb(pid: int) -> float:
    """Largest resident size so far, from the kernel's own count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    sys.exit(main())
