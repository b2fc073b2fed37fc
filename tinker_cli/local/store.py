"""Checkpoints on disk, in PEFT's format, whole or not there.

`tinker://RUN/weights/NAME` lives in `<store>/RUN/weights/NAME/`: `adapter_model.safetensors` and
`adapter_config.json` (what `peft` loads), `checkpoint.json` (our facts), and for resumable ones
`optimizer.safetensors`. A checkpoint is written beside its place and renamed into it, so that a
crash leaves nothing half. Knows files and adapters; knows nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.learner import Moments
from tinker_cli.local.lora import LORA_ALPHA, Adapter, BaseModel, LoraShape

KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
LEFTOVER_SECONDS = 3600.0
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:\-]{0,199}")
_PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Place:
    """The three segments of a checkpoint's path."""

    run: str
    kind: str
    name: str

    @property
    def uri(self) -> str:
        """`tinker://run/kind/name`."""
        return f"tinker://{self.run}/{self.kind}/{self.name}"


def parse_uri(uri: str) -> Place:
    """Split a checkpoint path; ClientFault unless it has three safe segments."""
    parts = uri.removeprefix("tinker://").split("/")
    sound = uri.startswith("tinker://") and len(parts) == 3 and parts[1] in KINDS
    if not sound or not all(_SEGMENT.fullmatch(part) for part in parts):
        raise ClientFault(f"{uri!r} is not a checkpoint path: tinker://RUN/weights/NAME")
    return Place(*parts)


@dataclass(frozen=True)
class Facts:
    """What is known of a checkpoint without opening its weights; times in ISO 8601, UTC."""

    run: str
    kind: str
    name: str
    base_model: str
    rank: int
    train_mlp: bool
    train_attn: bool
    train_unembed: bool
    created: str
    expires: str | None
    public: bool
    optimizer_steps: int | None
    size_bytes: int
    run_metadata: dict[str, Any] | None
    user_metadata: dict[str, str] | None = None

    @property
    def place(self) -> Place:
        """Where it lives."""
        return Place(self.run, self.kind, self.name)

    @property
    def shape(self) -> LoraShape:
        """The adapter's coverage."""
        return LoraShape(self.rank, self.train_mlp, self.train_attn, self.train_unembed)

    @property
    def expired(self) -> bool:
        """True after its time to live."""
        return self.expires is not None and datetime.fromisoformat(self.expires) < now()


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def expiry(ttl_seconds: int | None) -> str | None:
    """The moment `ttl_seconds` from now, or None for never."""
    return None if ttl_seconds is None else (now() + timedelta(seconds=ttl_seconds)).isoformat()


