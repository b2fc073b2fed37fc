"""Sampling: right distributions, equal bits in any company, stops, scores of prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import shaken_adapter, small_base_model

from tinker_cli.local.drawing import Decoding, SampleJob, Scoring, draw
from tinker_cli.local.faults import ClientFault
from tinker_cli.local.layers import decode
from tinker_cli.local.learner import Learner
from tinker_cli.local.lora import BaseModel
from tinker_cli.local.protocol import Datum, TargetCells
from tinker_cli.local.sampler import Batch, checked_job, new_batch
from tinker_cli.local.waves import Wave


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def job(
    model: BaseModel, prompt: list[int], key: str = "k", n: int = 1, **params: Any
) -> SampleJob:
    scoring = params.pop("scoring", Scoring())
    topk = params.pop("topk_sample", 0)
    params = {"max_tokens": 12, "stop": [], **params}
    return checked_job(
        model, prompt, n, params, random_key=key.encode(), topk_sample=topk, scoring=scoring
    )


def run(batch: Any, jobs: list[SampleJob], later: dict[int, list[SampleJob]] | None = None) -> None:
    """Decode to the end; `later` joins after so many steps."""
    batch.admit(jobs)
    step = 0
    while batch.rows or (later and any(at >= step for at in later)):
        if later and step in later:
            batch.admit(later[step])
        batch.step(lambda: True)  # one token
        step += 1


def answers(each: SampleJob) -> list[tuple[list[int], list[float]]]:
    return [(c.tokens.tolist(), c.logprobs.tolist()) for c in each.completions if c is not None]


def test_draws_follow_the_distribution() -> None:
    """100,000 uniform numbers against the softmax, and each number against the inverse CDF."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 300, generator=random) * 2
    noise = np.random.default_rng(0).random(100_000)
    drawn, logprobs = draw(
        logits.expand(len(noise), -1), [Decoding(1)] * len(noise), noise.tolist()
    )
    chance = torch.softmax(logits[0].double(), -1).numpy()
    seen = np.bincount(drawn.numpy(), minlength=300) / len(noise)
    assert np.abs(seen - chance).max() < 5 * np.sqrt(chance.max() / len(noise))
    np.testing.assert_allclose(logprobs, np.log(chance)[drawn.numpy()], rtol=1e-5)
    exact = np.searchsorted(np.cumsum(chance), noise, side="right")
    assert (exact != drawn.numpy()).mean() < 1e-4  # rounding at the borders only


@pytest.mark.parametrize("size", [5, 128, 129, 1000])
def test_a_token_of_no_probability_is_never_drawn(size: int) -> None:
    logits = torch.full((4, size), float("-inf"))
    logits[:, size // 2] = 0.0
    drawn, _ = draw(logits, [Decoding(1)] * 4, [0.0, 0.5, 0.999999, 1 - 1e-16])
    assert drawn.tolist() == [size // 2] * 4


def test_temperature_top_k_and_top_p() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))
    rows = 20_000
    noise = np.random.default_rng(1).random(rows).tolist()

    def shares(decoding: Decoding) -> np.ndarray[Any, Any]:
        drawn, _ = draw(logits.expand(rows, -1), [decoding] * rows, noise)
        return np.bincount(drawn.numpy(), minlength=4) / rows

    np.testing.assert_allclose(shares(Decoding(1, top_k=2)), [2 / 3, 1 / 3, 0, 0], atol=0.02)
    np.testing.assert_allclose(shares(Decoding(1, top_p=0.7)), [2 / 3, 1 / 3, 0, 0], atol=0.02)
    np.testing.assert_allclose(shares(Decoding(1, top_p=0.4)), [1, 0, 0, 0], atol=0)
    cold = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    np.testing.assert_allclose(shares(Decoding(1, temperature=0.5)), cold / cold.sum(), atol=0.02)
    assert shares(Decoding(1, temperature=0.0)).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("kind", ["qwen3", "llama", "qwen2", "mistral"])
def test_decoder_gives_the_networks_own_logits(kind: str) -> None:
    model = small_base_model(kind, sliding_window=None)
    adapter = shaken_adapter(model)
    asked = [job(model, [3, 900, 17, 4, 2000], n=2), job(model, list(range(70, 140)))]
    batch = new_batch(model, adapter)
    assert isinstance(batch, Batch)
    run(batch, asked)
    check_logprobs(model, adapter, asked)


