"""Order and repetition on the wire: sequence numbers, retries, chunks that come first last."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from raw_engine import RawEngine, dense, request
from tinker.proto import tinker_public_pb2 as pb

from tinker_cli.local.futures import Future, Futures


def step(raw: RawEngine, model: str, seq: int, rate: float = 1e-2) -> Any:
    body = {"model_id": model, "seq_id": seq, "adam_params": {"learning_rate": rate}}
    return raw.ask("optim_step", body)


def test_operations_run_in_the_order_of_their_numbers(raw: RawEngine) -> None:
    """The same five operations in order, and sent backwards."""
    losses = []
    for order in ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 1, 5, 2, 4]):
        model = raw.model()
        promises = {}
        for seq in order:
            if seq % 2:
                promises[seq] = raw.train(request(model, seq)).json()
            else:
                promises[seq] = step(raw, model, seq)
        losses.append([raw.loss(promises[seq]) for seq in (1, 3, 5)])
    assert losses[0][0] > losses[0][1] > losses[0][2]
    assert losses[1:] == losses[:-1]


def test_an_operation_sent_again_runs_once(raw: RawEngine) -> None:
    model = raw.model()
    first = raw.train(request(model, 1)).json()
    assert raw.train(request(model, 1)).json() == first
    raw.answer(step(raw, model, 2))
    assert step(raw, model, 2)["request_id"] == step(raw, model, 2)["request_id"]
    again = raw.train(request(model, 1)).json()
    assert again == first
    assert raw.sessions.models[model].learner.moments.steps == 1


def test_a_number_long_past_is_refused_and_nothing_waits(
    raw: RawEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinker_cli.local.scheduler.REMEMBERED_NUMBERS", 2)
    model = raw.model()
    for seq in range(1, 6):
        raw.answer(step(raw, model, seq))
    answer = raw.answer(step(raw, model, 1))
    assert answer["category"] == "user"
    assert "after 5" in answer["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("optim_step", {"adam_params": 3}),
        ("optim_step", {"adam_params": {"learning_rate": "fast"}}),
        ("optim_step", {"adam_params": {"momentum": 0.9}}),
        ("optim_step", {"adam_params": {"learning_rate": float("1e400")}}),
        ("optim_step", {"optimizer_params": {"type": "dimuon", "learning_rate": 1}}),
        ("save_weights", {"path": 7}),
        ("save_weights", {"path": "../../etc/passwd"}),
        ("save_weights", {"path": "a/b"}),
        ("save_weights", {"path": "x", "ttl_seconds": 5}),
        ("save_weights", {"path": "x", "user_metadata": {"a": 1}}),
        ("save_weights_for_sampler", {"path": ".hidden"}),
        ("save_weights_for_sampler", {}),
        ("save_weights_external", {"path": "x", "age_encryption_recipients": ["nobody"]}),
        ("load_weights", {"path": "tinker://a/b"}),
        ("load_weights", {"path": "tinker://no/weights/there"}),
    ],
)
def test_a_refused_operation_uses_its_number_up(raw: RawEngine, path: str, body: Any) -> None:
    model = raw.model()
    import json

    content = json.dumps({"model_id": model, "seq_id": 1, **body})
    answer = raw.answer(raw.ask(path, content=content))
    assert answer["category"] == "user", answer
    assert raw.loss(raw.train(request(model, 2)).json())


def test_a_body_beyond_the_limit_uses_its_number_up(
    raw: RawEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinker_cli.local.bodies.BODY_LIMIT", 2000)
    model = raw.model()
    big = raw.train(request(model, 1, count=50))
    assert "exceeds" in raw.answer(big.json())["error"]
    assert raw.loss(raw.train(request(model, 2)).json())
    assert raw.post("telemetry", content=b"x" * 3000).status_code == 413


def test_a_sample_sent_again_is_the_same_request(raw: RawEngine) -> None:
    sampler = raw.ask(
        "create_sampling_session",
        {"session_id": raw.session(), "sampling_session_seq_id": 0, "base_model": "qwen3"},
    )["sampling_session_id"]
    body = {
        "sampling_session_id": sampler,
        "seq_id": 4,
        "num_samples": 2,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
        "sampling_params": {"max_tokens": 4},
    }
    first, again = raw.ask("asample", body), raw.ask("asample", body)
    assert first == again
    assert len(first["sample_sequence_ids"]) == 2
    assert len(pb.SampleResponse.FromString(raw.answer(first)).sequences) == 2
    assert raw.answer(first) == raw.answer(again)


def test_an_answer_that_takes_long_is_a_408(
    raw: RawEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinker_cli.local.routes.POLL_SECONDS", 0.05)
    model = raw.model()
    promise = step(raw, model, 2)  # waits for number 1
    assert raw.post("retrieve_future", promise).status_code == 408
    raw.train(request(model, 1))
    assert raw.answer(promise)["metrics"]


def test_mixed_shapes_come_back_in_order(raw: RawEngine) -> None:
    """Datums of one target and of three targets a token, in one request."""
    model = raw.model()
    message = request(model, 1, count=3)
    wide = message.data[1]
    dense(wide, "target_tokens", np.arange(15, dtype=np.int64).reshape(5, 3), pb.DTYPE_INT64)
    dense(wide, "weights", np.ones((5, 3), np.float32), pb.DTYPE_FLOAT32)
    output = pb.ForwardBackwardOutput.FromString(raw.answer(raw.train(message).json()))
    shapes = [
        (record.num_datums, list(record.fields["logprobs"].trailing_shape))
        for record in output.loss_fn_outputs
    ]
    assert shapes == [(1, []), (1, [3]), (1, [])]


def test_sparse_weights_equal_dense_ones(raw: RawEngine) -> None:
    weights = np.array([0, 0, 0.5, 0, 2], np.float32)
    plain = request(raw.model(), 1)
    dense(plain.data[0], "weights", weights, pb.DTYPE_FLOAT32)
    sparse = request(raw.model(), 1)
    tensor = sparse.data[0].loss_fn_inputs["weights"]
    tensor.sparse_csr.values = weights[weights != 0].tobytes()
    tensor.sparse_csr.crow_indices = np.array([0, 2], np.int64).tobytes()
    tensor.sparse_csr.col_indices = np.array([2, 4], np.int64).tobytes()
    losses = [raw.loss(raw.train(message).json()) for message in (plain, sparse)]
    assert losses[0] == losses[1]


def test_a_future_resolves_once_and_wakes_whoever_waits() -> None:
    future = Future("f", "test")
    woken: list[int] = []
    assert not future.when_ready(lambda: woken.append(1))
    assert future.resolve({"a": 1})
    assert not future.refuse("late")
    assert future.when_ready(lambda: woken.append(2))
    assert woken == [1]
    assert future.result == {"a": 1}


def test_answers_are_kept_within_a_budget_of_bytes() -> None:
    futures = Futures(kept=100, kept_bytes=1000)
    many = [futures.new("test") for _ in range(5)]
    for future in many:
        future.resolve(b"x" * 300)
        futures.mark_fetched(future)
    there = [f for f in many if f.id in futures._all]
    assert there == many[-3:]
    waiting = futures.new("test")
    assert futures.get(waiting.id) is waiting


def test_training_and_sampling_share_the_workers_time(raw: RawEngine) -> None:
    """A stream of operations does not keep a sample from being made."""
    model, stop = raw.model(), threading.Event()
    sampler = raw.ask(
        "create_sampling_session",
        {"session_id": raw.session(), "sampling_session_seq_id": 0, "base_model": "qwen3"},
    )["sampling_session_id"]

    def keep_training() -> None:
        for _ in range(3000):
            if stop.is_set():
                return
            raw.scheduler.submit("busy", lambda: time.sleep(0.004) or {})

    threading.Thread(target=keep_training, daemon=True).start()
    body = {
        "sampling_session_id": sampler,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
        "sampling_params": {"max_tokens": 40, "stop": []},
    }
    started = time.monotonic()
    assert raw.answer(raw.ask("asample", body))
    stop.set()
    assert time.monotonic() - started < 5
    assert raw.sessions.models[model].learner is not None
