"""Bytes of the wire <-> numpy arrays: the protobuf half of the protocol.

Reuses the SDK's generated messages. Knows the shapes and types that the protocol carries; knows
nothing of models or losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as pb

from tinker_cli.local.faults import ClientFault

PROTOBUF = "application/x-protobuf"
MOST_CELLS = 1 << 26  # of one sparse tensor, made dense: no small request may claim much memory
DTYPES: dict[int, Any] = {
    pb.DTYPE_FLOAT32: np.float32,
    pb.DTYPE_INT64: np.int64,
    pb.DTYPE_INT32: np.int32,
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Datum:
    """One training sequence: `tokens` int64 (N,), and arrays whose first axis is N."""

    tokens: Array
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class TrainRequest:
    """A forward or forward-backward request."""

    model_id: str
    seq_id: int
    data: Sequence[Datum]
    loss_fn: str
    config: Mapping[str, float | str]
    forward_only: bool


@dataclass(frozen=True)
class TargetCells:
    """Tokens to score at each position after the first: int64 (P - 1, K); -1 asks for nothing.

    `sparse` holds the CSR row and column indices that the request came with, if it was sparse.
    """

    tokens: Array
    sparse: tuple[Array, Array] | None


@dataclass(frozen=True)
class Completion:
    """A sampled sequence: token ids, their log-probabilities (nats), why it ended."""

    tokens: Array  # int32 (T,)
    logprobs: Array  # float32 (T,)
    stopped: bool  # False: cut at max_tokens
    topk: tuple[Array, Array] | None = None  # int32 (T, K), float32 (T, K)


def decode_train_request(body: bytes) -> tuple[str, int, pb.ForwardBackwardRequest]:
    """Parse the envelope: model, sequence number, and the message itself."""
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except Exception as error:  # protobuf raises its own DecodeError, and others on odd input
        raise ClientFault(f"the body is not a ForwardBackwardRequest: {error}") from None
    return message.model_id, int(message.seq_id), message


def read_beginning(beginning: bytes) -> tuple[str, int]:
    """Model and sequence number from the first bytes of a request that was cut off.

    They are its first fields. Raises ClientFault if they are not there.
    """
    fields: dict[int, bytes | int] = {}
    at = 0
    try:
        while at < len(beginning) and len(fields) < 2:
            tag, at = _varint(beginning, at)
            value, at = _varint(beginning, at)
            if tag & 7 == 2:
                fields[tag >> 3] = beginning[at : at + value]
                at += value
            elif tag & 7 == 0:
                fields[tag >> 3] = value
            else:
                break
        model_id = fields[pb.ForwardBackwardRequest.MODEL_ID_FIELD_NUMBER]
        seq_id = fields[pb.ForwardBackwardRequest.SEQ_ID_FIELD_NUMBER]
        if isinstance(model_id, bytes) and isinstance(seq_id, int):
            return model_id.decode(), seq_id
        raise KeyError(model_id)
    except (IndexError, KeyError, UnicodeDecodeError):
        raise ClientFault("the body is too large, and does not begin with its model") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def decode_train_data(message: pb.ForwardBackwardRequest) -> TrainRequest:
    """Decode the datums of a request; raises ClientFault naming the datum that is wrong."""
    config: dict[str, float | str] = dict(message.loss_fn_config)
    for name, value in message.loss_fn_config_v2.items():
        config[name] = value.text if value.WhichOneof("value") == "text" else value.number
    data = []
    for index, datum in enumerate(message.data):
        try:
            data.append(_decode_datum(datum))
        except (ValueError, ClientFault) as error:
            raise ClientFault(f"datum {index}: {error}") from None
    return TrainRequest(
        model_id=message.model_id,
        seq_id=int(message.seq_id),
        data=data,
        loss_fn=message.loss_fn,
        config=config,
        forward_only=bool(message.forward_only),
    )


def _decode_datum(datum: pb.Datum) -> Datum:
    pieces = []
    for chunk in datum.model_input:
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise ClientFault(
                f"the local engine does not read {kind or 'empty'} chunks; only text tokens"
            )
        pieces.append(np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32))
    tokens = np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, np.int64)
    if tokens.size == 0:
        raise ClientFault("model_input has no tokens")
    inputs = {name: _decode_tensor(name, value) for name, value in datum.loss_fn_inputs.items()}
    return Datum(tokens=tokens, inputs=inputs)


def _decode_tensor(name: str, tensor: pb.Tensor) -> Array:
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ClientFault(f"{name} has dtype {tensor.dtype}; float32, int64 or int32 expected")
    shape = tuple(tensor.shape)
    if tensor.WhichOneof("encoding") == "sparse_csr":
        return _decode_csr(name, tensor.sparse_csr, shape, dtype)
    values = np.frombuffer(tensor.dense, dtype=dtype)
    if not shape:
        return values
    if any(extent < 0 for extent in shape) or math.prod(shape) != values.size:
        raise ClientFault(f"{name} says shape {list(shape)} but carries {values.size} values")
    return values.reshape(shape)


def _decode_csr(name: str, csr: pb.SparseCsr, shape: tuple[int, ...], dtype: Any) -> Array:
    rows = np.frombuffer(csr.crow_indices, dtype=np.int64)
    columns = np.frombuffer(csr.col_indices, dtype=np.int64)
    values = np.frombuffer(csr.values, dtype=dtype)
    if len(shape) == 1:
        flat: Array = _from_csr(name, rows, columns, values, (1, shape[0]), fill=0)[0]
        return flat
    return _from_csr(name, rows, columns, values, shape, fill=0)


def _from_csr(
    name: str, rows: Array, columns: Array, values: Array, shape: tuple[int, ...], *, fill: int
) -> Array:
    sound = (
        len(shape) == 2
        and min(shape) >= 0
        and shape[0] * shape[1] <= MOST_CELLS
        and rows.size == shape[0] + 1
        and rows[0] == 0
        and rows[-1] == values.size == columns.size
        and bool((np.diff(rows) >= 0).all())
        and (columns.size == 0 or (columns.min() >= 0 and columns.max() < shape[1]))
    )
    if not sound:
        raise ClientFault(f"{name} is not a sound CSR tensor of shape {list(shape)}")
    dense = np.full(shape, fill, values.dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return dense


def encode_train_output(
    outputs: Sequence[Mapping[str, Array]], metrics: Mapping[str, float]
) -> bytes:
    """Encode per-datum float32 arrays and metrics as a ForwardBackwardOutput."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics.update({name: float(value) for name, value in metrics.items()})
    for width, members in _by_trailing_shape(outputs):
        record = message.loss_fn_outputs.add()
        record.num_datums = len(members)
        for name in members[0]:
            arrays = [np.ascontiguousarray(member[name], dtype=np.float32) for member in members]
            tensor = record.fields[name]
            tensor.dtype = pb.DTYPE_FLOAT32
            tensor.data = b"".join(array.tobytes() for array in arrays)
            offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64)
            tensor.offsets = offsets.tobytes()
            tensor.trailing_shape.extend(width)
    return bytes(message.SerializeToString())


