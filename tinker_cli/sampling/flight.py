"""Many requests in flight: as many as allowed, answers in order or as they come.

Questions are read in a thread of their own, so that a slow source of them never holds back an
answer that is there. Knows futures; knows nothing of models.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

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
    held: dict[int, Landed[Question, Answered]] = {}
    expected = 0
    for number, landed in flight.land():
        if not in_order:
            flight.slots.release()
            yield landed
            continue
        held[number] = landed
        if len(held) < HELD_MOST:
            flight.slots.release()
        else:
            flight.owed += 1
        while expected in held:
            yield held.pop(expected)
            expected += 1
        if len(held) < HELD_MOST and flight.owed:
            flight.slots.release(flight.owed)
            flight.owed = 0
    for number in sorted(held):
        yield held[number]
    if flight.broken is not None:
        raise flight.broken


class _Flight(Generic[Question, Answered]):
    def __init__(
        self,
        send: Callable[[Question], Future[Answered]],
        in_flight: int,
        ends: Callable[[Exception], bool],
    ):
        self.send, self.ends = send, ends
        self.slots = threading.Semaphore(in_flight)
        self.owed = 0  # slots that are kept back while many answers wait
        self.broken: Exception | None = None  # what the source of questions raised
        self.events: SimpleQueue[
            _Sent[Question] | tuple[_Sent[Question], Future[Answered]] | Exception | None
        ] = SimpleQueue()

    def read(self, questions: Iterable[Question]) -> None:
        """The reading thread: a question for each free slot."""
        number = 0
        try:
            source = iter(questions)
            while True:
                self.slots.acquire()
                question = next(source, None)
                if question is None:
                    break
                self.events.put(_Sent(number, question))
                number += 1
        except Exception as error:  # handed to the thread that waits
            self.events.put(error)
        self.events.put(None)

    def land(self) -> Iterator[tuple[int, Landed[Question, Answered]]]:
        """Every question with its number, as it lands."""
        reading, going, pending = True, True, 0
        while pending or (reading and going):
            event = self.events.get()
            if event is None:
                reading = False
            elif isinstance(event, Exception):
                self.broken = event
            elif isinstance(event, tuple):
                pending -= 1
                landed = self._landed(*event)
                going = going and not (landed.error is not None and self.ends(landed.error))
                yield event[0].number, landed
            elif going:
                try:
                    self._launch(event)
                except Exception as error:  # belongs to this question
                    going = not self.ends(error)
                    yield event.number, Landed(event.question, None, error)
                else:
                    pending += 1

    def _launch(self, sent: _Sent[Question]) -> None:
        future = self.send(sent.question)
        future.add_done_callback(lambda done: self.events.put((sent, done)))

    def _landed(
        self, sent: _Sent[Question], future: Future[Answered]
    ) -> Landed[Question, Answered]:
        error = future.exception()
        if error is None:
            return Landed(sent.question, future.result(), None)
        if isinstance(error, Exception):
            return Landed(sent.question, None, error)
        raise error
