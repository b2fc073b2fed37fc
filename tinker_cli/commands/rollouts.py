"""`tinker rollouts RUN`: what the model said in an RL run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from tinker_cli.runs.rollouts import Rollout

ORDERS = ("best", "worst", "longest", "truncated", "random", "all")

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("rollouts")
def rollouts(
    run: Annotated[str, typer.Argument(help="A run: directory, name, or - for the newest.")] = "-",
    step: Annotated[int | None, typer.Option("--step", help="Default: the newest.")] = None,
    group: Annotated[int | None, typer.Option("--group", help="One group of the step.")] = None,
    split: Annotated[
        str, typer.Option("--eval", metavar="NAME", help="Rollouts of an evaluation.")
    ] = "",
    show: Annotated[str, typer.Option("--show", help=", ".join(ORDERS) + ".")] = "best",
    where: Annotated[
        str | None, typer.Option("--where", help="For example: reward < 0.2 and tokens > 7")
    ] = None,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many replies to print.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a rollout.")] = False,
) -> None:
    """What the model said: a table of the step's groups, then replies.

    tinker rollouts - --show worst
    tinker rollouts demo --step 10 --where 'reward < 0.2' --json

    --json: {"step", "group", "index", "reward", "tokens", "metrics", "prompt", "text",
    "truncated"}; text is null where the loop did not log it (num_groups_to_log)
    """
    from tinker_cli.runs.paths import resolve_run
    from tinker_cli.runs.rollouts import logged_steps, read_rollouts

    if show not in ORDERS:
        raise UsageError(f"--show is one of {', '.join(ORDERS)}, not {show!r}")
    folder = resolve_run(run)
    steps = logged_steps(folder)
    if not steps:
        raise RunFailed(f"{folder.name} has no rollouts: not an RL run, or no step has ended yet")
    chosen = steps[-1] if step is None else step
    if chosen not in steps:
        raise UsageError(f"no rollouts of step {chosen}: there are {steps[0]} to {steps[-1]}")
    found = read_rollouts(folder, chosen, split=f"eval_{split}" if split else "train")
    found = [r for r in found if group is None or r.group == group]
    found = [r for r in found if where is None or _holds(where, r)]
    if as_json:
        for rollout in found:
            console.emit_row(rollout.as_json())
        return
    _print_table(found)
    _print_replies(found, show, limit)


def _holds(text: str, rollout: Rollout) -> bool:
    from tinker_cli.runs.expressions import parse

    row = {
        **rollout.metrics,
        "reward": rollout.reward,
        "tokens": float(rollout.tokens),
        "group": float(rollout.group),
        "truncated": float(rollout.truncated),
    }
    return parse(text).evaluate(row, list(row)) is True


def _print_table(found: list[Rollout]) -> None:
    groups: dict[int, list[Rollout]] = {}
    for rollout in found:
        groups.setdefault(rollout.group, []).append(rollout)
    console.write("group  rollouts  reward   min    max  tokens  cut off")
    for number, members in sorted(groups.items()):
        rewards = [r.reward for r in members]
        tokens = sum(r.tokens for r in members) / len(members)
        cut = sum(r.truncated for r in members)
        mean = sum(rewards) / len(rewards)
        console.write(
            f"{number:>5}  {len(members):>8}  {mean:>6.3f} {min(rewards):>5.2f}  "
            f"{max(rewards):>5.2f}  {tokens:>6.1f}  {cut:>7}"
        )


def _print_replies(found: list[Rollout], show: str, limit: int) -> None:
    logged = [r for r in found if r.text is not None]
    silent = len({r.group for r in found}) - len({r.group for r in logged})
    for rollout in _ordered(logged, show)[:limit]:
        console.write("")
        cut = "  (cut off)" if rollout.truncated else ""
        head = f"step {rollout.step}  group {rollout.group}  reward {rollout.reward:.3f}{cut}"
        console.write(head)
        console.write(f"  prompt  {_indented(rollout.prompt)}")
        console.write(f"  reply   {_indented(rollout.text)}")
    if silent:
        console.say(f"{silent} groups have no text: the loop logs num_groups_to_log of them")


def _ordered(logged: list[Rollout], show: str) -> list[Rollout]:
    if show == "random":
        return random.sample(logged, len(logged))
    if show == "truncated":
        return [r for r in logged if r.truncated]
    if show == "longest":
        return sorted(logged, key=lambda r: -r.tokens)
    if show in ("best", "worst"):
        return sorted(logged, key=lambda r: r.reward, reverse=show == "best")
    return logged


def _indented(text: str | None) -> str:
    return (text or "").replace("\n", "\n          ")
