"""No key, a bad key, no server: one sentence, exit code 4, within seconds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tinker_cli.errors import ServiceError
from tinker_cli.trainer.service import check_service, checkpoint_exists


class Service(BaseHTTPRequestHandler):
    """Takes one key, and has one checkpoint."""

    def _answer(self, code: int) -> None:
        code = code if self.headers.get("X-API-Key") == "tml-good" else 401
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        path = json.loads(self.rfile.read(length))["tinker_path"]
        self._answer(200 if path.endswith("kept") else 404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_no_key_names_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ServiceError, match="TINKER_API_KEY"):
        check_service("http://127.0.0.1:9")


def test_key_of_another_service_is_refused_before_any_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "sk-123")
    with pytest.raises(ServiceError, match="begins with tml-"):
        check_service("http://127.0.0.1:9")


def test_refused_key(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-bad")
    with pytest.raises(ServiceError, match="refused the key"):
        check_service(url)


def test_good_key(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-good")
    assert check_service(url) == url


def test_no_server_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-good")
    began = time.monotonic()
    with pytest.raises(ServiceError, match="no Tinker server answered"):
        check_service("http://127.0.0.1:9")
    assert time.monotonic() - began < 5


def test_which_checkpoints_are_still_there(url: str) -> None:
    assert checkpoint_exists(url, "tml-good", "tinker://r/weights/kept")
    assert not checkpoint_exists(url, "tml-good", "tinker://r/weights/gone")
    with pytest.raises(ServiceError):
        checkpoint_exists(url, "tml-bad", "tinker://r/weights/kept")
