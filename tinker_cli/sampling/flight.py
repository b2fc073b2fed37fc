"""Many requests in flight: as many as allowed, answers in order or as they come.

Questions are read in a thread of their own, so that a slow source of them never holds back an
answer that is there. Knows futures; knows nothing of models.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

READ_AHEAD = 3  # questions read, as a multiple of those in flight
HELD_MOST = 4096  # answers that wait for an earlier one, before no more questions are sent

Question = TypeVar("Question")
Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Landed(Generic[Question, Answered]):
    """A question with its answer, or with the error that it met."""

    question: Question
    answer: Answered | None
    error: Exception | None


@dataclass
class _Sent(Generic[Question]):
    number: int
    question: Question


_Event = _Sent[Question] | tuple[_Sent[Question], Future[Answered]] | Exception | None
_Numbered = tuple[int, Landed[Question, Answered]]


def fly(
    questions: Iterable[Question],
    send: Callable[[Question], Future[Answered]],
    *,
    in_flight: int,
    in_order: bool = True,
    ends: Callable[[Exception], bool] = lambda error: True,
) -> Iterator[Landed[Question, Answered]]:
    """Yield each question as its answer lands, `in_flight` of them at a time.

    After an error that `ends` the work nothing more is sent; what is in flight still lands. An
    error of the source of questions is raised after that.
    """
    flight: _Flight[Question, Answered] = _Flight(send, in_flight, ends)
    threading.Thread(target=flight.read, args=(questions,), daemon=True).start()
    if in_order:
        yield from _ordered(flight)
    else:
        yield from (landed for _, landed in flight.land())
    if flight.broken is not None:
        raise flight.broken


def _ordered(
    flight: _Flight[Question, Answered],
) -> Iterator[Landed[Question, Answered]]:
    held: dict[int, Landed[Question, Answered]] = {}
    expected = 0
    for number, landed in flight.land():
        held[number] = landed
        while expected in held:
            yield held.pop(expected)
            expected += 1
        flight.waits = len(held) >= HELD_MOST
    for number in sorted(held):
        yield held[number]


class _Flight(Generic[Question, Answered]):
    """`waits` holds new questions back while too many answers wait for an earlier one."""

    def __init__(
        self,
        send: Callable[[Question], Future[Answered]],
        in_flight: int,
        ends: Callable[[Exception], bool],
    ):
        self.send, self.ends, self.in_flight = send, ends, in_flight
        self.waits = False
        self.broken: Exception | None = None  # what the source of questions raised
        self._room = threading.Semaphore(in_flight * READ_AHEAD)  # questions read, not answered
        self._events: SimpleQueue[_Event[Question, Answered]] = SimpleQueue()
        self._ready: deque[_Sent[Question]] = deque()
        self._reading, self._going, self._pending = True, True, 0

    def read(self, questions: Iterable[Question]) -> None:
        """The reading thread: some questions ahead, so that a free place is filled at once."""
        number = 0
        try:
            source = iter(questions)
            while True:
                self._room.acquire()
                question = next(source, None)
                if question is None:
                    break
                self._events.put(_Sent(number, question))
                number += 1
        except Exception as error:  # handed to the thread that waits
            self._events.put(error)
        self._events.put(None)

    def land(self) -> Iterator[tuple[int, Landed[Question, Answered]]]:
        """Every question with its number, as it lands."""
        while self._pending or (self._going and (self._reading or self._ready)):
            landed = self._take(self._events.get()) if self._awaited() else []
            landed += self._fill()  # before an answer is shown: a free place costs time
            for one in landed:
                self._room.release()
                yield one

    def _awaited(self) -> bool:
        return bool(self._pending or (self._going and self._reading))

    def _take(self, event: _Event[Question, Answered]) -> list[_Numbered[Question, Answered]]:
        if event is None:
            self._reading = False
        elif isinstance(event, Exception):
            self.broken = event
        elif isinstance(event, _Sent):
            self._ready.append(event)
        else:
            sent, future = event
            self._pending -= 1
            return [(sent.number, self._ended(sent, future.exception(), future))]
        return []

    def _fill(self) -> list[_Numbered[Question, Answered]]:
        """Send until every place is taken; return what could not be sent."""
        refused = []
        while self._going and self._ready and self._pending < self.in_flight:
            if self.waits and self._pending:
                break
            sent = self._ready.popleft()
            try:
                future = self.send(sent.question)
            except Exception as error:  # belongs to this question
                refused.append((sent.number, self._ended(sent, error)))
                continue
            self._pending += 1
            future.add_done_callback(partial(self._landed, sent))
        return refused

    def _landed(self, sent: _Sent[Question], future: Future[Answered]) -> None:
        self._events.put((sent, future))

    def _ended(
        self,
        sent: _Sent[Question],
        error: BaseException | None,
        future: Future[Answered] | None = None,
    ) -> Landed[Question, Answered]:
        if error is None:
            assert future is not None
            return Landed(sent.question, future.result(), None)
        if not isinstance(error, Exception):
            raise error
        self._going = self._going and not self.ends(error)
        return Landed(sent.question, None, error)
