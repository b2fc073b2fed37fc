"""Viewers and terminals come and go; the run they look at never notices."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest


class Terminal:
    """A program on a terminal of its own, whose screen is read and kept."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.master, self.screen = master, b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):  # the other side is gone
            while data := os.read(self.master, 65536):
                self.screen += data

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 120
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen[-2000:]
            time.sleep(0.05)

    def close(self) -> None:
        """Close the window: everything in its session is hung up on."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGHUP)
        os.close(self.master)


def tinker(place: Any, *words: str) -> list[str]:
    return [sys.executable, "-m", "tinker_cli", *words]


def status(place: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place.root / name / "status.json").read_text())
    return found


@pytest.fixture(scope="module")
def whole(place: Any) -> Any:
    """The run that nobody looked at."""
    done = place.run(place.command("sl", "whole", "--plain"))
    assert done.returncode == 0, done.stderr
    return place.result("whole")


def test_viewers_attached_killed_and_attached_twice_change_nothing(
    place: Any, whole: Any, chaos: Any
) -> None:
    launched = place.run(place.command("sl", "seen", "--detach", "num_epochs=2"))
    assert launched.returncode == 0, launched.stderr
    viewers = [Terminal(tinker(place, "watch", "seen"), place.environment) for _ in range(2)]
    viewers[0].wait_for(b"seen")
    viewers[0].process.kill()
    viewers.append(Terminal(tinker(place, "watch", "seen"), place.environment))
    assert place.run(tinker(place, "wait", "seen")).returncode == 0
    for viewer in viewers:
        viewer.close()
    assert chaos.compare(place.result("seen"), whole) == []


def test_a_closed_terminal_leaves_the_run_at_work(place: Any, whole: Any, chaos: Any) -> None:
    terminal = Terminal(place.command("sl", "hung-up"), place.environment)
    deadline = time.monotonic() + 120
    while not (place.root / "hung-up" / "metrics.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    terminal.close()
    terminal.process.wait(timeout=60)
    assert place.run(tinker(place, "wait", "hung-up")).returncode == 0
    assert chaos.compare(place.result("hung-up"), whole) == []


def test_q_detaches_and_s_stops_after_asking_once(place: Any) -> None:
    """q leaves the run at work; s, and y to its question, saves a checkpoint and ends the run."""
    terminal = Terminal(place.command("sl", "keys", "num_epochs=60"), place.environment)
    terminal.wait_for(b"keys")
    deadline = time.monotonic() + 120
    while not (place.root / "keys" / "metrics.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.write(terminal.master, b"q")
    assert terminal.process.wait(timeout=60) == 0
    assert status(place, "keys")["state"] == "running"
    again = Terminal(tinker(place, "watch", "keys"), place.environment)
    again.wait_for(b"keys")
    time.sleep(1)
    os.write(again.master, b"s")
    time.sleep(1)
    os.write(again.master, b"y")
    assert place.run(tinker(place, "wait", "keys")).returncode == 130
    assert status(place, "keys")["state"] == "stopped"
    assert status(place, "keys")["last_checkpoint"]
    again.close()
