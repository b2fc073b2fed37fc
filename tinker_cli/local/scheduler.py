"""Order and time: each model's sequence of operations, one compute worker, fair turns.

All arithmetic happens on one thread, so that results never depend on who else is there. Operations
of a model run in the order of their sequence numbers, whatever order they arrive in, and each
number runs once however often it is sent. Sampling and other operations share the worker's time
evenly when both have work. Knows nothing of HTTP bodies or of what an operation computes.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tinker_cli.local.drawing import SampleJob
from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.futures import Future, Futures, Result
from tinker_cli.local.sampler import Rows, new_batch

log = logging.getLogger("tinker_cli.local")
GATHER_SECONDS = 0.004  # without a new request, and a burst of them is over
GATHER_LIMIT_SECONDS = 0.2
BATCHES = 8  # sets of weights that decode in turn; the requests of others wait
SHARED_TURN_SECONDS = 0.02  # of a batch beside others
REMEMBERED_NUMBERS = 512  # of a model's sequence, for operations that are sent again
Compute = Callable[[], Result]


@dataclass
class _Turn:
    """A model's place in its sequence."""

    next_seq: int
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)
    futures: OrderedDict[int, Future] = field(default_factory=OrderedDict)


@dataclass(frozen=True)
class Sampling:
    """A sampling request on its way."""

    future: Future
    job: SampleJob
    weights: Any  # (model, adapter)
    key: tuple[int, str]  # requests of one key may share a batch
    encode: Callable[[SampleJob], bytes]
    owner: str  # the session; its end cancels the request


@dataclass
class _Decoding:
    batch: Rows
    members: dict[int, Sampling] = field(default_factory=dict)  # by id of the job
    started: float = field(default_factory=time.perf_counter)
    tokens: int = 0


