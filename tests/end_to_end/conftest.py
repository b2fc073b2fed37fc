"""What the end-to-end tests share: the benchmark that kills runs, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


def load_chaos() -> Any:
    """`benchmarks/chaos.py`: launching runs in a folder of their own, and comparing them."""
    if "chaos" not in sys.modules:
        spec = importlib.util.spec_from_file_location("chaos", _FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["chaos"] = module
        spec.loader.exec_module(module)
    return sys.modules["chaos"]


@pytest.fixture(scope="module")
def chaos() -> Any:
    """The module itself."""
    return load_chaos()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, chaos: Any) -> Any:
    """A folder with specs and data, and a runs root of its own."""
    return chaos.Field(tmp_path_factory.mktemp("field"))
