"""`metrics.jsonl` -> a Frame, incrementally.

Appended bytes cost only themselves. A half line waits for its end; a torn line is counted; a file
that was cut or replaced is read anew (resume does that). Knows bytes and JSON; knows nothing of
what a metric means.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tinker_cli.errors import RunFailed
from tinker_cli.runs.frame import NOT_FINITE, Frame

METRICS_NAME = "metrics.jsonl"
CHUNK_BYTES = 1 << 20
WITNESS_BYTES = (
    1024  # of the start and of the end of what was read: a file where they differ is new
)
STEP_KEY = "step"
SUFFIXES = (".jsonl", ".json", ".ndjson", ".gz")
NOT_FINITE_WORDS = frozenset(
    sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")
)
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f"  # the first byte of gzip, and never of JSON


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
            many = "rows have" if self.without_step > 1 else "row has"
            be = "are" if self.without_step > 1 else "is"
            said.append(f"{self.without_step} {many} no usable step and {be} left out")
        return said


def metrics_file(path: Path) -> Path:
    """The file that `path` means: itself, or the one in the run directory, there yet or not."""
    if path.is_file() or (path.suffix in SUFFIXES and not path.is_dir()):
        return path
    plain, packed = path / METRICS_NAME, path / f"{METRICS_NAME}.gz"
    return packed if packed.exists() and not plain.exists() else plain


class MetricsReader:
    """Follows one metrics file; `frame` holds what has been read so far."""

    def __init__(self, path: Path):
        self.path = metrics_file(path)
        self._marks_changes = False
        self._reset()

    def mark_changes(self) -> None:
        """Collect from now on the steps that change, in `frame.touched`."""
        self._marks_changes = True
        self.frame.touched = set(self.frame.steps)

    def _reset(self) -> None:
        self.frame = Frame(touched=set() if self._marks_changes else None)
        self.notes = Notes()
        self._offset = 0
        self._rest = b""
        self._lines = 0
        self._identity: tuple[int, int] | None = None
        self._head = b""
        self._tail = b""
        self._unpacker: Unpacker | None = None

    def _start_anew(self) -> None:
        again = self.notes.reread + 1
        self._reset()
        self.notes.reread = again

    def poll(self) -> bool:
        """Read what is new; True if anything was."""
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
            or os.pread(descriptor, len(self._tail), self._offset - len(self._tail)) != self._tail
        )
        if replaced:
            self._start_anew()
        self._identity = identity
        before = self._offset
        while piece := os.pread(descriptor, CHUNK_BYTES, self._offset):
            self._take_piece(piece)
        return replaced or self._offset != before

    def _take_piece(self, piece: bytes) -> None:
        """Read bytes of the file that come right after those that were read before."""
        if len(self._head) < WITNESS_BYTES:
            self._head = (self._head + piece)[:WITNESS_BYTES]
            if self._unpacker is None and self._offset == 0 and self._head.startswith(_GZIP):
                self._unpacker = Unpacker(str(self.path))
        self._tail = (self._tail + piece[-WITNESS_BYTES:])[-WITNESS_BYTES:]
        self._offset += len(piece)
        if self._unpacker is None:
            self._feed(piece)
        else:
            for part in self._unpacker.unpack(piece):
                self._feed(part)

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Read a stream instead of the file, to its end."""
        for piece in pieces:
            self._take_piece(piece)
        self.finish()

    def finish(self) -> None:
        """Take a last line that has no newline, if it is whole."""
        if self._rest.strip():
            self._take([self._rest])
        self._rest = b""

    def _feed(self, piece: bytes) -> None:
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        self._take(lines)

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

    def _take(self, lines: list[bytes]) -> None:
        """Add whole lines. Rows of one shape whose steps ascend are added together."""
        block = _Block(self.frame)
        for line in lines:
            self._lines += 1
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                block.close()
                self._take_odd(line)
            else:
                if not block.takes(row):
                    block.close()
                    self._add(row)
        block.close()

    def _take_odd(self, line: bytes) -> None:
        """A line that isn't strict JSON: empty, torn, with NaN, or after a byte order mark."""
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

    def _add(self, row: Any) -> None:
        if not isinstance(row, dict):
            self.notes.torn.append(self._lines)
            return
        step = usable_step(row.get(STEP_KEY))
        if step is None:
            self.notes.without_step += 1
            return
        self.frame.add(step, dict(numbers(row)))


class _Block:
    """Rows of one shape and ascending steps on their way into a frame, ten times as fast."""

    def __init__(self, frame: Frame):
        self.frame = frame
        self.keys: list[str] = []
        self.steps: list[int] = []
        self.values: list[Any] = []

    def takes(self, row: Any) -> bool:
        """Take a row, or say that it isn't for a block."""
        if type(row) is not dict:
            return False
        step = row.get(STEP_KEY)
        top = self.steps[-1] if self.steps else self.frame.top
        if type(step) is not int or (top is not None and step <= top) or step >= 2**63:
            return False
        keys = list(row)
        if keys != self.keys:
            self.close()
            self.keys = keys
        self.steps.append(step)
        self.values.extend(row.values())
        return True

    def close(self) -> None:
        """Add what was taken to the frame."""
        if not self.steps:
            return
        steps, values, width = self.steps, self.values, len(self.keys)
        self.steps, self.values = [], []
        try:
            flat = array("d", values)  # text, null and nested values raise TypeError
        except (TypeError, OverflowError):
            for i, step in enumerate(steps):
                row = dict(zip(self.keys, values[i * width : (i + 1) * width], strict=True))
                self.frame.add(step, dict(numbers(row)))
            return
        block = {key: flat[i::width] for i, key in enumerate(self.keys) if key != STEP_KEY}
        self.frame.extend(steps, block)


class Unpacker:
    """gzip bytes in pieces, several members too; RunFailed names the file that is none."""

    def __init__(self, name: str):
        self._name = name
        self._member = zlib.decompressobj(wbits=31)

    def unpack(self, piece: bytes) -> Iterator[bytes]:
        """The bytes within, in parts of limited size."""
        while piece:
            try:
                part = self._member.decompress(piece, CHUNK_BYTES)
            except zlib.error as error:
                raise RunFailed(f"{self._name} is not gzip throughout: {error}") from error
            if part:
                yield part
            if self._member.eof:
                piece, self._member = self._member.unused_data, zlib.decompressobj(wbits=31)
                piece = piece.lstrip(b"\0")  # padding is allowed between and after members
            else:
                piece = self._member.unconsumed_tail


def parse_row(line: bytes) -> dict[str, Any]:
    """One row; ValueError if the line isn't a JSON object. NaN and Infinity are allowed."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            row = json.loads(line)  # knows NaN and Infinity; ValueError for what is really torn
        except RecursionError:
            raise ValueError("nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("a row must be an object")
    return row


def usable_step(value: Any) -> int | None:
    """A whole number, or None; 1.0 is step 1, text and booleans are no steps."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None


def numbers(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numeric values of a row; nested ones as `outer/inner`; text and lists left out.

    null and texts such as "NaN" are how other loggers write a value that isn't finite.
    """
    for key, value in row.items():
        if key == STEP_KEY and not prefix:
            continue
        if isinstance(value, float):
            yield prefix + key, value if math.isfinite(value) else NOT_FINITE
        elif isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int):
            yield prefix + key, _as_float(value)
        elif value is None or (isinstance(value, str) and value.lower() in NOT_FINITE_WORDS):
            yield prefix + key, NOT_FINITE


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
