"""Whatever is sent: a 4xx or a user error in one sentence, and the engine is alive after."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_engine import KEY, RawEngine, dense, request
from tinker.proto import tinker_public_pb2 as pb

JSON_PATHS = (
    "create_session",
    "session_heartbeat",
    "sessions/x/finish",
    "create_model",
    "unload_model",
    "get_info",
    "optim_step",
    "save_weights",
    "save_weights_for_sampler",
    "save_weights_external",
    "load_weights",
    "create_sampling_session",
    "join_sampling_session",
    "asample",
    "retrieve_future",
    "weights_info",
    "copy_weights",
    "sessions/search",
)
FIELDS = (
    "session_id",
    "model_seq_id",
    "base_model",
    "lora_config",
    "optimizer_config",
    "model_id",
    "seq_id",
    "path",
    "ttl_seconds",
    "user_metadata",
    "adam_params",
    "optimizer_params",
    "sampling_session_seq_id",
    "sampling_session_id",
    "model_path",
    "prompt",
    "sampling_params",
    "num_samples",
    "prompt_logprobs_last_n",
    "target_prompt_logprobs",
    "topk_prompt_logprobs",
    "request_id",
    "tinker_path",
    "source_path",
    "limit",
    "statuses",
    "age_encryption_recipients",
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["MODEL", "SAMPLER", "SESSION", "tinker://a/weights/b", "..", "a/../b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=6)
            | st.sampled_from(["chunks", "tokens", "type", "max_tokens", "rank", "data", "shape"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
LIMITS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def engine_of_tests(small_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    running = RawEngine(small_model, tmp_path_factory.mktemp("store"))
    running.known = {  # type: ignore[attr-defined]
        "SESSION": running.session(),
        "MODEL": running.model(),
    }
    running.known["SAMPLER"] = running.ask(  # type: ignore[attr-defined]
        "create_sampling_session",
        {
            "session_id": running.known["SESSION"],  # type: ignore[attr-defined]
            "sampling_session_seq_id": 0,
            "base_model": "qwen3",
        },
    )["sampling_session_id"]
    yield running
    running.close()


def is_alive(raw: RawEngine) -> None:
    model = raw.model()
    assert raw.loss(raw.train(request(model, 1)).json())


def check(raw: RawEngine, response: Any) -> None:
    """Not a 5xx; and a promise, if it is one of a user's operation, ends without a server error."""
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.json()["detail"]
        return
    promise = response.json()
    if "request_id" not in promise:
        return
    future = raw.scheduler.futures.get(promise["request_id"])
    flushed = threading.Event()
    raw.scheduler.submit("flush", lambda: flushed.set() or {})
    assert flushed.wait(20)
    if future.ready and isinstance(future.result, dict):
        assert future.result.get("category") != "server", future.result


@LIMITS
@given(
    path=st.sampled_from(JSON_PATHS),
    fields=st.dictionaries(st.sampled_from(FIELDS), values, max_size=7),
)
def test_json_of_any_shape(engine_of_tests: Any, path: str, fields: dict[str, Any]) -> None:
    known = engine_of_tests.known
    if fields.get("sampling_params") and isinstance(fields["sampling_params"], dict):
        fields["sampling_params"]["max_tokens"] = 3
    body = json.dumps(fields)
    for name, value in known.items():
        body = body.replace(f'"{name}"', json.dumps(value))
    check(engine_of_tests, engine_of_tests.post(path, content=body))


@LIMITS
@given(path=st.sampled_from(JSON_PATHS), content=st.binary(max_size=60))
def test_bytes_that_are_no_json(engine_of_tests: Any, path: str, content: bytes) -> None:
    check(engine_of_tests, engine_of_tests.post(path, content=content))


@LIMITS
@given(data=st.data())
def test_protobuf_cut_flipped_and_lengthened(engine_of_tests: Any, data: Any) -> None:
    model = engine_of_tests.model()
    content = bytearray(request(model, 1, count=2).SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=9))
    check(engine_of_tests, engine_of_tests.post("forward_backward", content=bytes(content)))


tensors = st.fixed_dictionaries(
    {
        "dtype": st.integers(0, 6),
        "shape": st.lists(st.integers(-2, 7) | st.sampled_from([2**31, 2**62]), max_size=3),
        "bytes": st.binary(max_size=64)
        | st.builds(lambda n: b"\x00" * n, st.integers(0, 80))
        | st.builds(
            lambda x: np.array(x, np.float32).tobytes(), st.lists(st.floats(width=32), max_size=7)
        ),
        "sparse": st.booleans(),
    }
)


