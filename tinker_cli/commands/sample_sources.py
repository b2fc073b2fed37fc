"""Which weights `tinker sample` asks: models, runs and checkpoints, and the servers they are on."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from tinker_cli import console
from tinker_cli.errors import RunFailed, TinkerError, UsageError, nearest

if TYPE_CHECKING:
    from tinker_cli.sampling.ask import Asker
    from tinker_cli.sampling.framing import Framing
    from tinker_cli.sampling.options import SamplingOptions

BASE = "base"
REMOTE = "tinker://"


@dataclass(frozen=True)
class Source:
    """What to sample from: a base model, how a run used it, and the checkpoints by their names."""

    model: str
    checkpoints: Mapping[str, str | None]  # a tinker:// path, or None for the base model
    known: dict[str, str] = field(default_factory=dict)  # the run's checkpoints by name
    run: str | None = None
    renderer: str | None = None
    builder: dict[str, Any] = field(default_factory=dict)  # the run's dataset builder
    base_url: str | None = None
    is_local: bool = False

    def framing(self) -> Framing:
        """What the run's loop puts around a prompt."""
        from tinker_cli.sampling.framing import framing_of

        return framing_of(self.builder)

    def path_of(self, wanted: str) -> str | None:
        """The sampler path of the checkpoint that is meant; None for the base model."""
        if wanted == BASE:
            return None
        if wanted.startswith(REMOTE):
            return wanted
        for key in (wanted, wanted.zfill(6)):
            if key in self.known:
                return self.known[key]
        if self.run is None:
            raise UsageError(f"--checkpoint {wanted} is one of a run's; give --run RUN too")
        near = nearest(wanted, list(self.known))
        names = "there are " + ", ".join([*self.known, BASE])
        hint = f"did you mean {near}?" if near else names
        raise UsageError(f"{self.run} has no checkpoint {wanted!r}", hint=hint)


def find_source(
    model: str | None, run: str | None, wanted: Sequence[str], *, local: bool, url: str | None
) -> Source:
    """The source that the options mean; raises UsageError."""
    if model is not None and run is not None:
        raise UsageError("--model and --run exclude each other")
    if model is not None and model.startswith(REMOTE):
        wanted = [model, *wanted]
        model = None
    if run is not None:
        from tinker_cli.runs.paths import resolve_run

        source = _of_run(resolve_run(run))
    elif model is not None:
        from tinker_cli.spec.models import is_local_model

        source = Source(model, {}, is_local=is_local_model(model))
    else:
        first = next((path for path in wanted if path.startswith(REMOTE)), None)
        if first is None:
            raise UsageError(
                "which model? give --model or --run", hint="for example: --model tiny, or --run -"
            )
        source = _of_path(first, local=local, url=url)
    if url is not None:
        source = replace(source, base_url=url, is_local=False)
    elif local:
        source = replace(source, base_url=None, is_local=True)
    return replace(source, checkpoints=_chosen(source, wanted))


def _chosen(source: Source, wanted: Sequence[str]) -> dict[str, str | None]:
    if wanted:
        return {name: source.path_of(name) for name in wanted}
    if source.run is None:
        return {BASE: None}
    if not source.known:
        raise UsageError(
            f"{source.run} has no checkpoint that can be sampled yet",
            hint=f"--checkpoint {BASE} asks the model that it started from",
        )
    name = list(source.known)[-1]
    return {name: source.known[name]}


def _of_run(where: Path) -> Source:
    import yaml

    from tinker_cli.runs.checkpoints import read_checkpoints

    try:
        spec: dict[str, Any] = yaml.safe_load((where / "spec.yaml").read_text(encoding="utf-8"))
        model = str((spec.get("local") or {}).get("model") or spec["model_name"])
    except (OSError, yaml.YAMLError, KeyError, AttributeError, TypeError):
        raise UsageError(f"{where} has no spec.yaml that can be read") from None
    rows, _ = read_checkpoints(where)
    url = spec.get("base_url")
    return Source(
        model,
        {},
        known={row.name: row.sampler_path for row in rows if row.sampler_path},
        run=where.name,
        renderer=spec.get("renderer_name"),
        builder=spec.get("dataset_builder") or {},
        base_url=None if url == "local" else url,
        is_local=url == "local",
    )


def _of_path(path: str, *, local: bool, url: str | None) -> Source:
    """The run on this machine that saved a checkpoint; else what the server says of it."""
    from tinker_cli.engine import default_store
    from tinker_cli.runs.paths import list_runs, runs_root

    for run in list_runs(runs_root()):
        try:
            if path in (run / "checkpoints.jsonl").read_text(encoding="utf-8", errors="replace"):
                return _of_run(run)
        except (OSError, UsageError):
            continue
    facts = default_store().joinpath(*path.removeprefix(REMOTE).split("/"), "checkpoint.json")
    if url is None and facts.is_file():
        import json

        model = str(json.loads(facts.read_text(encoding="utf-8"))["base_model"])
        return Source(model, {}, is_local=True)
    if local:
        raise UsageError(f"{path} is not in {default_store()}, where local checkpoints are")
    return _of_service(path, url)


