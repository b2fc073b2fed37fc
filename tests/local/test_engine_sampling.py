"""The unmodified SDK samples from a running engine."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tinker import types

pytestmark = [
    pytest.mark.xdist_group("engine"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PROMPT = types.ModelInput.from_ints(list(range(300, 320)))
FREE = types.SamplingParams(max_tokens=24, stop=[])


@pytest.fixture
def sampler(service: Any) -> Any:
    return service.create_sampling_client(base_model="tiny").result()


def tokens(answer: Any) -> list[list[int]]:
    return [list(sequence.tokens) for sequence in answer.sequences]


def test_a_seed_gives_the_same_tokens_in_any_company(sampler: Any) -> None:
    seeded = types.SamplingParams(max_tokens=24, stop=[], seed=11)
    alone = tokens(sampler.sample(PROMPT, 2, seeded).result())

    async def crowd() -> Any:
        others = [
            sampler.sample_async(types.ModelInput.from_ints(list(range(5, 5 + n))), 3, FREE)
            for n in range(1, 30)
        ]
        first, *_ = await asyncio.gather(sampler.sample_async(PROMPT, 2, seeded), *others)
        return first

    assert tokens(asyncio.run(crowd())) == alone
    other = types.SamplingParams(max_tokens=24, stop=[], seed=12)
    assert tokens(sampler.sample(PROMPT, 2, other).result()) != alone


def test_unseeded_requests_repeat_in_another_sampler_and_differ_within_one(service: Any) -> None:
    """What a resumed run relies on: the draws follow from weights, prompt and count."""
    runs = []
    for _ in range(2):
        sampler = service.create_sampling_client(base_model="tiny").result()
        runs.append([tokens(sampler.sample(PROMPT, 1, FREE).result()) for _ in range(3)])
    assert runs[0] == runs[1]
    assert len({str(answer) for answer in runs[0]}) == 3


def test_equal_weights_draw_equally_however_they_came_about(service: Any) -> None:
    trainer = service.create_lora_training_client(base_model="tiny", rank=2, seed=3).result()
    trainer.optim_step(types.AdamParams()).result()
    snapshot = trainer.save_weights_and_get_sampling_client().result()
    saved = trainer.save_weights_for_sampler("same").result().path
    state = trainer.save_state("same").result().path
    resumed = service.create_training_client_from_state(state).result()
    samplers = [
        snapshot,
        service.create_sampling_client(model_path=saved).result(),
        service.create_sampling_client(model_path=state).result(),
        resumed.save_weights_and_get_sampling_client().result(),
    ]
    answers = [tokens(each.sample(PROMPT, 2, FREE).result()) for each in samplers]
    assert answers[1:] == answers[:-1]


def test_temperature_zero_is_greedy(sampler: Any) -> None:
    cold = types.SamplingParams(max_tokens=6, stop=[], temperature=0.0)
    answer = sampler.sample(PROMPT, 2, cold).result()
    assert tokens(answer)[0] == tokens(answer)[1]
    whole = [*PROMPT.to_ints(), *tokens(answer)[0]]
    scored = sampler.sample(
        types.ModelInput.from_ints(whole), 1, FREE, True, topk_prompt_logprobs=1
    ).result()
    best = scored.topk_prompt_logprobs_np.token_ids[PROMPT.length :, 0]
    assert best.tolist() == tokens(answer)[0]


def test_stop_reasons_and_ids(sampler: Any) -> None:
    from transformers import AutoTokenizer

    from tinker_cli import tiny

    tokenizer = AutoTokenizer.from_pretrained(tiny.FOLDER)
    prompt = types.ModelInput.from_ints(
        tokenizer.encode("<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n")
    )
    answer = sampler.sample(prompt, 8, types.SamplingParams(max_tokens=60)).result()
    ended = [s for s in answer.sequences if s.stop_reason == "stop"]
    assert ended
    assert all(s.tokens[-1] == tokenizer.eos_token_id for s in ended)
    assert len({s.sequence_id for s in answer.sequences}) == 8
    short = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=1)).result()
    assert short.sequences[0].stop_reason == "length"
    texts = types.SamplingParams(max_tokens=60, stop=["."])
    for sequence in sampler.sample(prompt, 4, texts).result().sequences:
        if sequence.stop_reason == "stop":
            assert "." in tokenizer.decode(sequence.tokens)


def test_scores_of_prompts_reach_the_client(sampler: Any) -> None:
    plain = sampler.compute_logprobs(PROMPT).result()
    assert plain[0] is None
    targets = np.full((19, 2), -1, np.int64)
    targets[3] = [7, 320]
    answer = sampler.sample(
        PROMPT,
        1,
        FREE,
        include_prompt_logprobs=True,
        topk_prompt_logprobs=2,
        topk_sample_logprobs=3,
        target_prompt_logprobs=types.TensorData.from_numpy(targets),
        prompt_alt_tokens_k=5,
    ).result()
    np.testing.assert_allclose(answer.prompt_logprobs[1:], plain[1:], atol=1e-6)
    assert answer.topk_prompt_logprobs_np.token_ids.shape == (20, 2)
    assert answer.sequences[0].topk_logprobs_np.logprobs.shape == (24, 3)
    assert answer.target_prompt_logprobs.to_numpy()[3].all()
    assert answer.prompt_alt_tokens.tokens.to_numpy().shape == (19, 5)
    last = sampler.sample(
        PROMPT, 1, FREE, include_prompt_logprobs=True, prompt_logprobs_last_n=4
    ).result()
    assert last.prompt_logprobs[:16] == [None] * 16
    np.testing.assert_allclose(last.prompt_logprobs[16:], plain[16:], atol=1e-6)


def test_too_long_for_the_context_is_an_error_before_any_work(sampler: Any) -> None:
    from tinker import RequestFailedError

    long = types.ModelInput.from_ints([7] * 4000)
    with pytest.raises(RequestFailedError, match=r"4000 prompt tokens \+ max_tokens 97"):
        sampler.sample(long, 1, types.SamplingParams(max_tokens=97)).result()
    assert tokens(sampler.sample(PROMPT, 1, FREE).result())


def test_an_inflight_sampler_follows_the_model(service: Any) -> None:
    trainer = service.create_lora_training_client(base_model="tiny", rank=4, seed=3).result()
    first = trainer.save_weights_and_get_sampling_client(kind="inflight").result()
    before = first.compute_logprobs(PROMPT).result()
    datum = types.Datum(
        model_input=PROMPT,
        loss_fn_inputs={"target_tokens": np.arange(20), "weights": np.ones(20, np.float32)},
    )
    trainer.forward_backward([datum], "cross_entropy").result()
    trainer.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    second = trainer.save_weights_and_get_sampling_client(kind="inflight").result()
    after = second.compute_logprobs(PROMPT).result()
    assert after != before
    assert first.compute_logprobs(PROMPT).result() == after


def test_clones_of_a_sampler_work(sampler: Any) -> None:
    import pickle

    clone = pickle.loads(pickle.dumps(sampler))
    seeded = types.SamplingParams(max_tokens=8, stop=[], seed=1)
    assert tokens(clone.sample(PROMPT, 1, seeded).result()) == tokens(
        sampler.sample(PROMPT, 1, seeded).result()
    )
    assert sampler.get_base_model() == "tiny"
