"""What to ask: one prompt, or JSONL rows with `prompt` or `messages` and any `id`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import Fault, InputFaults
from tinker_cli.sampling.framing import Framing

Message = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """A conversation to be continued; `index` is its place in the input, `id` the row's own."""

    index: int
    messages: tuple[Message, ...]
    id: Any = None

    @property
    def name(self) -> Any:
        """The row's id, else its place."""
        return self.index if self.id is None else self.id


def from_text(text: str, system: str | None = None, framing: Framing | None = None) -> Prompt:
    """One user's message, in the framing of its run."""
    return _framed(0, {"prompt": text}, system, framing or Framing())


def from_lines(
    lines: Iterable[bytes], name: str, system: str | None = None, framing: Framing | None = None
) -> Iterator[Prompt]:
    """A prompt a line; raises InputFaults at the first line that is none.

    A row of `messages` is taken as it is, but for `system`; framing is for prompts.
    """
    index = 0
    for number, raw in enumerate(lines, 1):
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
        if not text:
            continue
        place = Fault("", file=name, line=number)
        yield _parse(text, index, place, system, framing or Framing())
        index += 1


def _parse(text: str, index: int, at: Fault, system: str | None, framing: Framing) -> Prompt:
    try:
        row = json.loads(text)
    except ValueError:
        if text[0] in "{[":
            raise _unreadable(at, "is no JSON") from None
        row = text  # a plain line is a prompt
    if isinstance(row, (str, int, float)):
        row = {"prompt": str(row)}
    messages = row.get("messages") if isinstance(row, dict) else None
    if isinstance(messages, list) and messages:
        if all(isinstance(m, dict) and "role" in m and "content" in m for m in messages):
            before = ({"role": "system", "content": system},) if system else ()
            return Prompt(index, (*before, *messages), row.get("id"))
    elif isinstance(row, dict) and isinstance(row.get("prompt"), str):
        return _framed(index, row, system, framing)
    raise _unreadable(at, "has neither prompt nor messages (role, content)")


def _framed(index: int, row: dict[str, Any], system: str | None, framing: Framing) -> Prompt:
    framing = framing.with_system(system) if system else framing
    user = {"role": "user", "content": framing.text(row)}
    return Prompt(index, (*framing.before, user), row.get("id"))


def _unreadable(at: Fault, what: str) -> InputFaults:
    fault = Fault(what, file=at.file, line=at.line)
    return InputFaults("the prompts can't be read:", [fault])
