"""A run directory as the cookbook and the trainer leave it, made in a moment from a seed.

`make_run(folder, kind="rl", steps=300)`; also `python tests/monitor/made_run.py FOLDER [STEPS]`.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

STEP_SECONDS = 31.0


def rl_row(step: int, total: int, chance: random.Random) -> dict[str, Any]:
    """One row of a GRPO run: the keys that the cookbook's synchronous loop writes."""
    t = step / max(total, 1)
    reward = 0.12 + 0.68 * (1 - math.exp(-4 * t)) + chance.gauss(0, 0.03)
    good, bad = max(0.0, 0.5 * reward - 0.1), max(0.0, 0.45 - 0.5 * reward)
    kl = 0.0012 + 0.0015 * t + abs(chance.gauss(0, 0.0004))
    kl = 0.0112 if step == int(0.8 * total) else kl
    seconds = STEP_SECONDS + chance.gauss(0, 2)
    spent = {"sampling": 0.62, "train_step": 0.24, "save_checkpoint": 0.03}
    row = {
        "step": step,
        "progress/batch": step,
        "optim/lr": 4e-5,
        "progress/done_frac": (step + 1) / total,
        "env/all/ac_tokens_per_turn": 180 + 60 * t + chance.gauss(0, 6),
        "env/all/ob_tokens_per_turn": 92.0,
        "env/all/total_episodes": 512,
        "env/all/total_ac_tokens": 108_544 + int(20_000 * t),
        "env/all/total_ob_tokens": 18_000,
        "env/all/reward/total": reward,
        "env/all/format": 1 - 0.06 * math.exp(-6 * t) + 0.0,
        "env/all/correct": reward,
        "env/all/by_group/frac_all_good": good,
        "env/all/by_group/frac_all_bad": bad,
        "env/all/by_group/frac_mixed": 1 - good - bad,
        "optim/kl_sample_train_v1": kl * 0.9 + chance.gauss(0, 0.0002),
        "optim/kl_sample_train_v2": kl,
        "optim/entropy": 0.62 - 0.26 * t + chance.gauss(0, 0.012),
        "tokens/cumulative/trained": 126_544 * (step + 1),
        "cost/step_usd": 0.022,
        "cost/cumulative_usd": 0.022 * (step + 1),
        **{f"time/{name}": share * seconds for name, share in spent.items()},
        "time/total": seconds,
    }
    if step % 20 == 0:
        row["test/env/all/reward/total"] = reward - 0.04 + chance.gauss(0, 0.01)
        row["time/run_evals"] = 0.08 * seconds
    if step == int(0.42 * total):
        row["env/all/reward/total"] = math.nan
    return row


def sl_row(step: int, total: int, chance: random.Random) -> dict[str, Any]:
    """One row of a supervised run."""
    t = step / max(total, 1)
    nll = 1.1 + 1.3 * math.exp(-5 * t) + chance.gauss(0, 0.04)
    row = {
        "step": step,
        "epoch": 0,
        "progress": t,
        "learning_rate": 2.8e-4 * (1 - t),
        "num_tokens": 40_000 + chance.randrange(4000),
        "train_mean_nll": nll,
        "time/get_batch": 0.02,
        "time/finish_batch": 3.4,
        "time/step": 3.6 + chance.gauss(0, 0.1),
        "cost/cumulative_usd": 0.004 * (step + 1),
    }
    if step % 10 == 0:
        row["test/nll"] = nll + 0.05
    return row


