"""The engine as an ASGI application: the key, the routes, and every fault as a sentence.

A fault leaves as a 4xx with one sentence, or, where an operation had a sequence number, as the
operation's user error. Knows HTTP; the work is behind `routes` and `catalogue`.
"""

from __future__ import annotations

import hmac
import logging
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tinker_cli.local.catalogue import Catalogue
from tinker_cli.local.faults import ClientFault, NotFound, TooLarge
from tinker_cli.local.routes import Handler, Routes
from tinker_cli.local.sessions import Sessions

log = logging.getLogger("tinker_cli.local")
PREFIX = "/api/v1"
# No key needed: these tell counts only, or carry a signature of their own.
OPEN_PATHS = (f"{PREFIX}/healthz", f"{PREFIX}/status")
OPEN_PREFIX = f"{PREFIX}/files/"


def _safe(handler: Handler) -> Handler:
    """A handler whose faults are 4xx sentences, and whose surprises are a logged 400."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except NotFound as fault:
            return _refusal(404, str(fault))
        except TooLarge as fault:
            return _refusal(413, str(fault))
        except ClientFault as fault:
            return _refusal(400, str(fault))
        except ClientDisconnect:
            return _refusal(400, "the client left")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            log.warning("%s: %s: %s", request.url.path, type(error).__name__, error)
            return _refusal(400, f"the request is malformed: {type(error).__name__}: {error}")

    return handle


def _refusal(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status_code=status)


class KeyCheck:
    """Refuses every request without the engine's key, compared in constant time."""

    def __init__(self, app: Any, key: str):
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what has the key or needs none."""
        if scope["type"] == "http" and not self._may_pass(scope):
            refusal = _refusal(401, "the key was refused: set TINKER_API_KEY to this engine's key")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may_pass(self, scope: Any) -> bool:
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return True
        given = next((v for k, v in scope["headers"] if k == b"x-api-key"), b"")
        return hmac.compare_digest(given, self._key)


def make_app(sessions: Sessions, key: str) -> Starlette:
    """The engine as an ASGI application."""
    table = [*Routes(sessions).table(), *Catalogue(sessions, key).table()]
    routes = [
        Route(f"{PREFIX}/{path}", _safe(handler), methods=[method])
        for method, path, handler in table
    ]
    return Starlette(routes=routes, middleware=[Middleware(KeyCheck, key=key)])
