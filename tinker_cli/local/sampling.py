"""Requests for samples: checked, given their random numbers, handed to the scheduler.

The random numbers of an unseeded request come from the engine's seed, the weights' content, the
prompt and how often that prompt came to this sampler, so that batching and order of arrival don't
matter and a resumed run draws what an uninterrupted one would. Knows no HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tinker_cli.local import protocol
from tinker_cli.local.drawing import SampleJob, Scoring
from tinker_cli.local.faults import ClientFault
from tinker_cli.local.futures import Future
from tinker_cli.local.ids import new_id
from tinker_cli.local.lora import BaseModel
from tinker_cli.local.sampler import MAX_ROWS, checked_job
from tinker_cli.local.scheduler import Sampling
from tinker_cli.local.sessions import Sampler, Sessions

MOST_PER_POSITION = 1000  # best tokens, targets or draws


class Samples:
    """The sampling half of an engine."""

    def __init__(self, sessions: Sessions):
        self.sessions, self.scheduler = sessions, sessions.scheduler

    def create_sampler(
        self, session_id: str, seq: int, base_name: str | None, path: str | None
    ) -> Sampler:
        """A sampler of a checkpoint or of a base model."""
        self.sessions.session(session_id)
        if path:
            facts = self.sessions.store.facts(path)
            base = self.sessions.base_model(base_name or facts.base_model)
            adapter, _ = self.sessions.store.load(path, base)
            return self.sessions.add_sampler(session_id, seq, base, adapter, path)
        if not base_name:
            raise ClientFault("a sampler needs model_path or base_model")
        base = self.sessions.base_model(base_name)
        return self.sessions.add_sampler(session_id, seq, base, None, None)

    def sample(self, body: Mapping[str, Any]) -> Future:
        """Sample completions and score the prompt, as asked."""
        sampler = self.sessions.sampler(_text(body, "sampling_session_id"))
        seq = body.get("seq_id")
        if seq is not None and (known := sampler.answered.get(int(seq))) is not None:
            return known
        future = self._sample(sampler, body)
        if seq is not None:
            sampler.remember(int(seq), future)
        return future

    def _sample(self, sampler: Sampler, body: Mapping[str, Any]) -> Future:
        count = body.get("num_samples", 1)
        if not isinstance(count, int) or isinstance(count, bool):
            raise ClientFault(f"num_samples must be a whole number, not {count!r}")
        ids = [new_id() for _ in range(min(max(count, 0), MAX_ROWS))]
        try:
            job = self._job(sampler, body, count)
        except ClientFault as fault:
            future = self.scheduler.refused("sample", str(fault))
            future.ids = ids
            return future
        key = (id(sampler.base), sampler.weights_digest)
        future = self.scheduler.futures.new("sample")
        future.ids = ids
        weights = (sampler.base, sampler.adapter)
        self.scheduler.submit_sampling(
            Sampling(future, job, weights, key, protocol.encode_sample, sampler.session_id)
        )
        return future

    def _job(self, sampler: Sampler, body: Mapping[str, Any], count: int) -> SampleJob:
        if body.get("record_stability_info"):
            raise ClientFault(
                "the local engine does not record stability information: the objective of "
                "stable_reinforce is not published"
            )
        prompt = _text_tokens(body.get("prompt") or {})
        params = dict(body.get("sampling_params") or {})
        scoring = _scoring(body, len(prompt), sampler.base)
        topk = _count(body, "topk_sample_logprobs", sampler.base)
        seed = params.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise ClientFault(f"seed must be a whole number, not {seed!r}")
        job = checked_job(
            sampler.base, prompt, count, params, random_key=b"", topk_sample=topk, scoring=scoring
        )
        job.random_key = self._random_key(sampler, job.prompt, seed)
        return job

    def _random_key(self, sampler: Sampler, prompt: protocol.Array, seed: int | None) -> bytes:
        if seed is not None:
            return f"seed {seed}".encode()
        hasher = hashlib.blake2b(prompt.tobytes(), digest_size=16)
        hasher.update(f"{self.sessions.seed} {sampler.weights_digest}".encode())
        digest = hasher.digest()
        with self.sessions.lock:
            use = sampler.uses[digest]
            sampler.uses[digest] += 1
        return digest + use.to_bytes(8, "big")


def _scoring(body: Mapping[str, Any], length: int, base: BaseModel) -> Scoring:
    last = body.get("prompt_logprobs_last_n")
    if last is not None and (not isinstance(last, int) or not 1 <= last <= max(length - 1, 1)):
        raise ClientFault(
            f"prompt_logprobs_last_n must be 1 to {length - 1} for this prompt, not {last!r}"
        )
    targets = body.get("target_prompt_logprobs")
    return Scoring(
        logprobs=bool(body.get("prompt_logprobs")),
        last=last,
        topk=_count(body, "topk_prompt_logprobs", base),
        targets=None if targets is None else _targets(targets, length, base),
        alternatives=_count(body, "prompt_alt_tokens_k", base),
    )


def _targets(value: Mapping[str, Any], length: int, base: BaseModel) -> protocol.TargetCells:
    cells = protocol.decode_targets(value)
    shape = cells.tokens.shape
    if shape[0] != length - 1 or not 1 <= shape[1] <= MOST_PER_POSITION:
        raise ClientFault(
            f"target_prompt_logprobs must be [{length - 1}, K] with K at most "
            f"{MOST_PER_POSITION}, not {list(shape)}"
        )
    if cells.tokens.size and (cells.tokens.max() >= base.vocab_size or cells.tokens.min() < -1):
        raise ClientFault(
            f"target_prompt_logprobs has a token outside 0 to {base.vocab_size - 1} (-1: none)"
        )
    return cells


def _count(body: Mapping[str, Any], name: str, base: BaseModel) -> int:
    value = body.get(name) or 0
    most = min(base.vocab_size, MOST_PER_POSITION)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ClientFault(f"{name} must be 0 to {most}, not {value!r}")
    return value


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ClientFault(f"asample needs {name}")
    return value


def _text_tokens(prompt: Mapping[str, Any]) -> list[int]:
    tokens: list[int] = []
    for chunk in prompt.get("chunks", []):
        if chunk.get("type", "encoded_text") != "encoded_text":
            raise ClientFault(
                f"the local engine does not read {chunk.get('type')} chunks; only text tokens"
            )
        for token in chunk["tokens"]:
            if not isinstance(token, int) or isinstance(token, bool):
                raise ClientFault(f"the prompt has a token that is no whole number: {token!r}")
            tokens.append(token)
    return tokens
