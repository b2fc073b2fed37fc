"""The run's voice: status, events, and the decision to stop, kept by the child process.

`Journal` is the observer that the hooks call, plus a heartbeat thread that keeps the status fresh,
looks for stop requests and for a dead engine. Knows nothing of the cookbook or of specs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tinker_cli.errors import EXIT_CHECK, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from tinker_cli.runs.events import append_event
from tinker_cli.runs.status import Status, process_mark, write_status
from tinker_cli.runs.stop_request import read_stop_request
from tinker_cli.trainer.guards import Guards

HEARTBEAT_SECONDS = 2.0  # a status is never older than this in a live run (the contract says 5)
LOOK_SECONDS = 0.25  # how often stop requests and the engine are looked at
RECENT_STEPS = 50  # steps in the median step time


class Journal:
    """Status and events of one launch of a run.

    `on_hard_end` is called, on the heartbeat thread, when the run must end at once.
    """

    def __init__(self, run: Path, guards: Guards, *, server: str, step: int = 0):
        self.run = run
        self.guards = guards
        self.stop_reason: str | None = None
        self.stop_code = EXIT_INTERRUPTED
        self.engine_alive: Callable[[], bool] | None = None
        self.engine_words = "the local engine ended"
        self.save: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None
        self.on_hard_end: Callable[[], None] = lambda: None
        self._poisoned = False
        self._total: Callable[[int], int] | None = None
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._step_times: deque[float] = deque(maxlen=RECENT_STEPS)
        self._written = 0.0
        now = time.time()
        self.status = Status(
            state="starting",
            pid=os.getpid(),
            pid_started=process_mark(os.getpid()),
            host=socket.gethostname(),
            step=step,
            started=now,
            updated=now,
            server=server,
        )

    # What the process tells it.

    def begin(self) -> None:
        """Write the first status and start the heartbeat. Raises OSError if nothing can be."""
        write_status(self.run, self.status)
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def count_steps(self, total: Callable[[int], int]) -> None:
        """`total(batches)` says how many steps the run has, given the dataset's length."""
        self._total = total

    def set(self, **changes: Any) -> None:
        """Change the status and write it."""
        with self._lock:
            if self._ended.is_set():
                return
            self.status = self.status.with_changes(updated=time.time(), **changes)
            self._write()

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event; a full disk must not end the run, so a failure is passed over."""
        with contextlib.suppress(OSError):
            append_event(self.run, kind, **fields)

    def ask_stop(self, reason: str, *, code: int = EXIT_INTERRUPTED) -> None:
        """End the run after the step that is under way."""
        with self._lock:
            if self.stop_reason is not None or self._ended.is_set():
                return
            self.stop_reason, self.stop_code = reason, code
        if self.status.state == "starting":  # no step is under way
            self.end_now("stopped", f"{reason}, before the first step", code)
            return
        self.event("stopping", reason=reason, step=self.status.step)
        self.set(state="stopping", reason=reason)
        self.on_stop()

    def end_now(self, state: str, reason: str, code: int) -> None:
        """End the process at once, from any thread; loses at most the step under way."""
        if self.end(state, reason, code):
            self.on_hard_end()

    def end(self, state: str, reason: str | None, code: int, *, trace: str | None = None) -> bool:
        """Write the last status and event; False if the run had ended already."""
        with self._lock:
            if self._ended.is_set():
                return False
            now = time.time()
            self.status = self.status.with_changes(
                state=state, reason=reason, exit_code=code, ended=now, updated=now
            )
            self._ended.set()
            details = {"traceback": trace} if trace else {}
            self.event(state, reason=reason, exit_code=code, step=self.status.step, **details)
            self._write()
            return True

    def end_as_asked(self) -> None:
        """End after a graceful stop: by a person (130) or by a guard (3)."""
        self.end("stopped", self.stop_reason, self.stop_code)

    def end_finished(self) -> None:
        """End after the last step."""
        self.end("finished", None, EXIT_DONE)

    # What the hooks tell it (see hooks.Observer).

    def loop_ready(self, batches: int) -> None:
        """The dataset has `batches` batches."""
        if self._total is not None:
            self.set(total_steps=self._total(batches))

    def first_batch(self) -> None:
        """The first step begins."""
        if self.stop_reason is None:
            self.set(state="running", last_step_at=time.time())

    def row(self, row: Mapping[str, Any], step: int) -> None:
        """Judge a row by the guards, and count its step."""
        now = time.time()
        with self._lock:
            if self.status.last_step_at is not None and self._step_times_count_from(step):
                self._step_times.append(max(0.0, now - self.status.last_step_at))
            median = statistics.median(self._step_times) if self._step_times else None
            paused = self.status.state == "paused"
            changes: dict[str, Any] = {"state": "running", "reason": None} if paused else {}
            done = max(self.status.step, step + 1)
            self.set(step=done, last_step_at=now, step_seconds=median, **changes)
        if paused:
            self.event("unpaused", step=step)
        for verdict in self.guards.look(row, step):
            self._obey(verdict, step)

    def _step_times_count_from(self, step: int) -> bool:
        return step + 1 > self.status.step

    def _obey(self, verdict: Any, step: int) -> None:
        self.event(
            "guard", action=verdict.action, guard=verdict.guard, message=verdict.message, step=step
        )
        if verdict.action == "checkpoint":
            self.save()
        elif verdict.action == "stop":
            self._poisoned = self._poisoned or verdict.poisoned
            words = "; weights not saved" if verdict.poisoned else ""
            self.ask_stop(f"guard: {verdict.message}{words}", code=EXIT_CHECK)

    def record(self, record: Mapping[str, Any]) -> None:
        """A checkpoint was recorded."""
        self.event("checkpoint", name=record.get("name"), step=record.get("step"))
        self.set(last_checkpoint=str(record.get("name")))

    def wants_stop(self) -> bool:
        """True if the run is to end at this row; after the last step it ends by itself."""
        if self.stop_reason is None:
            return False
        total = self.status.total_steps
        return self.stop_code == EXIT_CHECK or total is None or self.status.step < total

    def may_save(self) -> bool:
        """False if the weights may hold NaN."""
        return not self._poisoned

    def paused(self, reason: str) -> None:
        """The service lets the client wait."""
        if self.status.state in ("running", "starting"):
            self.event("paused", reason=reason, step=self.status.step)
            self.set(state="paused", reason=reason)

    def unpaused(self, server: str) -> None:
        """A server that was gone answers again."""
        with self._lock:
            if self.status.state != "paused" or server not in (self.status.reason or ""):
                return
            self.set(state="running", reason=None)
        self.event("unpaused", step=self.status.step)

    def wait_for_end(self, seconds: float) -> bool:
        """Wait so long, or until the run has ended; True if it has."""
        return self._ended.wait(seconds)

    # The heartbeat.

    def _beat(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look_for_stop()
            if self.engine_alive is not None and not self.engine_alive():
                self.end_now("failed", self.engine_words, EXIT_FAILED)
            if time.monotonic() - self._written > HEARTBEAT_SECONDS:
                self.set()

    def _look_for_stop(self) -> None:
        wish = read_stop_request(self.run)
        if wish == "now":
            self.end_now("stopped", "stopped at once, on request", EXIT_INTERRUPTED)
        elif wish == "step":
            self.ask_stop("stopped on request")

    def _write(self) -> None:
        self._written = time.monotonic()
        with contextlib.suppress(OSError):  # a full disk: the next beat tries again
            write_status(self.run, self.status)
