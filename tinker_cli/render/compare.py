"""The same conversation through the tokenizer's own chat template, and the first difference."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.render.shown import Lens, Message, Shown

CONTEXT = 6  # tokens shown before the first difference
AHEAD = 8  # and from it on
THOUGHT = re.compile(
    r"(<think>.*?)?</think>\s*|<\|channel\|>analysis<\|message\|>.*?<\|end\|><\|start\|>assistant",
    re.DOTALL,
)
DATE = re.compile(r"Cutting Knowledge Date: .*?\n\n", re.DOTALL)
LLAMA_SYSTEM = "<|start_header_id|>system<|end_header_id|>\n\n<|eot_id|>"


class TemplateRefused(UsageError):
    """The chat template raised for this conversation; another may pass."""


@dataclass(frozen=True)
class Difference:
    """Where two token sequences part: position, and both sides around it, decoded."""

    position: int
    before: str
    ours: str
    theirs: str

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Comparison:
    """A row in the renderer's form and in the template's: `form` is supervised or generation.

    `expected` says why a difference is a known one; `refused` is what the template said instead.
    """

    form: str
    tokens: int
    difference: Difference | None = None
    expected: str | None = None
    refused: str | None = None

    @property
    def is_identical(self) -> bool:
        """True if there is no difference."""
        return self.difference is None and self.refused is None

    def as_json(self) -> dict[str, Any]:
        """`form`, `identical`, and of a difference both sides."""
        document: dict[str, Any] = {"form": self.form, "identical": self.is_identical}
        if self.refused is not None:
            document["refused"] = self.refused
        if self.difference is not None:
            document |= {"difference": self.difference.as_json(), "expected": self.expected}
        return document


def compare(
    lens: Lens, shown: Shown, messages: Sequence[Message], *, generation: bool = False
) -> Comparison:
    """Hold what the renderer wrote against the tokenizer's template of the same messages.

    With `generation`, `shown` is the sampling prompt and `messages` are those before the answer.
    """
    form = "generation" if generation else "supervised"
    options = template_options(lens.name)
    if generation:
        options["add_generation_prompt"] = True
    ours = [token.id for token in shown.tokens if token.id is not None]
    try:
        theirs = template_tokens(lens.tokenizer, messages, **options)
    except TemplateRefused as error:
        return Comparison(form, len(ours), refused=error.message)
    found = first_difference(lens.tokenizer, ours, theirs)
    return Comparison(form, len(ours), found, _why(lens, ours, theirs) if found else None)


def _why(lens: Lens, ours: Sequence[int], theirs: Sequence[int]) -> str | None:
    decode = lens.tokenizer.decode
    controls = [sum(token in lens.special for token in each) for each in (ours, theirs)]
    if decode(ours).rstrip() == decode(theirs).rstrip() and controls[0] != controls[1]:
        return "a text names a control token: one side keeps it text, the other makes it the token"
    return explained(decode(ours), decode(theirs))


def template_options(renderer: str) -> dict[str, Any]:
    """What the template must be told so that it writes the form that the renderer writes."""
    if "disable_thinking" in renderer or renderer == "deepseekv3":
        return {"enable_thinking": False, "thinking": False}
    if renderer.startswith("gpt_oss") and renderer.endswith("_reasoning"):
        return {"reasoning_effort": renderer.split("_")[2]}
    if renderer == "deepseekv3_thinking":
        return {"thinking": True}
    return {}


def template_tokens(tokenizer: Any, messages: Sequence[Message], **options: Any) -> list[int]:
    """The tokens of the tokenizer's own chat template; UsageError if it has none or refuses."""
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("this tokenizer has no chat template to compare with")
    plain = [_plain(message) for message in messages]
    try:
        text = tokenizer.apply_chat_template(plain, tokenize=False, **options)
    except Exception as error:  # a template is a program of its own and may raise anything
        raise TemplateRefused(f"the chat template refuses this conversation: {error}") from None
    return list(tokenizer.encode(text, add_special_tokens=False))


def _plain(message: Message) -> Message:
    """The message as templates take it: calls as objects, reasoning as a field of its own."""
    plain = {key: value for key, value in message.items() if key != "trainable"}
    calls = plain.pop("tool_calls", None)
    if calls:
        plain["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {
                    "name": call.function.name,
                    "arguments": json.loads(call.function.arguments),
                },
            }
            for call in calls
        ]
    parts = plain["content"]
    if isinstance(parts, list) and all(part.get("type") in ("text", "thinking") for part in parts):
        thought = "".join(part.get("thinking", "") for part in parts)
        plain["content"] = "".join(part.get("text", "") for part in parts)
        if thought:
            plain["reasoning_content"] = plain["thinking"] = thought  # by the template's family
    return plain


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


def explained(ours: str, theirs: str) -> str | None:
    """Why two decoded forms of a conversation differ, if it is for a known reason.

    None if it is not known. The forms are those of the whole conversation.
    """
    if ours.rstrip("\n") == theirs.rstrip("\n"):
        return "the same text: the renderer ends a token where a header ends, as sampling does"
    if _tidy(ours) == _tidy(theirs):
        return "white space at the ends of a text: one side trims it"
    ours, theirs = DATE.sub("", ours), DATE.sub("", theirs)
    if _tidy(ours.replace(LLAMA_SYSTEM, "")) == _tidy(theirs.replace(LLAMA_SYSTEM, "")):
        return "the template's preamble with a date, which the renderer leaves out"
    if _tidy(THOUGHT.sub("", ours)) == _tidy(THOUGHT.sub("", theirs)):
        return "think blocks of history, or empty ones: each side has rules of its own"
    return None


def _tidy(text: str) -> str:
    return re.sub(r"\s*(<[^<>]*>)\s*", r"\1", text).strip()
