"""The routes: HTTP requests in, futures and JSON out.

Every body is read here under a size limit and every fault leaves as a 4xx with one sentence, or,
where an operation had a sequence number, as the operation's user error. Knows the wire's paths and
fields; the work is in `sessions`, the catalogue of runs and checkpoints in `catalogue`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tinker_cli.local.catalogue import Catalogue
from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.protocol import PROTOBUF
from tinker_cli.local.scheduler import Future
from tinker_cli.local.sessions import Sessions

log = logging.getLogger("tinker_cli.local")
POLL_SECONDS = 25.0  # the client gives up at 45 s; answer 408 well before
BODY_LIMIT = 256 << 20  # bytes
OPEN_PATHS = ("/api/v1/healthz", "/api/v1/status")  # no key needed: they tell counts only
Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """The handlers of one engine."""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self.catalogue = Catalogue(sessions)
        self.started = time.monotonic()

    def table(self) -> list[Route]:
        """Every route of the protocol."""
        posts: dict[str, Handler] = {
            "client/config": self.empty,
            "client/dynamic_config": self.empty,
            "create_session": self.create_session,
            "session_heartbeat": self.heartbeat,
            "sessions/{session}/finish": self.finish,
            "telemetry": self.telemetry,
            "create_model": self.create_model,
            "get_info": self.get_info,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "save_weights": self.save_weights,
            "save_weights_for_sampler": self.save_weights_for_sampler,
            "save_weights_external": self.save_weights_external,
            "load_weights": self.load_weights,
            "create_sampling_session": self.create_sampling_session,
            "asample": self.asample,
            "retrieve_future": self.retrieve_future,
            "cancel_future": self.cancel_future,
        }
        gets: dict[str, Handler] = {
            "healthz": self.empty,
            "get_server_capabilities": self.capabilities,
            "status": self.status,
            "samplers/{sampler}": self.get_sampler,
        }
        own = [Route(f"/api/v1/{path}", _safe(h), methods=["POST"]) for path, h in posts.items()]
        own += [Route(f"/api/v1/{path}", _safe(h), methods=["GET"]) for path, h in gets.items()]
        return [*own, *self.catalogue.table(_safe)]

    async def empty(self, request: Request) -> Response:
        """Flags: all as the client likes."""
        return JSONResponse({})

    async def telemetry(self, request: Request) -> Response:
        """Accepted and forgotten."""
        return JSONResponse({"status": "accepted"})

    async def create_session(self, request: Request) -> Response:
        body = await _json(request)
        session = self.sessions.open_session(body.get("user_metadata"), body.get("display_name"))
        return JSONResponse({"session_id": session.id, "type": "create_session"})

    async def heartbeat(self, request: Request) -> Response:
        body = await _json(request)
        self.sessions.session(_text(body, "session_id"))
        return JSONResponse({"type": "session_heartbeat"})

    async def finish(self, request: Request) -> Response:
        self.sessions.close_session(request.path_params["session"])
        return JSONResponse({})

    async def create_model(self, request: Request) -> Response:
        body = await _json(request)
        kind = (body.get("optimizer_config") or {}).get("type", "adamw")
        if kind != "adamw":
            raise ClientFault(f"the local engine has adamw only, not {kind!r}")
        return _promise(
            self.sessions.create_model(
                _text(body, "session_id"),
                _whole(body, "model_seq_id"),
                _text(body, "base_model"),
                body.get("lora_config") or {},
                body.get("user_metadata"),
            )
        )

    async def get_info(self, request: Request) -> Response:
        body = await _json(request)
        model = self.sessions.model(_text(body, "model_id"))
        learner = model.learner
        base = learner.model if learner else self.sessions.base_model(model.base_name)
        shape = learner.adapter.shape if learner else None
        data = {
            "arch": base.network.config.model_type,
            "model_name": base.name,
            "tokenizer_id": base.source,
        }
        return JSONResponse(
            {
                "type": "get_info",
                "model_id": model.id,
                "model_name": base.name,
                "model_data": data,
                "is_lora": True,
                "lora_rank": shape.rank if shape else None,
            }
        )

    async def forward_backward(self, request: Request) -> Response:
        return _promise(self.sessions.train(await _body(request)))

    async def optim_step(self, request: Request) -> Response:
        body = await _json(request)
        other = body.get("optimizer_params")
        params = body.get("adam_params") or {}
        return _promise(
            self.sessions.optim_step(_text(body, "model_id"), _whole(body, "seq_id"), params, other)
        )

    async def save_weights(self, request: Request) -> Response:
        return self._save(await _json(request), "weights")

    async def save_weights_for_sampler(self, request: Request) -> Response:
        body = await _json(request)
        if body.get("path") is not None:
            return self._save(body, "sampler_weights")
        model_id, seq = _text(body, "model_id"), _whole(body, "seq_id")
        return _promise(
            self.sessions.snapshot(model_id, seq, _whole(body, "sampling_session_seq_id"))
        )

    def _save(self, body: dict[str, Any], kind: str) -> Response:
        return _promise(
            self.sessions.save(
                _text(body, "model_id"),
                _whole(body, "seq_id"),
                kind,
                body.get("path"),
                body.get("ttl_seconds"),
                body.get("user_metadata"),
            )
        )

    async def save_weights_external(self, request: Request) -> Response:
        body = await _json(request)
        reason = (
            "the local engine does not export weights: its checkpoints are PEFT folders on disk"
        )
        return _promise(
            self.sessions.refuse(
                "save_weights_external", _text(body, "model_id"), _whole(body, "seq_id"), reason
            )
        )

    async def load_weights(self, request: Request) -> Response:
        body = await _json(request)
        path, optimizer = _text(body, "path"), bool(body.get("optimizer"))
        if body.get("session_id"):
            future = self.sessions.create_from_checkpoint(
                _text(body, "session_id"),
                _whole(body, "model_seq_id"),
                path,
                optimizer=optimizer,
                metadata=body.get("user_metadata"),
            )
        else:
            model_id, seq = _text(body, "model_id"), _whole(body, "seq_id")
            future = self.sessions.load(model_id, seq, path, optimizer=optimizer)
        return _promise(future)

    async def create_sampling_session(self, request: Request) -> Response:
        body = await _json(request)
        sampler = await asyncio.to_thread(
            self.sessions.create_sampler,
            _text(body, "session_id"),
            _whole(body, "sampling_session_seq_id"),
            body.get("base_model"),
            body.get("model_path"),
        )
        return JSONResponse({"sampling_session_id": sampler.id, "type": "create_sampling_session"})

    async def get_sampler(self, request: Request) -> Response:
        sampler = self.sessions.sampler(request.path_params["sampler"])
        return JSONResponse(
            {
                "sampler_id": sampler.id,
                "base_model": sampler.base.name,
                "model_path": sampler.model_path,
            }
        )

    async def asample(self, request: Request) -> Response:
        body = await _json(request)
        if not body.get("sampling_session_id"):
            raise ClientFault("asample needs sampling_session_id")
        future = self.sessions.sample(body)
        return JSONResponse({"request_id": future.id, "sample_sequence_ids": future.ids})

    async def retrieve_future(self, request: Request) -> Response:
        body = await _json(request)
        future = self.sessions.scheduler.future(_text(body, "request_id"))
        if not await _is_ready(future):
            return JSONResponse({"error": "not ready"}, status_code=408)
        if isinstance(future.result, bytes):
            return Response(future.result, media_type=PROTOBUF)
        return JSONResponse(future.result)

    async def cancel_future(self, request: Request) -> Response:
        body = await _json(request)
        self.sessions.scheduler.cancel(_text(body, "request_id"))
        return JSONResponse({})

    async def capabilities(self, request: Request) -> Response:
        context = self.sessions.default.context
        return JSONResponse(
            {
                "supported_models": [
                    {
                        "model_name": name,
                        "max_context_length": context,
                        "trainable": True,
                        "sampleable": True,
                    }
                    for name in self.sessions.model_names
                ]
            }
        )

    async def status(self, request: Request) -> Response:
        sessions = self.sessions
        return JSONResponse(
            {
                "models": sessions.model_names,
                "sessions": len(sessions.sessions),
                "training": sum(m.learner is not None for m in sessions.models.values()),
                "samplers": len(sessions.samplers),
                "operations": sessions.scheduler.operations,
                "pid": os.getpid(),
                "uptime_s": round(time.monotonic() - self.started, 1),
            }
        )


async def _is_ready(future: Future) -> bool:
    if future.ready.is_set():
        return True
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    future.on_ready.append(wake)
    if future.ready.is_set():
        return True
    try:
        await asyncio.wait_for(woken.wait(), POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def _promise(future: Future) -> Response:
    return JSONResponse({"request_id": future.id})


async def _body(request: Request) -> bytes:
    if int(request.headers.get("content-length") or 0) > BODY_LIMIT:
        raise ClientFault(f"the body exceeds {BODY_LIMIT >> 20} MiB")
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_LIMIT:
            raise ClientFault(f"the body exceeds {BODY_LIMIT >> 20} MiB")
        pieces.append(piece)
    return b"".join(pieces)


async def _json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await _body(request) or b"{}")
    except ValueError as error:
        raise ClientFault(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ClientFault("the body must be a JSON object")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise ClientFault(f"{name} must be text, not {value!r}")
    return value


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ClientFault(f"{name} must be a whole number, not {value!r}")
    return value


def _safe(handler: Handler) -> Handler:
    """A handler whose faults are 4xx sentences, and whose surprises are a logged 400."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except NotFound as fault:
            return JSONResponse({"detail": str(fault)}, status_code=404)
        except ClientFault as fault:
            return JSONResponse({"detail": str(fault)}, status_code=400)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            log.warning("%s: %s: %s", request.url.path, type(error).__name__, error)
            detail = f"the request is malformed: {type(error).__name__}: {error}"
            return JSONResponse({"detail": detail}, status_code=400)

    return handle


class KeyCheck(BaseHTTPMiddleware):
    """Refuses every request without the engine's key."""

    def __init__(self, app: Any, key: str):
        super().__init__(app)
        self._key = key

    async def dispatch(self, request: Request, call_next: Any) -> Response:
        """Compare in constant time."""
        given = request.headers.get("x-api-key", "")
        if request.url.path not in OPEN_PATHS and not hmac.compare_digest(given, self._key):
            return JSONResponse({"detail": "the key was refused"}, status_code=401)
        response: Response = await call_next(request)
        return response


def make_app(sessions: Sessions, key: str) -> Starlette:
    """The engine as an ASGI application."""
    return Starlette(routes=Routes(sessions).table(), middleware=[Middleware(KeyCheck, key=key)])
