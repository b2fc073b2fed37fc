"""The last lines of a run's `trainer.log` that a person would read: records, and what is printed.

Transcripts, progress bars and "Wrote metrics" fill that log and say what other files say better:
they are passed over. Appended bytes cost only themselves. Knows nothing of how lines are drawn.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

LOG_NAME = "trainer.log"
FIRST_LOOK_BYTES = 256 * 1024  # of a log that is there already
KEPT = 4
_RECORD = re.compile(
    r"^[\w.]+:\d+ \[(?:\x1b\[\d+m)?(DEBUG|INFO|WARNING|ERROR|CRITICAL)(?:\x1b\[0m)?\] ?(.*)$"
)
_BAR = re.compile(r"^.{0,80}?\d+%\|.{0,60}?\| \d[^\]]{0,80}\]")  # as tqdm draws it
_TRANSCRIPT, _TRANSCRIPT_END = "====== Trajectory Group", "====== End Trajectory Group"
_SAID_ELSEWHERE = ("Wrote metrics to ", "Saved checkpoints: ", "No checkpoints found ")


class LogTail:
    """Call `poll`; `lines` are the newest ones, oldest first, a record as `LEVEL message`."""

    def __init__(self, run: Path):
        self._path = run / LOG_NAME
        self._start_anew()

    def _start_anew(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._offset = 0
        self._half = b""
        self._in_transcript = False

    @property
    def lines(self) -> list[str]:
        """At most `KEPT` of them."""
        return list(self._lines)

    def poll(self) -> bool:
        """Read what was appended; True if it holds a line to be shown."""
        try:
            with self._path.open("rb") as stream:
                size = stream.seek(0, 2)
                if size < self._offset:
                    self._start_anew()
                if size - self._offset > FIRST_LOOK_BYTES:
                    self._offset, self._half = size - FIRST_LOOK_BYTES, b""
                    self._in_transcript = True  # perhaps; the next record ends it
                stream.seek(self._offset)
                piece = stream.read(size - self._offset)
        except OSError:
            return False
        self._offset += len(piece)
        *whole, self._half = (self._half + piece).split(b"\n")
        taken = [self._take(line.decode("utf-8", "replace")) for line in whole]
        return any(taken)

    def _take(self, line: str) -> bool:
        line = line.rpartition("\r")[2]
        if bar := _BAR.match(line):
            line = line[bar.end() :]
        record = _RECORD.match(line)
        if record:
            self._in_transcript = False
            line = f"{record[1]} {record[2].strip()}" if record[2].strip() else ""
            if record[2].startswith(_SAID_ELSEWHERE):
                line = ""
        if line.startswith(_TRANSCRIPT_END):
            self._in_transcript = False
            return False
        if line.startswith(_TRANSCRIPT):
            self._in_transcript = True
        if self._in_transcript or not line.strip():
            return False
        self._lines.append(line.strip())
        return True
