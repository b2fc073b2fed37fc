"""A run's facts as the views need them, read anew only where a file has changed.

Knows files through `runs`; knows nothing of how facts are drawn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.runs.checkpoints import CHECKPOINTS_NAME, read_checkpoints
from tinker_cli.runs.derived import RATE, SECONDS, all_keys, along, column_of, spent
from tinker_cli.runs.describe import RUN_NAME, RunDescription, read_run_json
from tinker_cli.runs.events import EVENTS_NAME, read_events
from tinker_cli.runs.frame import Column
from tinker_cli.runs.log import LogTail
from tinker_cli.runs.metrics import MetricsReader
from tinker_cli.runs.names import resolve_name
from tinker_cli.runs.rollouts import SampleLine, cut_off_share, newest_sample
from tinker_cli.runs.status import Status, effective_state, read_status

SAMPLE_SECONDS = 2.0  # between two looks at what the model said
RECENT_STEPS = 10  # the last steps that the time left is reckoned from
ENDED = ("finished", "stopped", "failed", "crashed")


def newest(column: Column | None, most: int = 1) -> list[float]:
    """The last finite values of a metric, oldest first; at most `most`."""
    if column is None:
        return []
    finite = (value for value in reversed(column.values) if math.isfinite(value))
    return list(islice(finite, most))[::-1]


@dataclass
class RunFacts:
    """All that a view shows of one run; call `refresh` to look again."""

    run: Path
    reader: MetricsReader = field(init=False)
    status: Status | None = None
    description: RunDescription | None = None
    state: str = "starting"
    version: int = 0  # counts the changes
    note: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    checkpoint_time: float | None = None  # seconds since the epoch
    resumes: list[int] = field(default_factory=list)
    samples: list[SampleLine] = field(default_factory=list)
    cut_off: float | None = None  # share of the newest step's replies that max_tokens ended
    log: LogTail = field(init=False)
    _marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    _columns: dict[str, Column] = field(default_factory=dict)
    _names: dict[str, str | None] = field(default_factory=dict)
    _keys_known: int = 0
    _clocks: dict[str, Column | None] = field(default_factory=dict)
    _samples_due: bool = True
    _samples_next: float = 0.0

    def __post_init__(self) -> None:
        self.reader = MetricsReader(self.run)
        self.log = LogTail(self.run)
        self.refresh()

    def refresh(self) -> bool:
        """Look at every file; True if anything that is shown has changed."""
        changed = self.reader.poll()
        if changed:
            self._samples_due = True
            self._columns.clear()
            self._clocks.clear()
        status = read_status(self.run)
        changed |= status != self.status
        self.status = status
        state, note = effective_state(self.run, status)
        changed |= (state, note) != (self.state, self.note)
        self.state, self.note = state, note
        if self._touched(RUN_NAME):
            self.description, changed = read_run_json(self.run), True
        if self._touched(EVENTS_NAME):
            self._read_events()
            changed = True
        if self._touched(CHECKPOINTS_NAME):
            rows, _ = read_checkpoints(self.run)
            steps = [row.step if row.step is not None else row.batch for row in rows]
            self.checkpoints = [step for step in steps if step is not None]
            changed = True
        changed |= self.log.poll()
        self.version += changed
        return self._read_samples() or changed

    def _read_samples(self) -> bool:
        """Look for new replies after new rows, but not more often than a person reads."""
        now = time.monotonic()
        if not self._samples_due or self.kind != "rl" or now < self._samples_next:
            return False
        self._samples_due, self._samples_next = False, now + SAMPLE_SECONDS
        before = (self.samples, self.cut_off)
        self.samples, self.cut_off = newest_sample(self.run), cut_off_share(self.run)
        return (self.samples, self.cut_off) != before

    def _read_events(self) -> None:
        self.events = read_events(self.run)
        steps = [e.get("step") for e in self.events if e["kind"] == "resumed"]
        self.resumes = [step for step in steps if isinstance(step, int)]
        times = [e.get("time") for e in self.events if e["kind"] == "checkpoint"]
        self.checkpoint_time = times[-1] if times and isinstance(times[-1], float) else None

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

    def key(self, name: str) -> str | None:
        """The full name of a metric; None if the run has none of that name."""
        keys = all_keys(self.reader.frame)
        if len(keys) != self._keys_known:  # a name that was unknown may be known by now
            self._names.clear()
            self._keys_known = len(keys)
        if name not in self._names:
            try:
                self._names[name] = resolve_name(name, keys)
            except UsageError:
                self._names[name] = None
        return self._names[name]

    def column(self, name: str) -> Column | None:
        """A metric by name or alias; None if the run has none."""
        key = self.key(name)
        if key is None:
            return None
        if key not in self._columns:
            self._columns[key] = column_of(self.reader.frame, key)
        return self._columns[key]

    def newest_row(self) -> dict[str, float]:
        """The row of the last step that has a time; {} before there is one."""
        column = self.column(SECONDS)
        return self.reader.frame.row(column.steps[-1]) if column and column.steps else {}

    def has_axis(self, axis: str) -> bool:
        """True if the run's metrics tell how far along `axis` each step is."""
        return axis == "step" or self._clock(axis) is not None

    def along(self, axis: str, steps: Sequence[float]) -> Sequence[float]:
        """Where steps are on an axis: themselves, seconds, tokens or dollars spent by then."""
        clock = self._clock(axis) if axis != "step" else None
        return along(clock, steps) if clock is not None else steps

    def _clock(self, axis: str) -> Column | None:
        if axis not in self._clocks:
            self._clocks[axis] = spent(self.reader.frame, axis)
        return self._clocks[axis]

    def last(self, name: str) -> float | None:
        """The newest finite value of a metric."""
        values = newest(self.column(name))
        return values[-1] if values else None

    def elapsed(self, now: float | None = None) -> float | None:
        """Seconds since this launch began, to its end or to now."""
        if self.status is None or self.status.started is None:
            return None
        end = self.status.ended or (now or time.time())
        return max(0.0, end - self.status.started)

    def step_seconds(self) -> float | None:
        """The mean time of the recent steps."""
        if self.status is not None and self.status.step_seconds and self.kind == "sl":
            return self.status.step_seconds  # by the clock; the rows of the loop only tell parts
        values = newest(self.column(SECONDS), RECENT_STEPS)
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
        """The mean of the recent steps."""
        values = newest(self.column(RATE), RECENT_STEPS)
        return sum(values) / len(values) if values else None

    def alerts(self) -> list[str]:
        """What guards have said, oldest first."""
        said = [e for e in self.events if e["kind"] == "guard"]
        return [str(e.get("message") or e.get("guard") or "guard") for e in said]
