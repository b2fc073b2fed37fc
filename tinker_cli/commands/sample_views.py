"""How `tinker sample` shows answers: text, columns side by side, a bar, a prompt to type at."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinker_cli import console

if TYPE_CHECKING:
    from tinker_cli.sampling.ask import Answer
    from tinker_cli.sampling.compare import Compared, Scored
    from tinker_cli.sampling.options import SamplingOptions

NARROWEST_COLUMN = 34  # cells of a column of text that can still be read
GAP = 2  # cells between columns
PLAIN_CONTROLS = "\n\t"


def safe(text: str) -> str:
    """Text of a model for a terminal: control characters can do nothing there."""
    if not console.is_terminal():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(c) == "Cc" and c not in PLAIN_CONTROLS else c for c in text
    )


def show_answers(answers: Any, options: SamplingOptions, *, logprobs: bool) -> None:
    """Print the answers to one prompt."""
    if isinstance(answers, dict):
        _show_compared(answers)
        return
    for answer in answers:
        console.write(safe(answer.text))
        if logprobs:
            console.say(f"  {_summed(answer)}")
        if answer.stop_reason == "length":
            console.say(f"(cut off at {len(answer.tokens)} tokens)")


def _summed(answer: Answer) -> str:
    if answer.logprobs is None:
        return "logprob n/a"
    return f"logprob {sum(answer.logprobs):.3f} over {len(answer.tokens)} tokens"


def _show_compared(compared: Compared) -> None:
    """Side by side where each gets a readable column; one below the other elsewhere."""
    column = (console.width() + GAP) // len(compared) - GAP
    if console.is_terminal() and column >= NARROWEST_COLUMN:
        _show_columns(compared, column)
        return
    for name, scored in compared.items():
        console.write(f"{name}:")
        for one in scored:
            for line in safe(one.answer.text).split("\n"):
                console.write(f"  {line}".rstrip())
            for line in _scores(one):
                console.write(f"  {line}")


def _scores(one: Scored) -> list[str]:
    cut = ", cut off" if one.answer.stop_reason == "length" else ""
    lines = [f"· {len(one.answer.tokens)} tokens{cut}"]
    for name, value in one.logprob.items():
        shown = "n/a" if value is None else f"{value:.3f}"
        lines.append(f"· logprob by {name} {shown}")
    return lines if console.supports_unicode() else [line.replace("·", "-") for line in lines]


def _show_columns(compared: Compared, width: int) -> None:
    from rich.cells import cell_len, set_cell_size

    names = [set_cell_size(name, width) for name in compared]
    console.write((" " * GAP).join(names).rstrip())
    for row in zip(*compared.values(), strict=True):
        cells = [
            [*_wrapped(safe(one.answer.text), width), *_wrapped("\n".join(_scores(one)), width)]
            for one in row
        ]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            padded = [part + " " * (width - cell_len(part)) for part in parts]
            console.write((" " * GAP).join(padded).rstrip())
        console.write("")


def _wrapped(text: str, width: int) -> list[str]:
    from rich.console import Console
    from rich.text import Text

    lines = Text(text).wrap(Console(width=width), width)
    return [line.plain.rstrip() for line in lines]


@contextmanager
def progress(total: int | None, *, hidden: bool) -> Iterator[Callable[[], None]]:
    """A bar on stderr, where a person looks at it and stdout does not go to the same place."""
    if hidden or not console.is_terminal(sys.stderr) or console.is_terminal():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console.stderr_console(),
        transient=True,
        refresh_per_second=4,
    )
    task = bar.add_task("answers", total=total)
    with bar:
        yield lambda: bar.advance(task)


def show_piece(piece: str) -> None:
    """A part of a reply, as it comes."""
    if piece:
        console.write_piece(safe(piece))


def end_reply(answer: Answer) -> None:
    """The end of a reply."""
    console.write_piece("\n")
    if answer.stop_reason == "length":
        console.say(f"(cut off at {len(answer.tokens)} tokens)")


def emit_reply(answer: Answer) -> None:
    """A reply as one JSON object."""
    console.emit_row(answer.as_json())


def typed_lines() -> Iterator[str]:
    """Lines typed at a terminal, with editing and the history of earlier conversations."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.output import create_output

    from tinker_cli.sampling.chat import COMMANDS

    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    history: History
    try:
        (state / "tinker").mkdir(parents=True, exist_ok=True)
        history = FileHistory(str(state / "tinker" / "chat_history"))
    except OSError:
        history = InMemoryHistory()
    session: PromptSession[str] = PromptSession(
        history=history,
        completer=WordCompleter(list(COMMANDS), sentence=True),
        complete_while_typing=False,
        output=create_output(sys.stderr),
    )
    while True:
        try:
            yield session.prompt("> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
