"""Asking one model: a prompt through the renderer to a sampling client, and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.prompts import Message, Prompt
from tinker_cli.sampling.stream import TextStream, cut_at_stop

IN_FLIGHT = 32  # requests; enough to keep the engine's waves full
FIRST_PIECE, LONGEST_PIECE = 8, 64  # tokens of a streamed answer's requests: they double


@dataclass(frozen=True)
class Answer:
    """One completion. `logprobs` are nats a token, None where the server gave none."""

    text: str
    tokens: tuple[int, ...]
    stop_reason: str
    logprobs: tuple[float, ...] | None = None

    def as_json(self, *, logprobs: bool = False) -> dict[str, Any]:
        """The answer as a JSON object."""
        document: dict[str, Any] = {
            "text": self.text,
            "stop_reason": self.stop_reason,
            "tokens": list(self.tokens),
        }
        if logprobs:
            document["logprobs"] = None if self.logprobs is None else list(self.logprobs)
        return document


@dataclass(frozen=True)
class Asker:
    """Everything that turns a prompt into answers: client, renderer and settings.

    Without a renderer the last message's text is the prompt, token for token. `context` is the
    most tokens that prompt and answer may have together, None where the server does not say.
    """

    client: Any  # the SDK's SamplingClient
    tokenizer: Any
    renderer: Any | None
    options: SamplingOptions
    context: int | None = None
    lock: RLock = field(
        default_factory=RLock, compare=False
    )  # of the tokenizer: it can't be shared

    def prompt_tokens(self, prompt: Prompt) -> Any:
        """The tokens that the model will see, as a ModelInput."""
        import tinker

        with self.lock:
            if self.renderer is None:
                text = str(prompt.messages[-1]["content"])
                return tinker.types.ModelInput.from_ints(self.tokenizer.encode(text))
            return self.renderer.build_generation_prompt(list(prompt.messages))

    def stop(self) -> list[str] | list[int] | None:
        """What ends an answer on the server: the renderer's stops, and the user's own.

        The service takes strings or token ids, not both: beside strings, ids go as their text.
        """
        own = list(self.options.stop)
        if self.renderer is None:
            return own or None
        stops = list(self.renderer.get_stop_sequences())
        if not own:
            return stops
        with self.lock:
            return [*own, *(s if isinstance(s, str) else self.tokenizer.decode([s]) for s in stops)]

    def ask(self, prompt: Prompt) -> Future[list[Answer]]:
        """Send a prompt; UsageError if it can't fit. The future holds `num_samples` answers."""
        shown = self.prompt_tokens(prompt)
        sent = self._sample(shown, self.room(shown), self.options.seed, self.options.num_samples)
        answers: Future[list[Answer]] = Future()

        def land(done: Any) -> None:
            error = done.exception()
            if error is None:
                try:
                    answers.set_result([self._answer(s) for s in done.result().sequences])
                    return
                except Exception as fault:  # a callback's errors reach nobody otherwise
                    error = fault
            answers.set_exception(error)

        sent.add_done_callback(land)
        return answers

    def room(self, shown: Any) -> int:
        """The most tokens to ask for; UsageError names the prompt's length and the limit."""
        asked, limit = self.options.max_tokens, self.context
        if limit is None:
            return asked
        if not self.options.max_tokens_given:
            asked = max(min(asked, limit - shown.length), 1)
        if shown.length + asked > limit:
            raise UsageError(
                f"the prompt is too long: {shown.length} tokens + {asked} to sample"
                f" > {limit}, the model's context"
            )
        return asked

    def stream(self, messages: Sequence[Message]) -> Iterator[str | Answer]:
        """Text as it comes, then the whole Answer.

        The protocol answers in one piece, so an answer is asked for in several requests, each of
        them going on where the last one ended.
        """
        from tinker_cookbook.renderers import get_text_content

        shown = self.prompt_tokens(Prompt(0, tuple(messages)))
        left, piece, reason = self.room(shown), FIRST_PIECE, "length"
        tokens: list[int] = []
        text, said = TextStream(self.tokenizer, self._stop_strings()), ""
        while left > 0 and reason == "length":
            seed = None if self.options.seed is None else self.options.seed + len(tokens)
            asked = min(piece, left)
            sequence = self._sample(_extended(shown, tokens), asked, seed, 1).result().sequences[0]
            new = [int(token) for token in sequence.tokens]
            tokens += new
            left, piece = left - asked, min(piece * 2, LONGEST_PIECE)
            reason = str(sequence.stop_reason)
            fresh = text.push(token for token in new if token not in self._stop_ids())
            said += fresh
            yield fresh
            if text.stopped:
                reason = "stop"
        rest = text.finish()
        yield rest
        whole = said + rest
        if self.renderer is not None and not self.options.stop and reason == "stop":
            whole = str(get_text_content(self.renderer.parse_response(tokens)[0]))
        yield Answer(whole, tuple(tokens), reason)

    def score(self, prompt: Prompt, answer: Answer) -> Future[float | None]:
        """The log-probability of an answer to a prompt, in nats; None where it can't be had."""
        shown = _extended(self.prompt_tokens(prompt), answer.tokens)
        scored: Future[float | None] = Future()
        count = len(answer.tokens)
        if not count or (self.context is not None and shown.length >= self.context):
            scored.set_result(0.0 if not count else None)
            return scored

        def land(done: Any) -> None:
            error = done.exception()
            if error is not None:
                scored.set_exception(error)
                return
            values = done.result()[-count:]
            missing = any(value is None for value in values)
            scored.set_result(None if missing else float(sum(values)))

        _future(self.client.compute_logprobs(shown)).add_done_callback(land)
        return scored

    def _sample(self, shown: Any, max_tokens: int, seed: int | None, count: int) -> Any:
        import tinker

        options = self.options
        stop: Any = self.stop()
        params = tinker.types.SamplingParams(
            max_tokens=max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            seed=seed,
            stop=stop,
        )
        return _future(self.client.sample(prompt=shown, num_samples=count, sampling_params=params))

    def _stop_strings(self) -> list[str]:
        stops = [] if self.renderer is None else self.renderer.get_stop_sequences()
        return [*self.options.stop, *(stop for stop in stops if isinstance(stop, str))]

    def _stop_ids(self) -> frozenset[int]:
        if self.renderer is None:
            return frozenset(
                token for token in (getattr(self.tokenizer, "eos_token_id", None),) if token
            )
        stops = self.renderer.get_stop_sequences()
        return frozenset(stop for stop in stops if isinstance(stop, int))

    def _answer(self, sequence: Any) -> Answer:
        tokens = tuple(int(token) for token in sequence.tokens)
        logprobs = sequence.logprobs
        with self.lock:
            text = self._text(tokens)
        return Answer(
            text=text,
            tokens=tokens,
            stop_reason=str(sequence.stop_reason),
            logprobs=None if logprobs is None else tuple(float(value) for value in logprobs),
        )

    def _text(self, tokens: tuple[int, ...]) -> str:
        """What the model said, without the stop that ended it."""
        if self.renderer is None:
            kept = tokens[:-1] if tokens and tokens[-1] in self._stop_ids() else tokens
            return cut_at_stop(_decoded(self.tokenizer, kept), self._stop_strings())
        from tinker_cookbook.renderers import get_text_content

        message, _ = self.renderer.parse_response(list(tokens))
        return cut_at_stop(str(get_text_content(message)), self._stop_strings())


def _decoded(tokenizer: Any, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens)))


def _extended(shown: Any, tokens: Sequence[int]) -> Any:
    """A ModelInput with more tokens at its end."""
    import tinker

    if not tokens:
        return shown
    return shown.append(tinker.types.EncodedTextChunk(tokens=list(tokens)))


def _future(sent: Any) -> Any:
    """The plain future below the SDK's own."""
    return sent.future() if hasattr(sent, "future") else sent
