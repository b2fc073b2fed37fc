"""An unreachable hub costs two seconds once, and is told to the libraries."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tinker_cli.spec import hub


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (hub.OFFLINE, hub.ENDPOINT, *hub.PROXIES):
        monkeypatch.delenv(name, raising=False)


def test_a_hub_that_answers_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv(hub.ENDPOINT, f"http://127.0.0.1:{port}")
        assert hub.mind_the_hub()
    assert hub.OFFLINE not in os.environ


def test_a_hub_that_does_not_answer_puts_the_libraries_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv(hub.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv(hub.OFFLINE, "")
    monkeypatch.setattr(constants, hub.OFFLINE, False)
    assert not hub.mind_the_hub()
    assert os.environ[hub.OFFLINE] == "1"
    assert constants.HF_HUB_OFFLINE is True


def test_a_proxy_is_trusted_to_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hub.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert hub.mind_the_hub()


def test_a_dry_run_of_a_hosted_spec_does_not_wait_for_an_unreachable_hub(tmp_path: Path) -> None:
    """One clear fault instead of a minute of retries."""
    (tmp_path / "data.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "rl.yaml").write_text(
        "kind: rl\nmodel_name: Qwen/Qwen3-8B\nlearning_rate: 1e-4\nmax_tokens: 8\n"
        "dataset_builder:\n  type: prompts\n  file_path: data.jsonl\n  reward: numeric\n"
        "  batch_size: 1\n  group_size: 2\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tinker_cli", "train", "rl", str(tmp_path / "rl.yaml"), "--dry-run"],
        capture_output=True,
        text=True,
        env={**os.environ, hub.ENDPOINT: "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hf")},
    )
    assert done.returncode == 2, done.stderr
    assert "Qwen/Qwen3-8B" in done.stderr
    assert "Retrying" not in done.stderr
    assert time.monotonic() - started < 60  # imports on a busy machine; retries would take longer
