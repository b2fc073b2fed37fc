"""Every public method of the SDK's four clients, called on a running engine.

`outcomes` gives (client, method) -> "works" or the words of the refusal. `CALLS` says how each is
called; `CLIENT_ONLY` are those that no request leaves. A method in neither is new in the SDK.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import tinker
from tinker import types

CLIENTS = ("ServiceClient", "TrainingClient", "SamplingClient", "RestClient")
WAIT_SECONDS = 30.0
CLIENT_ONLY = {"get_telemetry", "on_queue_state_change", "create", "get_console_url"}
NO_TOKENIZER = (
    "works for a folder's or a hub's name; for `tiny` the SDK asks the hub: "
    "use `TrainingClient.get_tokenizer`"
)


def public_methods() -> list[tuple[str, str]]:
    """Client and method, in the SDK's own order of clients, methods by name."""
    return [
        (name, method)
        for name in CLIENTS
        for method, _ in inspect.getmembers(getattr(tinker, name), callable)
        if not method.startswith("_")
    ]


class Scene:
    """One training run with a saved state and a sampler, made anew for each call that needs it."""

    def __init__(self, url: str):
        self.url = url
        self.service = tinker.ServiceClient(base_url=url, project_id="mine")
        self.rest = tinker.RestClient(base_url=url)
        self.trainer = self.service.create_lora_training_client("tiny", rank=2).result()
        self.sampler = self.service.create_sampling_client(base_model="tiny").result()
        self.run = self.trainer.get_info().model_id
        self.session = self.run.split(":train:")[0]
        self.prompt = types.ModelInput.from_ints([5, 6, 7, 8])
        self._saved = 0

    def name(self) -> str:
        self._saved += 1
        return f"c{self._saved:03d}"

    def state(self) -> str:
        return str(self.trainer.save_state(self.name()).result().path)

    def weights(self) -> str:
        return str(self.trainer.save_weights_for_sampler(self.name()).result().path)

    def data(self) -> list[types.Datum]:
        columns = {"target_tokens": np.arange(4), "weights": np.ones(4, dtype=np.float32)}
        return [types.Datum(model_input=self.prompt, loss_fn_inputs=columns)]

    def published(self) -> str:
        path = self.state()
        self.rest.publish_checkpoint_from_tinker_path(path).result()
        return path

    def exported(self) -> str:
        return str(self.trainer.save_weights_external(self.name()).result().path)


def custom(items: Any, logprobs: Any) -> Any:
    total = sum((-p.sum() for p in logprobs), start=logprobs[0].sum() * 0)
    return total, {"mine": total.item()}


def per_datum(logprobs: Any) -> Any:
    loss = -logprobs.sum()
    return loss, {"custom/mine:sum": loss}


