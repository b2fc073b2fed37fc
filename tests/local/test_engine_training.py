"""The unmodified SDK trains against a running engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinker import types

pytestmark = [
    pytest.mark.xdist_group("engine"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ADAM = types.AdamParams(learning_rate=1e-3)


def chat(tokenizer: Any, question: str = "What is 3 + 4?", answer: str = "7") -> list[int]:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"
    return list(tokenizer.encode(text))


def sl_datum(ids: list[int]) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={
            "target_tokens": np.array(ids[1:]),
            "weights": np.ones(len(ids) - 1, dtype=np.float32),
        },
    )


@pytest.fixture
def trainer(service: Any) -> Any:
    return service.create_lora_training_client(base_model="tiny", rank=8, seed=1).result()


@pytest.fixture
def data(trainer: Any) -> list[types.Datum]:
    tokenizer = trainer.get_tokenizer()
    return [sl_datum(chat(tokenizer, f"What is {i} + {i}?", str(2 * i))) for i in range(1, 9)]


def train(trainer: Any, data: list[types.Datum], steps: int) -> list[float]:
    """Pipelined steps; returns the loss of each."""
    pairs = [
        (trainer.forward_backward(data, "cross_entropy"), trainer.optim_step(ADAM))
        for _ in range(steps)
    ]
    losses = [forward.result().metrics["loss:sum"] for forward, _ in pairs]
    for _, step in pairs:
        step.result()
    return losses


def test_losses_fall_and_metrics_carry_their_reduction(trainer: Any, data: Any) -> None:
    losses = train(trainer, data, 8)
    assert losses[-1] < 0.7 * losses[0]
    output = trainer.forward(data, "cross_entropy").result()
    assert all(":" in name for name in output.metrics)
    logprobs = [out["logprobs"].to_numpy() for out in output.loss_fn_outputs]
    assert output.metrics["loss:sum"] == pytest.approx(-sum(p.sum() for p in logprobs), rel=1e-5)
    assert [len(p) for p in logprobs] == [d.model_input.length for d in data]


def test_the_same_seed_gives_the_same_bits(service: Any, data: Any) -> None:
    runs = []
    for _ in range(2):
        client = service.create_lora_training_client(base_model="tiny", rank=4, seed=5).result()
        runs.append(train(client, data, 4))
    assert runs[0] == runs[1]


def test_sampler_and_learner_agree_to_1e_5(trainer: Any, data: Any) -> None:
    train(trainer, data, 3)
    sampler = trainer.save_weights_and_get_sampling_client().result()
    prompt = data[0].model_input
    answer = sampler.sample(
        prompt, 4, types.SamplingParams(max_tokens=32, temperature=1.0, stop=[])
    ).result()
    for sequence in answer.sequences:
        whole = [*prompt.to_ints(), *sequence.tokens]
        forward = trainer.forward([sl_datum(whole)], "cross_entropy").result()
        learned = forward.loss_fn_outputs[0]["logprobs"].to_numpy()[prompt.length - 1 :]
        assert np.abs(learned - np.array(sequence.logprobs)).max() < 1e-5
        scored = sampler.compute_logprobs(types.ModelInput.from_ints(whole)).result()
        assert np.abs(np.array(scored[prompt.length :]) - learned).max() < 1e-5


def test_saved_loaded_and_continued_equals_never_stopped(service: Any, data: Any) -> None:
    def new() -> Any:
        return service.create_lora_training_client(base_model="tiny", rank=4, seed=5).result()

    never_stopped = train(new(), data, 6)
    first = new()
    before = train(first, data, 3)
    path = first.save_state("three").result().path
    second = service.create_training_client_from_state_with_optimizer(path).result()
    assert before + train(second, data, 3) == never_stopped
    third = new()
    train(third, data, 1)
    third.load_state_with_optimizer(path).result()
    assert before + train(third, data, 3) == never_stopped
    weights_only = service.create_training_client_from_state(path).result()
    losses = train(weights_only, data, 3)
    assert losses[0] == never_stopped[3]
    assert losses[2] != never_stopped[5]


def test_rl_losses_take_the_samplers_numbers(trainer: Any, data: Any) -> None:
    sampler = trainer.save_weights_and_get_sampling_client().result()
    prompt = data[0].model_input
    answer = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=16, stop=[])).result()
    tokens, logprobs = answer.sequences[0].tokens, answer.sequences[0].logprobs
    whole = [*prompt.to_ints(), *tokens]
    lead = prompt.length - 1
    mask = np.array([0.0] * lead + [1.0] * len(tokens), np.float32)
    inputs = {
        "target_tokens": np.array(whole[1:]),
        "logprobs": np.array([0.0] * lead + list(logprobs), np.float32),
        "advantages": 0.5 * mask,
    }
    datum = types.Datum(model_input=types.ModelInput.from_ints(whole[:-1]), loss_fn_inputs=inputs)
    for name in ("importance_sampling", "ppo", "cispo", "dro"):
        loss = trainer.forward([datum], name).result().metrics["loss:sum"]
        if name in ("importance_sampling", "ppo"):
            assert loss == pytest.approx(-0.5 * len(tokens), rel=1e-4)  # all ratios are 1
    masked = types.Datum(
        model_input=datum.model_input,
        loss_fn_inputs={**inputs, "sequence_ratio_mask": mask},
    )
    loss = trainer.forward([masked], "gspo").result().metrics["loss:sum"]
    assert loss == pytest.approx(-0.5 * len(tokens), rel=1e-4)


def test_a_custom_loss_runs_on_the_client(trainer: Any, data: Any) -> None:
    def loss(items: Any, logprobs: Any) -> Any:
        total = sum((-p.sum() for p in logprobs), start=logprobs[0].sum() * 0)
        return total, {"mine": total.item()}

    result = trainer.forward_backward_custom(data, loss).result()
    reference = trainer.forward(data, "cross_entropy").result()
    assert result.metrics["mine"] == pytest.approx(reference.metrics["loss:sum"], rel=1e-5)


def test_more_datums_than_one_request_takes(trainer: Any, data: Any) -> None:
    many = (data * 300)[:2100]
    output = trainer.forward(many, "cross_entropy").result()
    assert len(output.loss_fn_outputs) == 2100
    one = trainer.forward(data, "cross_entropy").result().metrics["loss:sum"]
    assert output.metrics["loss:sum"] == pytest.approx(one * 2100 / 8, rel=1e-2)


@pytest.mark.parametrize(
    ("loss", "config", "words"),
    [
        ("stable_reinforce", None, "not published"),
        ("ppo", {"epsilon": 0.2}, "no setting 'epsilon'"),
        ("importance_sampling", None, "needs logprobs"),
    ],
)
def test_an_error_names_its_cause_and_leaves_the_client_usable(
    trainer: Any, data: Any, loss: str, config: Any, words: str
) -> None:
    from tinker import RequestFailedError

    with pytest.raises(RequestFailedError, match=words):
        trainer.forward_backward(data, loss, config).result()
    assert train(trainer, data, 1)


def test_two_runs_on_one_base_do_not_touch_each_other(service: Any, data: Any) -> None:
    def new() -> Any:
        return service.create_lora_training_client(base_model="tiny", rank=4, seed=9).result()

    alone = train(new(), data, 3)
    one, other = new(), new()
    mixed = []
    for _ in range(3):
        mixed += train(one, data, 1)
        train(other, data[:3], 2)
    assert mixed == alone


def test_an_alias_and_a_folder_name_the_model(service: Any) -> None:
    from tinker_cli import tiny

    for name in ("pet", str(tiny.FOLDER)):
        client = service.create_lora_training_client(base_model=name, rank=2).result()
        assert client.get_info().model_data.tokenizer_id == str(tiny.FOLDER)
        assert client.get_tokenizer().encode("7")


def test_a_model_that_is_not_here_is_refused_with_those_that_are(service: Any) -> None:
    import tinker

    with pytest.raises(tinker.APIStatusError, match=r"serves .*tiny"):
        service.create_lora_training_client(base_model="Qwen/Qwen3-8B").result()


def test_images_and_other_optimizers_are_refused(trainer: Any, data: Any) -> None:
    from tinker import RequestFailedError

    image = types.ImageChunk(data=b"x", format="png", expected_tokens=3)
    seen = types.Datum(
        model_input=types.ModelInput(chunks=[image]),
        loss_fn_inputs={"target_tokens": np.arange(3), "weights": np.ones(3, np.float32)},
    )
    with pytest.raises(RequestFailedError, match="does not read image chunks"):
        trainer.forward([seen], "cross_entropy").result()
    with pytest.raises(RequestFailedError, match="optimizer 'dimuon'"):
        trainer.optim_step(types.optimizer.DimuonParams(learning_rate=1e-3)).result()
    assert train(trainer, data, 1)
