"""What clients have created: sessions, models in training, samplers; and the operations on them.

Each operation checks what it can at once and hands the arithmetic to the scheduler. The random
numbers of an unseeded request come from the engine's seed, the weights' content, the prompt and
how often that prompt came to this sampler, so that batching and order of arrival don't matter and
a resumed run draws what an uninterrupted one would. Knows no HTTP.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tinker_cli import tiny
from tinker_cli.local import protocol
from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.learner import AdamSettings, Learner
from tinker_cli.local.lora import Adapter, BaseModel, LoraShape, load_base_model
from tinker_cli.local.sampler import SampleJob, checked_job
from tinker_cli.local.scheduler import Future, Scheduler
from tinker_cli.local.store import Facts, Place, Store, now

KEPT_SAMPLERS = 64  # snapshots in memory; the least recently used goes first
SHORTEST_TTL, LONGEST_TTL = 3600, 10 * 365 * 86400  # seconds, as the service's limits


@dataclass
class Session:
    """One client's life."""

    id: str
    created: datetime
    metadata: dict[str, Any] | None
    display_name: str | None
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)


@dataclass
class TrainingModel:
    """A model in training; `learner` is there once its first operation has run."""

    id: str
    base_name: str
    metadata: dict[str, Any] | None
    last_request: datetime
    learner: Learner | None = None

    def ready(self) -> Learner:
        """The learner; ClientFault if creating or loading the model had failed."""
        if self.learner is None:
            raise ClientFault(f"the model {self.id} was never created; see its first request")
        return self.learner


@dataclass
class Sampler:
    """A frozen set of weights to sample from."""

    id: str
    base: BaseModel
    adapter: Adapter | None
    model_path: str | None
    uses: Counter[bytes] = field(default_factory=Counter)
    answered: dict[int, Future] = field(default_factory=dict)

    @property
    def weights_digest(self) -> str:
        """Equal for equal weights."""
        return "base" if self.adapter is None else self.adapter.digest()


