"""Order and time: futures, each model's sequence of operations, one compute worker.

All arithmetic happens on one thread, so that results never depend on who else is there. Operations
of a model run in the order of their sequence numbers, whatever order they arrive in, and each
number runs once however often it is sent. Between operations the worker advances the waves of
sampling. Knows nothing of HTTP bodies or of what an operation computes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.sampler import MAX_ROWS, SampleJob, Wave

log = logging.getLogger("tinker_cli.local")
GATHER_SECONDS = 0.004  # a burst of sampling requests arrives over a few milliseconds
GATHER_LIMIT_SECONDS = 0.03
KEPT_FUTURES = 20_000  # answered ones; the oldest go first


@dataclass
class Future:
    """The answer to an operation, sooner or later: bytes (protobuf) or a JSON document."""

    id: str
    operation: str
    result: bytes | dict[str, Any] | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    on_ready: list[Callable[[], None]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)  # of the sequences to be sampled

    def resolve(self, result: bytes | dict[str, Any]) -> None:
        """Give the answer, once."""
        self.result = result
        self.ready.set()
        for call in self.on_ready:
            call()


@dataclass
class _Turn:
    """A model's place in its sequence."""

    next_seq: int
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)
    futures: dict[int, Future] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sampling:
    future: Future
    job: SampleJob
    weights: Any  # (model, adapter)
    key: tuple[int, str]  # requests of one key may share a wave
    encode: Callable[[SampleJob], bytes]


