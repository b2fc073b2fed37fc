"""Operations on models in training, each with its place in the model's sequence.

What can be checked at once is; the arithmetic goes to the scheduler. A request that is refused
still takes its place, or those after it would wait for ever. Knows no HTTP.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinker_cli.local import protocol
from tinker_cli.local.exports import write_export
from tinker_cli.local.faults import ClientFault
from tinker_cli.local.futures import Future
from tinker_cli.local.learner import AdamSettings, Learner
from tinker_cli.local.lora import BaseModel, LoraShape
from tinker_cli.local.sessions import Sessions
from tinker_cli.local.store import Place

SHORTEST_TTL, LONGEST_TTL = 3600, 10 * 365 * 86400  # seconds, as the service's limits
ADAMW = "adamw"


@dataclass(frozen=True)
class SaveOptions:
    """How a checkpoint is kept."""

    name: str | None
    ttl_seconds: int | None
    user_metadata: dict[str, str] | None


class Training:
    """The training half of an engine."""

    def __init__(self, sessions: Sessions):
        self.sessions, self.store = sessions, sessions.store
        self.scheduler = sessions.scheduler

    def create_model(
        self,
        session_id: str,
        seq: int,
        base_name: str,
        lora: Mapping[str, Any],
        optimizer: Mapping[str, Any] | None,
        metadata: dict[str, Any] | None,
    ) -> Future:
        """Create a LoRA model; the future gives `model_id`."""
        model, _ = self.sessions.register_model(session_id, seq, base_name, metadata)

        def compute() -> dict[str, Any]:
            _check_optimizer(optimizer)
            shape = _shape(lora)
            seed = lora.get("seed")
            seed = _number("lora", self.sessions.seed, seq) if seed is None else int(seed)
            base = self.sessions.base_model(base_name)
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
        base_name: str | None,
        optimizer_config: Mapping[str, Any] | None,
        metadata: dict[str, Any] | None,
    ) -> Future:
        """Create a model from a checkpoint, with or without its optimizer state."""
        model, _ = self.sessions.register_model(session_id, seq, base_name or "", metadata)

        def compute() -> dict[str, Any]:
            _check_optimizer(optimizer_config)
            name = base_name or self.store.facts(path).base_model
            model.base_name = name
            base = self.sessions.base_model(name)
            model.learner = self._load_learner(path, base, optimizer)
            return {"path": path, "model_id": model.id, "type": "load_weights"}

        self.scheduler.open_sequence(model.id, 0)
        return self.scheduler.submit_in_turn("load_weights", model.id, 0, compute)

    def _load_learner(self, path: str, base: BaseModel, optimizer: bool) -> Learner:
        adapter, moments = self.store.load(path, base)
        if optimizer and moments is None:
            raise ClientFault(f"{path} holds no optimizer state; load its weights only")
        return Learner(base, adapter, moments if optimizer else None)

    def train(self, body: bytes) -> Future:
        """Forward, or forward and backward."""
        model_id, seq, message = protocol.decode_train_request(body)
        model = self.sessions.model(model_id)

        def compute() -> bytes:
            request = protocol.decode_train_data(message)
            outputs, metrics = model.ready().forward_backward(
                request.data, request.loss_fn, request.config, forward_only=request.forward_only
            )
            return protocol.encode_train_output(outputs, metrics)

        name = "forward" if message.forward_only else "forward_backward"
        return self.scheduler.submit_in_turn(name, model_id, seq, compute)

    def optim_step(
        self,
        model_id: str,
        seq: int,
        adam: Mapping[str, Any] | None,
        other: Mapping[str, Any] | None,
    ) -> Future:
        """One optimizer step."""
        model = self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            if other is not None:
                _check_optimizer(other)
            settings = _adam_settings(adam if other is None else other)
            return {"metrics": model.ready().step(settings), "type": "optim_step"}

        return self.scheduler.submit_in_turn("optim_step", model_id, seq, compute)

    def save(self, model_id: str, seq: int, kind: str, options: SaveOptions) -> Future:
        """Write a checkpoint; kind `weights` (with the optimizer) or `sampler_weights`."""
        model = self.sessions.model(model_id)
        operation = "save_weights" if kind == "weights" else "save_weights_for_sampler"

        def compute() -> dict[str, Any]:
            check_ttl(options.ttl_seconds)
            learner = model.ready()
            facts = self.store.save(
                Place(model_id, kind, options.name or f"{seq:06d}"),
                learner.model,
                learner.adapter,
                learner.moments if kind == "weights" else None,
                ttl_seconds=options.ttl_seconds,
                run_metadata=model.metadata,
                user_metadata=options.user_metadata,
            )
            return {"path": facts.place.uri, "type": operation}

        return self.scheduler.submit_in_turn(operation, model_id, seq, compute)

    def export(
        self, model_id: str, seq: int, options: SaveOptions, recipients: list[str] | None
    ) -> Future:
        """Write a checkpoint to be downloaded, encrypted to age recipients if there are any."""
        model = self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            check_ttl(options.ttl_seconds)
            learner = model.ready()

            def encrypt(folder: Path) -> None:
                write_export(folder, recipients)

            facts = self.store.save(
                Place(model_id, "external_weights", options.name or f"{seq:06d}"),
                learner.model,
                learner.adapter,
                None,
                ttl_seconds=options.ttl_seconds,
                run_metadata=model.metadata,
                user_metadata=options.user_metadata,
                finish=encrypt,
            )
            return {"path": facts.place.uri, "type": "save_weights_external"}

        return self.scheduler.submit_in_turn("save_weights_external", model_id, seq, compute)

    def snapshot(self, model_id: str, seq: int, sampler_seq: int, kind: str) -> Future:
        """Freeze the weights into a sampler in memory; the future gives its id.

        Samplers of kind `inflight` follow: later ones of the model bring their weights up to date.
        """
        model = self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            learner = model.ready()
            adapter = learner.adapter.copy()
            sampler = self.sessions.add_sampler(
                model.session_id, sampler_seq, learner.model, adapter, None
            )
            if kind == "inflight":
                for sampler_id in model.inflight:
                    if (earlier := self.sessions.samplers.get(sampler_id)) is not None:
                        earlier.adapter = adapter
                model.inflight.append(sampler.id)
            return {"sampling_session_id": sampler.id, "type": "save_weights_for_sampler"}

        return self.scheduler.submit_in_turn("snapshot", model_id, seq, compute)

    def load(self, model_id: str, seq: int, path: str, *, optimizer: bool) -> Future:
        """Replace a model's weights (and optimizer state) by a checkpoint's."""
        model = self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            model.learner = self._load_learner(path, model.ready().model, optimizer)
            return {"path": path, "model_id": model_id, "type": "load_weights"}

        return self.scheduler.submit_in_turn("load_weights", model_id, seq, compute)

    def unload(self, model_id: str) -> Future:
        """Free a model's memory; its checkpoints stay."""
        model = self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            model.learner = None
            return {"model_id": model_id, "type": "unload_model"}

        return self.scheduler.submit("unload_model", compute)

    def refuse(self, operation: str, model_id: str, seq: int, reason: str) -> Future:
        """Use a sequence number up with a user error."""
        self.sessions.model(model_id)

        def compute() -> dict[str, Any]:
            raise ClientFault(reason)

        return self.scheduler.submit_in_turn(operation, model_id, seq, compute)


