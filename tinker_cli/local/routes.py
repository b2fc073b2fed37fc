"""The routes of training and sampling: fields out of requests, promises and answers back.

Knows the wire's paths and fields; the work is in `training` and `sampling`. The listing half of the
protocol is in `catalogue`, keys and faults in `server`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tinker_cli.local import bodies, protocol
from tinker_cli.local.bodies import Body
from tinker_cli.local.faults import ClientFault, NotFound, TooLarge
from tinker_cli.local.futures import Future, document
from tinker_cli.local.sampling import Samples
from tinker_cli.local.sessions import Sessions
from tinker_cli.local.training import SaveOptions, Training

POLL_SECONDS = 25.0  # the client gives up at 45 s; answer 408 well before
Handler = Callable[[Request], Awaitable[Response]]
INTERRUPTED = "interrupted"


class Routes:
    """The handlers of one engine."""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self.training, self.samples = Training(sessions), Samples(sessions)
        self.started = time.monotonic()

    def table(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of every route, those of every sample first."""
        posts: dict[str, Handler] = {
            "asample": self.asample,
            "retrieve_future": self.retrieve_future,
            "client/config": self.empty,
            "client/dynamic_config": self.empty,
            "create_session": self.create_session,
            "session_heartbeat": self.heartbeat,
            "sessions/{session}/finish": self.finish,
            "telemetry": self.telemetry,
            "create_model": self.create_model,
            "unload_model": self.unload_model,
            "get_info": self.get_info,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "save_weights": self.save_weights,
            "save_weights_for_sampler": self.save_weights_for_sampler,
            "save_weights_external": self.save_weights_external,
            "load_weights": self.load_weights,
            "create_sampling_session": self.create_sampling_session,
            "join_sampling_session": self.join_sampling_session,
            "cancel_future": self.cancel_future,
        }
        gets: dict[str, Handler] = {
            "healthz": self.healthz,
            "get_server_capabilities": self.capabilities,
            "status": self.status,
            "samplers/{sampler}": self.get_sampler,
        }
        return [
            *(("POST", path, handler) for path, handler in posts.items()),
            *(("GET", path, handler) for path, handler in gets.items()),
        ]

    # -- sessions ------------------------------------------------------------------------------

    async def empty(self, request: Request) -> Response:
        """Flags: all as the client likes."""
        return JSONResponse({})

    async def healthz(self, request: Request) -> Response:
        """Alive."""
        return JSONResponse({"status": "ok"})

    async def telemetry(self, request: Request) -> Response:
        """Accepted and forgotten."""
        await bodies.read(request)
        return JSONResponse({"status": "accepted"})

    async def create_session(self, request: Request) -> Response:
        """A new session."""
        body = await bodies.read_json(request)
        session = self.sessions.open_session(
            bodies.mapping(body, "user_metadata"),
            bodies.optional_text(body, "display_name"),
            bodies.optional_text(body, "project_id"),
        )
        return JSONResponse({"session_id": session.id, "type": "create_session"})

    async def heartbeat(self, request: Request) -> Response:
        """The client is there; 410 tells one whose session has ended to stop asking."""
        body = await bodies.read_json(request)
        session = self.sessions.session(bodies.text(body, "session_id"))
        if session.ended is not None:
            return JSONResponse({"detail": "the session has ended"}, status_code=410)
        self.sessions.sign_of_life(session.id)
        return JSONResponse({"type": "session_heartbeat"})

    async def finish(self, request: Request) -> Response:
        """The client is done."""
        reason = (await bodies.read_json(request)).get("reason")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        self.sessions.close_session(
            request.path_params["session"], kind if isinstance(kind, str) else INTERRUPTED
        )
        return JSONResponse({})

    # -- training ------------------------------------------------------------------------------

    async def create_model(self, request: Request) -> Response:
        """A model to train; refused at once if its base is not here."""
        body = await bodies.read_json(request)
        base = bodies.text(body, "base_model")
        if not self.sessions.knows_base(base):
            self.sessions.base_model(base)
        return _promise(
            self.training.create_model(
                bodies.text(body, "session_id"),
                bodies.whole(body, "model_seq_id"),
                base,
                bodies.mapping(body, "lora_config") or {},
                bodies.mapping(body, "optimizer_config"),
                bodies.metadata(body),
            )
        )

    async def unload_model(self, request: Request) -> Response:
        """Free a model's memory."""
        body = await bodies.read_json(request)
        return _promise(self.training.unload(bodies.text(body, "model_id")))

    async def get_info(self, request: Request) -> Response:
        """Base, tokenizer and LoRA shape of a model."""
        body = await bodies.read_json(request)
        model = self.sessions.model(bodies.text(body, "model_id"))
        learner = model.learner
        base = learner.model if learner else self.sessions.base_model(model.base_name)
        return JSONResponse(
            {
                "type": "get_info",
                "model_id": model.id,
                "model_name": base.name,
                "model_data": {
                    "arch": base.network.config.model_type,
                    "model_name": base.name,
                    "tokenizer_id": base.source,
                },
                "is_lora": True,
                "lora_rank": learner.adapter.shape.rank if learner else None,
            }
        )

    async def forward_backward(self, request: Request) -> Response:
        """Forward and backward, or forward only. A body that is too large still takes its turn."""
        try:
            return _promise(self.training.train(await bodies.read(request)))
        except TooLarge as fault:
            model_id, seq = protocol.read_beginning(fault.beginning)
            return _promise(self.training.refuse("forward_backward", model_id, seq, str(fault)))

    async def optim_step(self, request: Request) -> Response:
        """One optimizer step."""
        body = await bodies.read_json(request)
        return self._in_turn(
            "optim_step",
            body,
            lambda model_id, seq: self.training.optim_step(
                model_id,
                seq,
                bodies.mapping(body, "adam_params"),
                bodies.mapping(body, "optimizer_params"),
            ),
        )

    async def save_weights(self, request: Request) -> Response:
        """A checkpoint with the optimizer's state."""
        body = await bodies.read_json(request)
        return self._in_turn(
            "save_weights",
            body,
            lambda model_id, seq: self.training.save(model_id, seq, "weights", _options(body)),
        )

    async def save_weights_for_sampler(self, request: Request) -> Response:
        """A checkpoint for sampling, or without a path a sampler in memory."""
        body = await bodies.read_json(request)

        def save(model_id: str, seq: int) -> Future:
            if body.get("path") is not None:
                return self.training.save(model_id, seq, "sampler_weights", _options(body))
            return self.training.snapshot(
                model_id,
                seq,
                bodies.whole(body, "sampling_session_seq_id"),
                bodies.optional_text(body, "kind") or "snapshot",
            )

        return self._in_turn("save_weights_for_sampler", body, save)

    async def save_weights_external(self, request: Request) -> Response:
        """A checkpoint to be downloaded."""
        body = await bodies.read_json(request)
        return self._in_turn(
            "save_weights_external",
            body,
            lambda model_id, seq: self.training.export(
                model_id, seq, _options(body), bodies.texts(body, "age_encryption_recipients")
            ),
        )

    async def load_weights(self, request: Request) -> Response:
        """Weights into a model, or a model from weights."""
        body = await bodies.read_json(request)
        optimizer = bool(body.get("optimizer"))
        if body.get("session_id") is None:
            return self._in_turn(
                "load_weights",
                body,
                lambda model_id, seq: self.training.load(
                    model_id, seq, bodies.text(body, "path"), optimizer=optimizer
                ),
            )
        return _promise(
            self.training.create_from_checkpoint(
                bodies.text(body, "session_id"),
                bodies.whole(body, "model_seq_id"),
                bodies.text(body, "path"),
                optimizer=optimizer,
                base_name=bodies.optional_text(body, "base_model"),
                optimizer_config=bodies.mapping(body, "optimizer_config"),
                metadata=bodies.metadata(body),
            )
        )

    def _in_turn(
        self, operation: str, body: Body, submit: Callable[[str, int], Future]
    ) -> Response:
        """Submit; what is wrong with other fields fails the operation and uses its number up."""
        model_id, seq = bodies.text(body, "model_id"), bodies.whole(body, "seq_id")
        try:
            return _promise(submit(model_id, seq))
        except NotFound:
            raise
        except ClientFault as fault:
            return _promise(self.training.refuse(operation, model_id, seq, str(fault)))

    # -- sampling ------------------------------------------------------------------------------

    async def create_sampling_session(self, request: Request) -> Response:
        """A sampler of a checkpoint or a base model."""
        body = await bodies.read_json(request)
        sampler = await run_in_threadpool(
            self.samples.create_sampler,
            bodies.text(body, "session_id"),
            bodies.whole(body, "sampling_session_seq_id"),
            bodies.optional_text(body, "base_model"),
            bodies.optional_text(body, "model_path"),
        )
        return JSONResponse({"sampling_session_id": sampler.id, "type": "create_sampling_session"})

    async def join_sampling_session(self, request: Request) -> Response:
        """A number of its own for another client of the same sampler."""
        body = await bodies.read_json(request)
        sampler = self.sessions.sampler(bodies.text(body, "sampling_session_id"))
        sampler.clones += 1
        return JSONResponse({"client_counter": sampler.clones, "type": "join_sampling_session"})

    async def get_sampler(self, request: Request) -> Response:
        """What a sampler samples from."""
        sampler = self.sessions.sampler(request.path_params["sampler"])
        return JSONResponse(
            {
                "sampler_id": sampler.id,
                "base_model": sampler.base.name,
                "model_path": sampler.model_path,
            }
        )

    async def asample(self, request: Request) -> Response:
        """Completions of a prompt."""
        future = self.samples.sample(await bodies.read_json(request))
        return JSONResponse({"request_id": future.id, "sample_sequence_ids": future.ids})

    # -- answers -------------------------------------------------------------------------------

    async def retrieve_future(self, request: Request) -> Response:
        """The answer, or 408 if it takes longer than the client would wait."""
        body = await bodies.read_json(request)
        future = self.sessions.scheduler.futures.get(bodies.text(body, "request_id"))
        if not await _is_ready(future):
            return JSONResponse({"type": "try_again", "queue_state": "active"}, status_code=408)
        content = document(future)
        self.sessions.scheduler.futures.mark_fetched(future)
        kind = protocol.PROTOBUF if isinstance(future.result, bytes) else "application/json"
        return Response(content, media_type=kind)

    async def cancel_future(self, request: Request) -> Response:
        """Nobody waits for this any more."""
        body = await bodies.read_json(request)
        self.sessions.scheduler.cancel(bodies.text(body, "request_id"))
        return JSONResponse({})

    async def capabilities(self, request: Request) -> Response:
        """The models served here."""
        context = self.sessions.default.context
        models = [
            {
                "model_name": name,
                "max_context_length": context,
                "trainable": True,
                "sampleable": True,
            }
            for name in self.sessions.model_names
        ]
        return JSONResponse({"supported_models": models})

    async def status(self, request: Request) -> Response:
        """Counts, for `tinker serve --status`."""
        sessions = self.sessions
        return JSONResponse(
            {
                "models": sessions.model_names,
                "sessions": sum(s.ended is None for s in list(sessions.sessions.values())),
                "training": sum(m.learner is not None for m in list(sessions.models.values())),
                "samplers": len(sessions.samplers),
                "rows": sessions.scheduler.rows,
                "operations": sessions.scheduler.operations,
                "uptime_s": round(time.monotonic() - self.started, 1),
                "pid": os.getpid(),
            }
        )


def _options(body: Body) -> SaveOptions:
    return SaveOptions(
        bodies.optional_text(body, "path"),
        bodies.optional_whole(body, "ttl_seconds"),
        bodies.metadata(body),
    )


def _promise(future: Future) -> Response:
    return JSONResponse({"request_id": future.id})


async def _is_ready(future: Future) -> bool:
    """True when the answer is there, waiting for it up to the poll's length."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    if future.when_ready(wake):
        return True
    try:
        await asyncio.wait_for(woken.wait(), POLL_SECONDS)
    except TimeoutError:
        return future.ready
    finally:
        future.forget_call(wake)
    return True
