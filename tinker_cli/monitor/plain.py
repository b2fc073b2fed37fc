"""A run as lines: one a step on stdout, warnings and the end on stderr. For pipes and logs."""

from __future__ import annotations

import time
from pathlib import Path

from tinker_cli import console
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.runs.names import label

POLL_SECONDS = 0.2
RL_NAMES = ("reward", "test_reward", "kl_v1", "entropy")
SL_NAMES = ("nll", "test_nll", "lr")


def follow_plain(run: Path, *, as_json: bool = False) -> None:
    """Print each step as it comes, until the run has ended. With `as_json`, one object a step."""
    facts = RunFacts(run)
    seen: set[int] = set()
    warned = 0
    while True:
        _print_new(facts, seen, as_json)
        for message in facts.alerts()[warned:]:
            console.say(f"warning: {message}")
            warned += 1
        if facts.has_ended and facts.status is not None:
            facts.refresh()
            _print_new(facts, seen, as_json, last=True)
            return
        time.sleep(POLL_SECONDS)
        facts.refresh()


def _print_new(facts: RunFacts, seen: set[int], as_json: bool, *, last: bool = False) -> None:
    """Rows of steps that are complete: a step may come in several rows, so the newest waits."""
    frame = facts.reader.frame
    done = facts.status.step if facts.status else 0
    for step, row in list(frame.rows()):
        if step in seen or (step >= done and not last):
            continue
        seen.add(step)
        if as_json:
            console.emit_row({"step": step, **row})
        elif line := _line(facts, step, row):
            console.write(line)


def _line(facts: RunFacts, step: int, row: dict[str, float]) -> str:
    parts = []
    for name in RL_NAMES if facts.kind == "rl" else SL_NAMES:
        column = facts.column(name)
        if column is not None and column.key in row:
            parts.append(f"{label(column.key)} {row[column.key]:.4g}")
    if not parts:
        return ""
    seconds = row.get("time/total", row.get("time/step"))
    if seconds is not None:
        parts.append(f"{seconds:.1f} s")
    total = facts.status.total_steps if facts.status else None
    place = f"{step + 1}/{total}" if total else f"{step + 1}"
    return f"step {place}  " + "  ".join(parts)
