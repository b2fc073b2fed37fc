"""`tinker rollouts RUN`: what the model said in an RL run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import RunFailed, UsageError, nearest

if TYPE_CHECKING:
    from tinker_cli.runs.rollouts import Rollout

ORDERS = ("best", "worst", "longest", "truncated", "random", "all")
ALL_STEPS = "all"
INDENT = " " * 10

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("rollouts")
def rollouts(
    run: Annotated[str, typer.Argument(help="A run: directory, name, or - for the newest.")] = "-",
    step: Annotated[
        str | None, typer.Option("--step", metavar="N", help="Default: the newest; or all.")
    ] = None,
    group: Annotated[
        int | None, typer.Option("--group", metavar="N", help="One group of the step.")
    ] = None,
    evaluation: Annotated[
        str, typer.Option("--eval", metavar="NAME", help="Rollouts of an evaluation.")
    ] = "",
    show: Annotated[
        str, typer.Option("--show", metavar="WHICH", help=", ".join(ORDERS) + ".")
    ] = "best",
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="EXPR", help="For example: reward < 0.2 and tokens > 7"),
    ] = None,
    limit: Annotated[
        int, typer.Option("-n", metavar="N", min=0, help="How many replies to print.")
    ] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a rollout.")] = False,
) -> None:
    """What the model said: a table of the step's groups, then replies.

    tinker rollouts - --show worst
    tinker rollouts rl_arithmetic --step all --where 'reward < 0.2' --json

    --json: {"step", "group", "index", "reward", "tokens", "metrics", "prompt", "text",
    "stop_reason", "truncated"}; text is null where the loop did not log it (num_groups_to_log),
    stop_reason where its files don't tell
    """
    from tinker_cli.runs.paths import resolve_run

    if show not in ORDERS:
        near = nearest(show, ORDERS)
        raise UsageError(
            f"--show is one of {', '.join(ORDERS)}, not {show!r}",
            hint=f"did you mean {near}?" if near else None,
        )
    folder = resolve_run(run)
    split = f"eval_{evaluation}" if evaluation else "train"
    steps = _steps(folder, step, split)
    found = [r for one in steps for r in _read(folder, one, split)]
    found = [r for r in found if group is None or r.group == group]
    if where is not None:
        holds = _condition(where, found)
        found = [r for r in found if holds(r)]
    if as_json:
        for rollout in found:
            console.emit_row(rollout.as_json())
        return
    if not found:
        raise RunFailed(f"no rollout of {folder.name} is so")
    _print_table(found)
    _print_replies(found, show, limit)


def _steps(folder: Path, wanted: str | None, split: str) -> list[int]:
    """The steps that are meant, of those that have rollouts of the split."""
    from tinker_cli.runs.rollouts import logged_splits, logged_steps

    everything = {one: logged_splits(folder, one) for one in logged_steps(folder)}
    steps = [one for one, splits in everything.items() if split in splits]
    if not any(everything.values()):
        raise RunFailed(f"{folder.name} has no rollouts: not an RL run, or no step has ended yet")
    if not steps:
        names = sorted({s for splits in everything.values() for s in splits} - {"train"})
        evaluations = ", ".join(name.removeprefix("eval_") for name in names)
        hint = f"there are: {evaluations}" if evaluations else "none was run (eval_every)"
        what = split.removeprefix("eval_")
        raise UsageError(f"{folder.name} has no evaluation {what!r}", hint=hint)
    if wanted is None:
        return steps[-1:]
    if wanted == ALL_STEPS:
        return steps
    try:
        chosen = int(wanted)
    except ValueError:
        raise UsageError(f"--step is a number or {ALL_STEPS}, not {wanted!r}") from None
    if chosen not in steps:
        some = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else str(steps[0])
        raise UsageError(f"no rollouts of step {chosen}: there are {some}")
    return [chosen]


def _read(folder: Path, step: int, split: str) -> list[Rollout]:
    from tinker_cli.runs.rollouts import read_rollouts

    return read_rollouts(folder, step, split=split)


def _condition(text: str, rollouts: Iterable[Rollout]) -> Callable[[Rollout], bool]:
    """The expression as a test of a rollout; UsageError for a name that no rollout has."""
    from tinker_cli.runs.expressions import parse

    expression = parse(text)
    keys = sorted({key for rollout in rollouts for key in _row(rollout)})
    for name in expression.names:
        if keys and name not in keys:
            near = nearest(name, keys)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(keys)}"
            raise UsageError(f"no rollout has {name!r}", hint=hint)
    return lambda rollout: expression.evaluate(_row(rollout)) is True


def _row(rollout: Rollout) -> dict[str, float]:
    return {
        **rollout.metrics,
        "reward": rollout.reward,
        "tokens": float(rollout.tokens),
        "step": float(rollout.step),
        "group": float(rollout.group),
        "index": float(rollout.index),
        "truncated": float(rollout.truncated),
    }


def _print_table(found: list[Rollout]) -> None:
    """A row a group; of several steps, a row a step."""
    several = len({rollout.step for rollout in found}) > 1
    rows: dict[int, list[Rollout]] = {}
    for rollout in found:
        rows.setdefault(rollout.step if several else rollout.group, []).append(rollout)
    head = " step" if several else "group"
    console.write(f"{head}  rollouts  reward    min    max  tokens  stopped  cut off")
    for number, members in sorted(rows.items()):
        rewards = [r.reward for r in members]
        tokens = sum(r.tokens for r in members) / len(members)
        mean = sum(rewards) / len(rewards)
        console.write(
            f"{number:>5}  {len(members):>8}  {mean:>6.3f} {min(rewards):>6.2f} "
            f"{max(rewards):>6.2f}  {tokens:>6.1f}  {_count(members, 'stop'):>7}"
            f"  {_count(members, 'length'):>7}"
        )


def _count(members: list[Rollout], reason: str) -> str:
    if all(r.stop_reason is None for r in members):
        return "?"
    return str(sum(r.stop_reason == reason for r in members))


def _print_replies(found: list[Rollout], show: str, limit: int) -> None:
    from tinker_cli.commands.sample_views import safe

    logged = [r for r in found if r.text is not None]
    for rollout in _ordered(logged, show)[:limit]:
        console.write("")
        ends = {"length": "  (cut off)", "stop": ""}.get(rollout.stop_reason or "stop", "")
        console.write(
            f"step {rollout.step}  group {rollout.group}  reward {rollout.reward:.3f}"
            f"  {rollout.tokens} tokens{ends}"
        )
        console.write(f"  prompt  {_indented(safe(rollout.prompt or ''))}")
        console.write(f"  reply   {_indented(safe(rollout.text or ''))}")
    groups, told = ({(r.step, r.group) for r in some} for some in (found, logged))
    if silent := len(groups) - len(told):
        console.say(
            f"{silent} of {len(groups)} groups have no text: the loop logs that of"
            " num_groups_to_log groups a step"
        )


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


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{INDENT}")
