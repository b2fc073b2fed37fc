"""A run's facts as the views need them, read anew only where a file has changed.

Knows files through `runs`; knows nothing of how facts are drawn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.runs.describe import RunDescription, read_run_json
from tinker_cli.runs.events import EVENTS_NAME, read_events
from tinker_cli.runs.frame import Column
from tinker_cli.runs.metrics import MetricsReader
from tinker_cli.runs.names import resolve_name
from tinker_cli.runs.rollouts import SampleLine, newest_sample
from tinker_cli.runs.status import Status, effective_state, read_status

LOG_NAME = "trainer.log"
LOG_TAIL_BYTES = 4096
RECENT_STEPS = 10  # the last steps that the time left is reckoned from
ENDED = ("finished", "stopped", "failed", "crashed")


@dataclass
class RunFacts:
    """All that a view shows of one run; call `refresh` to look again."""

    run: Path
    reader: MetricsReader = field(init=False)
    status: Status | None = None
    description: RunDescription | None = None
    state: str = "starting"
    note: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    samples: list[SampleLine] = field(default_factory=list)
    log_line: str = ""
    _marks: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = MetricsReader(self.run)
        self.refresh()

    def refresh(self) -> bool:
        """Look at every file; True if anything that is shown has changed."""
        changed = self.reader.poll()
        status = read_status(self.run)
        changed |= status != self.status
        self.status = status
        state, note = effective_state(self.run, status)
        changed |= (state, note) != (self.state, self.note)
        self.state, self.note = state, note
        if self.description is None:
            self.description = read_run_json(self.run)
        if self._touched(EVENTS_NAME):
            self.events, changed = read_events(self.run), True
        if self._touched("checkpoints.jsonl"):
            rows, _ = read_checkpoints(self.run)
            self.checkpoints = [row.step for row in rows if row.step is not None]
            changed = True
        if self._touched(LOG_NAME):
            self.log_line, changed = self._last_log_line(), True
        if changed:
            self.samples = newest_sample(self.run)
        return changed

    def _touched(self, name: str) -> bool:
        try:
            stat = (self.run / name).stat()
        except OSError:
            return False
        mark = (stat.st_mtime_ns, stat.st_size)
        if self._marks.get(name) == mark:
            return False
        self._marks[name] = mark
        return True

    def _last_log_line(self) -> str:
        try:
            with (self.run / LOG_NAME).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, 2) - LOG_TAIL_BYTES))
                lines = stream.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def kind(self) -> str:
        """`sl` or `rl`."""
        if self.description is not None:
            return self.description.kind
        return "rl" if any(key.startswith("env/") for key in self.reader.frame.columns) else "sl"

    @property
    def has_ended(self) -> bool:
        """True if nothing will be written any more."""
        return self.state in ENDED or self.status is None

    def column(self, name: str) -> Column | None:
        """A metric by name or alias; None if the run has none."""
        try:
            key = resolve_name(name, self.reader.frame.keys())
        except UsageError:
            return None
        return self.reader.frame.column(key)

    def last(self, name: str) -> float | None:
        """The newest finite value of a metric."""
        column = self.column(name)
        values = column.finite()[1] if column is not None else []
        return values[-1] if values else None

    def elapsed(self, now: float | None = None) -> float | None:
        """Seconds since this launch began, to its end or to now."""
        if self.status is None or self.status.started is None:
            return None
        end = self.status.ended or (now or time.time())
        return max(0.0, end - self.status.started)

    def step_seconds(self) -> float | None:
        """The mean time of the recent steps."""
        column = self.column("time/total") or self.column("time/step")
        values = column.finite()[1][-RECENT_STEPS:] if column is not None else []
        if values:
            return sum(values) / len(values)
        return self.status.step_seconds if self.status else None

    def seconds_left(self) -> float | None:
        """Time to the last step at the recent pace; None when it can't be known."""
        pace = self.step_seconds()
        if pace is None or self.status is None or not self.status.total_steps:
            return None
        return pace * max(0, self.status.total_steps - self.status.step)

    def tokens_a_second(self) -> float | None:
        """Tokens of the newest step over its time."""
        pace = self.step_seconds()
        names = ("num_tokens", "env/all/total_ac_tokens", "env/all/total_ob_tokens")
        total = sum(value for name in names if (value := self.last(name)) is not None)
        return total / pace if pace and total else None

    def alerts(self) -> list[str]:
        """What guards have said, oldest first."""
        said = [e for e in self.events if e["kind"] == "guard"]
        return [str(e.get("message") or e.get("guard") or "guard") for e in said]
