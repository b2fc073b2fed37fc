"""What can go wrong, as values: a message, where it is, what to do, and the exit code.

Raise one of these and let it travel; `app.py` is the only place that turns it into text and a
process exit. This module knows nothing of terminals, specs or runs, and imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

EXIT_DONE = 0
EXIT_FAILED = 1  # the run or the request failed
EXIT_USAGE = 2  # usage, spec or data is wrong; nothing was started
EXIT_CHECK = 3  # a guard or a --check said no
EXIT_SERVICE = 4  # no key, key refused, or no server
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a user's input, and the place to mend it.

    `file` is shown as the user wrote it; `line` and `column` count from 1. `key` is the dotted
    name of a spec field, or a column or message index of a data row.
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None
    found: str | None = None
    expected: str | None = None
    suggestion: str | None = None

    @property
    def where(self) -> str:
        """`file:line`, as much of it as is known."""
        place = self.file or ""
        return f"{place}:{self.line}" if self.line is not None else place

    def sentence(self) -> str:
        """The fault without its place: what was found, expected, and the nearest right word."""
        text = self.message
        if self.suggestion:
            text = f"{text.rstrip('.')}. Did you mean {self.suggestion}?"
        return text

    def as_json(self) -> dict[str, Any]:
        """The fields that are set, for `--json`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class TinkerError(Exception):
    """A failure with one readable message, an optional next step, and an exit code."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    def as_json(self) -> dict[str, Any]:
        """The error as one JSON object: `error`, `hint`, `exit_code`."""
        document: dict[str, Any] = {"error": self.message, "exit_code": self.exit_code}
        if self.hint:
            document["hint"] = self.hint
        return document


class UsageError(TinkerError):
    """The command line asks for something that can't be (exit 2)."""

    exit_code = EXIT_USAGE


class InputFaults(TinkerError):
    """Faults of a spec, its data or another input file, all of them at once (exit 2)."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, faults: list[Fault], *, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.faults = faults

    def as_json(self) -> dict[str, Any]:
        """The error with its faults as a list."""
        return {**super().as_json(), "faults": [fault.as_json() for fault in self.faults]}


class RunFailed(TinkerError):
    """A run or a request failed after it was started (exit 1)."""


class CheckFailed(TinkerError):
    """A guard or a `--check` said no (exit 3)."""

    exit_code = EXIT_CHECK


class ServiceError(TinkerError):
    """No key, a refused key, or no server (exit 4)."""

    exit_code = EXIT_SERVICE


class Interrupted(TinkerError):
    """The user pressed Ctrl-C (exit 130)."""

    exit_code = EXIT_INTERRUPTED


def nearest(word: str, choices: list[str] | tuple[str, ...]) -> str | None:
    """Return the choice that `word` is most likely a misspelling of, or None."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = {choice.lower().replace("-", "_"): choice for choice in choices}
    return folded.get(word.lower().replace("-", "_"))