def _by_trailing_shape(
    outputs: Sequence[Mapping[str, Array]],
) -> list[tuple[tuple[int, ...], list[Mapping[str, Array]]]]:
    """Runs of datums whose outputs have one trailing shape: a record holds one shape only."""
    runs: list[tuple[tuple[int, ...], list[Mapping[str, Array]]]] = []
    for output in outputs:
        width = next(iter(output.values())).shape[1:] if output else ()
        if runs and runs[-1][0] == width:
            runs[-1][1].append(output)
        else:
            runs.append((width, [output]))
    return runs


def decode_targets(value: Mapping[str, Any]) -> TargetCells:
    """Decode `target_prompt_logprobs`, a JSON tensor of int64, dense or sparse."""
    if value.get("dtype") != "int64":
        raise ClientFault(f"target_prompt_logprobs must be int64, not {value.get('dtype')!r}")
    shape = tuple(int(extent) for extent in value.get("shape") or ())
    if len(shape) != 2 or min(shape) < 0 or shape[0] * shape[1] > MOST_CELLS:
        raise ClientFault(f"target_prompt_logprobs must be 2-D, not of shape {list(shape)}")
    data = np.array(value.get("data") or [], np.int64)
    rows, columns = value.get("sparse_crow_indices"), value.get("sparse_col_indices")
    if rows is None or columns is None:
        if data.size != shape[0] * shape[1]:
            raise ClientFault(f"target_prompt_logprobs: {data.size} values for {list(shape)}")
        return TargetCells(data.reshape(shape), None)
    crow, col = np.array(rows, np.int64), np.array(columns, np.int64)
    tokens = _from_csr("target_prompt_logprobs", crow, col, data, shape, fill=-1)
    return TargetCells(tokens, (crow, col))


def encode_sample(job: Any) -> bytes:
    """Encode a finished `drawing.SampleJob`: completions, and what was asked of the prompt."""
    message = pb.SampleResponse()
    for completion in job.completions:
        sequence = message.sequences.add()
        sequence.stop_reason = pb.STOP_REASON_STOP if completion.stopped else pb.STOP_REASON_LENGTH
        sequence.tokens = completion.tokens.astype(np.int32).tobytes()
        sequence.logprobs = completion.logprobs.astype(np.float32).tobytes()
        if completion.topk is not None:
            _fill_topk(sequence.topk_sampled_logprobs, completion.topk)
    if job.prompt_logprobs is not None:
        message.prompt_logprobs = job.prompt_logprobs.astype(np.float32).tobytes()
    if job.prompt_topk is not None:
        _fill_topk(message.topk_prompt_logprobs, job.prompt_topk)
    if job.target_logprobs is not None:
        _fill_targets(message.target_prompt_logprobs, job.target_logprobs, job.scoring.targets)
    if job.alternatives is not None:
        tokens, logprobs = job.alternatives
        _fill_dense(message.prompt_alt_tokens.tokens, tokens.astype(np.int32), pb.DTYPE_INT32)
        _fill_dense(
            message.prompt_alt_tokens.logprobs, logprobs.astype(np.float32), pb.DTYPE_FLOAT32
        )
    return bytes(message.SerializeToString())


def _fill_dense(target: pb.Tensor, array: Array, dtype: Any) -> None:
    target.dtype = dtype
    target.shape.extend(array.shape)
    target.dense = np.ascontiguousarray(array).tobytes()


def _fill_targets(target: pb.Tensor, scores: Array, cells: TargetCells) -> None:
    if cells.sparse is None:
        _fill_dense(target, scores, pb.DTYPE_FLOAT32)
        return
    crow, col = cells.sparse
    target.dtype = pb.DTYPE_FLOAT32
    target.shape.extend(scores.shape)
    rows = np.repeat(np.arange(len(crow) - 1), np.diff(crow))
    target.sparse_csr.values = np.ascontiguousarray(scores[rows, col], np.float32).tobytes()
    target.sparse_csr.crow_indices = crow.tobytes()
    target.sparse_csr.col_indices = col.tobytes()


def _fill_topk(target: pb.TopkLogprobs, topk: tuple[Array, Array]) -> None:
    ids, logprobs = topk
    target.length, target.k = ids.shape
    target.token_ids = ids.astype(np.int32).tobytes()
    target.logprobs = logprobs.astype(np.float32).tobytes()
