"""The same conversation through the tokenizer's own chat template, and the first difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.render.shown import Message

CONTEXT = 6  # tokens shown before the first difference
AHEAD = 8  # and from it on


@dataclass(frozen=True)
class Difference:
    """Where two token sequences part: position, and both sides around it, decoded."""

    position: int
    before: str
    ours: str
    theirs: str


def template_tokens(tokenizer: Any, messages: Sequence[Message], **options: Any) -> list[int]:
    """The tokens of the tokenizer's own chat template; UsageError if it has none or refuses."""
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("this tokenizer has no chat template to compare with")
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
    except Exception as error:  # a template is a program of its own and may raise anything
        raise UsageError(f"the chat template refuses this conversation: {error}") from None
    return list(tokenizer.encode(text, add_special_tokens=False))


def first_difference(
    tokenizer: Any, ours: Sequence[int], theirs: Sequence[int]
) -> Difference | None:
    """The first position at which the sequences differ; None if they are the same.

    A last newline after the end-of-turn token, which templates write and training has no use for,
    is no difference.
    """
    if list(ours) == list(theirs) or _is_newline(tokenizer, ours, theirs):
        return None
    pairs = enumerate(zip(ours, theirs, strict=False))
    position = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    start = max(0, position - CONTEXT)
    return Difference(
        position,
        tokenizer.decode(list(ours[start:position])),
        tokenizer.decode(list(ours[position : position + AHEAD])),
        tokenizer.decode(list(theirs[position : position + AHEAD])),
    )


def _is_newline(tokenizer: Any, ours: Sequence[int], theirs: Sequence[int]) -> bool:
    extra = list(theirs[len(ours) :])
    return bool(
        list(theirs[: len(ours)]) == list(ours)
        and len(extra) == 1
        and tokenizer.decode(extra).strip() == ""
    )
