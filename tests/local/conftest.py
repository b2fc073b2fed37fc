"""A random model of a few thousand parameters in this process, and one real engine beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share


@pytest.fixture(scope="session")
def small_model() -> Any:
    """A random float32 Qwen3 of two layers with the tokenizer of `tiny`."""
    from small_models import small_base_model

    return small_base_model()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running engine of the built-in model, with one thread and a store of its own."""
    from tinker_cli.engine import start_engine

    store = tmp_path_factory.mktemp("store")
    log = tmp_path_factory.mktemp("log") / "engine.log"
    with start_engine(threads=1, store=store, log=log, aliases=["pet"]) as running:
        yield running


@pytest.fixture
def service(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An SDK client of that engine."""
    import tinker

    monkeypatch.setenv("TINKER_API_KEY", engine.key)
    monkeypatch.setenv("TINKER_BASE_URL", engine.url)
    client = tinker.ServiceClient(base_url=engine.url)
    yield client
    client.close("success").result()


@pytest.fixture
def raw(small_model: Any, tmp_path: Path) -> Iterator[Any]:
    """An engine of the small model in this process, with a store of its own."""
    from raw_engine import RawEngine

    running = RawEngine(small_model, tmp_path / "store")
    yield running
    running.close()
