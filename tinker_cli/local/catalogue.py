"""The catalogue: runs, checkpoints and sessions, as the SDK's REST client lists and changes them.

Runs that are no longer in memory are known by their checkpoints. Knows the store and the sessions;
the arithmetic is elsewhere.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from tinker_cli.local import bodies, exports
from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.routes import Handler
from tinker_cli.local.sessions import Session, Sessions
from tinker_cli.local.store import KINDS, Facts, Place, expiry, parse_uri
from tinker_cli.local.training import check_ttl

OWNER = "local"
PROJECT = "local"
PAGE = 20  # rows of a listing where the client names no limit
LONGEST_PAGE = 1000
FACTS_FILE = "checkpoint.json"
COPIES_REMEMBERED = 256  # so that a copy that is sent again is made once
ABSENT = {
    "audit": "an audit log",
    "billing/usage/events": "bills",
    "billing/usage/checkpoints/current": "bills",
    "sessions/{session}/trace_export": "traces of sessions",
}


class Catalogue:
    """The REST half of the protocol."""

    def __init__(self, sessions: Sessions, key: str):
        self.sessions, self.store = sessions, sessions.store
        self._key = key
        self._copies: OrderedDict[str, str] = OrderedDict()

    def table(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of every route."""
        one = "training_runs/{run}/checkpoints/{kind}/{name}"
        return [
            ("GET", "training_runs", self.list_runs),
            ("GET", "training_runs/{run}", self.get_run),
            ("GET", "training_runs/{run}/checkpoints", self.run_checkpoints),
            ("GET", "checkpoints", self.all_checkpoints),
            ("DELETE", one, self.delete),
            ("POST", f"{one}/publish", self.publish),
            ("DELETE", f"{one}/publish", self.unpublish),
            ("PUT", f"{one}/ttl", self.set_ttl),
            ("GET", f"{one}/external_weights_urls", self.external_urls),
            ("GET", "files/{run}/{name}/{file}", self.download),
            ("POST", "weights_info", self.weights_info),
            ("POST", "copy_weights", self.copy),
            ("GET", "sessions", self.list_sessions),
            ("POST", "sessions/search", self.search_sessions),
            ("GET", "sessions/{session}", self.get_session),
            ("PUT", "sessions/{session}/project", self.set_project),
            ("GET", "auth/apikey/me", self.key_owner),
            *(("GET", path, _absent(what)) for path, what in ABSENT.items()),
        ]

    # -- runs and checkpoints ------------------------------------------------------------------

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
        """Runs, the latest first."""
        grouped: dict[str, list[Facts]] = {run: [] for run in list(self.sessions.models)}
        for facts in self.store.all():
            grouped.setdefault(facts.run, []).append(facts)
        runs = [self._run(run, checkpoints) for run, checkpoints in grouped.items()]
        runs.sort(key=lambda run: str(run["last_request_time"]), reverse=True)
        return _page(request, "training_runs", runs)

    async def get_run(self, request: Request) -> Response:
        """One run."""
        run = request.path_params["run"]
        return JSONResponse(self._run(run, self.store.all(run)))

    async def run_checkpoints(self, request: Request) -> Response:
        """The checkpoints of a run, the oldest first."""
        run = request.path_params["run"]
        rows = [_checkpoint(facts) for facts in self.store.all(run)]
        if not rows and run not in self.sessions.models:
            raise NotFound(f"no training run {run}")
        return JSONResponse({"checkpoints": rows})

    async def all_checkpoints(self, request: Request) -> Response:
        """Every checkpoint, the latest first."""
        rows = [_checkpoint(facts) for facts in self.store.all()]
        return _page(request, "checkpoints", rows[::-1])

    async def delete(self, request: Request) -> Response:
        """Remove a checkpoint."""
        self.store.delete(_uri(request))
        return Response(status_code=204)

    async def publish(self, request: Request) -> Response:
        """Mark a checkpoint as public."""
        self.store.change(_uri(request), public=True)
        return Response(status_code=204)

    async def unpublish(self, request: Request) -> Response:
        """Mark a checkpoint as private."""
        self.store.change(_uri(request), public=False)
        return Response(status_code=204)

    async def set_ttl(self, request: Request) -> Response:
        """Set or remove a checkpoint's time to live."""
        ttl = bodies.optional_whole(await bodies.read_json(request), "ttl_seconds")
        check_ttl(ttl)
        self.store.change(_uri(request), expires=expiry(ttl))
        return Response(status_code=204)

    async def weights_info(self, request: Request) -> Response:
        """What one needs to know to load a checkpoint."""
        body = await bodies.read_json(request)
        facts = self.store.facts(bodies.text(body, "tinker_path"))
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
        """Copy a checkpoint into a run of its own; once for each idempotency key."""
        body = await bodies.read_json(request)
        repeated = request.headers.get("x-idempotency-key")
        if repeated and (known := self._copies.get(repeated)):
            return JSONResponse({"tinker_path": known})
        source, ttl = bodies.text(body, "source_path"), bodies.optional_whole(body, "ttl_seconds")
        check_ttl(ttl)
        place = parse_uri(source)
        facts = self.store.copy(
            source, Place(f"copy-{uuid.uuid4().hex}", place.kind, place.name), ttl
        )
        if repeated:
            self._copies[repeated] = facts.place.uri
            while len(self._copies) > COPIES_REMEMBERED:
                self._copies.popitem(last=False)
        return JSONResponse({"tinker_path": facts.place.uri})

    async def external_urls(self, request: Request) -> Response:
        """A signed link for each file of an export."""
        uri = _uri(request)
        facts = self.store.facts(uri)
        if facts.kind != "external_weights":
            raise ClientFault(f"{uri} is not an export")
        expires = int(time.time()) + exports.LINK_SECONDS
        urls = {}
        for file in sorted(self.store.folder(uri).iterdir()):
            if file.name != FACTS_FILE:
                path = f"{facts.run}/{facts.name}/{file.name}"
                signature = exports.sign(self._key, path, expires)
                query = f"expires={expires}&signature={signature}"
                urls[file.name] = f"{request.base_url}api/v1/files/{path}?{query}"
        until = datetime.fromtimestamp(expires, UTC).isoformat()
        return JSONResponse({"urls": urls, "expires": until})

    async def download(self, request: Request) -> Response:
        """A file of an export, by its signed link."""
        part, query = request.path_params, request.query_params
        path = f"{part['run']}/{part['name']}/{part['file']}"
        exports.check(self._key, path, int(query.get("expires", 0)), query.get("signature", ""))
        place = Place(part["run"], "external_weights", part["name"])
        file = self.store.folder(place.uri) / part["file"]
        if file.name == FACTS_FILE or not file.is_file():
            raise NotFound(f"no file {file.name} in {place.uri}")
        return FileResponse(file)

    # -- sessions ------------------------------------------------------------------------------

    async def list_sessions(self, request: Request) -> Response:
        """Ids of sessions, the latest first."""
        offset, limit = _window(request)
        ids = list(self.sessions.sessions)[::-1]
        return JSONResponse({"sessions": ids[offset : offset + limit]})

    async def get_session(self, request: Request) -> Response:
        """What a session has created."""
        session = self.sessions.session(request.path_params["session"])
        return JSONResponse(
            {
                "training_run_ids": session.models,
                "sampler_ids": session.samplers,
                "user_metadata": session.metadata,
                "display_name": session.display_name,
            }
        )

    async def search_sessions(self, request: Request) -> Response:
        """Sessions that match, the latest first; in one page."""
        body = await bodies.read_json(request)
        limit = bodies.optional_whole(body, "limit") or PAGE
        found = [s for s in list(self.sessions.sessions.values())[::-1] if _matches(s, body)]
        return JSONResponse({"sessions": [self._summary(s) for s in found[:limit]]})

    def _summary(self, session: Session) -> dict[str, Any]:
        mine = [facts for run in session.models for facts in self.store.all(run)]
        reason = {"type": session.ended}
        ended = {"type": "client_finished", "reason": reason}
        return {
            "session_id": session.id,
            "created_at": session.created.isoformat(),
            "owner": OWNER,
            "project_id": session.project or PROJECT,
            "status": {"type": "active"} if session.ended is None else ended,
            "checkpoints_count": len(mine),
            "checkpoint_storage_bytes": sum(facts.size_bytes for facts in mine),
            "display_name": session.display_name,
            "user_metadata": session.metadata,
        }

    async def set_project(self, request: Request) -> Response:
        """Move a session to a project: a name, and nothing more, on one machine."""
        body = await bodies.read_json(request)
        session = self.sessions.session(request.path_params["session"])
        session.project = bodies.text(body, "project_id")
        return Response(status_code=204)

    async def key_owner(self, request: Request) -> Response:
        """Whose key it is."""
        return JSONResponse({"user_urn": f"urn:user:{OWNER}", "org_urn": f"urn:org:{OWNER}"})