class Scheduler:
    """The engine's single thread of compute and the queues before it."""

    def __init__(self) -> None:
        self.futures = Futures()
        self.operations = 0
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._arrived: list[Sampling] = []
        self._decoding: OrderedDict[tuple[int, str], _Decoding] = OrderedDict()
        self._turns: dict[str, _Turn] = {}
        self._lock = threading.RLock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Completions in the making."""
        return sum(len(each.batch.rows) for each in list(self._decoding.values()))

    # -- operations ----------------------------------------------------------------------------

    def submit(self, operation: str, compute: Compute) -> Future:
        """Run `compute` on the worker, in order of arrival."""
        future = self.futures.new(operation)
        self._work.put(lambda: self._answer(future, compute))
        return future

    def refused(self, operation: str, reason: str) -> Future:
        """A future that has failed with a user error."""
        future = self.futures.new(operation)
        future.refuse(reason)
        return future

    def open_sequence(self, model_id: str, first_seq: int) -> None:
        """Start a model's sequence of operations."""
        with self._lock:
            self._turns.setdefault(model_id, _Turn(first_seq))

    def submit_in_turn(
        self, operation: str, model_id: str, seq_id: int, compute: Compute
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
            if seq_id < turn.next_seq:
                last = turn.next_seq - 1
                return self.refused(operation, f"{operation} {seq_id} comes after {last} has run")
            future = self.futures.new(operation)
            turn.futures[seq_id] = future
            turn.waiting[seq_id] = lambda: self._answer(future, compute)
            self._advance(turn)
            return future

    def _advance(self, turn: _Turn) -> None:
        while turn.next_seq in turn.waiting:
            self._work.put(turn.waiting.pop(turn.next_seq))
            turn.next_seq += 1
        while len(turn.futures) > REMEMBERED_NUMBERS + len(turn.waiting):
            oldest = next(iter(turn.futures))
            if not turn.futures[oldest].ready:
                break
            del turn.futures[oldest]

    def _answer(self, future: Future, compute: Compute) -> None:
        started = time.perf_counter()
        try:
            result = compute()
        except ClientFault as fault:
            result = {"error": str(fault), "category": "user"}
        except Exception as error:  # the worker must survive whatever one operation does
            log.error("%s failed\n%s", future.operation, traceback.format_exc())
            result = {"error": f"{type(error).__name__}: {error}", "category": "server"}
        self.operations += 1
        future.resolve(result)
        wrong = f": {result.get('error')}" if isinstance(result, dict) and future.failed else ""
        log.info("%s %.0f ms%s", future.operation, 1000 * (time.perf_counter() - started), wrong)

    # -- sampling ------------------------------------------------------------------------------

    def submit_sampling(self, sampling: Sampling) -> None:
        """Sample as soon as there is room, together with whoever uses the same weights."""
        with self._lock:
            self._arrived.append(sampling)
        self._work.put(_wake)

    def cancel(self, future_id: str) -> None:
        """Free the rows of a sampling request that nobody waits for any more."""
        self._cancel(lambda sampling: sampling.future.id == future_id, "cancelled by the client")

    def cancel_owner(self, owner: str) -> None:
        """Free the rows of all requests of a session."""
        self._cancel(lambda sampling: sampling.owner == owner, "the session has ended")

    def _cancel(self, chosen: Callable[[Sampling], bool], reason: str) -> None:
        with self._lock:
            found = [sampling for sampling in self._arrived if chosen(sampling)]
            self._arrived = [sampling for sampling in self._arrived if not chosen(sampling)]
        for decoding in list(self._decoding.values()):
            found += [sampling for sampling in list(decoding.members.values()) if chosen(sampling)]
        for sampling in found:
            sampling.job.cancelled = True
            sampling.future.refuse(reason)

    def stop(self) -> None:
        """Finish the operation that runs, refuse what waits, end the worker."""
        self._stopping = True
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        credit = 0.0  # seconds that sampling may use before the next operation
        while not self._stopping:
            sampling = bool(self._decoding or self._arrived)
            if sampling and credit > 0:
                credit -= self._sampling_turn()
                continue
            try:
                work = self._work.get(block=not sampling)
            except queue.Empty:
                self._sampling_turn()
                continue
            if work is None:
                return
            started = time.perf_counter()
            work()
            if work is not _wake:
                credit = time.perf_counter() - started

    def _sampling_turn(self) -> float:
        """Take in what has arrived, draw a few tokens for every row; return the seconds it took."""
        started = time.perf_counter()
        if self._arrived:
            self._gather()
        for key, decoding in list(self._decoding.items()):
            step = functools.partial(decoding.batch.step, self._end_of_turn())
            self._guarded(key, decoding, step)
        return time.perf_counter() - started

    def _gather(self) -> None:
        """Take in a whole burst before the first step, if nobody else waits for us meanwhile.

        Prompts are run as they come; what is put off is decoding a part of the burst alone.
        """
        alone = not self._decoding
        limit = time.monotonic() + GATHER_LIMIT_SECONDS
        while True:
            self._take_in()
            left = len(self._arrived)
            if not alone or self._has_operations() or time.monotonic() > limit:
                return
            time.sleep(GATHER_SECONDS)
            if len(self._arrived) <= left:
                return

    def _end_of_turn(self) -> Callable[[], bool]:
        """What tells a batch that another, or anything else, waits for its turn."""
        if len(self._decoding) == 1:
            return self._is_awaited
        end = time.perf_counter() + SHARED_TURN_SECONDS
        return lambda: time.perf_counter() >= end or self._is_awaited()

    def _is_awaited(self) -> bool:
        """True if anything has come for the worker."""
        return bool(self._arrived) or self._has_operations()

    def _has_operations(self) -> bool:
        """True if an operation that is no sampling waits."""
        with self._work.mutex:
            return any(work is not _wake for work in self._work.queue)

    def _take_in(self) -> None:
        with self._lock:
            keys = list(dict.fromkeys(sampling.key for sampling in self._arrived))
        for key in keys:
            if key not in self._decoding and len(self._decoding) >= BATCHES:
                continue
            with self._lock:
                mine = [sampling for sampling in self._arrived if sampling.key == key]
            if not mine:
                continue
            decoding = self._decoding.get(key) or self._open(key, mine[0])
            if decoding is not None:
                self._admit(key, decoding, mine)

    def _open(self, key: tuple[int, str], first: Sampling) -> _Decoding | None:
        try:
            decoding = _Decoding(new_batch(*first.weights))
        except Exception as error:  # as in _guarded
            log.error("sampling failed\n%s", traceback.format_exc())
            self._take_out([first])
            first.future.refuse(f"{type(error).__name__}: {error}", "server")
            return None
        self._decoding[key] = decoding
        return decoding

    def _admit(self, key: tuple[int, str], decoding: _Decoding, mine: list[Sampling]) -> None:
        chosen: list[Sampling] = []
        rows = len(decoding.batch.rows)
        for sampling in mine:
            waiting = sum(each.job.num_samples for each in chosen)
            if not decoding.batch.room_for(sampling.job, waiting):
                break  # in order of arrival, so that a big request is not passed over for ever
            chosen.append(sampling)
        if not chosen:
            return
        self._take_out(chosen)
        decoding.members.update({id(sampling.job): sampling for sampling in chosen})
        jobs = [sampling.job for sampling in chosen]
        self._guarded(key, decoding, lambda: decoding.batch.admit(jobs))
        log.debug("%d rows join %d", len(decoding.batch.rows) - rows, rows)

    def _take_out(self, chosen: list[Sampling]) -> None:
        gone = {id(sampling) for sampling in chosen}
        with self._lock:
            self._arrived = [each for each in self._arrived if id(each) not in gone]

    def _guarded(
        self, key: tuple[int, str], decoding: _Decoding, work: Callable[[], list[SampleJob]]
    ) -> None:
        """Deliver what `work` finished; one batch's fault must not end the worker."""
        try:
            finished = work()
        except Exception as error:
            log.error("sampling failed\n%s", traceback.format_exc())
            for sampling in decoding.members.values():
                sampling.future.refuse(f"{type(error).__name__}: {error}", "server")
            self._decoding.pop(key, None)
            return
        for job in finished:
            self._deliver(decoding, job)
        if not decoding.batch.rows:
            self._decoding.pop(key, None)
            seconds = time.perf_counter() - decoding.started
            log.info("sample %d tokens %.0f ms", decoding.tokens, 1000 * seconds)

    def _deliver(self, decoding: _Decoding, job: SampleJob) -> None:
        sampling = decoding.members.pop(id(job), None)
        if sampling is None or job.cancelled:
            return
        decoding.tokens += sum(len(done.tokens) for done in job.completions if done is not None)
        self.operations += 1
        sampling.future.resolve(sampling.encode(job))


def _wake() -> None:
    """Nothing to compute: the worker is only to look at what has arrived."""