class Store:
    """A folder of checkpoints; several engines may use one at a time."""

    def __init__(self, root: Path):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def save(
        self,
        place: Place,
        model: BaseModel,
        adapter: Adapter,
        moments: Moments | None,
        *,
        ttl_seconds: int | None = None,
        run_metadata: dict[str, Any] | None = None,
        user_metadata: dict[str, str] | None = None,
        finish: Callable[[Path], None] | None = None,
    ) -> Facts:
        """Write a checkpoint and return its facts; one of the same name is replaced.

        `finish` may change the files before the checkpoint is put in its place.
        """
        if not all(_SEGMENT.fullmatch(part) for part in (place.run, place.name)):
            raise ClientFault(f"{place.name!r} can't name a checkpoint: letters, digits, . _ - :")
        shape = adapter.shape
        facts = Facts(
            run=place.run,
            kind=place.kind,
            name=place.name,
            base_model=model.name,
            rank=shape.rank,
            train_mlp=shape.train_mlp,
            train_attn=shape.train_attn,
            train_unembed=shape.train_unembed,
            created=now().isoformat(),
            expires=expiry(ttl_seconds),
            public=False,
            optimizer_steps=None if moments is None else moments.steps,
            size_bytes=0,
            run_metadata=run_metadata,
            user_metadata=user_metadata,
        )
        return self._write(facts, adapter, moments, model, finish)

    def _write(
        self,
        facts: Facts,
        adapter: Adapter,
        moments: Moments | None,
        model: BaseModel,
        finish: Callable[[Path], None] | None,
    ) -> Facts:
        folder = self._folder(facts.place)
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = folder.parent / f".{facts.name}.{uuid.uuid4().hex}.partial"
        beside.mkdir()
        try:
            save_file(_peft_names(adapter), beside / "adapter_model.safetensors")
            _write_json(beside / "adapter_config.json", _peft_config(facts, adapter, model))
            if moments is not None:
                save_file(_moment_names(moments), beside / "optimizer.safetensors")
            if finish is not None:
                finish(beside)
            size = sum(file.stat().st_size for file in beside.iterdir())
            facts = replace(facts, size_bytes=size)
            _write_json(beside / "checkpoint.json", asdict(facts))
            _put_in_place(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return facts

    def facts(self, uri: str) -> Facts:
        """What is known of a checkpoint; NotFound if it is gone or has expired."""
        place = parse_uri(uri)
        try:
            facts = Facts(**json.loads((self._folder(place) / "checkpoint.json").read_text()))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"no checkpoint {uri}") from None
        if facts.expired:
            raise NotFound(f"the checkpoint {uri} expired at {facts.expires}")
        return facts

    def load(self, uri: str, model: BaseModel) -> tuple[Adapter, Moments | None]:
        """Read the weights, and the optimizer's state where it was saved."""
        facts = self.facts(uri)
        if facts.kind == "external_weights":
            raise ClientFault(f"{uri} is an export to be downloaded; it can't be loaded")
        folder = self._folder(facts.place)
        adapter = _from_peft_names(facts.shape, load_file(folder / "adapter_model.safetensors"))
        for name, a in adapter.a.items():
            layer, rows = model.layers.get(name), len(adapter.b[name])
            if layer is None or (a.shape[1], rows) != (layer.in_features, layer.out_features):
                raise ClientFault(f"{uri} was trained on {facts.base_model}, not {model.name}")
        adapter.a = {name: tensor.to(model.device) for name, tensor in adapter.a.items()}
        adapter.b = {name: tensor.to(model.device) for name, tensor in adapter.b.items()}
        if facts.optimizer_steps is None:
            return adapter, None
        state = load_file(folder / "optimizer.safetensors")
        first = {k[2:]: v.to(model.device) for k, v in state.items() if k.startswith("m.")}
        second = {k[2:]: v.to(model.device) for k, v in state.items() if k.startswith("v.")}
        return adapter, Moments(first, second, facts.optimizer_steps)

    def all(self, run: str | None = None) -> Iterator[Facts]:
        """Every checkpoint that is there, oldest first; of one run if named."""
        if run is not None and not _SEGMENT.fullmatch(run):
            return
        found = []
        for file in self.root.glob(f"{run or '*'}/*/*/checkpoint.json"):
            if file.parent.name.startswith("."):
                continue
            try:
                found.append(Facts(**json.loads(file.read_text())))
            except (OSError, ValueError, TypeError):
                continue  # deleted or being replaced while we look
        yield from sorted((f for f in found if not f.expired), key=lambda facts: facts.created)

    def delete(self, uri: str) -> None:
        """Remove a checkpoint; NotFound if there is none."""
        facts = self.facts(uri)
        folder = self._folder(facts.place)
        gone = folder.parent / f".{facts.name}.{uuid.uuid4().hex}.deleted"
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def change(self, uri: str, **changes: Any) -> Facts:
        """Change facts of a checkpoint (`public`, `expires`)."""
        facts = replace(self.facts(uri), **changes)
        file = self._folder(facts.place) / "checkpoint.json"
        beside = file.with_name(f".{uuid.uuid4().hex}.json")
        _write_json(beside, asdict(facts))
        os.replace(beside, file)
        return facts

    def copy(self, uri: str, target: Place, ttl_seconds: int | None) -> Facts:
        """Copy a checkpoint to another place, private and with a life of its own."""
        facts = replace(
            self.facts(uri),
            run=target.run,
            kind=target.kind,
            name=target.name,
            created=now().isoformat(),
            expires=expiry(ttl_seconds),
            public=False,
        )
        folder = self._folder(target)
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = folder.parent / f".{target.name}.{uuid.uuid4().hex}.partial"
        shutil.copytree(self._folder(parse_uri(uri)), beside)
        _write_json(beside / "checkpoint.json", asdict(facts))
        _put_in_place(beside, folder)
        return facts

    def folder(self, uri: str) -> Path:
        """The folder of a checkpoint that is there."""
        return self._folder(self.facts(uri).place)

    def _folder(self, place: Place) -> Path:
        return self.root / place.run / place.kind / place.name

    def sweep(self) -> None:
        """Put back what a crash left half replaced; remove leftovers and what has expired."""
        for old in self.root.glob("*/*/.*.old"):
            place = old.with_name(old.name[1:].rsplit(".", 2)[0])
            if not place.exists():
                old.rename(place)
        limit = now().timestamp() - LEFTOVER_SECONDS  # younger ones may be another engine's work
        for leftover in self.root.glob("*/*/.*"):
            with contextlib.suppress(OSError):
                if leftover.stat().st_mtime < limit:
                    shutil.rmtree(leftover, ignore_errors=True)
        for file in self.root.glob("*/*/*/checkpoint.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                if Facts(**json.loads(file.read_text())).expired:
                    shutil.rmtree(file.parent, ignore_errors=True)


def _put_in_place(beside: Path, folder: Path) -> None:
    for file in beside.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    if folder.exists():
        old = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.old"
        folder.rename(old)
        beside.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        beside.rename(folder)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2))


def _peft_names(adapter: Adapter) -> dict[str, torch.Tensor]:
    named = {f"{_PEFT_PREFIX}{n}.lora_A.weight": t for n, t in adapter.a.items()}
    named |= {f"{_PEFT_PREFIX}{n}.lora_B.weight": t for n, t in adapter.b.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}


def _from_peft_names(shape: LoraShape, named: dict[str, torch.Tensor]) -> Adapter:
    a: dict[str, torch.Tensor] = {}
    b: dict[str, torch.Tensor] = {}
    for name in sorted(named):
        layer, _, side = name.removeprefix(_PEFT_PREFIX).removesuffix(".weight").rpartition(".")
        (a if side == "lora_A" else b)[layer] = named[name]
    return Adapter(shape, a, b)


def _peft_config(facts: Facts, adapter: Adapter, model: BaseModel) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.source,
        "r": facts.rank,
        "lora_alpha": LORA_ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in adapter.a}),
        "inference_mode": True,
    }


def _moment_names(moments: Moments) -> dict[str, torch.Tensor]:
    named = {f"m.{name}": tensor for name, tensor in moments.first.items()}
    named |= {f"v.{name}": tensor for name, tensor in moments.second.items()}
    return {name: tensor.cpu().contiguous() for name, tensor in named.items()} or {
        "m.": torch.zeros(1)  # safetensors can't hold nothing
    }
