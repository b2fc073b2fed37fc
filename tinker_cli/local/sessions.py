"""What clients have created on one engine: sessions, models in training, samplers, base models.

The registry only: operations on models are in `training`, requests for samples in `sampling`.
Knows no HTTP.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tinker_cli import tiny
from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.futures import Future
from tinker_cli.local.learner import Learner
from tinker_cli.local.lora import Adapter, BaseModel
from tinker_cli.local.scheduler import Scheduler
from tinker_cli.local.store import Store, now

KEPT_SAMPLERS = 512  # snapshots in memory; the least recently used goes first
KEPT_ANSWERS = 4096  # of a sampler, for requests that are sent again
SILENCE_SECONDS = 120.0  # without a heartbeat, a client's samples are no longer worth making
FORGET_SECONDS = 6 * 3600.0  # ... and its models leave the memory


@dataclass
class Session:
    """One client's life."""

    id: str
    created: datetime
    metadata: dict[str, Any] | None
    display_name: str | None
    project: str | None = None
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    ended: str | None = None  # the client's reason: success, errored, interrupted
    last_sign: float = field(default_factory=time.monotonic)


@dataclass
class TrainingModel:
    """A model in training; `learner` is there once its first operation has run."""

    id: str
    session_id: str
    base_name: str
    metadata: dict[str, Any] | None
    last_request: datetime
    learner: Learner | None = None
    inflight: list[str] = field(default_factory=list)  # samplers that follow its weights

    def ready(self) -> Learner:
        """The learner; ClientFault if creating or loading the model had failed."""
        if self.learner is None:
            raise ClientFault(f"the model {self.id} is not there; see its first request")
        return self.learner


@dataclass
class Sampler:
    """A frozen set of weights to sample from."""

    id: str
    session_id: str
    base: BaseModel
    adapter: Adapter | None
    model_path: str | None
    uses: Counter[bytes] = field(default_factory=Counter)
    answered: OrderedDict[int, Future] = field(default_factory=OrderedDict)
    clones: int = 0

    @property
    def weights_digest(self) -> str:
        """Equal for equal weights."""
        return "base" if self.adapter is None else self.adapter.digest()

    def remember(self, seq: int, future: Future) -> None:
        """Answer the same number with the same future, for a while."""
        self.answered[seq] = future
        while len(self.answered) > KEPT_ANSWERS:
            self.answered.popitem(last=False)


class Sessions:
    """All that clients have created."""

    def __init__(
        self,
        base: BaseModel,
        store: Store,
        scheduler: Scheduler,
        *,
        seed: int,
        aliases: tuple[str, ...] = (),
        load: Callable[[str, str], BaseModel],
    ):
        self.store, self.scheduler, self.seed = store, scheduler, seed
        self.default = base
        self.lock = threading.RLock()
        self.sessions: dict[str, Session] = {}
        self.models: dict[str, TrainingModel] = {}
        self.samplers: OrderedDict[str, Sampler] = OrderedDict()
        self._bases = dict.fromkeys((base.name, base.source, *aliases), base)
        self._load = load

    @property
    def model_names(self) -> list[str]:
        """The names under which base models are served."""
        return sorted({name for name in self._bases if not Path(name).is_absolute()} or self._bases)

    def knows_base(self, name: str) -> bool:
        """True if `base_model` would give one, as far as can be told without loading it."""
        return name in self._bases or name == tiny.NAME or Path(name).is_dir()

    def base_model(self, name: str) -> BaseModel:
        """The base model of that name; a folder of a model is loaded on first use."""
        if name in self._bases:
            return self._bases[name]
        if not self.knows_base(name):
            raise ClientFault(
                f"the local engine serves {', '.join(self.model_names)}, not {name}; "
                "start it with --model, or set model_name to one of these or to a model's folder"
            )
        self._bases[name] = self._load(name, str(tiny.FOLDER) if name == tiny.NAME else name)
        return self._bases[name]

    def open_session(
        self, metadata: dict[str, Any] | None, display_name: str | None, project: str | None
    ) -> Session:
        """Start a session with an id that no other server will ever use."""
        session = Session(uuid.uuid4().hex, now(), metadata, display_name, project)
        with self.lock:
            self.sessions[session.id] = session
        return session

    def session(self, session_id: str) -> Session:
        """The session of that id; NotFound otherwise."""
        found = self.sessions.get(session_id)
        if found is None:
            raise NotFound(f"no session {session_id}; the engine may have been restarted")
        return found

    def sign_of_life(self, session_id: str) -> None:
        """Note that a session's client is there."""
        self.session(session_id).last_sign = time.monotonic()

    def close_session(self, session_id: str, reason: str) -> None:
        """Forget what a session holds in memory; its checkpoints stay."""
        session = self.session(session_id)
        session.ended = session.ended or reason
        self._release(session)

    def _release(self, session: Session) -> None:
        self.scheduler.cancel_owner(session.id)
        with self.lock:
            models = [self.models[model_id] for model_id in session.models]
            for sampler_id in session.samplers:
                self.samplers.pop(sampler_id, None)
        for model in models:
            if model.learner is not None:
                self.scheduler.submit("end of session", partial(_forget, model))

    def look_after(self) -> None:
        """Free what belongs to clients that have gone without a word. Called now and then."""
        current = time.monotonic()
        for session in list(self.sessions.values()):
            silent = current - session.last_sign
            if silent > SILENCE_SECONDS:
                self.scheduler.cancel_owner(session.id)
            if silent > FORGET_SECONDS and session.ended is None:
                session.ended = "interrupted"
                self._release(session)

    def register_model(
        self, session_id: str, seq: int, base_name: str, metadata: dict[str, Any] | None
    ) -> tuple[TrainingModel, bool]:
        """The model of that number in a session, and whether it is new."""
        session = self.session(session_id)
        model_id = f"{session_id}:train:{seq}"  # the client computes the same name
        with self.lock:
            if model_id in self.models:
                return self.models[model_id], False
            model = TrainingModel(model_id, session_id, base_name, metadata, now())
            self.models[model_id] = model
            session.models.append(model_id)
        return model, True

    def model(self, model_id: str) -> TrainingModel:
        """The model of that id, its clock touched; NotFound otherwise."""
        found = self.models.get(model_id)
        if found is None:
            raise NotFound(f"no model {model_id}; the engine may have been restarted")
        found.last_request = now()
        return found

    def add_sampler(
        self, session_id: str, seq: int, base: BaseModel, adapter: Adapter | None, path: str | None
    ) -> Sampler:
        """The sampler of that number in a session, made if it is new."""
        sampler = Sampler(f"{session_id}:sample:{seq}", session_id, base, adapter, path)
        with self.lock:
            if sampler.id in self.samplers:
                return self.samplers[sampler.id]
            self.samplers[sampler.id] = sampler
            if session_id in self.sessions:
                self.sessions[session_id].samplers.append(sampler.id)
            while len(self.samplers) > KEPT_SAMPLERS:
                self.samplers.popitem(last=False)
        return sampler

    def sampler(self, sampler_id: str) -> Sampler:
        """The sampler of that id; NotFound otherwise."""
        with self.lock:
            found = self.samplers.get(sampler_id)
            if found is None:
                raise NotFound(f"no sampler {sampler_id}; it has ended or was never made")
            self.samplers.move_to_end(sampler_id)
        return found


def _forget(model: TrainingModel) -> dict[str, Any]:
    model.learner = None
    return {}