class Sessions:
    """All that clients have created on one engine."""

    def __init__(
        self,
        base: BaseModel,
        store: Store,
        scheduler: Scheduler,
        *,
        seed: int,
        aliases: tuple[str, ...] = (),
        load: Callable[[str, str], BaseModel] = load_base_model,
    ):
        self.store, self.scheduler, self.seed = store, scheduler, seed
        self.default = base
        self._bases = dict.fromkeys((base.name, base.source, *aliases), base)
        self._load = load
        self.sessions: dict[str, Session] = {}
        self.models: dict[str, TrainingModel] = {}
        self.samplers: OrderedDict[str, Sampler] = OrderedDict()
        self._lock = threading.RLock()

    # -- models and sessions -------------------------------------------------------------------

    @property
    def model_names(self) -> list[str]:
        """The names under which base models are served."""
        return sorted({name for name in self._bases if not Path(name).is_absolute()} or self._bases)

    def base_model(self, name: str) -> BaseModel:
        """The base model of that name; a folder of a model is loaded on first use."""
        if name in self._bases:
            return self._bases[name]
        source = str(tiny.FOLDER) if name == tiny.NAME else name
        if not Path(source).is_dir():
            raise ClientFault(
                f"the local engine serves {', '.join(self.model_names)}, not {name}; "
                "start it with --model, or set model_name to one of these or to a model's folder"
            )
        self._bases[name] = self._load(name, source)
        return self._bases[name]

    def open_session(self, metadata: dict[str, Any] | None, display_name: str | None) -> Session:
        """Start a session with an id that no other server will ever use."""
        session = Session(uuid.uuid4().hex, now(), metadata, display_name)
        with self._lock:
            self.sessions[session.id] = session
        return session

    def session(self, session_id: str) -> Session:
        """The session of that id; NotFound otherwise."""
        if session_id not in self.sessions:
            raise NotFound(f"no session {session_id}")
        return self.sessions[session_id]

    def close_session(self, session_id: str) -> None:
        """Forget what a session holds in memory; its checkpoints stay."""
        session = self.session(session_id)
        with self._lock:
            for model_id in session.models:
                model = self.models[model_id]
                self.scheduler.submit("end session", partial(_forget, model))
            for sampler_id in session.samplers:
                self.samplers.pop(sampler_id, None)

    def model(self, model_id: str) -> TrainingModel:
        """The model of that id, its clock touched; NotFound otherwise."""
        found = self.models.get(model_id)
        if found is None:
            raise NotFound(f"no model {model_id}; the engine may have been restarted")
        found.last_request = now()
        return found

    def create_model(
        self,
        session_id: str,
        seq: int,
        base_name: str,
        lora: Mapping[str, Any],
        metadata: dict[str, Any] | None,
    ) -> Future:
        """Create a LoRA model; the future gives `model_id`."""
        model, known = self._register(session_id, seq, base_name, metadata)
        if known is not None:
            return known
        shape = LoraShape(
            int(lora.get("rank", 32)),
            bool(lora.get("train_mlp", True)),
            bool(lora.get("train_attn", True)),
            bool(lora.get("train_unembed", True)),
        )
        seed = lora.get("seed")
        seed = _number(b"lora", self.seed, seq) if seed is None else int(seed)

        def compute() -> dict[str, Any]:
            base = self.base_model(base_name)
            model.learner = Learner(base, base.new_adapter(shape, seed % 2**63))
            return {"model_id": model.id, "type": "create_model"}

        self.scheduler.open_sequence(model.id, 0)
        return self.scheduler.submit_in_turn("create_model", model.id, 0, compute)

    def create_from_checkpoint(
        self,
        session_id: str,
        seq: int,
        path: str,
        *,
        optimizer: bool,
        metadata: dict[str, Any] | None,
    ) -> Future:
        """Create a model from a checkpoint, with or without its optimizer state."""
        model, known = self._register(session_id, seq, "", metadata)
        if known is not None:
            return known

        def compute() -> dict[str, Any]:
            facts = self.store.facts(path)
            base = self.base_model(facts.base_model)
            model.base_name = facts.base_model
            model.learner = self._load_learner(path, base, optimizer)
            return {"path": path, "model_id": model.id, "type": "load_weights"}

        self.scheduler.open_sequence(model.id, 0)
        return self.scheduler.submit_in_turn("load_weights", model.id, 0, compute)

    def _register(
        self, session_id: str, seq: int, base_name: str, metadata: dict[str, Any] | None
    ) -> tuple[TrainingModel, Future | None]:
        session = self.session(session_id)
        model_id = f"{session_id}:train:{seq}"  # the client computes the same name
        with self._lock:
            if model_id in self.models:
                never = self.scheduler.submit_in_turn("create", model_id, 0, dict)
                return self.models[model_id], never
            model = TrainingModel(model_id, base_name, metadata, now())
            self.models[model_id] = model
            session.models.append(model_id)
        return model, None

    def _load_learner(self, path: str, base: BaseModel, optimizer: bool) -> Learner:
        adapter, moments = self.store.load(path, base)
        if optimizer and moments is None:
            raise ClientFault(f"{path} holds no optimizer state; load its weights only")
        return Learner(base, adapter, moments if optimizer else None)

    # -- training ------------------------------------------------------------------------------

    def train(self, body: bytes) -> Future:
        """Forward, or forward and backward."""
        model_id, seq, message = protocol.decode_train_request(body)
        model = self.model(model_id)

        def compute() -> bytes:
            request = protocol.decode_train_data(message)
            outputs, metrics = model.ready().forward_backward(
                request.data, request.loss_fn, request.config, forward_only=request.forward_only
            )
            return protocol.encode_train_output(outputs, metrics)

        name = "forward" if message.forward_only else "forward_backward"
        return self.scheduler.submit_in_turn(name, model_id, seq, compute)

    def optim_step(
        self, model_id: str, seq: int, params: Mapping[str, Any], other: Mapping[str, Any] | None
    ) -> Future:
        """One optimizer step."""
        model = self.model(model_id)

        def compute() -> dict[str, Any]:
            if other is not None:
                raise ClientFault(f"the local engine has adamw only, not {other.get('type')!r}")
            known = set(AdamSettings.__dataclass_fields__)
            if unknown := sorted(set(params) - known - {"type"}):
                raise ClientFault(f"adamw has no setting {', '.join(unknown)}")
            settings = AdamSettings(**{k: float(v) for k, v in params.items() if k in known})
            return {"metrics": model.ready().step(settings), "type": "optim_step"}

        return self.scheduler.submit_in_turn("optim_step", model_id, seq, compute)

    def save(
        self,
        model_id: str,
        seq: int,
        kind: str,
        name: str | None,
        ttl: int | None,
        user_metadata: dict[str, str] | None,
    ) -> Future:
        """Write a checkpoint; kind `weights` (with the optimizer) or `sampler_weights`."""
        model = self.model(model_id)
        operation = "save_weights" if kind == "weights" else "save_weights_for_sampler"

        def compute() -> dict[str, Any]:
            check_ttl(ttl)
            learner = model.ready()
            moments = learner.moments if kind == "weights" else None
            place = Place(model_id, kind, name or f"{seq:06d}")
            facts = self.store.save(
                place,
                learner.model,
                learner.adapter,
                moments,
                ttl_seconds=ttl,
                run_metadata=model.metadata,
                user_metadata=user_metadata,
            )
            return {"path": facts.place.uri, "type": operation}

        return self.scheduler.submit_in_turn(operation, model_id, seq, compute)

    def snapshot(self, model_id: str, seq: int, sampler_seq: int) -> Future:
        """Freeze the weights into a sampler in memory; the future gives its id."""
        model = self.model(model_id)
        session_id = model_id.split(":", 1)[0]

        def compute() -> dict[str, Any]:
            learner = model.ready()
            sampler = self._add_sampler(
                session_id, sampler_seq, learner.model, learner.adapter.copy(), None
            )
            return {"sampling_session_id": sampler.id, "type": "save_weights_for_sampler"}

        return self.scheduler.submit_in_turn("snapshot", model_id, seq, compute)

    def load(self, model_id: str, seq: int, path: str, *, optimizer: bool) -> Future:
        """Replace a model's weights (and optimizer state) by a checkpoint's."""
        model = self.model(model_id)

        def compute() -> dict[str, Any]:
            model.learner = self._load_learner(path, model.ready().model, optimizer)
            return {"path": path, "model_id": model_id, "type": "load_weights"}

        return self.scheduler.submit_in_turn("load_weights", model_id, seq, compute)

    def refuse(self, operation: str, model_id: str, seq: int, reason: str) -> Future:
        """Use a sequence number up with a user error."""
        self.model(model_id)

        def compute() -> dict[str, Any]:
            raise ClientFault(reason)

        return self.scheduler.submit_in_turn(operation, model_id, seq, compute)

    # -- sampling ------------------------------------------------------------------------------

    def create_sampler(
        self, session_id: str, seq: int, base_name: str | None, path: str | None
    ) -> Sampler:
        """A sampler of a checkpoint or of a base model."""
        self.session(session_id)
        if path:
            facts: Facts = self.store.facts(path)
            base = self.base_model(facts.base_model)
            adapter, _ = self.store.load(path, base)
            return self._add_sampler(session_id, seq, base, adapter, path)
        if not base_name:
            raise ClientFault("a sampler needs model_path or base_model")
        return self._add_sampler(session_id, seq, self.base_model(base_name), None, None)

    def _add_sampler(
        self, session_id: str, seq: int, base: BaseModel, adapter: Adapter | None, path: str | None
    ) -> Sampler:
        sampler = Sampler(f"{session_id}:sample:{seq}", base, adapter, path)
        with self._lock:
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
        with self._lock:
            found = self.samplers.get(sampler_id)
            if found is None:
                raise NotFound(f"no sampler {sampler_id}; it has ended or was never made")
            self.samplers.move_to_end(sampler_id)
        return found

    def sample(self, body: Mapping[str, Any]) -> Future:
        """Sample completions and score the prompt, as asked."""
        sampler = self.sampler(str(body["sampling_session_id"]))
        seq = body.get("seq_id")
        if seq is not None and (known := sampler.answered.get(int(seq))) is not None:
            return known
        future = self._sample(sampler, body)
        if seq is not None:
            sampler.answered[int(seq)] = future
        return future

    def _sample(self, sampler: Sampler, body: Mapping[str, Any]) -> Future:
        count = int(body.get("num_samples", 1))
        ids = [uuid.uuid4().hex for _ in range(max(count, 0))]
        params = dict(body.get("sampling_params") or {})
        try:
            _refuse_unsupported(body)
            prompt = _text_tokens(body.get("prompt") or {})
            job = checked_job(
                sampler.base,
                prompt,
                count,
                params,
                random_key=self._random_key(sampler, prompt, params.get("seed")),
                prompt_logprobs=bool(body.get("prompt_logprobs")),
                topk_prompt=_top_k(body.get("topk_prompt_logprobs"), sampler.base),
                topk_sample=_top_k(body.get("topk_sample_logprobs"), sampler.base),
            )
        except ClientFault as fault:
            return self._refused_sample(str(fault), ids)
        key = (id(sampler.base), sampler.weights_digest)
        return self.scheduler.submit_sampling(
            job, (sampler.base, sampler.adapter), key, _encode, ids
        )

    def _refused_sample(self, reason: str, ids: list[str]) -> Future:
        def compute() -> dict[str, Any]:
            raise ClientFault(reason)

        future = self.scheduler.submit("sample", compute)
        future.ids = ids
        return future

    def _random_key(self, sampler: Sampler, prompt: list[int], seed: Any) -> bytes:
        if seed is not None:
            return f"seed {int(seed)}".encode()
        hasher = hashlib.blake2b(np.array(prompt, np.int64).tobytes(), digest_size=16)
        hasher.update(f"{self.seed} {sampler.weights_digest}".encode())
        digest = hasher.digest()
        with self._lock:
            use = sampler.uses[digest]
            sampler.uses[digest] += 1
        return digest + use.to_bytes(8, "big")


