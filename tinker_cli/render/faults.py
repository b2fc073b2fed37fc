"""What is wrong with a conversation before it trains anything: each loss that would be silent.

The rendered tokens are held against the row as it was written: what the renderer dropped, cut,
left untrained, or read as a control token. Knows rows and rendered conversations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault
from tinker_cli.render.shown import Lens, Message, Shown, Token

KNOWN_KEYS = {"role", "content", "tool_calls", "tool_call_id", "name", "trainable", "from", "value"}
TEXT_PARTS = ("text", "thinking")


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


def check_row(row: Row, lens: Lens) -> list[Problem]:
    """Every problem of a row, in the order of its messages."""
    parsed = parse_conversation(row)
    faults = [item for item in parsed if isinstance(item, Fault)]
    if faults:
        return [
            Problem(row.file, row.line, "form", f"{fault.key}: {fault.message}", _index(fault.key))
            for fault in faults
        ]
    messages = [item for item in parsed if not isinstance(item, Fault)]
    found = [*_unknown_keys(row), *_order(messages)]
    try:
        shown = lens.show(messages)
    except Exception as error:  # a renderer refuses in many ways; each is the row's problem
        reason = f"{lens.name} refuses it: {str(error) or type(error).__name__}"
        return [_at(row, kind, why, i) for kind, why, i in [*found, ("refused", reason, None)]]
    found += _of_tokens(messages, shown, lens)
    return [_at(row, kind, reason, index) for kind, reason, index in found]


Found = tuple[str, str, int | None]


def _at(row: Row, kind: str, reason: str, index: int | None) -> Problem:
    return Problem(row.file, row.line, kind, reason, index)


def _index(key: str | None) -> int | None:
    inside = (key or "").partition("[")[2].rstrip("]")
    return int(inside) if inside.isdigit() else None


def _unknown_keys(row: Row) -> Iterator[Found]:
    raw = row.value.get("messages") or row.value.get("conversations") or []
    for index, message in enumerate(raw):
        for key in sorted(set(message) - KNOWN_KEYS) if isinstance(message, Mapping) else ():
            yield "lost", f"the key {key!r} is not rendered", index


def _order(messages: Sequence[Message]) -> Iterator[Found]:
    roles = [str(message["role"]) for message in messages]
    spoken = [(i, role) for i, role in enumerate(roles) if role not in ("system", "developer")]
    if spoken and spoken[0][1] == "assistant":
        yield "order", "the assistant speaks before any user", spoken[0][0]
    for (_, before), (index, role) in itertools.pairwise(spoken):
        if role == before and role in ("user", "assistant"):
            yield "order", f"two {role} messages in a row", index
        if role == "tool" and before not in ("assistant", "tool"):
            yield "order", "a tool result without a call before it", index
    if roles[-1] in ("user", "tool"):
        yield "ending", f"the conversation ends with the {roles[-1]}", len(roles) - 1


def _of_tokens(messages: Sequence[Message], shown: Shown, lens: Lens) -> list[Found]:
    found: list[Found] = []
    if shown.trained == 0:
        cut = f", since it is cut at {len(shown.tokens)} of {shown.whole}" if shown.is_cut else ""
        found.append(("untrained", f"no token is trained{cut}", None))
    elif shown.is_cut:
        found.append(("cut", f"cut at {len(shown.tokens)} of {shown.whole} tokens", None))
    stops = {stop for stop in lens.renderer.get_stop_sequences() if isinstance(stop, int)}
    for index, message in enumerate(messages):
        tokens = [t for t in shown.tokens if t.message == index and t.part == "output"]
        if shown.is_cut and (not tokens or tokens[-1].index == len(shown.tokens) - 1):
            continue  # what the cut took is told once, above
        found += [(kind, why, index) for kind, why in _of_message(message, tokens, stops, lens)]
    return found


def _of_message(
    message: Message, tokens: Sequence[Token], stops: set[int], lens: Lens
) -> Iterator[tuple[str, str]]:
    trained = [token for token in tokens if token.is_trained]
    if trained and stops and message["role"] == "assistant" and trained[-1].id not in stops:
        tail = [token.id for token in trained[-3:]]
        if not stops & set(tail):
            yield "end", "its end-of-turn token is not trained"
    yield from _lost_content(message, tokens, lens)
    if getattr(lens.renderer, "disables_thinking", False) and _thoughts(message):
        yield "reasoning", f"it reasons, which the prompt of {lens.name} forbids"
    if message["role"] != "assistant":
        yield from _control_tokens(message, tokens, stops, lens)
    elif trained and not message.get("tool_calls"):
        yield from _round_trip(message, tokens, lens)


def _lost_content(
    message: Message, tokens: Sequence[Token], lens: Lens
) -> Iterator[tuple[str, str]]:
    ids = [token.id for token in tokens if token.id is not None]
    text = str(lens.tokenizer.decode(ids))
    has_image = any(token.id is None for token in tokens)
    for kind, piece in _pieces_of(message["content"]):
        if kind == "image" and not has_image:
            yield "lost", "its image is not rendered by this renderer"
        elif kind == "thinking" and piece.strip() not in text:
            yield "reasoning", "its reasoning is not rendered here"
        elif kind == "text" and piece.strip() not in text:
            yield "lost", f"text is lost or changed: {piece.strip()[:40]!r}"
        elif kind not in ("image", "thinking", "text", "tool_call"):
            yield "lost", f"a part of type {kind!r} is not rendered"
    for call in message.get("tool_calls") or ():
        if call.function.name not in text:
            yield "lost", f"the call of {call.function.name} is not rendered by this renderer"


def _thoughts(message: Message) -> str:
    pieces = _pieces_of(message["content"])
    return "".join(piece for kind, piece in pieces if kind == "thinking").strip()


def _pieces_of(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        before, tag, rest = content.partition("<think>")
        thought, closed, after = rest.partition("</think>")
        if tag and closed:
            yield "text", before
            yield "thinking", thought
            yield "text", after
        else:
            yield "text", content
        return
    for part in content:
        kind = str(part.get("type")) if isinstance(part, Mapping) else type(part).__name__
        body = part.get(kind, "") if isinstance(part, Mapping) else ""
        yield kind, body if isinstance(body, str) else ""


def _control_tokens(
    message: Message, tokens: Sequence[Token], stops: set[int], lens: Lens
) -> Iterator[tuple[str, str]]:
    content = "".join(piece for _, piece in _pieces_of(message["content"]))
    named: dict[str, int] = {}
    for token in tokens:
        if token.is_special and token.id is not None and token.text in content:
            named[token.text] = token.id
    for text, identity in named.items():
        yield "control", f"its text {text!r} becomes the control token {identity}"


def _round_trip(message: Message, tokens: Sequence[Token], lens: Lens) -> Iterator[tuple[str, str]]:
    if not isinstance(message["content"], str) or "<think>" in message["content"]:
        return
    from tinker_cookbook.renderers import get_text_content

    ids = [token.id for token in tokens if token.id is not None]
    parsed, _ = lens.renderer.parse_response(ids)
    back = get_text_content(parsed)
    if back != message["content"] and back.strip() == message["content"].strip():
        yield "spaces", "white space at its ends does not come back from the tokens"
    elif back != message["content"]:
        yield "parse", f"the tokens read back as {back[:40]!r}"
