"""Request bodies: read under a limit, and the fields that handlers take from them.

Knows bytes and JSON; knows nothing of what a request means.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from tinker_cli.local.faults import ClientFault, TooLarge

BODY_LIMIT = 256 << 20  # bytes
BEGINNING = 1024  # bytes kept of one that is too large
Body = dict[str, Any]


async def read(request: Request) -> bytes:
    """The whole body; TooLarge, with its beginning, beyond the limit."""
    pieces, size, beginning = [], 0, b""
    async for piece in request.stream():
        size += len(piece)
        beginning = beginning or piece[:BEGINNING]
        if size <= BODY_LIMIT:
            pieces.append(piece)
        else:
            pieces.clear()
    if size > BODY_LIMIT:
        raise TooLarge(f"the body exceeds {BODY_LIMIT >> 20} MiB", beginning)
    return b"".join(pieces)


async def read_json(request: Request) -> Body:
    """The body as a JSON object; ClientFault otherwise."""
    try:
        body = json.loads(await read(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise ClientFault(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ClientFault("the body must be a JSON object")
    return body


def text(body: Body, name: str) -> str:
    """A field that must be text."""
    value = body.get(name)
    if not isinstance(value, str):
        raise ClientFault(f"{name} must be text, not {_shown(value)}")
    return value


def optional_text(body: Body, name: str) -> str | None:
    """A field that is text or absent."""
    return None if body.get(name) is None else text(body, name)


def whole(body: Body, name: str) -> int:
    """A field that must be a whole number of at least 0, within 63 bits."""
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ClientFault(f"{name} must be a whole number, not {_shown(value)}")
    return value


def optional_whole(body: Body, name: str) -> int | None:
    """A field that is a whole number or absent."""
    return None if body.get(name) is None else whole(body, name)


def mapping(body: Body, name: str) -> Body | None:
    """A field that is an object or absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise ClientFault(f"{name} must be an object, not {_shown(value)}")
    return value


def texts(body: Body, name: str) -> list[str] | None:
    """A field that is a list of texts or absent."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ClientFault(f"{name} must be a list of texts, not {_shown(value)}")
    return value


def metadata(body: Body) -> dict[str, str] | None:
    """`user_metadata`: texts by name, or absent."""
    value = mapping(body, "user_metadata")
    if value is not None and not all(isinstance(item, str) for item in value.values()):
        raise ClientFault("user_metadata must hold texts only")
    return value


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) < 80 else type(value).__name__
