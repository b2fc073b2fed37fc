"""The front door: help, exit codes, the SDK's commands, what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinker_cli.app import GROUPS, SDK_COMMANDS, run
from tinker_cli.errors import CheckFailed, Fault, InputFaults, TinkerError

HEAVY = {"torch", "tinker", "tinker_cookbook", "transformers", "pandas", "numpy"}


def tinker(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a user's shell does."""
    return subprocess.run(
        [sys.executable, "-m", "tinker_cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.parametrize("command", ["--help", "ls --help", "metrics --help", "watch --help"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from tinker_cli.app import run; "
        f"code = run({command.split()!r}); "
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_help_lists_every_command_in_its_group() -> None:
    text = tinker("--help").stdout
    for title, entries in GROUPS.items():
        assert f"{title}:" in text
        for entry in entries:
            assert f"\n  {entry.name} " in text
    assert all(f"\n  {entry.name} " in text for entry in SDK_COMMANDS)


@pytest.mark.parametrize("entry", [e for entries in GROUPS.values() for e in entries])
def test_every_command_has_help_with_an_example(entry: object) -> None:
    name = entry.name  # type: ignore[attr-defined]
    done = tinker(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"tinker {name}" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["version"], ["checkpoint", "--help"], ["run", "list", "-h"]]
)
def test_sdk_commands_print_and_exit_as_the_sdk(arguments: list[str]) -> None:
    ours = tinker(*arguments)
    code = (
        "import sys; from tinker.cli.__main__ import main_cli; "
        f"main_cli.main(args={arguments!r}, prog_name='tinker')"
    )
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


def test_sdk_format_option_before_the_command_is_handed_over() -> None:
    done = tinker("-f", "json", "version")
    assert done.returncode == 0
    assert "tinker" in done.stdout


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian"]) == 2
    assert "'train'" in capsys.readouterr().err


def _raise(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("tinker_cli.app._dispatch", fail)


def test_an_error_becomes_one_message_and_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _raise(monkeypatch, CheckFailed("kl 0.2 is not below 0.05", hint="see tinker metrics"))
    assert run(["metrics"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kl 0.2 is not below 0.05\n  see tinker metrics\n"


def test_errors_under_json_are_one_object_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = Fault("no such field", file="a.yaml", line=4, key="lr", suggestion="learning_rate")
    _raise(monkeypatch, InputFaults("a.yaml has 1 fault; nothing was started.", [fault]))
    assert run(["train", "--json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(err)
    assert out == ""
    assert document["exit_code"] == 2
    assert document["faults"] == [
        {
            "message": "no such field",
            "file": "a.yaml",
            "line": 4,
            "key": "lr",
            "suggestion": "learning_rate",
        }
    ]


def test_faults_are_shown_all_with_their_places(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [
        Fault("no such field", file="a.yaml", line=4, key="lr", suggestion="learning_rate"),
        Fault("missing", file="data/q.jsonl", line=812, key="answer"),
    ]
    _raise(monkeypatch, InputFaults("a.yaml has 2 faults; nothing was started.", faults))
    assert run(["train"]) == 2
    err = capsys.readouterr().err
    assert "  a.yaml:4          lr      no such field. Did you mean learning_rate?\n" in err
    assert "  data/q.jsonl:812  answer  missing\n" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (ValueError("odd"), 1), (TinkerError("no"), 1)],
)
def test_nothing_escapes_as_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    _raise(monkeypatch, error)
    assert run(["metrics"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly() -> None:
    shell = f"{sys.executable} -m tinker_cli template list | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=Path.cwd())
    assert done.stderr == ""
    assert done.stdout.endswith("0\n")


def test_a_terminal_without_unicode_degrades() -> None:
    done = tinker("--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stderr == ""
