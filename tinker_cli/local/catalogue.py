"""The catalogue: runs, checkpoints and sessions, as the SDK's REST client lists and changes them.

Runs that are no longer in memory are known by their checkpoints. Knows the store and the sessions;
the arithmetic is elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.sessions import Sessions, check_ttl
from tinker_cli.local.store import KINDS, Facts, Place, expiry, parse_uri

OWNER = "local"
PAGE = 20  # rows of a listing where the client names no limit


class Catalogue:
    """The REST half of the protocol."""

    def __init__(self, sessions: Sessions):
        self.sessions, self.store = sessions, sessions.store

    def table(self, safe: Callable[[Any], Any]) -> list[Route]:
        """The routes, each wrapped by `safe`."""
        one = "training_runs/{run}/checkpoints/{kind}/{name}"
        routes = [
            ("GET", "training_runs", self.list_runs),
            ("GET", "training_runs/{run}", self.get_run),
            ("GET", "training_runs/{run}/checkpoints", self.run_checkpoints),
            ("GET", "checkpoints", self.all_checkpoints),
            ("DELETE", one, self.delete),
            ("POST", f"{one}/publish", self.publish),
            ("DELETE", f"{one}/publish", self.unpublish),
            ("PUT", f"{one}/ttl", self.set_ttl),
            ("POST", "weights_info", self.weights_info),
            ("POST", "copy_weights", self.copy),
            ("GET", "sessions", self.list_sessions),
            ("GET", "sessions/{session}", self.get_session),
            ("GET", "auth/apikey/me", self.key_owner),
        ]
        return [Route(f"/api/v1/{path}", safe(h), methods=[m]) for m, path, h in routes]

    def _run(self, run: str, checkpoints: Iterable[Facts]) -> dict[str, Any]:
        known = list(checkpoints)
        model = self.sessions.models.get(run)
        if model is None and not known:
            raise NotFound(f"no training run {run}")
        by_kind = {facts.kind: _checkpoint(facts) for facts in known}
        shape = model.learner.adapter.shape if model and model.learner else None
        return {
            "training_run_id": run,
            "base_model": model.base_name if model else known[-1].base_model,
            "model_owner": OWNER,
            "is_lora": True,
            "lora_rank": shape.rank if shape else (known[-1].rank if known else None),
            "last_request_time": model.last_request.isoformat() if model else known[-1].created,
            "last_checkpoint": by_kind.get("weights"),
            "last_sampler_checkpoint": by_kind.get("sampler_weights"),
            "user_metadata": model.metadata if model else known[-1].run_metadata,
        }

    async def list_runs(self, request: Request) -> Response:
        grouped: dict[str, list[Facts]] = {run: [] for run in self.sessions.models}
        for facts in self.store.all():
            grouped.setdefault(facts.run, []).append(facts)
        runs = [self._run(run, checkpoints) for run, checkpoints in grouped.items()]
        runs.sort(key=lambda run: run["last_request_time"], reverse=True)
        return _page(request, "training_runs", runs)

    async def get_run(self, request: Request) -> Response:
        run = request.path_params["run"]
        return JSONResponse(self._run(run, self.store.all(run)))

    async def run_checkpoints(self, request: Request) -> Response:
        rows = [_checkpoint(facts) for facts in self.store.all(request.path_params["run"])]
        return JSONResponse({"checkpoints": rows})

    async def all_checkpoints(self, request: Request) -> Response:
        rows = [_checkpoint(facts) for facts in self.store.all()]
        return _page(request, "checkpoints", rows[::-1])

    async def delete(self, request: Request) -> Response:
        self.store.delete(_uri(request))
        return JSONResponse({})

    async def publish(self, request: Request) -> Response:
        self.store.change(_uri(request), public=True)
        return JSONResponse({})

    async def unpublish(self, request: Request) -> Response:
        self.store.change(_uri(request), public=False)
        return JSONResponse({})

    async def set_ttl(self, request: Request) -> Response:
        ttl = (await request.json()).get("ttl_seconds")
        check_ttl(ttl)
        self.store.change(_uri(request), expires=expiry(ttl))
        return JSONResponse({})

    async def weights_info(self, request: Request) -> Response:
        facts = self.store.facts(str((await request.json())["tinker_path"]))
        return JSONResponse(
            {
                "base_model": facts.base_model,
                "is_lora": True,
                "lora_rank": facts.rank,
                "train_unembed": facts.train_unembed,
                "train_mlp": facts.train_mlp,
                "train_attn": facts.train_attn,
                "optimizer_config": {"type": "adamw"},
            }
        )

    async def copy(self, request: Request) -> Response:
        body = await request.json()
        source = str(body.get("tinker_path") or body.get("source_path") or body.get("path"))
        place = parse_uri(source)
        facts = self.store.copy(source, Place(f"copy-{uuid.uuid4().hex}", place.kind, place.name))
        return JSONResponse({"tinker_path": facts.place.uri, "path": facts.place.uri})

    async def list_sessions(self, request: Request) -> Response:
        return JSONResponse({"sessions": list(self.sessions.sessions)})

    async def get_session(self, request: Request) -> Response:
        session = self.sessions.session(request.path_params["session"])
        return JSONResponse(
            {
                "training_run_ids": session.models,
                "sampler_ids": session.samplers,
                "user_metadata": session.metadata,
                "display_name": session.display_name,
            }
        )

    async def key_owner(self, request: Request) -> Response:
        return JSONResponse({"owner": OWNER})


def _uri(request: Request) -> str:
    part = request.path_params
    if part["kind"] not in KINDS:
        raise ClientFault(f"{part['kind']!r} is not one of {', '.join(KINDS)}")
    return Place(part["run"], part["kind"], part["name"]).uri


def _checkpoint(facts: Facts) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{facts.kind}/{facts.name}",
        "checkpoint_type": KINDS[facts.kind],
        "time": facts.created,
        "tinker_path": facts.place.uri,
        "size_bytes": facts.size_bytes,
        "public": facts.public,
        "user_metadata": facts.user_metadata,
        "expires_at": facts.expires,
    }


def _page(request: Request, name: str, rows: list[dict[str, Any]]) -> Response:
    offset = max(int(request.query_params.get("offset", 0)), 0)
    limit = min(max(int(request.query_params.get("limit", PAGE)), 0), 1000)
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return JSONResponse({name: rows[offset : offset + limit], "cursor": cursor})