def _of_service(path: str, url: str | None) -> Source:
    from tinker_cli.trainer.service import check_key, check_service

    check_key()
    check_service(url)
    import tinker

    service = tinker.ServiceClient(base_url=url)
    try:
        info = service.create_rest_client().get_weights_info_by_tinker_path(path).result()
    except tinker.APIStatusError as error:
        raise UsageError(f"{path} can't be sampled: {error.message}") from None
    from tinker_cookbook.checkpoint_utils import get_renderer_name_from_checkpoint

    return Source(
        info.base_model, {}, renderer=get_renderer_name_from_checkpoint(service, path), base_url=url
    )


class Connection:
    """A server that answers for a source, and the clients that were made on it."""

    def __init__(
        self, stack: ExitStack, source: Source, options: SamplingOptions, renderer: str | None
    ):
        """`renderer` "" means none: prompts go as they are."""
        self._source, self._options = source, options
        with ThreadPoolExecutor(1) as pool:  # imports take as long as an engine's start
            if source.is_local:
                os.environ.update({"HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"})
                loading = pool.submit(_load_tokenizer, source.model)
            self._url = _serve(stack, source)
            if not source.is_local:
                loading = pool.submit(_load_tokenizer, source.model)
            self._tokenizer = loading.result()
        self._renderer = self._find_renderer(renderer)
        self._lock = RLock()
        import tinker

        self._service = tinker.ServiceClient(base_url=self._url)
        stack.enter_context(self._service)  # its session ends on the server too
        stack.callback(_hush)
        self._context = _context(self._url, source.model)

    def _find_renderer(self, wanted: str | None) -> Any:
        if wanted == "":
            return None
        from tinker_cookbook.renderers import get_renderer

        from tinker_cli.spec.models import recommended_renderer

        trained = self._source.renderer
        if wanted and trained and wanted != trained:
            console.say(
                f"warning: {self._source.run or 'the checkpoint'} was trained with {trained} and is"
                f" asked with {wanted}; leave out --renderer to ask it as it was trained"
            )
        name = wanted or trained or recommended_renderer(self._source.model)
        try:
            return get_renderer(name, self._tokenizer)
        except (ValueError, KeyError, AssertionError) as error:
            raise UsageError(f"no renderer {name!r}: {error}") from None
        except Exception as error:  # the cookbook's own error for a name that it does not know
            if type(error).__module__.split(".")[0] != "tinker_cookbook":
                raise
            raise UsageError(f"no renderer {name!r}") from None

    def asker(self, name: str) -> Asker:
        """A client of the checkpoint of that name; raises UsageError, RunFailed."""
        import tinker

        from tinker_cli.sampling.ask import Asker

        path = self._source.path_of(name)
        named: dict[str, Any] = {"model_path": path}
        if path is None:
            named = {"base_model": self._source.model}
        try:
            client: Any = self._service.create_sampling_client(**named)
            client = client.result() if hasattr(client, "result") else client
        except (tinker.APIStatusError, tinker.RequestFailedError) as error:
            raise RunFailed(f"{name} can't be sampled: {said(error)}") from None
        return Asker(
            client, self._tokenizer, self._renderer, self._options, self._context, self._lock
        )


def _load_tokenizer(model: str) -> Any:
    from tinker_cli.spec.models import load_tokenizer

    return load_tokenizer(model)


def _hush() -> None:
    """What was still in flight when its session ends is no news."""
    logging.getLogger("tinker").setLevel(logging.CRITICAL)


def said(error: Exception) -> str:
    """What went wrong, without the SDK's frame around it."""
    if isinstance(error, TinkerError):
        return error.message
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    return text.removeprefix("Request failed: ").split(" for self.request_id")[0]


def _context(url: str | None, model: str) -> int | None:
    """Tokens that a prompt and its answer may have together, if the server says."""
    import tinker

    try:
        models = tinker.RestClient(base_url=url).get_server_capabilities().result().supported_models
    except tinker.APIError:
        return None
    limits = {str(m.model_name): m.max_context_length for m in models}
    if model in limits or len(limits) != 1:
        return limits.get(model)
    return next(iter(limits.values()))


def _serve(stack: ExitStack, source: Source) -> str | None:
    """The server's URL: an engine of our own for what is local, else the service's."""
    if not source.is_local:
        from tinker_cli.trainer.service import check_key, check_service

        check_key()  # before anything heavy is loaded
        return check_service(source.base_url)
    from tinker_cli.engine import start_engine

    engine = stack.enter_context(start_engine(model=source.model))
    os.environ["TINKER_API_KEY"] = engine.key
    return engine.url