# Arguments of each method; the `_async` ones are called with those of their twin.
ARGUMENTS: dict[str, dict[str, Callable[[Scene], tuple[Any, ...]]]] = {
    "ServiceClient": {
        "close": lambda s: ("success",),
        "copy_weights": lambda s: (s.state(),),
        "create_custom_loss": lambda s: (per_datum, {"logprobs": 1}),
        "create_lora_training_client": lambda s: ("tiny", 2),
        "create_rest_client": lambda s: (),
        "create_sampling_client": lambda s: (None, "tiny"),
        "create_training_client_from_state": lambda s: (s.state(),),
        "create_training_client_from_state_with_optimizer": lambda s: (s.state(),),
        "get_server_capabilities": lambda s: (),
    },
    "TrainingClient": {
        "create_sampling_client": lambda s: (s.weights(),),
        "forward": lambda s: (s.data(), "cross_entropy"),
        "forward_backward": lambda s: (s.data(), "cross_entropy"),
        "forward_backward_custom": lambda s: (s.data(), custom),
        "get_info": lambda s: (),
        "get_tokenizer": lambda s: (),
        "load_state": lambda s: (s.state(),),
        "load_state_with_optimizer": lambda s: (s.state(),),
        "optim_step": lambda s: (types.AdamParams(learning_rate=1e-4),),
        "save_state": lambda s: (s.name(),),
        "save_weights_and_get_sampling_client": lambda s: (),
        "save_weights_external": lambda s: (s.name(),),
        "save_weights_for_sampler": lambda s: (s.name(),),
    },
    "SamplingClient": {
        "compute_logprobs": lambda s: (s.prompt,),
        "from_sampler_handle": lambda s: (s.sampler.get_sampler_handle(),),
        "get_base_model": lambda s: (),
        "get_sampler_handle": lambda s: (),
        "get_tokenizer": lambda s: (),
        "sample": lambda s: (s.prompt, 2, types.SamplingParams(max_tokens=2)),
    },
    "RestClient": {
        "assign_session_project": lambda s: (s.session, "mine"),
        "copy_weights": lambda s: (s.state(), "mine"),
        "delete_checkpoint": lambda s: (s.run, "weights/" + s.state().rsplit("/", 1)[1]),
        "delete_checkpoint_from_tinker_path": lambda s: (s.state(),),
        "export_session_trace": lambda s: (s.session,),
        "get_audit_log": lambda s: ("all", date(2026, 1, 1)),
        "get_billing_usage": lambda s: ("2026-01-01", "2026-01-02"),
        "get_current_checkpoint_storage_usage": lambda s: (),
        "get_external_weights_urls": lambda s: (s.exported(),),
        "get_sampler": lambda s: (s.sampler._sampling_session_id,),
        "get_server_capabilities": lambda s: (),
        "get_session": lambda s: (s.session,),
        "get_training_run": lambda s: (s.run,),
        "get_training_run_by_tinker_path": lambda s: (s.state(),),
        "get_weights_info_by_tinker_path": lambda s: (s.state(),),
        "list_checkpoints": lambda s: (s.run,),
        "list_sessions": lambda s: (),
        "list_training_runs": lambda s: (),
        "list_user_checkpoints": lambda s: (),
        "publish_checkpoint_from_tinker_path": lambda s: (s.state(),),
        "search_sessions": lambda s: (types.SessionSearchRequest(),),
        "set_checkpoint_ttl_from_tinker_path": lambda s: (s.state(), 3600),
        "unpublish_checkpoint_from_tinker_path": lambda s: (s.published(),),
        "whoami": lambda s: (),
    },
}


def outcomes(url: str) -> dict[tuple[str, str], str]:
    """What came of each public method."""
    scene = Scene(url)
    found = {pair: _outcome(scene, *pair) for pair in public_methods() if pair[1] != "close"}
    found["ServiceClient", "close"] = _outcome(scene, "ServiceClient", "close")
    return {pair: found[pair] for pair in public_methods()}


def _outcome(scene: Scene, client: str, method: str) -> str:
    if method in CLIENT_ONLY:
        return "on the client alone"
    arguments = ARGUMENTS[client].get(method.removesuffix("_async"))
    if arguments is None:
        return "new in the SDK: not tried"
    owner = {
        "ServiceClient": scene.service,
        "TrainingClient": scene.trainer,
        "SamplingClient": scene.sampler,
        "RestClient": scene.rest,
    }[client]
    call = getattr(owner, method)
    try:
        _finish(call, arguments(scene))
    except OSError:  # from the tokenizer's loader; its words name the machine's folders
        return NO_TOKENIZER
    except (tinker.TinkerError, RuntimeError) as error:
        return f"refused: {_words(error)}"
    return "works"


def _finish(call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call it and wait for its end: a result, a future's, or that of a coroutine's future."""
    answer = call(*arguments)
    if inspect.iscoroutine(answer):
        answer = asyncio.run(asyncio.wait_for(answer, WAIT_SECONDS))
    if hasattr(answer, "result"):
        answer.result(timeout=WAIT_SECONDS)


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    start = text.find("the local engine does not")
    return text[start:].split("'}")[0].rstrip("\"'}") if start >= 0 else text[:160]


def markdown(found: dict[tuple[str, str], str]) -> str:
    """The table of `docs/engine.md`: a method and its `_async` twin on one line."""
    lines = ["| client | method | |", "|---|---|---|"]
    for (client, method), outcome in found.items():
        base = method.removesuffix("_async")
        if method != base and found.get((client, base)) == outcome:
            continue
        twin = " (and async)" if found.get((client, method + "_async")) == outcome else ""
        lines.append(f"| {client} | `{method}`{twin} | {outcome} |")
    return "\n".join(lines)
