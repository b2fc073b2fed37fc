"""YAML -> values that know their place and keep their text.

A scalar keeps the text as written and whether it was quoted; its type is decided later by the field
that it lands in. Duplicate keys are faults, merge keys and anchors work, tags are refused, and
`extends` and `${ENV}` are resolved here. Knows YAML; knows nothing of fields.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tinker_cli.errors import Fault

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NULLS = ("", "~", "null", "Null", "NULL")
_PLAIN_TAGS = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
_PLAIN_TAGS += ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


@dataclass(frozen=True)
class Place:
    """Where a value was written; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def fault(self, message: str, key: str | None = None, **more: str | None) -> Fault:
        """A fault at this place."""
        return Fault(
            message, file=self.file, line=self.line, column=self.column, key=key or None, **more
        )


@dataclass(frozen=True)
class Scalar:
    """Text as written, and whether it was quoted."""

    text: str
    quoted: bool
    place: Place

    @property
    def is_null(self) -> bool:
        """True for an empty value, `~` or `null`, unquoted."""
        return not self.quoted and self.text in _NULLS


@dataclass(frozen=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass
class Mapping:
    """Keys in the order written, each with the place of the key itself."""

    items: dict[str, Node]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True)
class Document:
    """A spec file as read, with all that was wrong with its form."""

    root: Mapping
    faults: tuple[Fault, ...]
    files: tuple[Path, ...]


def read_document(path: Path, overrides: tuple[str, ...] = ()) -> Document:
    """Read a spec, what it extends, and `key=value` overrides on top."""
    faults: list[Fault] = []
    files: list[Path] = []
    root = _read_file(path, faults, files, ())
    for number, override in enumerate(overrides, 1):
        _apply_override(root, override, number, faults)
    return Document(root, tuple(faults), tuple(files))


def _read_file(
    path: Path, faults: list[Fault], files: list[Path], chain: tuple[Path, ...]
) -> Mapping:
    empty = Mapping({}, Place(str(path)))
    if path.resolve() in chain:
        faults.append(Fault("extends itself", file=str(path), key="extends"))
        return empty
    text = _text_of(path, faults)
    if text is None:
        return empty
    files.append(path)
    root = _compose(path, text, faults)
    if root is None:
        return empty
    parent = root.items.pop("extends", None)
    if parent is None:
        return root
    if not isinstance(parent, Scalar) or parent.is_null:
        faults.append(parent.place.fault("must name one spec file", "extends"))
        return root
    base = _read_file(
        path.parent / Path(parent.text).expanduser(), faults, files, (*chain, path.resolve())
    )
    return _merged(base, root)


def _text_of(path: Path, faults: list[Fault]) -> str | None:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        faults.append(Fault("no such file", file=str(path)))
    except OSError as error:
        faults.append(Fault(f"can't be read: {error.strerror}", file=str(path)))
    except UnicodeDecodeError as error:
        faults.append(Fault(f"is not UTF-8: byte {error.start + 1}", file=str(path)))
    return None


def _compose(path: Path, text: str, faults: list[Fault]) -> Mapping | None:
    name = str(path)
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        message = error.problem or "is not YAML"
        if "'\\t'" in message:
            message = "a tab can't indent; use spaces"
        faults.append(Fault(message, file=name, line=line, column=column))
        return None
    except (yaml.YAMLError, ValueError) as error:
        faults.append(Fault(f"is not YAML: {str(error).splitlines()[0]}", file=name))
        return None
    nodes = [node for node in nodes if node is not None]
    if not nodes:
        faults.append(Fault("the spec is empty", file=name))
        return None
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        faults.append(Fault("one document expected; here a second begins", file=name, line=line))
        return None
    if not isinstance(nodes[0], yaml.MappingNode):
        faults.append(Fault("a spec must be a mapping of fields", file=name, line=1))
        return None
    root = _convert(nodes[0], name, faults, ())
    return root if isinstance(root, Mapping) else None


def _place(node: yaml.Node, file: str) -> Place:
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)


