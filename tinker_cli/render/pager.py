"""Long views go through a pager, on a terminal only; everywhere else text is simply written.

`PAGER` names the program (default `less`, which leaves short views on the screen); empty or `cat`
means none. Quitting it ends the command quietly.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.text import Text

from tinker_cli import console
from tinker_cli.console import OutputClosed

LESS_OPTIONS = "FRX"  # leave what fits on one screen, show colours, keep the screen at the end
Show = Callable[[Text], None]


@contextmanager
def paging() -> Iterator[Show]:
    """Yield a function that shows a text; raises OutputClosed once the reader has quit."""
    command = _command()
    if command is None:
        yield console.show
        return
    environment = {"LESS": LESS_OPTIONS, "LESSCHARSET": "utf-8", **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None

        def show(text: Text) -> None:
            try:
                process.stdin.write(_drawn(text))  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
            except BrokenPipeError:
                raise OutputClosed from None

        try:
            yield show
        except KeyboardInterrupt:
            pass  # the terminal's Ctrl-C is the pager's: it stays open
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            _wait(process)


def _command() -> list[str] | None:
    """The pager's command line, or None if there is none or nobody looks."""
    if not (console.is_terminal() and console.is_interactive()):
        return None
    words = shlex.split(os.environ.get("PAGER", "less"))
    if not words or words[0] == "cat" or shutil.which(words[0]) is None:
        return None
    return words


def _drawn(text: Text) -> bytes:
    screen = console.stdout_console()
    with screen.capture() as capture:
        screen.print(text)
    return capture.get().encode("utf-8", "replace")


def _wait(process: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue  # less handles it
