"""What every test stands on: an empty home, no key, no hub, one thread."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# Set before any test module imports torch, transformers or the SDK.
_HOME = tempfile.mkdtemp(prefix="tinker-home-")
os.environ.update(
    HOME=_HOME,
    TINKER_COOKBOOK_RUNS_DIR=str(Path(_HOME) / "runs"),
    HF_HUB_OFFLINE="1",
    TINKER_TELEMETRY="0",
    OMP_NUM_THREADS="1",
    OMP_WAIT_POLICY="passive",
    TOKENIZERS_PARALLELISM="false",
)
for _name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "TINKER_DEBUG"):
    os.environ.pop(_name, None)
for _name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
    os.environ.pop(_name, None)


@pytest.fixture
def runs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runs root of the test's own."""
    root = tmp_path / "runs"
    root.mkdir()
    monkeypatch.setenv("TINKER_COOKBOOK_RUNS_DIR", str(root))
    return root