@LIMITS
@given(
    inputs=st.dictionaries(
        st.sampled_from(["target_tokens", "weights", "logprobs", "advantages", "odd"]),
        tensors,
        max_size=4,
    ),
    loss=st.sampled_from(["cross_entropy", "ppo", "gspo", "", "nonsense", "stable_reinforce"]),
    tokens=st.binary(max_size=40),
)
def test_tensors_of_wrong_types_lengths_and_shapes(
    engine_of_tests: Any, inputs: dict[str, Any], loss: str, tokens: bytes
) -> None:
    model = engine_of_tests.model()
    message = pb.ForwardBackwardRequest(model_id=model, seq_id=1, loss_fn=loss)
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = tokens
    for name, made in inputs.items():
        tensor = datum.loss_fn_inputs[name]
        tensor.dtype = min(made["dtype"], 4)
        tensor.shape.extend(made["shape"])
        if made["sparse"]:
            tensor.sparse_csr.values = made["bytes"]
            tensor.sparse_csr.crow_indices = made["bytes"][::-1]
            tensor.sparse_csr.col_indices = made["bytes"][:16]
        else:
            tensor.dense = made["bytes"]
    response = engine_of_tests.train(message)
    assert response.status_code == 200
    answer = engine_of_tests.answer(response.json())
    assert isinstance(answer, bytes) or answer["category"] == "user", answer


def test_the_engine_is_alive_after_all_that(engine_of_tests: Any) -> None:
    is_alive(engine_of_tests)


def test_no_datums_and_very_many(raw: RawEngine) -> None:
    model = raw.model()
    empty = raw.answer(raw.train(request(model, 1, count=0)).json())
    assert empty["category"] == "user"
    many = pb.ForwardBackwardOutput.FromString(
        raw.answer(raw.train(request(model, 2, count=5000)).json())
    )
    assert sum(record.num_datums for record in many.loss_fn_outputs) == 5000


def test_a_body_of_64_megabytes(raw: RawEngine) -> None:
    assert raw.post("telemetry", content=b" " * (64 << 20)).status_code == 200
    model = raw.model()
    message = request(model, 1)
    dense(message.data[0], "weights", np.ones(16 << 20, np.float32), pb.DTYPE_FLOAT32)
    answer = raw.answer(raw.train(message).json())
    assert "weights [16777216]" in answer["error"]


def test_numbers_that_are_not_finite(raw: RawEngine) -> None:
    model = raw.model()
    message = request(model, 1)
    dense(message.data[0], "weights", np.array([1, np.nan, 1, 1, 1], np.float32), pb.DTYPE_FLOAT32)
    assert "not finite" in raw.answer(raw.train(message).json())["error"]
    inf = request(model, 2)
    dense(inf.data[0], "weights", np.array([1, np.inf, 1, 1, 1], np.float32), pb.DTYPE_FLOAT32)
    assert "not finite" in raw.answer(raw.train(inf).json())["error"]
    assert raw.loss(raw.train(request(model, 3)).json())


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "tml-other"}, {"X-API-Key": KEY + "x"}])
def test_other_keys_are_refused(raw: RawEngine, headers: dict[str, str]) -> None:
    raw.client.headers.pop("X-API-Key")
    for path in ("create_session", "retrieve_future", "nothing_here"):
        assert raw.post(path, {}, headers=headers).status_code == 401
    assert raw.client.get("/api/v1/checkpoints", headers=headers).status_code == 401
    assert raw.client.get("/api/v1/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "tinker://../weights/x",
        "tinker://run/weights/..",
        "tinker://run/weights/../../x",
        "tinker://run/../weights/x",
        "tinker:///weights/x",
        "tinker://run/weights/a%2Fb",
        "tinker://run/weights/a\\b",
        "tinker://run/weights/\x00",
        "/etc/passwd",
        "file:///etc/passwd",
    ],
)
def test_no_path_leaves_the_store(raw: RawEngine, path: str) -> None:
    response = raw.post("weights_info", {"tinker_path": path})
    assert response.status_code == 400
    assert "checkpoint path" in response.json()["detail"]


def test_no_url_leaves_the_store(raw: RawEngine, tmp_path: Any) -> None:
    (tmp_path / "secret").write_text("x")
    for url in (
        "training_runs/../../checkpoints/weights/secret",
        "training_runs/%2e%2e/checkpoints/weights/secret",
        "training_runs/a/checkpoints/weights/%2e%2e%2fsecret",
        "training_runs/a/checkpoints/nothing/x",
    ):
        response = raw.client.delete(f"/api/v1/{url}")
        assert response.status_code in (400, 404, 405)
    assert (tmp_path / "secret").exists()