@pytest.mark.parametrize("way", ["folded", "beside packed", "beside plain"])
@pytest.mark.parametrize("kind", ["qwen3", "qwen2"])  # norms of heads; biases
def test_an_adapter_decodes_the_same_folded_or_beside_the_base(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinker_cli.local.decoder.FOLD_NUMBERS", 10**9 if way == "folded" else 0)
    monkeypatch.setattr("tinker_cli.local.decoder.PACK_NUMBERS", 0 if "plain" in way else 10**9)
    model = small_base_model(kind)
    adapter = shaken_adapter(model)
    asked = [job(model, [3, 900, 17, 4, 2000], n=2), job(model, list(range(70, 140)))]
    run(new_batch(model, adapter), asked)
    check_logprobs(model, adapter, asked)


def test_compiled_layers_give_the_bits_of_the_plain_ones(
    small_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> list[tuple[list[int], list[float]]]:
        asked = [job(small_model, [7 + i, 90 + i], f"k{i}") for i in range(11)]
        run(new_batch(small_model, None), asked)
        return [one for each in asked for one in answers(each)]

    assert small_model.decoder is not None
    assert small_model.decoder._decode is not decode, "this torch compiles no layers"
    compiled = drawn()
    monkeypatch.setattr(small_model.decoder, "_decode", decode)
    assert drawn() == compiled


def test_weights_that_can_not_be_packed_are_used_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tinker_cli.local.layers._can_pack", lambda: False)
    model = small_base_model("llama")
    adapter = shaken_adapter(model)
    asked = [job(model, [3, 900, 17, 4, 2000], n=2)]
    run(new_batch(model, adapter), asked)
    check_logprobs(model, adapter, asked)


@pytest.mark.parametrize("kind", ["gpt2", "gemma2"])
def test_other_architectures_sample_in_waves(kind: str) -> None:
    more = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256} if kind == "gpt2" else {}
    model = small_base_model(kind, sliding_window=64, **more)
    adapter = shaken_adapter(model)
    asked = [job(model, [3, 900, 17], n=2), job(model, list(range(70, 90)), max_tokens=3)]
    wave = new_batch(model, adapter)
    assert isinstance(wave, Wave)
    run(wave, asked)
    check_logprobs(model, adapter, asked)


def check_logprobs(model: BaseModel, adapter: Any, asked: list[SampleJob]) -> None:
    """Sampler and learner agree to 1e-5 on every token that was drawn."""
    learner = Learner(model, adapter)
    for each in asked:
        for tokens, logprobs in answers(each):
            whole = np.array([*each.prompt, *tokens])
            data = Datum(
                whole[:-1],
                {"target_tokens": whole[1:], "weights": np.ones(len(whole) - 1, np.float32)},
            )
            out, _ = learner.forward_backward([data], "cross_entropy", {}, forward_only=True)
            np.testing.assert_allclose(
                out[0]["logprobs"][len(each.prompt) - 1 :], logprobs, atol=1e-5
            )


def test_a_row_is_the_same_bits_alone_and_in_any_company(small_model: BaseModel) -> None:
    """Alone; among 40 others of other lengths; joining late; with others leaving before."""
    adapter = shaken_adapter(small_model)
    random = np.random.default_rng(0)

    def mine() -> list[SampleJob]:
        return [
            job(small_model, list(range(100, 100 + length)), f"mine {length}", n=2, max_tokens=20)
            for length in (1, 5, 63, 64, 65)
        ]

    def others(count: int) -> list[SampleJob]:
        return [
            job(
                small_model,
                random.integers(0, 2000, int(random.integers(1, 150))).tolist(),
                f"other {i} {count}",
                max_tokens=int(random.integers(1, 90)),
                temperature=float(random.choice([0.0, 0.7, 1.0])),
            )
            for i in range(count)
        ]

    alone = mine()
    for each in alone:
        run(new_batch(small_model, adapter), [each])
    expected = [answers(each) for each in alone]
    together = mine()
    run(new_batch(small_model, adapter), [*others(20), *together, *others(21)])
    assert [answers(each) for each in together] == expected
    late = mine()
    run(new_batch(small_model, adapter), others(30), {3: late[:2], 7: late[2:] + others(5)})
    assert [answers(each) for each in late] == expected


def test_stop_tokens_and_length(small_model: BaseModel) -> None:
    first = job(small_model, [1, 2, 3], max_tokens=8)
    run(new_batch(small_model, None), [first])
    tokens = answers(first)[0][0]
    assert len(tokens) == 8
    assert first.completions[0] is not None
    assert not first.completions[0].stopped
    stopped = job(small_model, [1, 2, 3], max_tokens=8, stop=[tokens[4]])
    run(new_batch(small_model, None), [stopped])
    cut = tokens[: tokens.index(tokens[4]) + 1]
    assert answers(stopped)[0][0] == cut
    assert stopped.completions[0] is not None
    assert stopped.completions[0].stopped


def test_none_stops_at_the_models_end_token_and_an_empty_list_does_not(
    small_model: BaseModel,
) -> None:
    assert job(small_model, [1], stop=None).decoding.stop_tokens == {2041}
    assert job(small_model, [1], stop=[]).decoding.stop_tokens == set()


def test_a_stop_string_is_found_across_token_borders(small_model: BaseModel) -> None:
    asked = job(small_model, [1, 2, 3], max_tokens=30)
    run(new_batch(small_model, None), [asked])
    tokens = answers(asked)[0][0]
    text = small_model.tokenizer.decode(tokens)
    pieces = [small_model.tokenizer.decode(tokens[:i]) for i in range(len(tokens) + 1)]
    at = next(i for i in range(6, 25) if all("\ufffd" not in pieces[j] for j in (i - 1, i, i + 1)))
    stop = text[len(pieces[at]) - 1 : len(pieces[at]) + 1]  # last letter, and first of the next
    stopped = job(small_model, [1, 2, 3], max_tokens=30, stop=[stop])
    run(new_batch(small_model, None), [stopped])
    given = answers(stopped)[0][0]
    assert stop in small_model.tokenizer.decode(given)
    assert stop not in small_model.tokenizer.decode(given[:-1])
    assert tokens[: len(given)] == given


def test_scores_of_a_prompt(small_model: BaseModel) -> None:
    adapter = shaken_adapter(small_model)
    prompt = list(range(50, 62))
    targets = np.full((11, 2), -1)
    targets[4] = [7, 1999]
    targets[10, 0] = 61
    asked = job(
        small_model,
        prompt,
        scoring=Scoring(logprobs=True, topk=3, targets=TargetCells(targets, None), alternatives=4),
        topk_sample=2,
    )
    run(new_batch(small_model, adapter), [asked])
    with torch.no_grad(), small_model.wearing(small_model.fold(adapter)):
        logits = small_model.network(input_ids=torch.tensor([prompt])).logits[0]
    scores = torch.log_softmax(logits, -1)
    given = scores[:-1].gather(-1, torch.tensor(prompt[1:])[:, None])[:, 0]
    assert asked.prompt_logprobs is not None
    assert np.isnan(asked.prompt_logprobs[0])
    np.testing.assert_allclose(asked.prompt_logprobs[1:], given, atol=1e-5)
    assert asked.prompt_topk is not None
    best = scores[:-1].topk(3, -1)
    np.testing.assert_array_equal(asked.prompt_topk[0][1:], best.indices)
    np.testing.assert_allclose(asked.prompt_topk[1][1:], best.values, atol=1e-5)
    assert asked.prompt_topk[1][0].tolist() == [-99999.0] * 3
    assert asked.target_logprobs is not None
    np.testing.assert_allclose(asked.target_logprobs[4], scores[4, [7, 1999]], atol=1e-5)
    np.testing.assert_allclose(asked.target_logprobs[10], [scores[10, 61], 0.0], atol=1e-5)
    assert asked.target_logprobs[3].tolist() == [0.0, 0.0]
    assert asked.alternatives is not None
    ids, values = asked.alternatives
    assert ids.shape == (11, 4)
    np.testing.assert_allclose(
        values, scores[:-1].gather(-1, torch.from_numpy(ids).long()), atol=1e-5
    )
    completion = asked.completions[0]
    assert completion is not None
    assert completion.topk is not None
    assert completion.topk[0].shape == (12, 2)
    assert (completion.topk[1][:, 0] >= completion.logprobs - 1e-6).all()


def test_only_the_last_tokens_are_scored_when_asked(small_model: BaseModel) -> None:
    whole, part = (
        job(small_model, list(range(40)), scoring=Scoring(logprobs=True, last=last))
        for last in (None, 5)
    )
    run(new_batch(small_model, None), [whole, part])
    assert whole.prompt_logprobs is not None
    assert part.prompt_logprobs is not None
    assert np.isnan(part.prompt_logprobs[:35]).all()
    np.testing.assert_array_equal(part.prompt_logprobs[35:], whole.prompt_logprobs[35:])


@pytest.mark.parametrize(
    ("prompt", "count", "params", "words"),
    [
        ([], 1, {}, "prompt is empty"),
        ([2048], 1, {}, "outside 0 to 2047"),
        ([-1], 1, {}, "outside 0 to 2047"),
        ([1], 0, {}, "num_samples"),
        ([1], 100_000, {}, "num_samples"),
        ([1] * 500, 1, {"max_tokens": 13}, "500 prompt tokens + max_tokens 13"),
        ([1] * 513, 1, {"max_tokens": None}, "513 prompt tokens"),
        ([1], 1, {"max_tokens": 0}, "at least 1"),
        ([1], 1, {"temperature": -0.1}, "temperature"),
        ([1], 1, {"temperature": float("nan")}, "temperature"),
        ([1], 1, {"top_p": 0.0}, "top_p"),
        ([1], 1, {"top_k": 0}, "top_k"),
        ([1], 1, {"stop": [1, "a"]}, "not both"),
        ([1], 1, {"stop": [""]}, "empty"),
        ([1], 1, {"stop": {"a": 1}}, "stop must be"),
        ([1], 1, {"temperature": "hot"}, "temperature must be a number"),
    ],
)
def test_requests_out_of_range_are_refused(
    small_model: BaseModel, prompt: list[int], count: int, params: dict[str, Any], words: str
) -> None:
    with pytest.raises(ClientFault) as refused:
        job(small_model, prompt, n=count, **params)
    assert words in str(refused.value)


def test_cancelled_rows_leave_at_once(small_model: BaseModel) -> None:
    gone, stays = job(small_model, [1, 2], n=3, max_tokens=400), job(small_model, [3], n=2)
    batch = new_batch(small_model, None)
    batch.admit([gone, stays])
    batch.step(lambda: True)  # one token
    gone.cancelled = True
    batch.step(lambda: True)  # one token
    assert {id(row.job) for row in batch.rows} == {id(stays)}
    while batch.rows:
        batch.step(lambda: True)  # one token
    alone = job(small_model, [3], n=2)
    run(new_batch(small_model, None), [alone])
    assert answers(stays) == answers(alone)


def test_a_batch_takes_no_more_rows_than_it_may(small_model: BaseModel) -> None:
    batch = new_batch(small_model, None)
    big = job(small_model, [1], n=200)
    assert batch.room_for(big, 0)
    batch.admit([big])
    assert not batch.room_for(job(small_model, [1], n=57), 0)
    assert batch.room_for(job(small_model, [1], n=56), 0)
    assert not batch.room_for(job(small_model, [1], n=56), 1)


def test_lanes_share_the_rows_and_change_no_bit(small_model: BaseModel) -> None:
    """40 rows of one prompt, 30 of others and a late one: one lane and three give equal bits."""

    def asked() -> tuple[list[SampleJob], SampleJob]:
        many = job(small_model, [5, 6, 7], "many", n=40, scoring=Scoring(logprobs=True))
        others = [job(small_model, [9, 2 + i % 7], f"o{i}", max_tokens=3 + i) for i in range(30)]
        return [many, *others], job(small_model, [5, 6, 7], "late", n=30)

    results = []
    for lanes in (1, 3):
        small_model.lanes = lanes
        small_model.__dict__.pop("pool", None)
        try:
            jobs, late = asked()
            batch = Batch(small_model, None)
            run(batch, jobs, {2: [late]})
        finally:
            small_model.lanes = 1
        assert len(batch.lanes) == lanes
        results.append(
            [(answers(each), repr(each.prompt_logprobs)) for each in [*jobs, late]],
        )
    assert results[0] == results[1]
    small_model.pool.shutdown()
    del small_model.pool


def test_rows_are_dealt_evenly_and_few_stay_together(small_model: BaseModel) -> None:
    small_model.lanes = 2
    try:
        few, many = Batch(small_model, None), Batch(small_model, None)
    finally:
        small_model.lanes = 1
    few.admit([job(small_model, [1, 2], f"{i}") for i in range(9)])
    assert sorted(len(lane.rows) for lane in few.lanes) == [0, 9]
    many.admit([job(small_model, [1, 2], n=50), job(small_model, [3], n=14)])
    assert [len(lane.rows) for lane in many.lanes] == [32, 32]
    small_model.pool.shutdown()
    del small_model.pool
