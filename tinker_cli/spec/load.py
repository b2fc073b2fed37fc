"""A spec file -> a checked `Spec`, or all of its faults at once.

Fields are those of the installed cookbook's Config, plus our own (`kind`, `local`, `guards`,
`on_end`, ...). Nothing is created anywhere. Data is checked later, by `check`.
"""

from __future__ import annotations

import hashlib
import json
import os
import typing
from collections.abc import Sequence as Several
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tinker_cli import tiny
from tinker_cli.errors import Fault, UsageError, nearest
from tinker_cli.spec import rules
from tinker_cli.spec.builders import Factory
from tinker_cli.spec.checked import GuardSpec, Kind, LocalOptions, Spec, SpecFaults, batch_size
from tinker_cli.spec.convert import MISSING, Converter, FieldType, fields_of
from tinker_cli.spec.hub import mind_the_hub
from tinker_cli.spec.models import is_local_model, recommended_renderer
from tinker_cli.spec.rates import Rate, read_rate
from tinker_cli.spec.reader import Document, Mapping, Node, Place, Scalar, Sequence, read_document

OWN_FIELDS = ("kind", "local", "guards", "on_end")
LOCAL_FIELDS: dict[str, Any] = {
    "model": str | None,
    "device": str | None,
    "threads": int | None,
    "seed": int | None,
}
GUARD_FIELDS: dict[str, Any] = {
    "when": str,
    "for": int,
    "do": Literal["warn", "checkpoint", "stop"],
}
AUTO = "auto"
LOCAL = "local"


def load_spec(
    path: Path,
    *,
    kind: Kind | None = None,
    overrides: Several[str] = (),
    local: bool = False,
) -> Spec:
    """Read and check a spec; raises InputFaults with every fault that was found."""
    document = read_document(path, tuple(overrides))
    faults = list(document.faults)
    if not document.root.items:
        raise _refusal(path, faults)
    loader = _Loader(path, document, faults)
    spec = loader.load(kind, local)
    if faults or spec is None:
        raise _refusal(path, faults, loader.builder)
    return spec


def _refusal(path: Path, faults: list[Fault], builder: Any | None = None) -> SpecFaults:
    ordered = sorted(faults, key=lambda fault: (fault.file or "", fault.line or 0))
    return SpecFaults(path, ordered, builder)


def config_class(kind: Kind) -> type:
    """The cookbook's Config of that kind."""
    if kind == "sl":
        from tinker_cookbook.supervised.train import Config as SupervisedConfig

        return cast(type, SupervisedConfig)
    from tinker_cookbook.rl.train import Config as RlConfig

    return cast(type, RlConfig)