def _convert(node: yaml.Node, file: str, faults: list[Fault], above: tuple[yaml.Node, ...]) -> Node:
    place = _place(node, file)
    if any(node is other for other in above):
        faults.append(place.fault("an anchor that holds itself"))
        return Scalar("", False, place)
    above = (*above, node)
    if isinstance(node, yaml.ScalarNode):
        if node.tag not in _PLAIN_TAGS:
            faults.append(place.fault(f"the tag {_short_tag(node.tag)} is not allowed"))
        return Scalar(_expanded(node.value, place, faults), node.style is not None, place)
    if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
        faults.append(place.fault(f"the tag {_short_tag(node.tag)} is not allowed"))
        return Scalar("", False, place)
    if isinstance(node, yaml.SequenceNode):
        return Sequence(tuple(_convert(item, file, faults, above) for item in node.value), place)
    return _mapping(node, file, faults, above)


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _mapping(
    node: yaml.Node, file: str, faults: list[Fault], above: tuple[yaml.Node, ...]
) -> Mapping:
    result = Mapping({}, _place(node, file))
    merged: list[Mapping] = []
    for key_node, value_node in node.value:
        place = _place(key_node, file)
        if not isinstance(key_node, yaml.ScalarNode):
            faults.append(place.fault("a key must be one word"))
            continue
        value = _convert(value_node, file, faults, above)
        if key_node.tag == "tag:yaml.org,2002:merge":
            parts = value.items if isinstance(value, Sequence) else (value,)
            merged += [part for part in parts if isinstance(part, Mapping)]
            continue
        key = key_node.value
        if key in result.items:
            first = result.keys[key].line
            faults.append(place.fault(f"is there twice; first on line {first}", key))
            continue
        result.items[key], result.keys[key] = value, place
    for part in merged:
        for key, value in part.items.items():
            if key not in result.items:
                result.items[key], result.keys[key] = value, part.keys[key]
    return result


def _expanded(text: str, place: Place, faults: list[Fault]) -> str:
    def value_of(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        value: str | None = os.environ.get(name, default)
        if value is None:
            faults.append(place.fault(f"the environment variable {name} is not set"))
            return ""
        return value

    return _VARIABLE.sub(value_of, text)


def _merged(base: Mapping, top: Mapping) -> Mapping:
    """`top` over `base`: mappings merge key by key, everything else is replaced.

    A mapping with another `type` replaces the one beneath it whole.
    """
    result = Mapping(dict(base.items), top.place, dict(base.keys))
    for key, value in top.items.items():
        below = result.items.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _other(below, value):
            value = _merged(below, value)
        result.items[key], result.keys[key] = value, top.keys[key]
    return result


def _other(below: Mapping, above: Mapping) -> bool:
    old, new = below.items.get("type"), above.items.get("type")
    return isinstance(new, Scalar) and isinstance(old, Scalar) and old.text != new.text


def _apply_override(root: Mapping, override: str, number: int, faults: list[Fault]) -> None:
    key, sign, text = override.partition("=")
    place = Place(f"argument {number}")
    path = key.strip().split(".")
    if not sign or not all(path):
        faults.append(place.fault(f"{override!r} is not key=value"))
        return
    value = _override_value(text, place, faults)
    here = root
    for part in path[:-1]:
        below = here.items.get(part)
        if not isinstance(below, Mapping):
            below = Mapping({}, place)
        below = Mapping(dict(below.items), below.place, dict(below.keys))
        here.items[part] = below
        here.keys.setdefault(part, place)
        here = below
    here.items[path[-1]], here.keys[path[-1]] = value, place


def _override_value(text: str, place: Place, faults: list[Fault]) -> Node:
    """A value of the command line: YAML where it is a list or mapping, else text as it stands."""
    if text[:1] not in ("[", "{", '"', "'"):
        return Scalar(_expanded(text, place, faults), False, place)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return Scalar(text, True, place)
    if node is None:
        return Scalar(text, True, place)
    return _moved(_convert(node, place.file, faults, ()), place)


def _moved(node: Node, place: Place) -> Node:
    if isinstance(node, Scalar):
        return Scalar(node.text, node.quoted, place)
    if isinstance(node, Sequence):
        return Sequence(tuple(_moved(item, place) for item in node.items), place)
    items = {key: _moved(item, place) for key, item in node.items.items()}
    return Mapping(items, place, dict.fromkeys(items, place))


def walk(node: Node, key: str = "") -> Iterator[tuple[str, Node]]:
    """Every value below `node` with its dotted key, itself first."""
    yield key, node
    if isinstance(node, Mapping):
        for name, item in node.items.items():
            yield from walk(item, f"{key}.{name}" if key else name)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from walk(item, f"{key}[{index}]")