def _absent(what: str) -> Handler:
    async def refuse(request: Request) -> Response:
        raise ClientFault(f"the local engine does not keep {what}")

    return refuse


def _matches(session: Session, body: bodies.Body) -> bool:
    wanted_id, words = body.get("session_id"), body.get("display_name")
    if wanted_id is not None or words is not None:
        name = (session.display_name or "").lower()
        named = words is not None and all(word in name for word in str(words).lower().split())
        if session.id != wanted_id and not named:
            return False
    metadata = bodies.mapping(body, "user_metadata") or {}
    if any((session.metadata or {}).get(key) != value for key, value in metadata.items()):
        return False
    projects = bodies.texts(body, "project_ids")
    if projects is not None and (session.project or PROJECT) not in projects:
        return False
    statuses = body.get("statuses")
    return not isinstance(statuses, list) or any(_has_status(session, s) for s in statuses)


def _has_status(session: Session, query: Any) -> bool:
    kind = query.get("type") if isinstance(query, dict) else None
    if kind == "active":
        return session.ended is None
    reasons = query.get("reasons") if kind == "client_finished" else []
    return (
        kind == "client_finished"
        and session.ended is not None
        and (reasons is None or session.ended in reasons)
    )


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


def _window(request: Request) -> tuple[int, int]:
    offset = max(int(request.query_params.get("offset", 0)), 0)
    return offset, min(max(int(request.query_params.get("limit", PAGE)), 0), LONGEST_PAGE)


def _page(request: Request, name: str, rows: list[dict[str, Any]]) -> Response:
    offset, limit = _window(request)
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return JSONResponse({name: rows[offset : offset + limit], "cursor": cursor})
