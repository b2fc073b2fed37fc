"""Is the server still there? Asked when a run has been quiet for a while.

The SDK retries a lost server for hours, in silence. Here the run says `paused: no server` at once,
goes on by itself if the server comes back, and ends with what to do when it has been gone for
long, or when it refuses the key. Knows a URL and a run's journal; knows nothing of loops.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from tinker_cli.errors import EXIT_SERVICE, ServiceError, UsageError
from tinker_cli.trainer.service import check_service

if TYPE_CHECKING:
    from tinker_cli.trainer.journal import Journal

QUIET_SECONDS = 15.0  # without a step before the server is asked
ASK_SECONDS = 5.0  # between two questions
REFUSALS = 3  # in a row, before a refused key is believed
PATIENCE_VARIABLE = "TINKER_SERVER_PATIENCE"  # seconds
PATIENCE_SECONDS = 1800.0


def patience() -> float:
    """How long a run waits for a server that is gone, in seconds; UsageError if it is no number."""
    text = os.environ.get(PATIENCE_VARIABLE, "")
    try:
        return float(text) if text else PATIENCE_SECONDS
    except ValueError:
        raise UsageError(f"{PATIENCE_VARIABLE}={text!r} is no number of seconds") from None


def watch_server(url: str, journal: Journal) -> None:
    """Watch `url` from a thread of its own until the run has ended."""
    watcher = _Watcher(url, journal, patience())
    threading.Thread(target=watcher.run, name="reachability", daemon=True).start()


class _Watcher:
    def __init__(self, url: str, journal: Journal, patience_seconds: float):
        self._url, self._journal, self._patience = url, journal, patience_seconds
        self._gone_since: float | None = None
        self._refusals = 0

    def run(self) -> None:
        """Ask, as often as is needed, until the run has ended."""
        while not self._journal.wait_for_end(ASK_SECONDS):
            last = self._journal.status.last_step_at or self._journal.status.started or 0.0
            if time.time() - last < min(QUIET_SECONDS, self._patience):
                self._gone_since, self._refusals = None, 0
            else:
                self._ask()

    def _ask(self) -> None:
        try:
            check_service(self._url)
        except ServiceError as error:
            self._lost(error)
            return
        self._gone_since, self._refusals = None, 0
        self._journal.unpaused(self._url)

    def _lost(self, error: ServiceError) -> None:
        if "refused the key" in error.message:
            self._refusals += 1
            if self._refusals >= REFUSALS:
                self._end(error.message)
            return
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since = now
            self._journal.paused(error.message)
        elif now - self._gone_since > self._patience:
            self._end(f"{error.message}; gave up after {now - self._gone_since:.0f} s")

    def _end(self, message: str) -> None:
        self._journal.end_now("failed", message, EXIT_SERVICE)
