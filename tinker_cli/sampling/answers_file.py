"""A file of answers that can be gone on with: killed and started again, no prompt is asked twice.

While the work goes on, rows are appended as answers land; when all are there, the file is put into
the order of the prompts in one move. A row carries `index` and `key`, a digest of the prompt and
the settings, so that answers to other questions are never taken for these. Knows JSON and files.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tinker_cli.console import strict_json
from tinker_cli.errors import UsageError
from tinker_cli.sampling.prompts import Prompt

KEY_LENGTH = 16  # hexadecimal digits; a collision among a million rows has odds of 1 in 10^7


def settings_digest(settings: Mapping[str, Any]) -> str:
    """A digest of whatever answers depend on besides the prompt."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


class AnswersFile:
    """Use as a context; `done` says whether a prompt has its answer, `add` appends a row."""

    def __init__(self, path: Path, settings: str):
        self.path, self._settings = path, settings
        self._keys: dict[int, str] = {}
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> AnswersFile:
        """Open and lock the file; drop a last row that a crash has cut off."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self.path.open("a+b")
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.path} is being written by another tinker sample") from None
        except OSError as error:
            raise UsageError(f"{self.path} can't be written: {error.strerror}") from None
        self._load()
        return self

    def __exit__(self, *_: object) -> None:
        """Close; what was added is there."""
        if self._stream is not None:
            self._stream.close()

    @property
    def count(self) -> int:
        """Answers in the file."""
        return len(self._keys)

    def done(self, prompt: Prompt) -> bool:
        """True if the prompt has its answer; UsageError if another question's answer is there."""
        known = self._keys.get(prompt.index)
        if known is None:
            return False
        if known != self._key(prompt):
            raise UsageError(
                f"{self.path} answers other prompts, or with other settings (index {prompt.index})",
                hint="give another --output, or remove the file",
            )
        return True

    def add(self, prompt: Prompt, row: Mapping[str, Any]) -> None:
        """Append an answer; it is in the file when this returns."""
        assert self._stream is not None
        key = self._key(prompt)
        whole = {"id": prompt.name, "index": prompt.index, "key": key, **row}
        self._stream.write(strict_json(whole).encode() + b"\n")
        self._stream.flush()
        self._keys[prompt.index] = key

    def sort(self) -> None:
        """Put the rows into the order of the prompts; the file is whole at every moment."""
        assert self._stream is not None
        self._stream.seek(0)
        places, offset = [], 0
        for line in self._stream:
            places.append((int(json.loads(line)["index"]), offset, len(line)))
            offset += len(line)
        if places == sorted(places):
            return
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with beside.open("wb") as ordered:
            for _, start, length in sorted(places):
                self._stream.seek(start)
                ordered.write(self._stream.read(length))
            ordered.flush()
            os.fsync(ordered.fileno())
        os.replace(beside, self.path)

    def _key(self, prompt: Prompt) -> str:
        told = json.dumps([self._settings, prompt.messages], default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:KEY_LENGTH]

    def _load(self) -> None:
        assert self._stream is not None
        self._stream.seek(0)
        end = 0
        for number, line in enumerate(self._stream, 1):
            if not line.endswith(b"\n"):
                break  # cut off by a crash: asked again
            try:
                row = json.loads(line)
                self._keys[int(row["index"])] = str(row["key"])
            except (ValueError, KeyError, TypeError):
                raise UsageError(
                    f"{self.path}:{number} is no answer of tinker sample --output",
                    hint="give another --output, or remove the file",
                ) from None
            end += len(line)
        self._stream.truncate(end)
        self._stream.seek(0, os.SEEK_END)
