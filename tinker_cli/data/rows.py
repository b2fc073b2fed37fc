"""JSONL files as rows that know their line, whatever wrote them.

Tolerates a byte order mark, CRLF, blank lines, gzip, and Unicode line separators inside values
(only a newline ends a row). Knows nothing of what a row means.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tinker_cli.errors import Fault, InputFaults

PACKAGE_SCHEME = "package://"
MOST_FAULTS = 50  # rows reported one by one


@dataclass(frozen=True)
class Row:
    """One row of a file; `line` counts from 1."""

    file: str
    line: int
    value: dict[str, Any]


def locate(path: str) -> Path:
    """The file that `path` names; `package://NAME/FILE` is a file that a package ships."""
    if path.startswith(PACKAGE_SCHEME):
        package, _, inner = path.removeprefix(PACKAGE_SCHEME).partition("/")
        return Path(str(files(package).joinpath(inner)))
    return Path(path).expanduser()


def read_jsonl(path: str | Path) -> list[Row]:
    """Every row of a file; raises InputFaults with all faulty lines at once."""
    faults: list[Fault] = []
    rows = sound_rows(path, faults)
    require(faults, f"in {path}")
    return rows


def sound_rows(path: str | Path, faults: list[Fault]) -> list[Row]:
    """The rows of a file that can be read; what can't is noted in `faults`."""
    before = len(faults)
    rows = []
    for item in scan_jsonl(path):
        if isinstance(item, Fault):
            faults.append(item)
        else:
            rows.append(item)
    if not rows and len(faults) == before:
        faults.append(Fault("the file is empty: it has no rows", file=str(path)))
    return rows


def require(faults: Sequence[Fault], where: str) -> None:
    """Raise InputFaults if there are any, the first of them named one by one."""
    if not faults:
        return
    rows = len({(fault.file, fault.line) for fault in faults})
    if all(fault.line is None for fault in faults):
        message = f"{where.removeprefix('in ')} can't be read"
    else:
        message = f"{rows} faulty row{'' if rows == 1 else 's'} {where}"
    more = len(faults) - MOST_FAULTS
    hint = f"and {more} more faults" if more > 0 else None
    raise InputFaults(message, list(faults[:MOST_FAULTS]), hint=hint)


def scan_jsonl(path: str | Path, *, name: str | None = None) -> Iterator[Row | Fault]:
    """The rows of a file one by one, with a Fault in the place of each faulty line.

    `name` is what messages call the file.
    """
    place = locate(str(path))
    name = name or str(path)
    try:
        with _open(place) as stream:
            for number, raw in enumerate(stream, 1):
                item = _parse(name, number, raw)
                if item is not None:
                    yield item
    except FileNotFoundError:
        yield Fault("no such file", file=name)
    except (IsADirectoryError, PermissionError) as error:
        yield Fault(f"can't be read: {error.strerror}", file=name)
    except (gzip.BadGzipFile, EOFError) as error:
        yield Fault(f"is not a whole gzip file: {error}", file=name)


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _parse(name: str, number: int, raw: bytes) -> Row | Fault | None:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r\n")
    except UnicodeDecodeError as error:
        return Fault(f"is not UTF-8: byte {error.start + 1}", file=name, line=number)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        column = getattr(error, "colno", None)
        return Fault(f"is not JSON: {error}", file=name, line=number, column=column)
    if not isinstance(value, dict):
        kind = type(value).__name__
        return Fault("a row must be an object", file=name, line=number, found=kind)
    return Row(name, number, value)
