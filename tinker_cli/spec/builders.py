"""Names of dataset builders and how a mapping becomes an object of a class.

A `type` is a short name (below), `package.module:Class`, or `./file.py:Class` beside the spec. The
run's model and renderer fill `model_name_for_tokenizer` and `renderer_name`; the fields of a
`common_config` may be written flat. Knows classes by name; imports one when a spec uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinker_cli.data.rows import PACKAGE_SCHEME
from tinker_cli.errors import Fault, TinkerError, nearest
from tinker_cli.spec.convert import MISSING, Converter, FieldType, fields_of
from tinker_cli.spec.reader import Mapping, Node, Scalar, Sequence
from tinker_cli.spec.rules import other_version

_MATH = "tinker_cookbook.recipes.math_rl.math_env"
BUILDERS: dict[str, dict[str, str]] = {
    "sl": {
        "conversations": "tinker_cli.data.supervised:ConversationsBuilder",
        "huggingface": "tinker_cli.data.huggingface:HuggingFaceBuilder",
        "interleaved": "tinker_cookbook.supervised.data:InterleavedChatDatasetBuilder",
    },
    "rl": {
        "prompts": "tinker_cli.data.prompts:PromptsBuilder",
        "arithmetic": "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
        "gsm8k": f"{_MATH}:Gsm8kDatasetBuilder",
        "math": f"{_MATH}:MathDatasetBuilder",
        "polaris": f"{_MATH}:PolarisDatasetBuilder",
        "deepmath": f"{_MATH}:DeepMathDatasetBuilder",
    },
}
PATH_FIELDS = ("file_path", "test_file_path")


@dataclass
class Factory:
    """Builds objects from mappings; what it made is remembered as plain, resolved values."""

    kind: str
    base_dir: Path
    model_name: str
    renderer_name: str
    faults: list[Fault]
    resolved: dict[str, dict[str, Any]] = field(default_factory=dict)

    def converter(self) -> Converter:
        """A converter whose nested mappings come here."""
        return Converter(self.faults, self.build)

    def build(self, node: Mapping, wanted: type, key: str) -> Any:
        """The object that `node` describes, or MISSING with faults noted.

        `wanted` is the class that the field asks for; `object` where anything callable will do.
        """
        cls, reference = self._class(node, wanted, key)
        if cls is MISSING:
            return MISSING
        if not isinstance(cls, type) or not hasattr(cls, "__chz_fields__"):
            if set(node.items) - {"type"}:
                self.faults.append(node.place.fault(f"{reference} takes no fields", key))
                return MISSING
            self.resolved[key] = {"type": reference}
            return cls
        before = len(self.faults)
        values = self._fields(node, cls, key)
        if len(self.faults) > before:
            return MISSING
        shown = {"type": reference} if reference else {}
        self.resolved[key] = {**shown, **values}
        try:
            return cls(**values)
        except Exception as error:  # a class's own validators may raise anything
            self.faults.append(node.place.fault(str(error) or type(error).__name__, key))
            return MISSING

    def _class(self, node: Mapping, wanted: type, key: str) -> tuple[Any, str | None]:
        named = node.items.get("type")
        if named is None:
            if wanted is object or self._is_dataset(key):
                known = ", ".join(BUILDERS[self.kind])
                what = (
                    f"which one? one of {known}, or module:Class"
                    if self._is_dataset(key)
                    else ("module:Class")
                )
                self.faults.append(node.place.fault(f"missing: {what}", f"{key}.type"))
                return MISSING, None
            return wanted, None
        if not isinstance(named, Scalar) or named.is_null:
            self.faults.append(named.place.fault("must be a name", f"{key}.type"))
            return MISSING, None
        reference = self._reference(named, key)
        if reference is None:
            return MISSING, None
        try:
            from tinker_cli.data.rewards import load_object

            cls = load_object(reference, self.base_dir)
        except TinkerError as error:
            self.faults.append(named.place.fault(error.message, f"{key}.type"))
            return MISSING, None
        if wanted is not object and not (isinstance(cls, type) and issubclass(cls, wanted)):
            message = f"{named.text} is not a {wanted.__name__}"
            self.faults.append(named.place.fault(message, f"{key}.type"))
            return MISSING, None
        short = named.text if named.text in BUILDERS[self.kind] else reference
        return cls, short

    def _reference(self, named: Scalar, key: str) -> str | None:
        known = BUILDERS[self.kind] if self._is_dataset(key) else {}
        if named.text in known:
            return known[named.text]
        path, _, attribute = named.text.rpartition(":")
        if path.endswith(".py"):
            return f"{(self.base_dir / path).resolve()}:{attribute}"
        if path:
            return named.text
        other = "rl" if self.kind == "sl" else "sl"
        message = f"no builder {named.text!r}"
        if named.text in BUILDERS[other]:
            message = f"{named.text} is for kind: {other}"
        near = nearest(named.text, tuple(known))
        tail = "" if near else f"; one of {', '.join(known)}, or module:Class"
        self.faults.append(named.place.fault(message + tail, f"{key}.type", suggestion=near))
        return None

    @staticmethod
    def _is_dataset(key: str) -> bool:
        return key == "dataset_builder"

    def _fields(self, node: Mapping, cls: type, key: str) -> dict[str, Any]:
        known = fields_of(cls)
        node = self._gathered(node, known)
        values: dict[str, Any] = {}
        converter = self.converter()
        for name, item in node.items.items():
            if name == "type":
                continue
            whole = f"{key}.{name}"
            if name not in known:
                place = node.keys[name]
                if (version := other_version(whole, known)) is not None:
                    message = f"the installed tinker-cookbook has no such field; {version} has"
                    self.faults.append(place.fault(message, whole))
                    continue
                choices = tuple(known) + tuple(self._common_names(known))
                self.faults.append(
                    place.fault("no such field", whole, suggestion=nearest(name, choices))
                )
                continue
            value = converter.value(self._rooted(name, item), known[name].type, whole)
            if value is not MISSING:
                values[name] = value
                if name == "reward":
                    self._try_reward(value, item, whole)
        self._fill(values, known)
        for name, one in known.items():
            if one.default is MISSING and name not in values and name not in node.items:
                self.faults.append(node.place.fault("missing", f"{key}.{name}"))
        return values

    def _try_reward(self, value: Any, node: Node, key: str) -> None:
        from tinker_cli.data.rewards import resolve_reward

        try:
            resolve_reward(value, self.base_dir)
        except TinkerError as error:
            self.faults.append(node.place.fault(error.message, key))

    def _fill(self, values: dict[str, Any], known: dict[str, FieldType]) -> None:
        for name, value in (
            ("model_name_for_tokenizer", self.model_name),
            ("renderer_name", self.renderer_name),
        ):
            if name in known and name not in values:
                values[name] = value
        if "max_length" in known and known["max_length"].default is MISSING:
            values.setdefault("max_length", None)

    @staticmethod
    def _common_names(known: dict[str, FieldType]) -> dict[str, FieldType]:
        common = known.get("common_config")
        return fields_of(common.type) if common is not None else {}

    def _gathered(self, node: Mapping, known: dict[str, FieldType]) -> Mapping:
        """Flat fields of the common config, moved into it."""
        common = self._common_names(known)
        if not common:
            return node
        flat = {n: i for n, i in node.items.items() if n in common and n not in known}
        below = node.items.get("common_config")
        inner = Mapping({}, node.place)
        if isinstance(below, Mapping):
            inner = Mapping(dict(below.items), below.place, dict(below.keys))
        for name, item in flat.items():
            inner.items[name], inner.keys[name] = item, node.keys[name]
        items = {n: i for n, i in node.items.items() if n not in flat}
        items["common_config"] = inner
        return Mapping(items, node.place, {**node.keys, "common_config": inner.place})

    def _rooted(self, name: str, node: Node) -> Node:
        """Paths of data files and references to .py files, made independent of where we run."""
        if name in PATH_FIELDS:
            return self._rooted_path(node)
        if name == "path" and isinstance(node, Scalar) and (self.base_dir / node.text).exists():
            return self._rooted_path(node)  # a dataset's folder or file; else a name of the hub
        if name == "reward":
            return self._rooted_reward(node)
        return node

    def _rooted_path(self, node: Node) -> Node:
        if isinstance(node, Sequence):
            return Sequence(tuple(self._rooted_path(item) for item in node.items), node.place)
        if not isinstance(node, Scalar) or node.is_null or node.text.startswith(PACKAGE_SCHEME):
            return node
        path = self.base_dir / Path(node.text).expanduser()
        return Scalar(str(path.resolve()), True, node.place)

    def _rooted_reward(self, node: Node) -> Node:
        if isinstance(node, Scalar):
            path, _, attribute = node.text.rpartition(":")
            if path.endswith(".py"):
                whole = f"{(self.base_dir / path).resolve()}:{attribute}"
                return Scalar(whole, True, node.place)
        if isinstance(node, Sequence):
            return Sequence(tuple(self._rooted_reward(item) for item in node.items), node.place)
        if isinstance(node, Mapping) and "type" in node.items:
            items = {**node.items, "type": self._rooted_reward(node.items["type"])}
            return Mapping(items, node.place, node.keys)
        return node
