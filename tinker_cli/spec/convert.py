"""A value's text -> the type of the field that it lands in.

`1e-4` is 0.0001 where a float is wanted and text where text is wanted; `off` is False for a switch
and a word for a name. Fields and their types are those of the chz classes. Knows types; knows
nothing of which fields a spec has.
"""

from __future__ import annotations

import enum
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import Fault, nearest
from tinker_cli.spec.reader import Mapping, Node, Place, Scalar, Sequence

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
MISSING = object()


@dataclass(frozen=True)
class FieldType:
    """One field of a chz class: name, type, default (MISSING if required)."""

    name: str
    type: Any
    default: Any
    doc: str


def fields_of(cls: type) -> dict[str, FieldType]:
    """The fields of a chz class, in order."""
    import chz

    result = {}
    for name, field in chz.chz_fields(cls).items():
        default: Any = MISSING
        if "MISSING" not in repr(field._default):
            default = field._default
        elif "MISSING" not in repr(field._default_factory):
            default = field._default_factory()
        result[name] = FieldType(name, field.x_type, default, field._doc or "")
    return result


class Wrong(Exception):
    """A value that does not fit its field."""

    def __init__(self, expected: str, suggestion: str | None = None):
        super().__init__(expected)
        self.expected, self.suggestion = expected, suggestion


@dataclass
class Converter:
    """Converts nodes, collecting every fault; `build` makes the object of a nested mapping."""

    faults: list[Fault]
    build: Callable[[Mapping, type, str], Any]

    def value(self, node: Node, wanted: Any, key: str) -> Any:
        """The node as `wanted`, or MISSING with a fault noted."""
        before = len(self.faults)
        try:
            return self._as(node, wanted, key)
        except Wrong as wrong:
            if len(self.faults) == before:
                self.faults.append(self._fault(node, key, wrong))
            return MISSING

    def _fault(self, node: Node, key: str, wrong: Wrong) -> Fault:
        found = describe(node)
        message = f"{found} is not {wrong.expected}"
        return Fault(
            message,
            file=node.place.file,
            line=node.place.line,
            column=node.place.column,
            key=key,
            found=found,
            expected=wrong.expected,
            suggestion=wrong.suggestion,
        )

    def _as(self, node: Node, wanted: Any, key: str) -> Any:
        origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
        if wanted is Any or wanted is object:
            return plain(node)
        if origin in (typing.Union, types.UnionType):
            return self._union(node, arguments, key)
        if origin is typing.Literal:
            return _literal(node, arguments)
        if origin in (list, tuple, set, frozenset) or wanted in (list, tuple):
            return self._list(node, arguments, key)
        if (
            origin is dict
            or wanted is dict
            or (
                isinstance(origin, type)
                and origin is not None
                and issubclass(origin, typing.Mapping)
            )
        ):
            return self._dict(node, arguments, key)
        if origin is not None and "Callable" in str(origin):
            return self._callable(node, key)
        if isinstance(wanted, type):
            return self._class(node, wanted, key)
        if "Callable" in str(wanted):
            return self._callable(node, key)
        return plain(node)

    def _class(self, node: Node, wanted: type, key: str) -> Any:
        if wanted is type(None):
            if isinstance(node, Scalar) and node.is_null:
                return None
            raise Wrong("null")
        simple = _SIMPLE.get(wanted)
        if simple is not None:
            return simple(node)
        if issubclass(wanted, enum.Enum):
            return _enumeration(node, wanted)
        if isinstance(node, Scalar) and ":" in node.text:
            node = Mapping({"type": node}, node.place, {"type": node.place})
        if not isinstance(node, Mapping):
            raise Wrong(f"a mapping of {wanted.__name__}'s fields")
        return self.build(node, wanted, key)

    def _union(self, node: Node, arms: tuple[Any, ...], key: str) -> Any:
        if type(None) in arms and isinstance(node, Scalar) and node.is_null:
            return None
        expected: list[str] = []
        suggestion = None
        for arm in sorted((a for a in arms if a is not type(None)), key=lambda a: a is str):
            before = len(self.faults)
            try:
                return self._as(node, arm, key)
            except Wrong as wrong:
                if len(self.faults) > before:
                    raise
                expected.append(wrong.expected)
                suggestion = suggestion or wrong.suggestion
        raise Wrong(" or ".join(expected), suggestion)

    def _list(self, node: Node, arguments: tuple[Any, ...], key: str) -> Any:
        if not isinstance(node, Sequence):
            raise Wrong("a list")
        item = arguments[0] if arguments else Any
        values = [self.value(one, item, f"{key}[{i}]") for i, one in enumerate(node.items)]
        if MISSING in values:
            raise Wrong("a list of sound values")
        return values

    def _dict(self, node: Node, arguments: tuple[Any, ...], key: str) -> Any:
        if not isinstance(node, Mapping):
            raise Wrong("a mapping")
        item = arguments[1] if len(arguments) > 1 else Any
        values = {name: self.value(one, item, f"{key}.{name}") for name, one in node.items.items()}
        if MISSING in values.values():
            raise Wrong("a mapping of sound values")
        return values

    def _callable(self, node: Node, key: str) -> Any:
        if isinstance(node, Scalar) and ":" in node.text:
            node = Mapping({"type": node}, node.place, {"type": node.place})
        if not isinstance(node, Mapping):
            raise Wrong("package.module:name or ./file.py:name")
        return self.build(node, object, key)