def check_ttl(ttl: int | None) -> None:
    """ClientFault unless `ttl` is None or within the service's limits, in seconds."""
    if ttl is not None and not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        raise ClientFault(f"ttl_seconds must be {SHORTEST_TTL} to {LONGEST_TTL}, not {ttl}")


def _check_optimizer(config: Mapping[str, Any] | None) -> None:
    kind = ADAMW if config is None else config.get("type", ADAMW)
    if kind != ADAMW:
        raise ClientFault(f"the local engine does not have the optimizer {kind!r}; use {ADAMW}")


def _shape(lora: Mapping[str, Any]) -> LoraShape:
    rank = lora.get("rank", 32)
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise ClientFault(f"lora rank must be a whole number, not {rank!r}")
    return LoraShape(
        rank,
        bool(lora.get("train_mlp", True)),
        bool(lora.get("train_attn", True)),
        bool(lora.get("train_unembed", True)),
    )


def _adam_settings(params: Mapping[str, Any] | None) -> AdamSettings:
    params = params or {}
    known = set(AdamSettings.__dataclass_fields__)
    if unknown := sorted(set(params) - known - {"type"}):
        raise ClientFault(f"{ADAMW} has no setting {', '.join(unknown)}")
    numbers = {}
    for name in known & set(params):
        value = params[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ClientFault(f"{ADAMW}: {name} must be a number, not {value!r}")
        if not math.isfinite(value):
            raise ClientFault(f"{ADAMW}: {name} must be finite, not {value}")
        numbers[name] = float(value)
    settings = AdamSettings(**numbers)
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(settings, name) < 1:
            raise ClientFault(f"{ADAMW}: {name} must be at least 0 and below 1")
    if settings.learning_rate < 0 or settings.eps < 0 or settings.weight_decay < 0:
        raise ClientFault(f"{ADAMW}: learning_rate, eps and weight_decay can't be negative")
    return settings


def _number(*parts: object) -> int:
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