class Scheduler:
    """The engine's single thread of compute and the queues before it."""

    def __init__(self) -> None:
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._arrived: list[_Sampling] = []
        self._waves: list[tuple[Wave, dict[int, _Sampling]]] = []
        self._turns: dict[str, _Turn] = {}
        self._futures: OrderedDict[str, Future] = OrderedDict()
        self._lock = threading.RLock()
        self._stopping = False
        self.operations = 0
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def future(self, future_id: str) -> Future:
        """The future of that id; NotFound if it never was or is long answered."""
        with self._lock:
            found = self._futures.get(future_id)
        if found is None:
            raise NotFound(f"no request {future_id}")
        return found

    def _new_future(self, operation: str) -> Future:
        future = Future(uuid.uuid4().hex, operation)
        with self._lock:
            self._futures[future.id] = future
            while len(self._futures) > KEPT_FUTURES:
                oldest = next(iter(self._futures.values()))
                if not oldest.ready.is_set():
                    break
                del self._futures[oldest.id]
        return future

    def submit(self, operation: str, compute: Callable[[], bytes | dict[str, Any]]) -> Future:
        """Run `compute` on the worker, in order of arrival."""
        future = self._new_future(operation)
        self._work.put(lambda: self._answer(future, compute))
        return future

    def open_sequence(self, model_id: str, first_seq: int) -> None:
        """Start a model's sequence of operations."""
        with self._lock:
            self._turns.setdefault(model_id, _Turn(first_seq))

    def submit_in_turn(
        self,
        operation: str,
        model_id: str,
        seq_id: int,
        compute: Callable[[], bytes | dict[str, Any]],
    ) -> Future:
        """Run `compute` when the model's operations before `seq_id` have run; once a number.

        An operation that is refused still uses its number up, or all after it would wait for ever.
        """
        with self._lock:
            turn = self._turns.get(model_id)
            if turn is None:
                raise NotFound(f"no model {model_id}")
            if (known := turn.futures.get(seq_id)) is not None:
                return known
            future = self._new_future(operation)
            turn.futures[seq_id] = future
            if seq_id < turn.next_seq:
                late = f"{operation} {seq_id} comes after {turn.next_seq - 1} has run"
                future.resolve({"error": late, "category": "user"})
                return future
            turn.waiting[seq_id] = lambda: self._answer(future, compute)
            self._advance(turn)
            return future

    def _advance(self, turn: _Turn) -> None:
        while turn.next_seq in turn.waiting:
            self._work.put(turn.waiting.pop(turn.next_seq))
            turn.next_seq += 1

    def submit_sampling(
        self,
        job: SampleJob,
        weights: Any,
        key: tuple[int, str],
        encode: Callable[[SampleJob], bytes],
        ids: list[str],
    ) -> Future:
        """Sample as soon as there is room, together with whoever uses the same weights."""
        future = self._new_future("sample")
        future.ids = ids
        with self._lock:
            self._arrived.append(_Sampling(future, job, weights, key, encode))
        self._work.put(_wake)
        return future

    def cancel(self, future_id: str) -> None:
        """Free the rows of a sampling request that nobody waits for any more."""
        with self._lock:
            jobs = [s for s in self._arrived if s.future.id == future_id]
            self._arrived = [s for s in self._arrived if s.future.id != future_id]
            for _, members in self._waves:
                jobs += [s for s in members.values() if s.future.id == future_id]
        for sampling in jobs:
            sampling.job.cancelled = True
            if not sampling.future.ready.is_set():
                sampling.future.resolve({"error": "cancelled by the client", "category": "user"})

    def stop(self) -> None:
        """Finish the operation that runs, refuse what waits, end the worker."""
        self._stopping = True
        self._work.put(None)
        self._thread.join()

    def _answer(self, future: Future, compute: Callable[[], bytes | dict[str, Any]]) -> None:
        started = time.perf_counter()
        try:
            result: bytes | dict[str, Any] = compute()
        except ClientFault as fault:
            result = {"error": str(fault), "category": "user"}
        except Exception as error:  # the worker must survive whatever one operation does
            log.error("%s failed\n%s", future.operation, traceback.format_exc())
            result = {"error": f"{type(error).__name__}: {error}", "category": "server"}
        self.operations += 1
        log.info("%s %.0f ms", future.operation, 1000 * (time.perf_counter() - started))
        future.resolve(result)

    def _run(self) -> None:
        while not self._stopping:
            busy = bool(self._waves or self._arrived)
            try:
                work = self._work.get(block=not busy)
            except queue.Empty:
                self._advance_sampling()
                continue
            if work is None:
                return
            work()

    def _advance_sampling(self) -> None:
        if self._arrived and len(self._waves) < 2:
            self._gather()
            self._form_wave()
        for entry in list(self._waves):
            wave, members = entry
            try:
                finished = wave.step()
            except Exception as error:  # one wave's fault must not end the worker
                log.error("sampling failed\n%s", traceback.format_exc())
                self._fail(members, f"{type(error).__name__}: {error}", "server")
                self._waves.remove(entry)
                continue
            self._deliver(members, finished)
            if not wave.rows:
                self._waves.remove(entry)

    def _gather(self) -> None:
        """Wait a moment while more of a burst arrives."""
        if self._waves:
            return
        limit = time.monotonic() + GATHER_LIMIT_SECONDS
        seen = -1
        while seen != len(self._arrived) and time.monotonic() < limit:
            seen = len(self._arrived)
            time.sleep(GATHER_SECONDS)

    def _form_wave(self) -> None:
        with self._lock:
            if not self._arrived:
                return
            key, rows, chosen = self._arrived[0].key, 0, []
            for sampling in self._arrived:
                if sampling.key == key and rows + sampling.job.num_samples <= MAX_ROWS:
                    chosen.append(sampling)
                    rows += sampling.job.num_samples
            self._arrived = [s for s in self._arrived if s not in chosen]
        members = {id(sampling.job): sampling for sampling in chosen}
        model, adapter = chosen[0].weights
        try:
            wave = Wave(model, adapter, [sampling.job for sampling in chosen])
        except Exception as error:  # as in _advance_sampling
            log.error("sampling failed\n%s", traceback.format_exc())
            self._fail(members, f"{type(error).__name__}: {error}", "server")
            return
        self._deliver(members, [job for job in wave.jobs if job.done])
        if wave.rows:
            self._waves.append((wave, members))

    def _deliver(self, members: dict[int, _Sampling], finished: list[SampleJob]) -> None:
        for job in finished:
            sampling = members.pop(id(job), None)
            if sampling is not None and not job.cancelled:
                self.operations += 1
                sampling.future.resolve(sampling.encode(job))

    @staticmethod
    def _fail(members: dict[int, _Sampling], error: str, category: str) -> None:
        for sampling in members.values():
            sampling.future.resolve({"error": error, "category": category})


def _wake() -> None:
    """Nothing to compute: the worker is only to look at what has arrived."""