def describe(node: Node) -> str:
    """A value as a message shows it."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.is_null:
        return "null"
    return f'"{node.text}"' if node.quoted else node.text


def _text(node: Node) -> str:
    if not isinstance(node, Scalar) or node.is_null:
        raise Wrong("text")
    return node.text


def _integer(node: Node) -> int:
    text = node.text.strip() if isinstance(node, Scalar) else ""
    if isinstance(node, Scalar) and not node.is_null:
        if _INTEGER.fullmatch(text):
            return int(text.replace("_", ""))
        if _HEX.fullmatch(text):
            return int(text, 16)
        if re.fullmatch(r"[+-]?0\d+", text):
            raise Wrong(f"a whole number: write {text.lstrip('0') or '0'}")
    raise Wrong("a whole number")


def _number(node: Node) -> float:
    if isinstance(node, Scalar) and not node.is_null:
        if re.fullmatch(r"[+-]?0\d+", node.text.strip()):
            raise Wrong(f"a number: write {node.text.strip().lstrip('0') or '0'}")
        try:
            value = float(node.text)
        except ValueError:
            raise Wrong("a number") from None
        if math.isfinite(value):
            return value
    raise Wrong("a finite number")


def _switch(node: Node) -> bool:
    word = node.text.strip().lower() if isinstance(node, Scalar) else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Wrong("true or false")


_SIMPLE: dict[type, Callable[[Node], Any]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _switch,
}


def _literal(node: Node, choices: tuple[Any, ...]) -> Any:
    text = node.text if isinstance(node, Scalar) else None
    for choice in choices:
        if str(choice) == text or (choice is None and isinstance(node, Scalar) and node.is_null):
            return choice
    words = tuple(str(choice) for choice in choices)
    raise Wrong(f"one of {', '.join(words)}", nearest(text or "", words))


def _enumeration(node: Node, wanted: type[enum.Enum]) -> Any:
    text = node.text if isinstance(node, Scalar) else ""
    for member in wanted:
        if text == member.value or text.upper() == member.name:
            return member
    words = tuple(str(member.value) for member in wanted)
    raise Wrong(f"one of {', '.join(words)}", nearest(text.lower(), words))


def plain(node: Node) -> Any:
    """A value where no type is wanted: YAML's own guess for plain words, text for quoted ones."""
    if isinstance(node, Mapping):
        return {name: plain(item) for name, item in node.items.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if node.is_null:
        return None
    if node.quoted:
        return node.text
    if node.text.lower() in ("true", "false"):
        return node.text.lower() == "true"
    for convert in (_integer, _number):
        try:
            return convert(node)
        except Wrong:
            continue
    return node.text


def missing(place: Place, key: str, what: str) -> Fault:
    """The fault of a required field that is not there."""
    return place.fault(f"missing: {what}", key)
