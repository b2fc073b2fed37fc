"""Several models side by side: each answers, and each says how likely every answer is to it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tinker_cli.sampling.ask import Answer, Asker
from tinker_cli.sampling.prompts import Prompt


@dataclass(frozen=True)
class Scored:
    """An answer, and its log-probability in nats by each model's name; None where not had."""

    answer: Answer
    logprob: dict[str, float | None]


Compared = dict[str, list[Scored]]  # by the name of the model that answered


def compared_as_json(compared: Compared, *, logprobs: bool = False) -> list[dict[str, Any]]:
    """The answers grouped by the model that gave them."""
    return [
        {
            "checkpoint": name,
            "samples": [
                {**one.answer.as_json(logprobs=logprobs), "logprob": one.logprob} for one in scored
            ],
        }
        for name, scored in compared.items()
    ]


class Comparer:
    """Asks the same of every model; each question takes a thread until it is done."""

    def __init__(self, askers: Mapping[str, Asker], in_flight: int):
        self._askers = dict(askers)
        self._pool = ThreadPoolExecutor(in_flight)

    def ask(self, prompt: Prompt) -> Future[Compared]:
        """Send a prompt to every model; the future holds all answers, scored by all."""
        for asker in self._askers.values():
            asker.room(asker.prompt_tokens(prompt))  # what can't fit is refused before it is sent
        return self._pool.submit(self._compare, prompt)

    def close(self) -> None:
        """Wait for no more answers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compare(self, prompt: Prompt) -> Compared:
        sent = {name: asker.ask(prompt) for name, asker in self._askers.items()}
        answers = {name: future.result() for name, future in sent.items()}
        scores = {
            (teller, position): {
                name: asker.score(prompt, answer) for name, asker in self._askers.items()
            }
            for teller, told in answers.items()
            for position, answer in enumerate(told)
        }
        return {
            teller: [
                Scored(answer, {n: f.result() for n, f in scores[teller, position].items()})
                for position, answer in enumerate(told)
            ]
            for teller, told in answers.items()
        }
