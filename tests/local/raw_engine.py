"""An engine in this process, spoken to in the wire's own terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient
from tinker.proto import tinker_public_pb2 as pb

from tinker_cli.local.lora import BaseModel
from tinker_cli.local.scheduler import Scheduler
from tinker_cli.local.server import make_app
from tinker_cli.local.sessions import Sessions
from tinker_cli.local.store import Store

KEY = "tml-test"


class RawEngine:
    """Posts what it is told to, byte for byte."""

    def __init__(self, model: BaseModel, store: Path):
        self.scheduler = Scheduler()
        self.sessions = Sessions(
            model, Store(store), self.scheduler, seed=0, load=lambda name, source: model
        )
        self.client = TestClient(make_app(self.sessions, KEY), headers={"X-API-Key": KEY})

    def close(self) -> None:
        self.scheduler.stop()

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """POST JSON, or `content=` bytes; returns the response."""
        if body is not None:
            options["json"] = body
        return self.client.post(f"/api/v1/{path}", **options)

    def ask(self, path: str, body: Any = None, **options: Any) -> Any:
        """POST, and the JSON of a 200."""
        response = self.post(path, body, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def answer(self, promise: Any) -> Any:
        """The result of a promise: a dict, or bytes of protobuf."""
        response = self.post("retrieve_future", {"request_id": promise["request_id"]})
        assert response.status_code == 200, response.text
        is_json = response.headers["content-type"] == "application/json"
        return response.json() if is_json else response.content

    def session(self) -> str:
        return str(
            self.ask("create_session", {"tags": [], "user_metadata": None, "sdk_version": "0"})[
                "session_id"
            ]
        )

    def model(self, session: str | None = None, seq: int = 0, rank: int = 2) -> str:
        promise = self.ask(
            "create_model",
            {
                "session_id": session or self.session(),
                "model_seq_id": seq,
                "base_model": self.sessions.default.name,
                "lora_config": {"rank": rank, "seed": 0},
            },
        )
        return str(self.answer(promise)["model_id"])

    def train(self, message: pb.ForwardBackwardRequest) -> Any:
        return self.post("forward_backward", content=message.SerializeToString())

    def loss(self, promise: Any) -> float:
        """`loss:sum` of a forward_backward."""
        content = self.answer(promise)
        assert isinstance(content, bytes), content
        return float(pb.ForwardBackwardOutput.FromString(content).metrics["loss:sum"])


def request(
    model_id: str, seq: int, count: int = 1, length: int = 5, **fields: Any
) -> pb.ForwardBackwardRequest:
    """A sound cross-entropy request."""
    message = pb.ForwardBackwardRequest(
        model_id=model_id, seq_id=seq, loss_fn="cross_entropy", **fields
    )
    for index in range(count):
        datum = message.data.add()
        tokens = np.arange(length, dtype=np.int32) + index % 50
        datum.model_input.add().encoded_text.tokens = tokens.tobytes()
        dense(datum, "target_tokens", tokens.astype(np.int64) + 1, pb.DTYPE_INT64)
        dense(datum, "weights", np.ones(length, np.float32), pb.DTYPE_FLOAT32)
    return message


def dense(datum: pb.Datum, name: str, values: Any, dtype: Any) -> None:
    tensor = datum.loss_fn_inputs[name]
    tensor.dtype = dtype
    del tensor.shape[:]
    tensor.shape.extend(values.shape)
    tensor.dense = values.tobytes()
