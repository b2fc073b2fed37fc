"""Several clients at once: each gets what it gets alone, and none waits for ever."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tinker import types

pytestmark = [pytest.mark.xdist_group("engine"), pytest.mark.filterwarnings("ignore")]
CLIENTS, STEPS = 8, 6


def drive(url: str, number: int) -> tuple[list[float], list[list[int]], float]:
    """Losses, sampled tokens and seconds of one client that trains and samples."""
    import tinker

    service = tinker.ServiceClient(base_url=url)
    trainer = service.create_lora_training_client(base_model="tiny", rank=4, seed=number).result()
    random = np.random.default_rng(number)
    losses, samples = [], []
    started = time.monotonic()
    for step in range(STEPS):
        data = []
        for _ in range(2 + number % 3):
            ids = random.integers(0, 2000, 12 + number)
            inputs = {
                "target_tokens": ids[1:],
                "weights": np.ones(len(ids) - 1, dtype=np.float32),
            }
            data.append(
                types.Datum(
                    model_input=types.ModelInput.from_ints(ids[:-1].tolist()), loss_fn_inputs=inputs
                )
            )
        forward = trainer.forward_backward(data, "cross_entropy")
        update = trainer.optim_step(types.AdamParams(learning_rate=1e-3))
        losses.append(forward.result().metrics["loss:sum"])
        update.result()
        if step % 2:
            sampler = trainer.save_weights_and_get_sampling_client().result()
            params = types.SamplingParams(max_tokens=6, stop=[], seed=number)
            answer = sampler.sample(types.ModelInput.from_ints([5, 6, 7]), 2, params).result()
            samples += [list(sequence.tokens) for sequence in answer.sequences]
    seconds = time.monotonic() - started
    service.close("success").result()
    return losses, samples, seconds


def test_each_of_eight_clients_gets_what_it_gets_alone(engine: Any, service: Any) -> None:
    alone = [drive(engine.url, number) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(lambda number: drive(engine.url, number), range(CLIENTS)))
    for one, other in zip(alone, together, strict=True):
        assert other[0] == pytest.approx(one[0], rel=1e-5)
        assert other[1] == one[1]
    seconds = [each[2] for each in together]
    assert max(seconds) < 3 * min(seconds)
