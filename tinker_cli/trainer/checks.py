"""Everything that is checked before a run exists: the spec, its data, and where it will train.

The embedded engine (or the question to the service) runs beside the checks, since both take
seconds. Nothing is written here. Knows nothing of run directories.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinker_cli.errors import UsageError
from tinker_cli.trainer.request import LaunchRequest

if TYPE_CHECKING:
    from tinker_cli.engine import Engine
    from tinker_cli.spec import Spec

LOCAL_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a model by name is in the cache or nowhere; never wait on a host
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TINKER_TELEMETRY": "0",
}
_LOCAL_LINE = re.compile(r"^\s*base_url\s*:\s*['\"]?local['\"]?\s*(#.*)?$", re.MULTILINE)

_MAY_BE_LOCAL = re.compile(r"base_url|extends|\$\{|\blocal\b")


@dataclass(frozen=True)
class Checked:
    """A request whose spec and data are sound."""

    spec: Spec
    report: Any


class Backend:
    """Where the run trains: the embedded engine, or a server that has answered.

    Started on a thread by `start`, awaited by `wait`, ended by `close`.
    """

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.url: str | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stack = ExitStack()
        self._log: Path | None = None

    def start(self, spec: Spec) -> None:
        """Begin to make the backend ready; raises ServiceError at once if there is no key."""
        if not spec.is_local:
            from tinker_cli.trainer.service import check_key

            check_key()
        work = self._start_engine if spec.is_local else self._ask_service
        self._thread = threading.Thread(target=self._guarded, args=(work, spec), daemon=True)
        self._thread.start()

    def wait(self) -> str:
        """Return the server's URL once it is ready; raises what went wrong."""
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self.url is not None
        return self.url

    def close(self) -> None:
        """End the engine, if this process started one."""
        self._stack.close()

    def engine_words(self) -> str:
        """What to say when the engine is gone."""
        log = f"; its log: {self._log}" if self._log else ""
        return f"the local engine ended while the run needed it{log}"

    @property
    def key(self) -> str | None:
        """The key that the server takes."""
        return self.engine.key if self.engine else os.environ.get("TINKER_API_KEY")

    def _guarded(self, work: Any, spec: Spec) -> None:
        try:
            work(spec)
        except BaseException as error:  # handed to the thread that waits
            self._error = error

    def _start_engine(self, spec: Spec) -> None:
        from tinker_cli.engine import default_store, start_engine

        logs = default_store() / "logs"
        try:
            logs.mkdir(parents=True, exist_ok=True)
            self._log = logs / f"{spec.name}-{os.getpid()}.log"
        except OSError:
            self._log = None
        local = spec.local
        options: dict[str, Any] = {"model": local.model or spec.model_name, "log": self._log}
        if local.device:
            options["device"] = local.device
        if local.threads:
            options["threads"] = local.threads
        if local.seed is not None:
            options["seed"] = local.seed
        self.engine = self._stack.enter_context(start_engine(**options))
        self.url = self.engine.url

    def _ask_service(self, spec: Spec) -> None:
        from tinker_cli.trainer.service import check_service

        self.url = check_service(spec.base_url)


def check_request(request: LaunchRequest, backend: Backend) -> Checked:
    """Check the spec and its data while the backend starts; raises InputFaults, ServiceError."""
    spec = read_request(request)
    if spec.is_local:
        os.environ.update(LOCAL_ENVIRONMENT)
    backend.start(spec)
    from tinker_cli.spec.check import check_data
    from tinker_cli.spec.models import register_tokenizers

    register_tokenizers()
    report = check_data(spec)
    backend.wait()
    if backend.engine is not None:
        os.environ["TINKER_API_KEY"] = backend.engine.key
    _check_budget(request, spec)
    return Checked(spec, report)


def read_request(request: LaunchRequest) -> Spec:
    """The checked spec of a request; raises InputFaults with its faults and those of its rows."""
    path = Path(request.spec)
    if looks_local(path, request):
        os.environ.update(LOCAL_ENVIRONMENT)
    from tinker_cli.spec import load_spec
    from tinker_cli.spec.check import with_data_faults
    from tinker_cli.spec.checked import SpecFaults

    kind: Any = request.kind
    try:
        return load_spec(path, kind=kind, overrides=request.overrides, local=request.local)
    except SpecFaults as error:
        raise with_data_faults(error) from None


def looks_local(path: Path, request: LaunchRequest) -> bool:
    """True if the run will surely be local, known before the spec is read."""
    if request.local or "base_url=local" in request.overrides:
        return True
    try:
        return _LOCAL_LINE.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return False


def looks_hosted(path: Path, request: LaunchRequest) -> bool:
    """True if the run will surely be on the service, known before the spec is read."""
    if request.local:
        return False
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not any(_MAY_BE_LOCAL.search(words) for words in (text, *request.overrides))


def _check_budget(request: LaunchRequest, spec: Spec) -> None:
    """--max-usd needs a cookbook that reckons costs; refuse rather than spend unseen."""
    if request.max_usd is None or spec.is_local:
        return
    import importlib.util

    if importlib.util.find_spec("tinker_cookbook.utils.cost_estimation") is None:
        raise UsageError(
            "--max-usd can't be kept: the installed tinker-cookbook doesn't reckon costs",
            hint="upgrade to tinker-cookbook 0.6 or later, or leave --max-usd out",
        )
