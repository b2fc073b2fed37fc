"""What to ask: one prompt, or JSONL rows with `prompt` or `messages` and any `id`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import Fault, InputFaults

Message = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """A conversation to be continued; `index` is its place in the input, `id` the row's own."""

    index: int
    messages: tuple[Message, ...]
    id: Any = None


def from_text(text: str, system: str | None = None) -> Prompt:
    """One user's message."""
    return Prompt(0, (*_system(system), {"role": "user", "content": text}))


def from_lines(lines: Iterable[bytes], name: str, system: str | None = None) -> Iterator[Prompt]:
    """A prompt a line; raises InputFaults at the first line that is none."""
    index = 0
    for number, raw in enumerate(lines, 1):
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
        if not text:
            continue
        yield _parse(text, index, Fault("", file=name, line=number), system)
        index += 1


def _parse(text: str, index: int, at: Fault, system: str | None) -> Prompt:
    try:
        row = json.loads(text)
    except ValueError:
        row = text  # a plain line is a prompt
    if isinstance(row, (str, int, float)):
        row = {"prompt": str(row)}
    messages = row.get("messages") if isinstance(row, dict) else None
    if isinstance(messages, list) and messages:
        if all(isinstance(m, dict) and "role" in m and "content" in m for m in messages):
            return Prompt(index, (*_system(system), *messages), row.get("id"))
    elif isinstance(row, dict) and isinstance(row.get("prompt"), str):
        user = {"role": "user", "content": row["prompt"]}
        return Prompt(index, (*_system(system), user), row.get("id"))
    fault = Fault("has neither prompt nor messages (role, content)", file=at.file, line=at.line)
    raise InputFaults("the prompts can't be read:", [fault])


def _system(text: str | None) -> tuple[Message, ...]:
    return ({"role": "system", "content": text},) if text else ()
