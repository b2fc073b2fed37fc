"""Where metrics are read from: a directory or file, a stream, or `host:path` over ssh.

Each is a MetricsReader, so that whoever polls doesn't know which. Over ssh one small POSIX shell
loop stays on the other side: it is asked with the number of bytes that are here already, and it
answers with those that have been appended since. Whether the file is still the one whose bytes are
here it tells by a checksum (`cksum`) of the last of them.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import stat
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tinker_cli.errors import ServiceError
from tinker_cli.runs.metrics import CHUNK_BYTES, METRICS_NAME, SUFFIXES, MetricsReader

# Reads "offset witness" lines; answers "size inode checksum" and the bytes from offset to size.
# `head -c` isn't POSIX but is everywhere; it keeps a file that grows meanwhile to what was said.
_LOOP = """p={path}
while read -r offset witness; do
  f=$p; [ -d "$p" ] && f="$p/{name}"
  if [ -r "$f" ]; then
    size=$(($(wc -c < "$f"))); id=$(ls -i "$f" | awk '{{print $1}}'); sum=0
    if [ "$size" -lt "$offset" ]; then echo "$size $id cut"; continue; fi
    if [ "$witness" -gt 0 ]; then
      start=$((offset - witness + 1))
      sum=$(tail -c +$start "$f" | head -c "$witness" | cksum | awk '{{print $1}}')
    fi
    echo "$size $id $sum"
    tail -c +$((offset + 1)) "$f" | head -c $((size - offset))
  else
    echo "0 0 none"
  fi
done
"""
_POLYNOMIAL = 0x04C11DB7


def is_stream(path: Path) -> bool:
    """True for a pipe, `/dev/stdin` and the like: what can be read once, from start to end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def remote(word: str) -> tuple[str, str] | None:
    """(host, path) of `host:path` or `user@host:path`; None if `word` is something else."""
    host, colon, path = word.partition(":")
    if not colon or not host or not path or "/" in host or host.startswith("-"):
        return None
    return None if Path(word).exists() else (host, path)


class StreamReader(MetricsReader):
    """Metrics from a pipe; `ended` once the writer has closed it."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.path = path
        self.ended = False
        self._descriptor = os.open(path, os.O_RDONLY)

    def poll(self) -> bool:
        """Read what has come; waits for nothing."""
        before = self._offset
        while not self.ended and select.select([self._descriptor], [], [], 0)[0]:
            piece = os.read(self._descriptor, CHUNK_BYTES)
            if piece:
                self._take_piece(piece)
            else:
                self.ended = True
                self.finish()
        return self._offset != before

    def read_all(self) -> StreamReader:
        """Read to the end, however long that takes."""
        while not self.ended:
            select.select([self._descriptor], [], [])
            self.poll()
        return self


class RemoteReader(MetricsReader):
    """Metrics of another machine; only appended bytes cross the wire.

    ServiceError if ssh can't reach the machine. `may_ask` lets ssh ask for a password.
    """

    def __init__(self, host: str, path: str, *, may_ask: bool = False):
        super().__init__(Path(path))
        self.host, self.remote_path = host, path
        self._id = ""
        self._ssh: subprocess.Popen[bytes] | None = None
        self._may_ask = may_ask

    def _connection(self) -> subprocess.Popen[bytes]:
        if self._ssh is None:
            # the remote shell expands a leading ~ only outside of quotes
            home, rest = ("~/", self.remote_path[2:]) if self.remote_path[:2] == "~/" else ("", "")
            path = home + shlex.quote(rest or self.remote_path)
            loop = _LOOP.format(path=path, name=METRICS_NAME)
            options = [] if self._may_ask else ["-o", "BatchMode=yes"]
            try:
                self._ssh = subprocess.Popen(
                    ["ssh", *options, self.host, f"sh -c {shlex.quote(loop)}"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None if self._may_ask else subprocess.PIPE,
                    start_new_session=not self._may_ask,
                )
            except FileNotFoundError:
                raise ServiceError("there is no ssh on this machine") from None
        return self._ssh

    def poll(self) -> bool:
        """Ask for what was appended; a file that was cut or replaced is sent anew."""
        size, identity, checksum = self._ask(self._offset, self._tail)
        if checksum == "none":
            return False
        mine = str(cksum(self._tail)) if self._tail else "0"
        if checksum == "cut" or checksum != mine or (self._id and identity != self._id):
            if checksum != "cut":
                self._drain(size - self._offset)  # of the other file: not wanted
            self._start_anew()
            size, identity, _ = self._ask(0, b"")
        self._id = identity
        return self._drain(size - self._offset, keep=True) or self._offset == 0 < size

    def _ask(self, offset: int, tail: bytes) -> tuple[int, str, str]:
        ssh = self._connection()
        assert ssh.stdin is not None
        assert ssh.stdout is not None
        try:
            ssh.stdin.write(f"{offset} {len(tail)}\n".encode())
            ssh.stdin.flush()
            answer = ssh.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if len(answer) != 3:
            raise ServiceError(f"can't read {self.host}:{self.remote_path}: {self._why()}")
        return int(answer[0]), answer[1].decode(), answer[2].decode()

    def _drain(self, count: int, *, keep: bool = False) -> bool:
        ssh = self._connection()
        assert ssh.stdout is not None
        left = count
        while left > 0:
            piece = ssh.stdout.read(min(left, CHUNK_BYTES))
            if not piece:
                raise ServiceError(f"{self.host} has gone: {self._why()}")
            left -= len(piece)
            if keep:
                self._take_piece(piece)
        return keep and count > 0

    def _why(self) -> str:
        """What ssh said last; it has ended, or it would have answered."""
        ssh, self._ssh = self._connection(), None
        assert ssh.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before it had read the question
            ssh.stdin.close()
        said = ssh.stderr.read().decode("utf-8", "replace").strip() if ssh.stderr else ""
        code = ssh.wait()
        return said.splitlines()[-1] if said else f"ssh ended with {code}"

    def close(self) -> None:
        """End the connection."""
        if self._ssh is not None and self._ssh.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._ssh.stdin.close()
            self._ssh.wait()
            self._ssh = None


def open_source(word: str, path: Path | None, *, may_ask: bool = False) -> MetricsReader:
    """The reader of what `word` names: `path` where it is of this machine, else `host:path`."""
    if path is not None:
        return StreamReader(path) if is_stream(path) else MetricsReader(path)
    there = remote(word)
    if there is None:
        raise ValueError(f"{word!r} is neither a path nor host:path")
    return RemoteReader(*there, may_ask=may_ask)


def is_metrics_file(word: str) -> bool:
    """True if `word` names a file of rows, there already or not, and not a run."""
    path = Path(word).expanduser()
    return path.is_file() or is_stream(path) or (path.suffix in SUFFIXES and not path.is_dir())


@cache
def _table() -> list[int]:
    def shifted(value: int) -> int:
        for _ in range(8):
            value = (value << 1) ^ (_POLYNOMIAL if value & 0x80000000 else 0)
            value &= 0xFFFFFFFF
        return value

    return [shifted(byte << 24) for byte in range(256)]


def _bytes_of(number: int) -> Iterator[int]:
    while number:
        yield number & 0xFF
        number >>= 8


def cksum(data: bytes) -> int:
    """The checksum of POSIX `cksum`: a CRC-32 over the bytes and then their number."""
    table, value = _table(), 0
    for byte in [*data, *_bytes_of(len(data))]:
        value = ((value << 8) & 0xFFFFFFFF) ^ table[(value >> 24) ^ byte]
    return value ^ 0xFFFFFFFF