def make_run(
    folder: Path,
    *,
    kind: str = "rl",
    steps: int = 300,
    total: int | None = None,
    state: str = "running",
    seed: int = 7,
) -> Path:
    """Fill `folder`; a running run's process is this one, so that it counts as alive."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, total, now = random.Random(seed), total or steps, time.time()
    make = rl_row if kind == "rl" else sl_row
    rows = [make(step, total, chance) for step in range(steps)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pace = STEP_SECONDS if kind == "rl" else 3.6
    started = now - pace * steps
    ended = state in ("finished", "stopped", "failed")
    status = {
        "state": state,
        "pid": os.getpid(),
        "step": steps,
        "total_steps": total,
        "started": started,
        "updated": now,
        "ended": now if ended else None,
        "exit_code": 0 if state == "finished" else 1 if ended else None,
        "reason": None,
        "last_checkpoint": f"{steps // 20 * 20:06d}",
        "last_step_at": now,
        "step_seconds": pace,
    }
    (folder / "status.json").write_text(json.dumps(status))
    described = {
        "id": "0123abcd",
        "kind": kind,
        "name": folder.name,
        "created": started,
        "model": "Qwen/Qwen3-8B",
        "backend": "hosted",
    }
    (folder / "run.json").write_text(json.dumps(described))
    _write_events(folder, steps, started, pace)
    (folder / "trainer.log").write_text("loading\ntinker_cookbook.rl.train: step done\n")
    if kind == "rl":
        _write_rollouts(folder / f"iteration_{max(steps - 1, 0):06d}")
    return folder


def _write_events(folder: Path, steps: int, started: float, pace: float) -> None:
    rows: list[dict[str, Any]] = [{"time": started, "kind": "launched", "step": 0}]
    for step in range(20, steps + 1, 20):
        at = started + pace * step
        rows.append({"time": at, "kind": "checkpoint", "name": f"{step:06d}", "step": step})
    if steps > 88:
        rows.append({"time": started + pace * 88, "kind": "resumed", "step": 88})
    if steps > 200:
        message = "step 240: KL v2 0.0112 > 0.01"
        rows.append(
            {"time": started + pace * 240, "kind": "guard", "step": 240, "message": message}
        )
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    saved = [r for r in rows if r["kind"] == "checkpoint"]
    lines = [
        json.dumps({"name": r["name"], "batch": r["step"], "state_path": f"tinker://x/{r['name']}"})
        for r in saved
    ]
    (folder / "checkpoints.jsonl").write_text("".join(line + "\n" for line in lines))


def _write_rollouts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replies = (
        (1.1, "…so she has 18 - 7 = 11 apples left. \\boxed{11}", 1.0),
        (-0.1, "Let me think about this step by step. First, the total [bold]损失🔥 is", 0.0),
    )
    lines, sections = [], []
    for index, (reward, text, formed) in enumerate(replies):
        step = {"ac_len": 256, "metrics": {"format": formed, "max_tokens_reached": 1 - formed}}
        row = {"group_idx": 0, "traj_idx": index, "total_reward": reward, "steps": [step]}
        lines.append(json.dumps(row))
        said = {"messages": [{"role": "assistant", "content": text}]}
        asked = {"messages": [{"role": "user", "content": "How many apples?"}]}
        cells = [{"tag": "td", "children": [cell]} for cell in ("reward", f"{reward:.3f}")]
        sections += [
            _section("Prompt", [{"tag": "div", "children": [], "data": asked}]),
            _section("Policy Response", [{"tag": "div", "children": [], "data": said}]),
            _section("Reward", cells),
        ]
    tree = {"root": {"tag": "body", "children": [_section("Group Rollout", sections)]}}
    (folder / "train_rollout_summaries.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "train_logtree.json").write_text(json.dumps(tree))


def _section(title: str, children: list[Any]) -> dict[str, Any]:
    heading = {"tag": "h2", "children": [title]}
    return {"tag": "section", "children": [heading, *children]}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    make_run(target, kind=sys.argv[3] if len(sys.argv) > 3 else "rl", steps=count, total=400)
    print(target)
    if len(sys.argv) > 4:  # stay alive, and go on: a row each so many seconds
        every, dice = float(sys.argv[4]), random.Random(1)
        while True:
            time.sleep(every)
            row = rl_row(count, 400, dice)
            with (target / "metrics.jsonl").open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            count += 1
            status = json.loads((target / "status.json").read_text())
            status |= {"step": count, "updated": time.time(), "last_step_at": time.time()}
            (target / "status.new").write_text(json.dumps(status))
            os.replace(target / "status.new", target / "status.json")
