"""What the model said: the cookbook's `iteration_*` folders as values.

Rewards and lengths of every rollout come from the summaries; text only of the groups that the loop
logged (`num_groups_to_log`), from the logtree. Knows files; knows nothing of how they are shown.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ITERATION = re.compile(r"iteration_(\d+)")


@dataclass(frozen=True)
class SampleLine:
    """One reply, for a single line: which one it is, its reward, what was asked, its text."""

    label: str
    reward: float
    prompt: str
    text: str
    truncated: bool


@dataclass(frozen=True)
class Rollout:
    """One rollout of a step; `text` is None where the loop did not log it.

    `stop_reason` is that of the last reply: `length` (cut off at max_tokens), `stop`, or None
    where the run's files don't tell.
    """

    step: int
    group: int
    index: int
    reward: float
    tokens: int
    metrics: dict[str, float]
    prompt: str | None = None
    text: str | None = None
    stop_reason: str | None = None

    @property
    def truncated(self) -> bool:
        """True if the last reply was cut off at max_tokens."""
        return self.stop_reason == "length"

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


def logged_splits(run: Path, step: int) -> list[str]:
    """What a step has rollouts of: `train`, `eval_NAME`."""
    folder, ending = run / f"iteration_{step:06d}", "_rollout_summaries.jsonl"
    return sorted(path.name.removesuffix(ending) for path in folder.glob(f"*{ending}"))


def read_rollouts(run: Path, step: int, *, split: str = "train") -> list[Rollout]:
    """The rollouts of a step; `split` is `train`, or `eval_NAME` of an evaluation."""
    folder, longest = run / f"iteration_{step:06d}", _max_tokens(run)
    texts = _texts(folder / f"{split}_logtree.json")
    rollouts = []
    for row in _rows(folder / f"{split}_rollout_summaries.jsonl"):
        steps = row.get("steps") or []
        metrics: dict[str, float] = {}
        for one in steps:
            metrics |= {k: float(v) for k, v in (one.get("metrics") or {}).items()}
        group, index = int(row.get("group_idx", 0)), int(row.get("traj_idx", 0))
        reward = float(row.get("total_reward") or 0.0)
        said = _take(texts.get(group, []), reward)
        rollouts.append(
            Rollout(
                step=step,
                group=group,
                index=index,
                reward=reward,
                tokens=sum(int(one.get("ac_len") or 0) for one in steps),
                metrics=metrics,
                prompt=said.prompt if said else None,
                text=said.reply if said else None,
                stop_reason=_stop_reason(steps, longest),
            )
        )
    return rollouts


def _max_tokens(run: Path) -> int | None:
    """The longest reply that the run's config allows."""
    try:
        longest = json.loads((run / "config.json").read_text(encoding="utf-8"))["max_tokens"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return longest if isinstance(longest, int) else None


def _stop_reason(turns: list[dict[str, Any]], longest: int | None) -> str | None:
    """Summaries hold no stop reason: it follows from the length and from what the env noted.

    A reply as long as max_tokens may still have ended by itself with its last token; the format
    metric of the cookbook's problems says so, since it asks for a stop sequence.
    """
    if not turns:
        return None
    last = turns[-1]
    metrics = last.get("metrics") or {}
    if metrics.get("max_tokens_reached"):
        return "length"
    if longest is None:
        return None
    full = int(last.get("ac_len") or 0) >= longest
    return "length" if full and metrics.get("format") != 1 else "stop"


def newest_sample(run: Path) -> list[SampleLine]:
    """The best and the worst logged reply of the newest step that has any."""
    for step in itertools.islice(_newest_steps(run), 2):
        said = [rollout for rollout in read_rollouts(run, step) if rollout.text is not None]
        if not said:
            continue
        best = max(said, key=lambda rollout: rollout.reward)
        worst = min(said, key=lambda rollout: rollout.reward)
        chosen = [("best", best)] if best is worst else [("best", best), ("worst", worst)]
        return [
            SampleLine(label, one.reward, one.prompt or "", one.text or "", one.truncated)
            for label, one in chosen
        ]
    return []


def cut_off_share(run: Path) -> float | None:
    """Of the newest step's replies, the share that was as long as `max_tokens` allows.

    None where the run's config or its rollouts don't tell.
    """
    most = _max_tokens(run)
    for step in itertools.islice(_newest_steps(run), 2):
        path = run / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl"
        turns = [turn for row in _rows(path) for turn in row.get("steps") or []]
        if turns and most is not None:
            return sum(int(turn.get("ac_len") or 0) >= most for turn in turns) / len(turns)
    return None


def _newest_steps(run: Path) -> Iterator[int]:
    """The steps that have a folder, descending; looks into no more folders than are asked for."""
    names = [m for path in run.glob("iteration_*") if (m := _ITERATION.fullmatch(path.name))]
    for step in sorted((int(match.group(1)) for match in names), reverse=True):
        if any((run / f"iteration_{step:06d}").glob("train_*")):
            yield step


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


@dataclass(frozen=True)
class _Logged:
    """A rollout's text as the logtree has it; `reward` to three decimals, None if not said."""

    prompt: str
    reply: str
    reward: float | None


def _texts(path: Path) -> dict[int, list[_Logged]]:
    """The logged rollouts by group; within a group in the order in which they were scored."""
    try:
        root = json.loads(path.read_text(encoding="utf-8"))["root"]
    except (OSError, ValueError, KeyError):
        return {}
    return {n: list(_logged(node)) for n, node in enumerate(_sections(root, "Group Rollout"))}


def _logged(group: Any) -> Iterator[_Logged]:
    prompts = [_said(node)[-1:] for node in _sections(group, "Prompt")]
    replies = [_said(node) for node in _sections(group, "Policy Response")]
    rewards = [_reward(node) for node in _sections(group, "Reward")]
    if len(prompts) == len(replies) == len(rewards):
        for prompt, reply, reward in zip(prompts, replies, rewards, strict=True):
            yield _Logged(" ".join(prompt), "\n".join(reply), reward)


def _sections(node: Any, title: str) -> Iterator[Any]:
    """The sections below `node` whose heading is `title`, outermost first."""
    if not isinstance(node, dict):
        return
    children = node.get("children") or []
    if node.get("tag") == "section" and _heading(children) == title:
        yield node
        return
    for child in children:
        yield from _sections(child, title)


def _heading(children: list[Any]) -> str:
    first = children[0] if children else None
    texts = first.get("children") if isinstance(first, dict) else None
    return str(texts[0]) if texts else ""


def _said(node: Any) -> list[str]:
    """The text of each message of the conversations below `node`."""
    if not isinstance(node, dict):
        return []
    data = node.get("data") or {}
    found = [_content(message) for message in data.get("messages") or []]
    for child in node.get("children") or []:
        found += _said(child)
    return found


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or part.get("thinking") or "") for part in content)
    return str(content or "")


def _reward(node: Any) -> float | None:
    """The value of the row `reward` of the section's table."""
    cells = list(_strings(node))
    for key, value in itertools.pairwise(cells):
        if key == "reward":
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for child in node.get("children") or []:
            yield from _strings(child)


def _take(logged: list[_Logged], reward: float) -> _Logged | None:
    """The next text that was scored so: rollouts of a group end in any order."""
    for index, one in enumerate(logged):
        if one.reward is None or abs(one.reward - reward) < 1e-3:
            return logged.pop(index)
    return None
