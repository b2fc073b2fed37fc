"""What the model said: the cookbook's `iteration_*` folders as values.

Rewards and lengths of every rollout come from the summaries; text only of the groups that the loop
logged (`num_groups_to_log`), from the logtree. Knows files; knows nothing of how they are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ITERATION = re.compile(r"iteration_(\d+)")


@dataclass(frozen=True)
class SampleLine:
    """One reply, for a single line: which one it is, its reward, its text."""

    label: str
    reward: float
    text: str
    truncated: bool


@dataclass(frozen=True)
class Rollout:
    """One rollout of a step; `text` is None where the loop did not log it."""

    step: int
    group: int
    index: int
    reward: float
    tokens: int
    metrics: dict[str, float]
    prompt: str | None = None
    text: str | None = None

    @property
    def truncated(self) -> bool:
        """True if the reply was cut at max_tokens, as far as the format metric tells."""
        return self.metrics.get("max_tokens_reached", 0) > 0 or self.metrics.get("format", 1) == 0

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return {**self.__dict__, "truncated": self.truncated}


def logged_steps(run: Path) -> list[int]:
    """The steps that have a folder, ascending."""
    found = []
    for folder in run.glob("iteration_*"):
        match = _ITERATION.fullmatch(folder.name)
        if match and any(folder.glob("train_*")):
            found.append(int(match.group(1)))
    return sorted(found)


def read_rollouts(run: Path, step: int, *, split: str = "train") -> list[Rollout]:
    """The rollouts of a step; `split` is `train` or an evaluation's file name without its ending."""
    folder = run / f"iteration_{step:06d}"
    texts = dict(_texts(folder / f"{split}_logtree.json"))
    rollouts = []
    for row in _rows(folder / f"{split}_rollout_summaries.jsonl"):
        steps = row.get("steps") or []
        metrics: dict[str, float] = {}
        for one in steps:
            metrics |= {k: float(v) for k, v in (one.get("metrics") or {}).items()}
        group, index = int(row.get("group_idx", 0)), int(row.get("traj_idx", 0))
        prompt, text = texts.get((group, index), (None, None))
        rollouts.append(
            Rollout(
                step=step,
                group=group,
                index=index,
                reward=float(row.get("total_reward") or 0.0),
                tokens=sum(int(one.get("ac_len") or 0) for one in steps),
                metrics=metrics,
                prompt=prompt,
                text=text,
            )
        )
    return rollouts


def newest_sample(run: Path) -> list[SampleLine]:
    """The best and the worst logged reply of the newest step that has any."""
    for step in reversed(logged_steps(run)[-2:]):
        said = [rollout for rollout in read_rollouts(run, step) if rollout.text is not None]
        if not said:
            continue
        best = max(said, key=lambda rollout: rollout.reward)
        worst = min(said, key=lambda rollout: rollout.reward)
        chosen = [("best", best)] if best is worst else [("best", best), ("worst", worst)]
        return [SampleLine(n, r.reward, r.text or "", r.truncated) for n, r in chosen]
    return []


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _texts(path: Path) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    """((group, rollout), (prompt, reply)) of every rollout that the logtree holds."""
    try:
        root = json.loads(path.read_text(encoding="utf-8"))["root"]
    except (OSError, ValueError, KeyError):
        return
    for group, node in enumerate(_scopes(root, "do_group_rollout")):
        replies = [_conversation(s) for s in _scopes(node, "Policy Response")]
        prompts = [_conversation(s) for s in _scopes(node, "Prompt")]
        for index, reply in enumerate(replies):
            prompt = prompts[index] if index < len(prompts) else ""
            yield (group, index), (prompt, reply)


def _scopes(node: Any, title: str) -> Iterator[Any]:
    if not isinstance(node, dict):
        return
    if title in str(node.get("title") or node.get("attrs") or ""):
        yield node
        return
    for child in node.get("children") or []:
        yield from _scopes(child, title)


def _conversation(node: Any) -> str:
    return " ".join(_strings(node)).strip()


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for child in node.get("children") or []:
            yield from _strings(child)
