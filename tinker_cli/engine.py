"""Starting the embedded engine: the one function that training, sampling and `serve` share.

The engine runs in a process of its own and is reached over HTTP; it ends when this process does,
however that happens. Knows how to start and stop it; knows nothing of what it computes.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinker_cli.errors import EXIT_USAGE, ServiceError, UsageError

STORE_VARIABLE = "TINKER_ENGINE_STORE"
KEY_VARIABLE = "TINKER_ENGINE_KEY"
END_SECONDS = 10.0  # an operation in progress may finish within this


@dataclass(frozen=True)
class Engine:
    """A running engine: where it listens, and the key that it accepts."""

    url: str
    key: str
    pid: int
    model: str
    log: Path | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    def alive(self) -> bool:
        """True while its process runs."""
        return self._process is None or self._process.poll() is None


def default_store() -> Path:
    """Where local checkpoints live: `$TINKER_ENGINE_STORE`, or `.engine` under the runs root."""
    if named := os.environ.get(STORE_VARIABLE):
        return Path(named).expanduser()
    root = os.environ.get("TINKER_COOKBOOK_RUNS_DIR") or "~/tinker-runs"
    return Path(root).expanduser() / ".engine"


def new_key() -> str:
    """A random key, in the form that the SDK accepts."""
    return f"tml-local-{secrets.token_urlsafe(24)}"


@contextmanager
def start_engine(
    *,
    model: str = "tiny",
    name: str | None = None,
    aliases: Sequence[str] = (),
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    store: Path | None = None,
    log: Path | None = None,
    log_to_stderr: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    download: bool = False,
    startup_timeout: float = 120.0,
) -> Iterator[Engine]:
    """Start an engine and end it with the block.

    `startup_timeout` is in seconds; only with `download` may the model come from a hub. Raises
    UsageError if the model can't be loaded or the port can't be used, ServiceError if the engine
    does not come up.
    """
    key = key or new_key()
    command = [sys.executable, "-m", "tinker_cli.local", "--with-parent", "--model", model]
    command += ["--device", device, "--dtype", dtype, "--seed", str(seed)]
    command += ["--store", str(store or default_store()), "--host", host, "--port", str(port)]
    command += ["--threads", str(threads)] if threads else []
    command += ["--name", name] if name else []
    for alias in aliases:
        command += ["--alias", alias]
    with _log_stream(log, log_to_stderr) as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            env=_environment(key, download),
            start_new_session=True,  # a terminal's Ctrl-C is for its parent to handle
        )
    try:
        ready = _wait_until_ready(process, startup_timeout, log)
        yield Engine(ready["url"], key, ready["pid"], ready["model"], log, process)
    finally:
        _end(process)


@contextmanager
def _log_stream(log: Path | None, to_stderr: bool) -> Iterator[Any]:
    if log is None:
        yield None if to_stderr else subprocess.DEVNULL
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        yield stream


def _environment(key: str, download: bool) -> dict[str, str]:
    environment = {**os.environ, KEY_VARIABLE: key, "OMP_WAIT_POLICY": "passive"}
    if not download:
        environment.setdefault("HF_HUB_OFFLINE", "1")
    environment.setdefault("TOKENIZERS_PARALLELISM", "false")
    environment.pop("TINKER_API_KEY", None)
    return environment


def _wait_until_ready(
    process: subprocess.Popen[bytes], timeout: float, log: Path | None
) -> dict[str, Any]:
    assert process.stdout is not None
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise ServiceError(f"the engine was not ready after {timeout:.0f} s", hint=_see(log))
        if not select.select([process.stdout], [], [], left)[0]:
            continue
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            code = process.wait()
            raise ServiceError(f"the engine ended at start, exit code {code}", hint=_see(log))
        line += piece
    document: dict[str, Any] = json.loads(line)
    if "error" in document:
        kind = UsageError if document.get("exit_code") == EXIT_USAGE else ServiceError
        raise kind(document["error"], hint=_see(log))
    return document


def _see(log: Path | None) -> str | None:
    return f"see {log}" if log is not None else None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()  # the engine's sign to end
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
