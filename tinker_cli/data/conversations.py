"""A row -> the messages of a conversation, or the faults that make it none.

Reads the `messages` form (role, content as text or parts, tool calls) and the ShareGPT form
(`conversations` with `from` and `value`). Knows nothing of tokens.
"""

from __future__ import annotations

import json
from typing import Any

from tinker_cli.data.rows import Row, locate
from tinker_cli.errors import Fault, nearest

ROLES = ("system", "user", "assistant", "tool", "developer")
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
}
Message = dict[str, Any]


def parse_conversation(row: Row) -> list[Message] | list[Fault]:
    """The row's messages as the cookbook's renderers take them, or its faults."""
    if "messages" in row.value:
        raw, speaker, content = row.value["messages"], "role", "content"
    elif "conversations" in row.value:
        raw, speaker, content = row.value["conversations"], "from", "value"
    else:
        keys = ", ".join(row.value) or "nothing"
        return [_fault(row, "messages", f"missing; the row has {keys}")]
    if not isinstance(raw, list) or not raw:
        return [_fault(row, "messages", "must be a list of messages, and not empty")]
    messages: list[Message] = []
    faults: list[Fault] = []
    for index, item in enumerate(raw):
        message = _message(row, index, item, speaker, content)
        if isinstance(message, Fault):
            faults.append(message)
        else:
            messages.append(message)
    return faults or messages


def is_faulty(parsed: list[Message] | list[Fault]) -> bool:
    """True if `parse_conversation` returned faults."""
    return bool(parsed) and isinstance(parsed[0], Fault)


def _fault(row: Row, key: str, message: str, suggestion: str | None = None) -> Fault:
    return Fault(message, file=row.file, line=row.line, key=key, suggestion=suggestion)


def _message(row: Row, index: int, item: Any, speaker: str, content: str) -> Message | Fault:
    key = f"messages[{index}]"
    if not isinstance(item, dict):
        return _fault(row, key, f"must be an object, not {type(item).__name__}")
    said = item.get(speaker)
    role = SPEAKERS.get(str(said)) if speaker == "from" else said
    if role not in ROLES:
        known = tuple(SPEAKERS) if speaker == "from" else ROLES
        reason = f"{speaker} {said!r} is not one of {', '.join(known)}"
        return _fault(row, key, reason, nearest(str(said), known))
    text = item.get(content)
    calls = item.get("tool_calls")
    if text is None:
        if not calls:
            return _fault(row, key, f"{content} is missing or null, without tool_calls")
        text = ""
    if not isinstance(text, (str, list)):
        return _fault(row, key, f"{content} must be text or a list of parts")
    message: Message = {"role": role, "content": _joined(_parts(text, row))}
    for name in ("trainable", "name", "tool_call_id"):
        if item.get(name) is not None:
            message[name] = item[name]
    if calls:
        parsed = _tool_calls(row, key, calls)
        if isinstance(parsed, Fault):
            return parsed
        message["tool_calls"] = parsed
    return message


def _parts(content: str | list[Any], row: Row) -> str | list[Any]:
    """Image parts in the cookbook's form; a local image's path is relative to the data file."""
    if isinstance(content, str):
        return content
    return [_image(part, row) for part in content]


def _image(part: Any, row: Row) -> Any:
    if not isinstance(part, dict) or part.get("type") not in ("image", "image_url"):
        return part
    named = part.get("image_url", part.get("image"))
    source = named.get("url") if isinstance(named, dict) else named
    if isinstance(source, str) and "://" not in source and not source.startswith("data:"):
        path = locate(row.file).parent / source
        source = path.resolve().as_uri() if path.is_file() else source
    return {"type": "image", "image": source}


def _joined(content: str | list[Any]) -> str | list[Any]:
    """Parts that are all text become one text, so that they are tokenised together."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        return "".join(str(part.get("text", "")) for part in content)
    return content


def _tool_calls(row: Row, key: str, calls: Any) -> list[Any] | Fault:
    from tinker_cookbook.renderers.base import ToolCall

    parsed = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or "name" not in function:
            return _fault(row, key, "tool_calls needs function.name and function.arguments")
        arguments = function.get("arguments", "{}")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        name, identity = function["name"], call.get("id")
        try:
            json.loads(arguments)
        except ValueError as error:
            return _fault(row, key, f"arguments of {name} (call {identity}) are not JSON: {error}")
        body = ToolCall.FunctionBody(name=name, arguments=arguments)
        parsed.append(ToolCall(function=body, id=identity))
    return parsed
