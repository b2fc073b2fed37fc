"""Asking: prompts through the renderer to a sampling client, several at a time, order kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import RunFailed
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.prompts import Prompt

IN_FLIGHT = 32  # requests; enough to keep the engine's waves full


@dataclass(frozen=True)
class Answer:
    """One completion. `logprobs` are nats a token, None where the server gave none."""

    text: str
    tokens: tuple[int, ...]
    stop_reason: str
    logprobs: tuple[float, ...] | None

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

    Without a renderer the last message's text is the prompt, token for token.
    """

    client: Any  # the SDK's SamplingClient
    tokenizer: Any
    renderer: Any | None
    options: SamplingOptions

    def prompt_tokens(self, prompt: Prompt) -> Any:
        """The tokens that the model will see, as a ModelInput."""
        import tinker

        if self.renderer is None:
            text = str(prompt.messages[-1]["content"])
            return tinker.types.ModelInput.from_ints(self.tokenizer.encode(text))
        return self.renderer.build_generation_prompt(list(prompt.messages))

    def ask_all(
        self, prompts: Iterable[Prompt], *, done: Callable[[], None] | None = None
    ) -> Iterator[tuple[Prompt, list[Answer]]]:
        """Answers in the order of the prompts, up to IN_FLIGHT requests ahead."""
        waiting: deque[tuple[Prompt, Any]] = deque()
        for prompt in prompts:
            waiting.append((prompt, self._send(prompt)))
            while len(waiting) >= IN_FLIGHT:
                yield self._receive(*waiting.popleft())
        while waiting:
            yield self._receive(*waiting.popleft())

    def _send(self, prompt: Prompt) -> Any:
        import tinker

        options = self.options
        stop: Any = list(options.stop) or None
        if stop is None and self.renderer is not None:
            stop = self.renderer.get_stop_sequences()
        params = tinker.types.SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            seed=options.seed,
            stop=stop,
        )
        return self.client.sample(
            prompt=self.prompt_tokens(prompt),
            num_samples=options.num_samples,
            sampling_params=params,
        )

    def _receive(self, prompt: Prompt, future: Any) -> tuple[Prompt, list[Answer]]:
        import tinker

        try:
            response = future.result()
        except tinker.RequestFailedError as error:
            reason = str(error).removeprefix("Request failed: ").split(" for self.request_id")[0]
            raise RunFailed(f"prompt {prompt.index + 1}: {reason}") from None
        return prompt, [self._answer(sequence) for sequence in response.sequences]

    def _answer(self, sequence: Any) -> Answer:
        tokens = tuple(int(token) for token in sequence.tokens)
        logprobs = sequence.logprobs
        return Answer(
            text=self._text(tokens),
            tokens=tokens,
            stop_reason=str(sequence.stop_reason),
            logprobs=None if logprobs is None else tuple(float(value) for value in logprobs),
        )

    def _text(self, tokens: tuple[int, ...]) -> str:
        """What the model said, without the stop that ended it."""
        if self.renderer is None or self.options.stop:
            text = str(self.tokenizer.decode(list(tokens)))
            for stop in self.options.stop:
                text = text.split(stop)[0]
            return text
        from tinker_cookbook.renderers import get_text_content

        message, _ = self.renderer.parse_response(list(tokens))
        return str(get_text_content(message))
