"""The program's front door: the command table, the SDK's commands, and the one way out.

A command is named here with its one-line summary and imported when it is called, so that
`tinker --help` costs nothing. The commands of the official SDK (`checkpoint`, `run`, ...) get
their arguments handed over untouched. Whatever goes wrong anywhere becomes a message and an exit
code in `main`, and nowhere else. This module knows nothing of runs, specs or models.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer import _click as click
from typer.core import TyperCommand, TyperGroup

from tinker_cli import __version__, console
from tinker_cli.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    InputFaults,
    ServiceError,
    TinkerError,
)

PROGRAM = "tinker"


@dataclass(frozen=True)
class Entry:
    """A command as `--help` lists it; `tinker_cli.commands.<name>` holds it."""

    name: str
    summary: str


GROUPS: dict[str, tuple[Entry, ...]] = {
    "Runs": (
        Entry("train", "Check a spec, launch it, and show the run (sl or rl)."),
        Entry("watch", "Attach the dashboard to a running or finished run."),
        Entry("ls", "List local runs: state, step, reward or loss, KL."),
        Entry("stop", "Finish the step, save a checkpoint, end the run."),
        Entry("wait", "Block until runs end; exit as they did."),
    ),
    "Look closer": (
        Entry("metrics", "Curves and numbers of runs: table, plot, check, JSON, CSV."),
        Entry("rollouts", "What the model said in an RL run, by step and reward."),
        Entry("render", "Conversations as the tokens and weights that training sees."),
        Entry("sample", "Ask a model, a run or a checkpoint; one prompt or a file."),
    ),
    "Start and check": (
        Entry("template", "List, show or copy the specs that ship."),
        Entry("serve", "Run the embedded engine for any Tinker client."),
        Entry("doctor", "Say what is missing on this machine and how to mend it."),
    ),
}
SDK_GROUP = "The Tinker service (the official SDK's commands)"
SDK_COMMANDS = (
    Entry("auth", "Log in and out; who am I."),
    Entry("billing", "Usage and checkpoint storage."),
    Entry("checkpoint", "List, download, publish and delete checkpoints."),
    Entry("model", "Models that the service offers."),
    Entry("run", "Training runs on the service."),
    Entry("session", "Export a session's trace."),
    Entry("version", "Version of the SDK."),
)
_OWN = {entry.name: entry for entries in GROUPS.values() for entry in entries}
_SDK = {entry.name: entry for entry in SDK_COMMANDS}
_EXAMPLES = re.compile(r"\n\n((?:[ ]*(?:tinker|cat|printf) [^\n]*(?:\n(?!\n))?)+)")
_SDK_FORMAT_OPTIONS = ("-f", "--format")


class CommandTable(TyperGroup):
    """The root command: knows every name, imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, in the order of `--help`."""
        return [*_OWN, *_SDK]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; while a shell completes names, only its summary is needed."""
        if cmd_name in _SDK:
            return _placeholder(_SDK[cmd_name])
        if cmd_name not in _OWN:
            return None
        if ctx.resilient_parsing and cmd_name not in sys.argv and not _completing(cmd_name):
            return _placeholder(_OWN[cmd_name])
        module = import_module(f"tinker_cli.commands.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        _keep_examples(command)
        if ctx.resilient_parsing:
            import_module("tinker_cli.commands.completing").attach(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with; an unknown one names the nearest."""
        self.commands = {name: _placeholder(entry) for name, entry in {**_OWN, **_SDK}.items()}
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table in its groups."""
        widest = max(map(len, [*_OWN, *_SDK]))
        for title, entries in {**GROUPS, SDK_GROUP: SDK_COMMANDS}.items():
            with formatter.section(title):
                formatter.write_dl([(e.name.ljust(widest), e.summary) for e in entries])


def _placeholder(entry: Entry) -> click.Command:
    return TyperCommand(name=entry.name, help=entry.summary, rich_markup_mode=None)


def _keep_examples(command: click.Command) -> None:
    """Leave the examples in a help text as lines: no wrapping, so that they can be pasted."""
    for each in (command, *getattr(command, "commands", {}).values()):
        if each.help:
            each.help = _EXAMPLES.sub(lambda block: f"\n\n\b\n{block.group(1)}", each.help)


def _completing(name: str) -> bool:
    return name in os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", "")).split()


app = typer.Typer(
    name=PROGRAM,
    cls=CommandTable,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="First run: tinker template copy rl_arithmetic && tinker train rl rl_arithmetic.yaml",
)


def _print_version(value: bool) -> None:
    if value:
        console.write(f"tinker-runs {__version__}")
        raise typer.Exit(EXIT_DONE)


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Version of this program."
    ),
) -> None:
    """Fine-tune language models from a spec: check it, launch it, watch it, hear the model.

    Runs on the Tinker service, or with `base_url: local` on the engine inside this program.
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _degrade_encodings()
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command line; every error leaves as a message on stderr and an exit code."""
    as_json = "--json" in arguments
    try:
        code = _dispatch(arguments)
        console.flush()
        return code
    except TinkerError as error:
        _tell(error, as_json)
        return error.exit_code
    except click.exceptions.ClickException as error:
        return _tell_usage(error, as_json)
    except (console.OutputClosed, BrokenPipeError):
        return _reader_left()
    except (KeyboardInterrupt, typer.Abort):
        console.say("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # the edge of the process: nothing may escape as a traceback
        if os.environ.get("TINKER_DEBUG") == "1":
            raise
        _tell(_translated(error), as_json)
        return _translated(error).exit_code


def _dispatch(arguments: list[str]) -> int:
    if _is_for_sdk(arguments):
        return _run_sdk(arguments)
    result = typer.main.get_command(app).main(
        args=arguments, prog_name=PROGRAM, standalone_mode=False
    )
    return result if isinstance(result, int) else EXIT_DONE


def _is_for_sdk(arguments: list[str]) -> bool:
    first = arguments[0] if arguments else ""
    return (
        first in _SDK
        or first.startswith("--format=")
        or first[:2] == "-f"
        or (first in _SDK_FORMAT_OPTIONS)
    )


def _run_sdk(arguments: list[str]) -> int:
    """Run the SDK's own command line on `arguments` as they are, and return its exit code."""
    if _asks_service(arguments):
        from tinker_cli.trainer.service import check_key

        check_key("tinker serve is a server on this machine")
    from tinker.cli.__main__ import main_cli
    from tinker.cli.exceptions import TinkerCliError

    try:
        main_cli.main(args=arguments, prog_name=PROGRAM)
    except TinkerCliError as error:
        for line in (error.message and f"Error: {error.message}", error.details):
            if line:
                console.say(line)
        return int(error.exit_code)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _asks_service(arguments: list[str]) -> bool:
    """True for a command of the SDK that does nothing without a key."""
    names = [word for word in arguments if word in _SDK]
    return (
        bool(names)
        and names[0] not in ("auth", "version")
        and not {"--help", "-h"} & set(arguments)
        and arguments[-1] not in _SDK
    )


def _tell(error: TinkerError, as_json: bool) -> None:
    if as_json:
        console.say(console.strict_json(error.as_json()))
        return
    console.say(_from_here(error.message))
    if isinstance(error, InputFaults) and error.faults:
        console.say()
        for line in _fault_lines(error):
            console.say(line)
    if error.hint:
        console.say(f"  {error.hint}")


def _from_here(text: str) -> str:
    """Paths below the working directory as a person would type them."""
    return text.replace(f"{os.getcwd()}{os.sep}", "")


def _fault_lines(error: InputFaults) -> list[str]:
    """The faults as columns: place, key, sentence; the columns as wide as they need to be."""
    places = [_from_here(fault.where) for fault in error.faults]
    keys = [fault.key or "" for fault in error.faults]
    place_width, key_width = max(map(len, places)), max(map(len, keys))
    return [
        f"  {place:<{place_width}}  {key:<{key_width}}  {fault.sentence()}".rstrip()
        for place, key, fault in zip(places, keys, error.faults, strict=True)
    ]


def _tell_usage(error: click.exceptions.ClickException, as_json: bool) -> int:
    if as_json:
        message = error.format_message()
        console.say(console.strict_json({"error": message, "exit_code": error.exit_code}))
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        console.write(error.format_message())
        return EXIT_DONE
    else:
        error.show()
    return int(error.exit_code)


def _translated(error: Exception) -> TinkerError:
    """An error that no room foresaw, as a message: the SDK's by their meaning, others by name."""
    name, module = type(error).__name__, type(error).__module__
    if module.split(".")[0] == "tinker" and name in (
        "AuthenticationError",
        "PermissionDeniedError",
    ):
        return ServiceError(
            "the Tinker service refused the key",
            hint="set TINKER_API_KEY to a valid key, or use --local to stay on this machine",
        )
    if module.split(".")[0] == "tinker" and name in ("APIConnectionError", "APITimeoutError"):
        return ServiceError("no Tinker server answered", hint="check base_url and the network")
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return TinkerError(f"{error.strerror or error}{place}")
    return TinkerError(
        f"unexpected {name}: {error}", hint="TINKER_DEBUG=1 shows where; please report it"
    )


def _reader_left() -> int:
    """The reader of our pipe has gone: it had all it wanted. Leave without a word."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    return EXIT_DONE


def _degrade_encodings() -> None:
    """Let a character that the terminal's encoding lacks become `?`, never an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


__all__ = ["EXIT_FAILED", "GROUPS", "SDK_COMMANDS", "app", "main", "run"]