@dataclass
class _Loader:
    path: Path
    document: Document
    faults: list[Fault]
    rate: Rate | None = None
    builder: Any | None = None

    def load(self, kind: Kind | None, local: bool) -> Spec | None:
        root = self.document.root
        found = self._kind(root, kind)
        if found is None:
            return None
        known = fields_of(config_class(found))
        if local:
            self._make_local(root)
        model = self._model(root)
        if model is not None and not is_local_model(model):
            mind_the_hub()
        renderer = self._renderer(root, model)
        own = self._own(root)
        factory = Factory(
            found, self.path.resolve().parent, model or "", renderer or "", self.faults
        )
        values = self._config_values(root, known, factory, model, renderer)
        self.builder = values.get("dataset_builder") if model and renderer else None
        rules.check(found, values, root, self.faults)
        if self.faults or model is None or renderer is None:
            return None
        return self._spec(found, values, known, factory, own, renderer)

    def _kind(self, root: Mapping, asked: Kind | None) -> Kind | None:
        node = root.items.get("kind")
        if node is None:
            if asked is None:
                self.faults.append(root.place.fault("missing: sl or rl", "kind"))
            return asked
        kind: Any = Converter(self.faults, _no_build).value(node, Literal["sl", "rl"], "kind")
        if kind is MISSING:
            return asked
        if asked is not None and kind != asked:
            self.faults.append(node.place.fault(f"this spec is for: tinker train {kind}", "kind"))
        return asked or kind

    def _make_local(self, root: Mapping) -> None:
        place = Place("--local")
        _set(root, "base_url", LOCAL, place)
        node = root.items.get("model_name")
        if isinstance(node, Scalar) and is_local_model(node.text):
            return
        options = root.items.get("local")
        chosen = options.items.get("model") if isinstance(options, Mapping) else None
        _set(root, "model_name", chosen.text if isinstance(chosen, Scalar) else tiny.NAME, place)
        _set(root, "renderer_name", AUTO, place)

    def _text(self, root: Mapping, key: str) -> str | None:
        node = root.items.get(key)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return None
        value = Converter(self.faults, _no_build).value(node, str, key)
        return None if value is MISSING else str(value)

    def _model(self, root: Mapping) -> str | None:
        model = self._text(root, "model_name")
        if model is None and not any(fault.key == "model_name" for fault in self.faults):
            self.faults.append(root.place.fault("missing", "model_name"))
        if model is not None and model.startswith((".", "~", "/")):
            folder = (self.path.parent / Path(model).expanduser()).resolve()
            if not folder.is_dir():
                place = root.items["model_name"].place
                self.faults.append(place.fault(f"no such folder: {folder}", "model_name"))
            return str(folder)
        return model

    def _renderer(self, root: Mapping, model: str | None) -> str | None:
        named = self._text(root, "renderer_name")
        if named is not None and named != AUTO:
            return rules.known_renderer(named, root.items["renderer_name"].place, self.faults)
        if model is None:
            return None
        try:
            return recommended_renderer(model)
        except UsageError as error:
            place = root.items["model_name"].place
            self.faults.append(place.fault(error.message, "renderer_name"))
            return None

    def _own(self, root: Mapping) -> tuple[LocalOptions, tuple[GuardSpec, ...], str | None]:
        options = self._record(root.items.get("local"), LOCAL_FIELDS, "local")
        guards = self._guards(root.items.get("guards"))
        return LocalOptions(**options), guards, self._text(root, "on_end")

    def _record(self, node: Node | None, fields: dict[str, Any], key: str) -> dict[str, Any]:
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return {}
        if not isinstance(node, Mapping):
            self.faults.append(node.place.fault("must be a mapping", key))
            return {}
        converter, result = Converter(self.faults, _no_build), {}
        for name, item in node.items.items():
            whole = f"{key}.{name}"
            if name not in fields:
                near = nearest(name, tuple(fields))
                self.faults.append(node.keys[name].fault("no such field", whole, suggestion=near))
                continue
            value = converter.value(item, fields[name], whole)
            if value is not MISSING:
                result[name] = value
        return result

    def _guards(self, node: Node | None) -> tuple[GuardSpec, ...]:
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            self.faults.append(node.place.fault("must be a list of {when, for, do}", "guards"))
            return ()
        guards = []
        for index, item in enumerate(node.items):
            record = self._record(item, GUARD_FIELDS, f"guards[{index}]")
            if "when" not in record or not isinstance(item, Mapping):
                if isinstance(item, Mapping) and "when" not in item.items:
                    self.faults.append(item.place.fault("missing", f"guards[{index}].when"))
                continue
            if (when := item.items.get("when")) is not None:
                self._check_expression(record["when"], when.place, f"guards[{index}].when")
            guards.append(GuardSpec(record["when"], record.get("for", 1), record.get("do", "warn")))
        return tuple(guards)

    def _check_expression(self, text: str, place: Place, key: str) -> None:
        from tinker_cli.runs.expressions import parse

        try:
            parse(text)
        except UsageError as error:
            self.faults.append(place.fault(error.message, key))

    def _config_values(
        self,
        root: Mapping,
        known: dict[str, FieldType],
        factory: Factory,
        model: str | None,
        renderer: str | None,
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        converter = factory.converter()
        _share_loss(root, known)
        for key, node in root.items.items():
            if key in OWN_FIELDS:
                continue
            if key not in known:
                self._unknown(key, root.keys[key], known)
                continue
            if key == "learning_rate":
                self.rate = read_rate(node, model, converter)
                value = MISSING if self.rate is None else self.rate.base
            elif key == "dataset_builder" and isinstance(node, Scalar) and not node.is_null:
                wrapped = Mapping({"type": node}, node.place, {"type": node.place})
                value = converter.value(wrapped, known[key].type, key)
            else:
                value = converter.value(node, known[key].type, key)
            if value is not MISSING:
                values[key] = value
        if self.rate is not None:
            values["learning_rate"] = self.rate.at(batch_size(values.get("dataset_builder")))
        values |= {"model_name": model, "renderer_name": renderer}
        values.setdefault("recipe_name", "tinker_cli")
        values["log_path"] = str(self._log_path(values.get("log_path")))
        for key, one in known.items():
            if one.default is not MISSING:
                values.setdefault(key, one.default)
            elif key not in values and key not in root.items:
                self.faults.append(root.place.fault("missing", key))
        return values

    def _unknown(self, key: str, place: Place, known: dict[str, FieldType]) -> None:
        if (version := rules.other_version(key, known)) is not None:
            message = f"the installed tinker-cookbook has no such field; {version} has"
            self.faults.append(place.fault(message, key))
            return
        near = nearest(key, (*known, *OWN_FIELDS, "extends"))
        self.faults.append(place.fault("no such field", key, suggestion=near))

    def _log_path(self, given: str | None) -> Path:
        if given is not None:
            return Path(given).expanduser().absolute()
        root = os.environ.get("TINKER_COOKBOOK_RUNS_DIR") or "~/tinker-runs"
        return (Path(root).expanduser() / self.path.stem).absolute()

    def _spec(
        self,
        kind: Kind,
        values: dict[str, Any],
        known: dict[str, FieldType],
        factory: Factory,
        own: tuple[LocalOptions, tuple[GuardSpec, ...], str | None],
        renderer: str,
    ) -> Spec:
        local, guards, on_end = own
        shown: dict[str, Any] = {"kind": kind}
        shown |= {key: plain(values[key], key, factory.resolved) for key in known if key in values}
        if set_options := {k: v for k, v in vars(local).items() if v is not None}:
            shown["local"] = set_options
        if guards:
            shown["guards"] = [{"when": g.when, "for": g.for_, "do": g.do} for g in guards]
        if on_end:
            shown["on_end"] = on_end
        base_url = values.get("base_url")
        log_path = Path(values["log_path"])
        return Spec(
            kind=kind,
            path=self.path,
            name=log_path.name,
            values=shown,
            config_values=values,
            log_path=log_path,
            is_local=base_url == LOCAL,
            local=local,
            guards=guards,
            on_end=on_end,
            hash=_hash(shown),
            model_name=str(values["model_name"]),
            renderer_name=renderer,
            base_url=None if base_url == LOCAL else base_url,
            rate=self.rate,
            places=_places(self.document.root),
        )


def _share_loss(root: Mapping, known: dict[str, FieldType]) -> None:
    """An asynchronous run trains with the spec's `loss_fn`, where it has a field of its own too."""
    loss, below = root.items.get("loss_fn"), root.items.get("async_config")
    if not isinstance(loss, Scalar) or not isinstance(below, Mapping) or "loss_fn" in below.items:
        return
    if loss.text not in typing.get_args(known["loss_fn"].type if "loss_fn" in known else None):
        return  # a fault of its own, told once
    kinds = typing.get_args(known["async_config"].type) if "async_config" in known else ()
    for kind in kinds:
        if hasattr(kind, "__chz_fields__") and "loss_fn" in fields_of(kind):
            below.items["loss_fn"], below.keys["loss_fn"] = loss, root.keys["loss_fn"]


def _places(root: Mapping, before: str = "") -> dict[str, Place]:
    """Dotted keys and where they were written."""
    found: dict[str, Place] = {}
    for key, node in root.items.items():
        found[f"{before}{key}"] = root.keys.get(key, node.place)
        if isinstance(node, Mapping):
            found |= _places(node, f"{before}{key}.")
    return found


def plain(value: Any, key: str, resolved: dict[str, dict[str, Any]]) -> Any:
    """A value as YAML holds it: objects as the mappings that made them."""
    import enum

    if key in resolved:
        made = resolved[key]
        return {name: plain(item, f"{key}.{name}", resolved) for name, item in made.items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{key}[{i}]", resolved) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: plain(item, f"{key}.{name}", resolved) for name, item in value.items()}
    return value


def _hash(values: dict[str, Any]) -> str:
    """Of everything that changes what is computed; not of where it is written."""
    kept = {key: value for key, value in values.items() if key not in ("log_path", "on_end")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _set(root: Mapping, key: str, text: str, place: Place) -> None:
    root.items[key] = Scalar(text, True, place)
    root.keys[key] = place


def _no_build(node: Mapping, wanted: type, key: str) -> Any:
    raise AssertionError(f"{key} has no nested fields")
