"""What the launching side asks of the child, and what the child answers, as JSON lines.

Knows nothing of how either side does its part.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tinker_cli.errors import (
    Fault,
    InputFaults,
    RunFailed,
    ServiceError,
    TinkerError,
    UsageError,
)

MODES = ("fresh", "resume", "new", "overwrite")


@dataclass(frozen=True)
class LaunchRequest:
    """A run that is to start. `spec` is an absolute path; `mode` one of MODES."""

    spec: str
    kind: str
    overrides: tuple[str, ...] = ()
    local: bool = False
    mode: str = "fresh"
    allow_drift: bool = False
    max_usd: float | None = None
    argv: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LaunchRequest:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        fields["overrides"], fields["argv"] = tuple(fields["overrides"]), tuple(fields["argv"])
        return LaunchRequest(**fields)


@dataclass(frozen=True)
class Answer:
    """The child's answer: `run` if it took the run on, `complete` if nothing was left to do."""

    run: str
    messages: tuple[str, ...] = ()
    complete: bool = False
    step: int = 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"answer": asdict(self)})


def refusal_to_json(error: TinkerError) -> str:
    """The child's answer when it refuses: the error, so that the other side can raise it."""
    kind = "InputFaults" if isinstance(error, InputFaults) else type(error).__name__
    return json.dumps({"refusal": {"type": kind, **error.as_json()}})


def read_answer(line: str) -> Answer:
    """Return the answer in `line`; raises the error that the child refused with."""
    document: dict[str, Any] = json.loads(line)
    if "refusal" in document:
        raise _error(document["refusal"])
    fields = document["answer"]
    return Answer(**{**fields, "messages": tuple(fields["messages"])})


def _error(fields: dict[str, Any]) -> TinkerError:
    message, hint = fields["error"], fields.get("hint")
    if fields["type"] == "InputFaults":
        return InputFaults(message, [Fault(**each) for each in fields["faults"]], hint=hint)
    known = {"UsageError": UsageError, "ServiceError": ServiceError, "RunFailed": RunFailed}
    kind = known.get(fields["type"], TinkerError)
    return kind(message, hint=hint, exit_code=fields["exit_code"])
