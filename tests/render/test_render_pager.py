"""Long views go through a pager on a terminal, and nowhere else."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from rich.text import Text

from tinker_cli import console
from tinker_cli.console import OutputClosed
from tinker_cli.render.pager import paging


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with a person before it."""
    monkeypatch.setattr(console, "is_terminal", lambda stream=None: True)
    monkeypatch.setattr(console, "is_interactive", lambda: True)


def test_on_a_terminal_the_pager_gets_the_text(
    terminal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "seen"
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {shlex.quote(str(target))}'")
    with paging() as show:
        show(Text("one \u4f60 [b]"))
        show(Text("two"))
    assert target.read_text() == "one \u4f60 [b]\ntwo\n"


@pytest.mark.parametrize("pager", ["cat", "", "no-such-program"])
def test_without_a_pager_text_is_written(
    terminal: None, pager: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", pager)
    with paging() as show:
        show(Text("plain"))
    assert "plain" in capsys.readouterr().out


def test_in_a_pipe_there_is_no_pager(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", f"{sys.executable} -c 'raise SystemExit(1)'")
    with paging() as show:
        show(Text("plain"))
    assert capsys.readouterr().out == "plain\n"


def _page(lines: int) -> None:
    with paging() as show:
        for _ in range(lines):
            show(Text("a line that nobody reads"))


def test_quitting_the_pager_closes_the_output(
    terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "true")
    with pytest.raises(OutputClosed):
        _page(10_000)
