"""What is wrong with a conversation before it trains anything: each loss that would be silent.

The row is held against itself (keys, order, contents) and against its tokens (`losses`). Knows
rows and lenses; prints nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault
from tinker_cli.render import losses
from tinker_cli.render.losses import Found
from tinker_cli.render.shown import Lens, Message
from tinker_cli.render.sources import refusal

KNOWN_KEYS = {
    "messages": {"role", "content", "tool_calls", "tool_call_id", "name", "trainable"},
    "conversations": {"from", "value", "tool_calls", "tool_call_id", "name", "trainable"},
}
# Keys of a row that say something to the model elsewhere, and nothing here; others are notes.
MEANT_KEYS = ("tools", "functions", "system", "images", "videos", "audios", "weight", "response")
FORMS = ("messages", "conversations")


@dataclass(frozen=True)
class Problem:
    """One thing that training would lose: `kind` is one word for filters, `reason` a sentence."""

    file: str
    line: int
    kind: str
    reason: str
    message: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that are known."""
        return {key: value for key, value in self.__dict__.items() if value is not None}


@dataclass(frozen=True)
class Checked:
    """The problems of some rows, and which form each of them had."""

    rows: int
    problems: tuple[Problem, ...]
    forms: frozenset[str]


def check_batch(lens: Lens, batch: Sequence[Row | Fault]) -> Checked:
    """Every problem of some rows, in their order; a faulty line is a problem too."""
    problems: list[Problem] = []
    forms: set[str] = set()
    for row in batch:
        if isinstance(row, Fault):
            problems.append(Problem(row.file or "", row.line or 0, "form", row.sentence()))
        else:
            problems += check_row(row, lens)
            forms |= {form for form in FORMS if form in row.value}
    return Checked(len(batch), tuple(problems), frozenset(forms))


def check_row(row: Row, lens: Lens) -> list[Problem]:
    """Every problem of a row, in the order of its messages."""
    parsed = parse_conversation(row)
    faults = [item for item in parsed if isinstance(item, Fault)]
    if faults:
        return [
            Problem(row.file, row.line, "form", _told(fault), _index(fault.key)) for fault in faults
        ]
    messages = [item for item in parsed if not isinstance(item, Fault)]
    found = [*_keys(row), *_empty(messages), *_order(messages)]
    try:
        shown = lens.show(messages)
    except Exception as error:  # a renderer refuses in many ways; each is the row's problem
        found.append(("refused", refusal(lens, error), _refused_at(messages, lens)))
    else:
        found += losses.of_tokens(messages, shown, lens)
    return [Problem(row.file, row.line, kind, reason, index) for kind, reason, index in found]


def _told(fault: Fault) -> str:
    sentence = fault.sentence()
    return sentence if _index(fault.key) is not None else f"{fault.key}: {sentence}"


def _index(key: str | None) -> int | None:
    inside = (key or "").partition("[")[2].rstrip("]")
    return int(inside) if inside.isdigit() else None


def _keys(row: Row) -> Iterator[Found]:
    form = next(form for form in FORMS if form in row.value)
    for key in MEANT_KEYS:
        if row.value.get(key):
            yield "lost", f"the row's {key!r} is not rendered", None
    for index, message in enumerate(row.value[form]):
        for key in sorted(set(message) - KNOWN_KEYS[form]):
            if message[key] is not None:
                yield "lost", f"the key {key!r} is not rendered", index
        trainable = message.get("trainable")
        if trainable is not None and not isinstance(trainable, bool):
            yield "lost", f"trainable must be true or false, not {trainable!r}", index


def _empty(messages: Sequence[Message]) -> Iterator[Found]:
    for index, message in enumerate(messages):
        content = message["content"]
        nothing = not content if isinstance(content, str) else not any(map(_has_body, content))
        if nothing and not message.get("tool_calls"):
            yield "empty", "its content is empty", index


def _has_body(part: Any) -> bool:
    return not isinstance(part, Mapping) or any(v for k, v in part.items() if k != "type")


def _order(messages: Sequence[Message]) -> Iterator[Found]:
    roles = [str(message["role"]) for message in messages]
    spoken = [(i, role) for i, role in enumerate(roles) if role not in ("system", "developer")]
    if spoken and spoken[0][1] == "assistant":
        yield "order", "the assistant speaks before any user", spoken[0][0]
    if spoken and spoken[0][1] == "tool":
        yield "order", "a tool result without a call before it", spoken[0][0]
    for (_, before), (index, role) in itertools.pairwise(spoken):
        if role == before and role in ("user", "assistant"):
            yield "order", f"two {role} messages in a row", index
        if role == "tool" and before not in ("assistant", "tool"):
            yield "order", "a tool result without a call before it", index
    if roles[-1] in ("user", "tool"):
        yield "ending", f"the conversation ends with the {roles[-1]}", len(roles) - 1


def _refused_at(messages: Sequence[Message], lens: Lens) -> int | None:
    """The first message that the renderer refuses, found by rendering more and more of them."""
    for index in range(len(messages)):
        try:
            lens.show(messages[: index + 1])
        except Exception:  # the refusal itself is told by the caller
            return index
    return None
