"""A Tinker service in this process, for tests of the loops around it: no model, no network.

Weights are the list of (batch, learning rate) that were trained, so that a step lost, doubled or
out of order shows. Requests are carried out as they are submitted, which is the order in which a
server sees them. `Power` cuts the process off before any request or file write.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np


class PowerCut(Exception):
    """The process is gone."""


class Power:
    """Counts events; cuts off at event number `cut_at`."""

    def __init__(self, cut_at: int | None = None):
        self.cut_at = cut_at
        self.events = 0

    def tick(self) -> None:
        """One more thing is about to happen."""
        if self.cut_at is not None and self.events >= self.cut_at:
            raise PowerCut
        self.events += 1


class Done:
    """A future that is done."""

    def __init__(self, value: Any):
        self.value = value

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    async def result_async(self, timeout: float | None = None) -> Any:
        return self.value

    def __await__(self) -> Any:
        return self.result_async().__await__()


class Answer:
    """An answer with whatever fields."""

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)


def fingerprint(value: Any) -> int:
    """A number that stands for `value`."""
    return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:4], "little")


class ToyStore:
    """The server's disk: states by path; survives power cuts of the client."""

    def __init__(self) -> None:
        self.states: dict[str, list[Any]] = {}
        self.created: list[str] = []
        self.models = 0


class ToyTrainingClient:
    """One model on the toy service."""

    def __init__(self, store: ToyStore, power: Power, weights: list[Any]):
        self.store = store
        self.power = power
        self.weights = list(weights)
        self.gradient: list[Any] = []
        store.models += 1
        self.run = f"tinker://run{store.models}"

    def forward_backward(self, data: Any, loss_fn: str, loss_fn_config: Any = None) -> Done:
        self.power.tick()
        tokens = [tuple(datum.model_input.to_ints()) for datum in data]
        self.gradient.append(tokens)
        import tinker

        outputs = []
        for datum in data:
            count = len(datum.loss_fn_inputs["target_tokens"].data)
            rng = np.random.RandomState(fingerprint((self.weights, tokens)))
            values = (-rng.rand(count)).astype(np.float32)
            outputs.append({"logprobs": tinker.TensorData.from_numpy(values)})
        return Done(Answer(loss_fn_outputs=outputs, metrics={}))

    def optim_step(self, adam_params: Any) -> Done:
        self.power.tick()
        batch = tuple(tokens for part in self.gradient for tokens in part)
        self.weights.append((batch, adam_params.learning_rate))
        self.gradient = []
        return Done(Answer(metrics={}))

    def save_state(self, name: str, ttl_seconds: int | None = None) -> Done:
        self.power.tick()
        path = f"{self.run}/weights/{name}"
        self.store.states[path] = list(self.weights)
        return Done(Answer(path=path))

    def save_weights_for_sampler(self, name: str, ttl_seconds: int | None = None) -> Done:
        self.power.tick()
        return Done(Answer(path=f"{self.run}/sampler_weights/{name}"))

    def create_sampling_client(self, path: str, **_: Any) -> Any:
        return ToySamplingClient(self.power, self.weights)

    def save_weights_and_get_sampling_client(self, *_: Any, **__: Any) -> Done:
        self.power.tick()
        return Done(ToySamplingClient(self.power, self.weights))

    async def save_weights_and_get_sampling_client_async(self, *_: Any, **__: Any) -> Any:
        return self.save_weights_and_get_sampling_client().value

    async def forward_backward_async(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_backward(*args, **kwargs)

    async def optim_step_async(self, *args: Any, **kwargs: Any) -> Any:
        return self.optim_step(*args, **kwargs)

    async def save_state_async(self, *args: Any, **kwargs: Any) -> Any:
        return self.save_state(*args, **kwargs)

    async def save_weights_for_sampler_async(self, *args: Any, **kwargs: Any) -> Any:
        return self.save_weights_for_sampler(*args, **kwargs)


class ToySamplingClient:
    """Samples two tokens that depend on the weights, the prompt, and how often it came."""

    def __init__(self, power: Power, weights: list[Any]):
        self.power = power
        self.weights = list(weights)
        self.seen: Counter[tuple[int, ...]] = Counter()

    def result(self) -> ToySamplingClient:  # newer SDKs hand out a future of a client
        return self

    def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Done:
        self.power.tick()
        tokens = tuple(prompt.to_ints())
        self.seen[tokens] += 1
        draw = fingerprint((self.weights, tokens, self.seen[tokens]))
        sequence = Answer(
            tokens=[draw % 97, draw % 89],
            logprobs=[-0.5, -0.25],
            stop_reason="stop",
            sequence_id=None,
        )
        return Done(Answer(sequences=[sequence], prompt_cache_hit_tokens=0))

    async def sample_async(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(fingerprint(self.power.events) % 3 / 1000)  # groups overtake
        return self.sample(*args, **kwargs).value


class ToyServiceClient:
    """Stands in for `tinker.ServiceClient`; `last` is the newest model's client."""

    store = ToyStore()
    power = Power()
    last: ToyTrainingClient | None = None

    def __init__(self, **_: Any):
        pass

    def __enter__(self) -> ToyServiceClient:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def _client(self, how: str, weights: list[Any]) -> Done:
        cls = type(self)
        cls.store.created.append(how)
        cls.last = ToyTrainingClient(cls.store, cls.power, weights)
        return Done(cls.last)

    def create_lora_training_client(self, *_: Any, **__: Any) -> Done:
        return self._client("new", [])

    def create_training_client_from_state(self, path: str, **_: Any) -> Done:
        return self._client("weights only", self.store.states[path])

    def create_training_client_from_state_with_optimizer(self, path: str, **_: Any) -> Done:
        return self._client("with optimizer", self.store.states[path])

    async def create_lora_training_client_async(self, *a: Any, **k: Any) -> Any:
        return self.create_lora_training_client(*a, **k).value

    async def create_training_client_from_state_async(self, *a: Any, **k: Any) -> Any:
        return self.create_training_client_from_state(*a, **k).value

    async def create_training_client_from_state_with_optimizer_async(
        self, *a: Any, **k: Any
    ) -> Any:
        return self.create_training_client_from_state_with_optimizer(*a, **k).value

    def create_rest_client(self) -> Any:
        store = self.store

        class Rest:
            def get_training_run_by_tinker_path(self, path: str) -> Done:
                return Done(Answer(user_metadata={}))

            async def get_training_run_by_tinker_path_async(self, path: str) -> Any:
                return Answer(user_metadata={})

            def delete_checkpoint_from_tinker_path(self, path: str) -> Done:
                store.states.pop(path, None)
                return Done(None)

            async def delete_checkpoint_from_tinker_path_async(self, path: str) -> None:
                store.states.pop(path, None)

        return Rest()


class ToyTokenizer:
    """Tokens are their own numbers."""

    def decode(self, tokens: Any, **_: Any) -> str:
        return " ".join(map(str, tokens))


def rows(run: Path) -> list[dict[str, Any]]:
    """The rows of a run without what differs between two runs of the same steps: the times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("time/")}
        for line in lines
    ]
