"""A run as lines: one a step on stdout, warnings and the end on stderr. For pipes and logs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tinker_cli import console
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.strips import one_line
from tinker_cli.runs.derived import step_seconds, tokens_a_second
from tinker_cli.runs.names import label

POLL_SECONDS = 0.2
LONELY_SECONDS = 900.0  # a run without status.json that hasn't been written for so long has ended
RL_NAMES = ("reward", "test_reward", "kl_v2", "entropy")
SL_NAMES = ("nll", "test_nll")


def follow_plain(run: Path, *, as_json: bool = False) -> None:
    """Print each step as it comes, until the run has ended. With `as_json`, one object a step."""
    facts = RunFacts(run)
    seen: set[int] = set()
    warned, state = 0, ""
    while True:
        ended = _is_over(facts)
        _print_new(facts, seen, as_json, last=ended)
        for message in facts.alerts()[warned:]:
            console.say(f"warning: {one_line(message)}")
            warned += 1
        if facts.state != state and facts.state in ("paused", "stalled", "stopping"):
            note = f": {one_line(facts.note)}" if facts.note else ""
            console.say(f"{run.name} is {facts.state}{note}")
        state = facts.state
        if ended:
            if facts.state not in ("finished", "unknown"):
                note = f": {one_line(facts.note)}" if facts.note else ""
                console.say(f"{run.name} {facts.state}{note}")
            return
        time.sleep(POLL_SECONDS)
        facts.refresh()


def _is_over(facts: RunFacts) -> bool:
    """True if nothing more will come; all that there is has been read."""
    if facts.status is not None:
        if facts.has_ended:
            facts.refresh()  # rows written between the last look and the end
            facts.reader.settled()
        return facts.has_ended
    try:
        written = facts.reader.path.stat().st_mtime
    except OSError:
        return False
    return time.time() - written > LONELY_SECONDS


def _print_new(facts: RunFacts, seen: set[int], as_json: bool, *, last: bool) -> None:
    """Rows of steps that are complete: a step may come in several rows, so the newest waits."""
    frame = facts.reader.frame
    done = facts.status.step if facts.status else 0
    if len(seen) == len(frame):
        return
    for step in [frame.steps[i] for i in frame.order()]:
        if step in seen or (step >= done and not last):
            continue
        seen.add(step)
        row = frame.row(step)
        if as_json:
            console.emit_row({"step": step, **row})
        elif line := _line(facts, step, row):
            console.write(line)
    sys.stdout.flush()


def _line(facts: RunFacts, step: int, row: dict[str, float]) -> str:
    parts = []
    for name in RL_NAMES if facts.kind == "rl" else SL_NAMES:
        key = facts.key(name)
        if key is not None and key in row:
            parts.append(f"{label(key)} {row[key]:.4g}")
    if not parts:
        return ""
    if (rate := tokens_a_second(row)) is not None:
        parts.append(f"{rate:.0f} tok/s")
    if (seconds := step_seconds(row)) is not None:
        parts.append(f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s")
    total = facts.status.total_steps if facts.status else None
    place = f"{step + 1}/{total}" if total else f"{step + 1}"
    return f"step {place}  " + "  ".join(parts)
