"""`tinker train sl|rl SPEC`: check a spec, launch its run, show it, exit as it ended."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Interrupted,
    TinkerError,
    UsageError,
)

if TYPE_CHECKING:
    from tinker_cli.trainer.launch import Launched

EPILOG = """A run ends with exit code 0 finished, 1 failed or crashed, 2 nothing was started,
3 stopped by a guard, 4 no key or no server, 130 stopped by you. Ctrl-C stops after the step and
saves a checkpoint; a second Ctrl-C ends at once.
--json: one row of metrics.jsonl a line; with --detach {"run", "pid", "state", "step"}; with
--dry-run {"kind", "model", "renderer", "steps", "batches", "examples", ...}."""

app = typer.Typer(
    help=(
        "Check a spec, launch its run, and show it: sl (supervised) or rl (reinforcement).\n\n"
        "\b\ntinker train rl spec.yaml --dry-run\n"
        "tinker train sl chat.yaml learning_rate=2e-4 --detach"
    ),
    epilog=EPILOG,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

Spec = Annotated[str, typer.Argument(help="The YAML spec.", metavar="SPEC")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Fields to override, dotted.", metavar="[KEY=VALUE]...")
]
Local = Annotated[bool, typer.Option("--local", help="Train on this machine's embedded engine.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and start nothing.")]
Detach = Annotated[bool, typer.Option("--detach", help="Return when the first step has begun.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in log_path.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Move the run in log_path aside; start afresh.")
]
New = Annotated[bool, typer.Option("--new", help="Start beside it, under the next free name.")]
Plain = Annotated[bool, typer.Option("--plain", help="One line a step, no dashboard.")]
Json = Annotated[bool, typer.Option("--json", help="Rows as JSON, one a line.")]
AllowDrift = Annotated[
    bool, typer.Option("--allow-drift", help="With --resume: even if the spec or data changed.")
]
MaxUsd = Annotated[
    float | None, typer.Option("--max-usd", min=0.0, help="Stop when the cost reaches this.")
]


@app.command("sl")
def train_sl(
    spec: Spec,
    overrides: Overrides = None,
    local: Local = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    new: New = False,
    plain: Plain = False,
    as_json: Json = False,
    allow_drift: AllowDrift = False,
    max_usd: MaxUsd = None,
) -> None:
    """Supervised fine-tuning.

    tinker train sl templates/sl_chat.yaml
    tinker train sl chat.yaml learning_rate=2e-4 num_epochs=3 --detach
    """
    _train("sl", spec, overrides, **_options(locals()))


@app.command("rl")
def train_rl(
    spec: Spec,
    overrides: Overrides = None,
    local: Local = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    new: New = False,
    plain: Plain = False,
    as_json: Json = False,
    allow_drift: AllowDrift = False,
    max_usd: MaxUsd = None,
) -> None:
    """Reinforcement learning.

    tinker train rl templates/rl_arithmetic.yaml
    tinker train rl gsm8k.yaml max_steps=40 --resume
    """
    _train("rl", spec, overrides, **_options(locals()))


def _options(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("spec", "overrides")}


def _train(
    kind: str,
    spec: str,
    overrides: list[str] | None,
    *,
    local: bool,
    dry_run: bool,
    detach: bool,
    resume: bool,
    overwrite: bool,
    new: bool,
    plain: bool,
    as_json: bool,
    allow_drift: bool,
    max_usd: float | None,
) -> None:
    from tinker_cli.trainer.launch import launch
    from tinker_cli.trainer.request import LaunchRequest

    chosen = [m for m, on in (("resume", resume), ("overwrite", overwrite), ("new", new)) if on]
    if len(chosen) > 1:
        raise UsageError(f"choose one of {', '.join('--' + mode for mode in chosen)}")
    request = LaunchRequest(
        spec=os.path.abspath(spec),
        kind=kind,
        overrides=tuple(overrides or ()),
        local=local,
        mode=chosen[0] if chosen else "fresh",
        allow_drift=allow_drift,
        max_usd=max_usd,
        argv=tuple(sys.argv[1:]),
    )
    if not Path(spec).is_file():
        raise UsageError(f"no spec at {spec}", hint="tinker template list shows specs to copy")
    if dry_run:
        from tinker_cli.commands.dry_run import dry_run as check_only

        check_only(request, spec, as_json=as_json)
        return
    if console.is_interactive() and not as_json:
        console.say(f"checking {spec} ...")
    launched = launch(request)
    for message in launched.answer.messages:
        console.say(message)
    if launched.answer.complete:
        if as_json:
            console.emit_row({"run": str(launched.run), "state": "finished"})
        return
    if detach:
        _detached(launched, as_json)
        return
    again = ["tinker", "train", kind, spec, *request.overrides, *(["--local"] if local else [])]
    again_words = shlex.join([*again, "--resume"])
    _follow_to_end(launched.run, again_words, plain=plain, as_json=as_json)


def _detached(launched: Launched, as_json: bool) -> None:
    from tinker_cli.runs.paths import run_word
    from tinker_cli.runs.status import effective_state
    from tinker_cli.trainer.launch import end_of, wait_until_begun

    status = wait_until_begun(launched.run)
    ended = end_of(launched.run)
    if ended is not None and ended[1] != EXIT_DONE:
        raise _end_error(launched.run, *ended)
    state, _ = effective_state(launched.run, status)
    if as_json:
        document = {"run": str(launched.run), "pid": launched.pid, "state": state}
        console.emit({**document, "step": status.step})
        return
    console.write(str(launched.run))
    console.say(f"{state}; watch it with: tinker watch {run_word(launched.run)}")


def _follow_to_end(run: Path, again: str, *, plain: bool, as_json: bool) -> None:
    from tinker_cli.runs.paths import run_word
    from tinker_cli.trainer.launch import end_of, wait_until_ended

    with_dashboard = not plain and not as_json and console.is_terminal()
    asked = 0
    while True:
        try:
            how = _view(run, with_dashboard=with_dashboard, as_json=as_json)
        except KeyboardInterrupt:
            asked += 1
            if end_of(run) is None:
                _ask_stop(run, now=asked > 1)
            continue
        if how == "detached":
            console.say(f"detached; the run goes on. tinker watch {run_word(run)} shows it again")
            return
        if how == "interrupted" and end_of(run) is None:
            asked += 1
            _ask_stop(run, now=asked > 1)
            continue
        break
    try:
        state, code = wait_until_ended(run)
    except KeyboardInterrupt:
        _ask_stop(run, now=True)
        state, code = wait_until_ended(run)
    if code != EXIT_DONE:
        raise _end_error(run, state, code, again=again)
    _say_finished(run)


def _view(run: Path, *, with_dashboard: bool, as_json: bool) -> str:
    if with_dashboard:
        from tinker_cli.monitor.dashboard import watch

        return watch(run, on_stop=lambda now: _ask_stop(run, now=now, aloud=False))
    from tinker_cli.monitor.plain import follow_plain

    follow_plain(run, as_json=as_json)
    return "ended"


def _ask_stop(run: Path, *, now: bool, aloud: bool = True) -> None:
    from tinker_cli.runs.stop_request import request_stop

    request_stop(run, now=now)
    if aloud:
        console.say(
            "ending at once"
            if now
            else "stopping after this step, with a checkpoint; Ctrl-C again ends at once"
        )


def _say_finished(run: Path) -> None:
    from tinker_cli.runs.status import duration, read_status

    status = read_status(run)
    if status is None:
        return
    took = (status.ended or 0) - (status.started or 0)
    console.say(f"finished {status.step} steps in {duration(max(0.0, took))}: {run}")


def _end_error(run: Path, state: str, code: int, *, again: str | None = None) -> TinkerError:
    from tinker_cli.runs.status import effective_state, read_status

    status = read_status(run)
    _, note = effective_state(run, status)
    step = status.step if status else 0
    of = f" of {status.total_steps}" if status and status.total_steps else ""
    message = f"{run.name} {state} at step {step}{of}" + (f": {note}" if note else "")
    last = (
        f" (last checkpoint {status.last_checkpoint})" if status and status.last_checkpoint else ""
    )
    hint = f"go on with: {again}{last}" if again else f"its log: {run / 'trainer.log'}"
    if code == EXIT_INTERRUPTED:
        return Interrupted(message, hint=hint)
    return TinkerError(message, hint=hint, exit_code=code or EXIT_FAILED)