def _forget(model: TrainingModel) -> dict[str, Any]:
    model.learner = None
    return {}


def _number(kind: bytes, *parts: int) -> int:
    text = kind + b" ".join(str(part).encode() for part in parts)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _encode(job: SampleJob) -> bytes:
    done = [completion for completion in job.completions if completion is not None]
    return protocol.encode_sample_output(done, job.scored_prompt, job.prompt_topk)


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name in ("target_prompt_logprobs", "prompt_alt_tokens_k", "record_stability_info"):
        if body.get(name):
            raise ClientFault(f"the local engine does not serve {name}")


def _top_k(value: Any, base: BaseModel) -> int:
    k = int(value or 0)
    if not 0 <= k <= min(base.vocab_size, 1000):
        raise ClientFault(f"top-k logprobs must be between 0 and 1000, not {k}")
    return k


def _text_tokens(prompt: Mapping[str, Any]) -> list[int]:
    tokens: list[int] = []
    for chunk in prompt.get("chunks", []):
        if chunk.get("type", "encoded_text") != "encoded_text":
            raise ClientFault(
                f"the local engine does not read {chunk.get('type')} chunks; only text tokens"
            )
        tokens += [int(token) for token in chunk["tokens"]]
    return tokens


def check_ttl(ttl: int | None) -> None:
    """ClientFault unless `ttl` is None or within the service's limits, in seconds."""
    if ttl is not None and not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        raise ClientFault(f"ttl_seconds must be {SHORTEST_TTL} to {LONGEST_TTL}, not {ttl}")
