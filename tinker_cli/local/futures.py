"""Answers that come later, and how long they are kept.

A future's answer can be fetched more than once (a connection may break on the way), so answers stay
for a while after they were given: within a budget of bytes and a number. Knows nothing of what is
computed.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tinker_cli.local.faults import NotFound
from tinker_cli.local.ids import new_id

KEPT_FUTURES = 20_000
KEPT_BYTES = 512 << 20
Result = bytes | dict[str, Any]


@dataclass
class Future:
    """The answer to an operation, sooner or later: bytes (protobuf) or a JSON document."""

    id: str
    operation: str
    result: Result | None = None
    ids: list[str] = field(default_factory=list)  # of the sequences to be sampled
    fetched: bool = False
    _ready: threading.Event = field(default_factory=threading.Event)
    _calls: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ready(self) -> bool:
        """True once the answer is there."""
        return self._ready.is_set()

    @property
    def failed(self) -> bool:
        """True if the answer is an error."""
        return isinstance(self.result, dict) and "error" in self.result

    def when_ready(self, call: Callable[[], None]) -> bool:
        """Have `call` called when the answer comes; True, and no call, if it is there already."""
        with self._lock:
            if self._ready.is_set():
                return True
            self._calls.append(call)
            return False

    def forget_call(self, call: Callable[[], None]) -> None:
        """Undo `when_ready`."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)

    def resolve(self, result: Result) -> bool:
        """Give the answer; False if there is one already."""
        with self._lock:
            if self._ready.is_set():
                return False
            self.result = result
            self._ready.set()
            calls, self._calls = self._calls, []
        for call in calls:
            call()
        return True

    def refuse(self, reason: str, category: str = "user") -> bool:
        """Give an error as the answer."""
        return self.resolve({"error": reason, "category": category})


class Futures:
    """Every future that may still be asked for."""

    def __init__(self, kept: int = KEPT_FUTURES, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept, self._kept_bytes = kept, kept_bytes
        self._all: OrderedDict[str, Future] = OrderedDict()
        self._fetched: OrderedDict[str, int] = OrderedDict()  # id -> bytes, oldest first
        self._bytes = 0
        self._lock = threading.Lock()

    def new(self, operation: str) -> Future:
        """A future without an answer."""
        future = Future(new_id(), operation)
        with self._lock:
            self._all[future.id] = future
            if len(self._all) > 4 * self._kept:
                self._forget_oldest_answered()
        return future

    def get(self, future_id: str) -> Future:
        """The future of that id; NotFound if it never was or is long answered."""
        with self._lock:
            found = self._all.get(future_id)
        if found is None:
            raise NotFound(f"no request {future_id}: never made, or answered long ago")
        return found

    def mark_fetched(self, future: Future) -> None:
        """Note that the answer was given, and forget the oldest of such beyond the budget."""
        size = len(future.result) if isinstance(future.result, bytes) else 256
        with self._lock:
            if future.fetched:
                return
            future.fetched = True
            self._fetched[future.id] = size
            self._bytes += size
            while len(self._fetched) > self._kept or self._bytes > self._kept_bytes:
                oldest, size = self._fetched.popitem(last=False)
                self._bytes -= size
                self._all.pop(oldest, None)

    def _forget_oldest_answered(self) -> None:
        """Answers that nobody came for: their clients are gone."""
        for future_id in [f.id for f in self._all.values() if f.ready][: self._kept]:
            del self._all[future_id]
            self._bytes -= self._fetched.pop(future_id, 0)


def document(future: Future) -> bytes:
    """The answer as the body of a response."""
    return future.result if isinstance(future.result, bytes) else json.dumps(future.result).encode()
