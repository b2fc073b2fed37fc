"""`metrics.jsonl` -> a Frame, incrementally.

Appended bytes cost only themselves. A half line waits for its end; a torn line is counted; a file
that was cut or replaced is read anew (resume does that). Knows bytes and JSON; knows nothing of
what a metric means.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tinker_cli.runs.frame import NOT_FINITE, Frame

METRICS_NAME = "metrics.jsonl"
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 256  # compared to recognise a file that was replaced
STEP_KEY = "step"
_BOM = b"\xef\xbb\xbf"


@dataclass
class Notes:
    """What a reader skipped: line numbers of torn rows, rows without a usable step."""

    torn: list[int] = field(default_factory=list)
    without_step: int = 0
    reread: int = 0

    def sentences(self) -> list[str]:
        """Each kind of trouble in a sentence."""
        said = []
        if self.torn:
            lines = ", ".join(map(str, self.torn[:3])) + (" ..." if len(self.torn) > 3 else "")
            many = "lines are" if len(self.torn) > 1 else "line is"
            said.append(f"{len(self.torn)} {many} not JSON and left out (line {lines})")
        if self.without_step:
            said.append(f"{self.without_step} rows have no usable step and are left out")
        return said


class MetricsReader:
    """Follows one metrics file; `frame` holds what has been read so far."""

    def __init__(self, path: Path):
        self.path = path / METRICS_NAME if path.is_dir() or not path.suffix else path
        self._reset()

    def _reset(self) -> None:
        self.frame = Frame()
        self.notes = Notes()
        self._offset = 0
        self._rest = b""
        self._lines = 0
        self._identity: tuple[int, int] | None = None
        self._head = b""

    def poll(self) -> bool:
        """Read what is new; True if anything was."""
        if self.path.suffix == ".gz":
            return self._read_gzip()
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        try:
            return self._read(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> bool:
        stat = os.fstat(descriptor)
        identity = (stat.st_dev, stat.st_ino)
        replaced = self._identity is not None and (
            identity != self._identity
            or stat.st_size < self._offset
            or os.pread(descriptor, len(self._head), 0) != self._head
        )
        if replaced:
            again = self.notes.reread + 1
            self._reset()
            self.notes.reread = again
        self._identity = identity
        before = self._offset
        while piece := os.pread(descriptor, CHUNK_BYTES, self._offset):
            self._offset += len(piece)
            self._feed(piece)
        if len(self._head) < HEAD_BYTES:
            self._head = os.pread(descriptor, min(HEAD_BYTES, self._offset), 0)
        return replaced or self._offset != before

    def _read_gzip(self) -> bool:
        if self._identity is not None:
            return False
        self._identity = (0, 0)
        with gzip.open(self.path, "rb") as stream:
            while piece := stream.read(CHUNK_BYTES):
                self._feed(piece)
        self.finish()
        return True

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Read a stream instead of the file, to its end."""
        for piece in pieces:
            self._feed(piece)
        self.finish()

    def finish(self) -> None:
        """Take a last line that has no newline, if it is whole."""
        if self._rest.strip():
            self._take(self._rest, last=True)
        self._rest = b""

    def _feed(self, piece: bytes) -> None:
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take(line)

    @property
    def has_half_line(self) -> bool:
        """True if the file ends in a line that has no end yet."""
        return bool(self._rest.strip())

    def settled(self) -> MetricsReader:
        """Self, a whole last line without newline included; for reading a finished file once."""
        if self._rest.strip():
            try:
                row = parse_row(self._rest)
            except ValueError:
                return self
            self._add(row)
            self._rest = b""
        return self

    def _take(self, line: bytes, *, last: bool = False) -> None:
        self._lines += 1
        if self._lines == 1 and line.startswith(_BOM):
            line = line[len(_BOM) :]
        if not line.strip():
            return
        try:
            row = parse_row(line)
        except ValueError:
            self.notes.torn.append(self._lines)
            return
        self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        step = usable_step(row.get(STEP_KEY))
        if step is None:
            self.notes.without_step += 1
            return
        self.frame.add(step, dict(numbers(row)))


def parse_row(line: bytes) -> dict[str, Any]:
    """One row; ValueError if the line isn't a JSON object. NaN and Infinity are allowed."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        row = json.loads(line)  # knows NaN and Infinity; ValueError for what is really torn
    if not isinstance(row, dict):
        raise ValueError("a row must be an object")
    return row


def usable_step(value: Any) -> int | None:
    """A whole number, or None; 1.0 is step 1, text and booleans are no steps."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or value != int(value) or abs(value) >= 2**63:
        return None
    return int(value)


def numbers(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numeric values of a row; nested ones as `outer/inner`; text, lists and null left out."""
    for key, value in row.items():
        if key == STEP_KEY and not prefix:
            continue
        if isinstance(value, float):
            yield prefix + key, value if math.isfinite(value) else NOT_FINITE
        elif isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int):
            yield prefix + key, _as_float(value)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return NOT_FINITE


def read_metrics(path: Path) -> MetricsReader:
    """A reader that has read all that is there now, a whole unterminated last line too."""
    reader = MetricsReader(path)
    reader.poll()
    return reader.settled()
