"""doctor: what it finds, what it says, what it mends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.app import run
from tinker_cli.commands import doctor


def _findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    run(["doctor", "--json", *arguments])
    return {row["what"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_machine_without_a_key_is_well_for_local_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["doctor"]) == 0
    assert capsys.readouterr().err == ""
    found = _findings(capsys)
    assert found["key"]["state"] == "warn"
    assert "TINKER_API_KEY" in found["key"]["mend"]
    assert found["model tiny"]["state"] == "ok"
    assert all(row["mend"] for row in found.values() if row["state"] != "ok")


def test_a_key_is_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret-of-mine")
    found = _findings(capsys, "--base-url", "http://127.0.0.1:9")
    assert found["key"]["state"] == "ok"
    assert found["server"]["state"] == "fail"
    assert "secret-of-mine" not in json.dumps(found)


def test_versions_out_of_range_are_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {"tinker": "0.9.1", "tinker-cookbook": "0.7.0"}
    real = doctor.metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: versions.get(name) or real(name))
    found = _findings(capsys)
    assert found["tinker"]["state"] == "fail"
    assert found["tinker"]["mend"] == "pip install -U 'tinker>=0.38'"
    assert found["tinker-cookbook"]["state"] == "warn"
    assert found["tinker-cookbook"]["mend"] == "pip install 'tinker-cookbook<0.7'"


def test_a_stolen_script_is_told_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "tinker"
    script.write_text("#!/usr/bin/python\nfrom tinker.cli.__main__ import cli\ncli()\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    found = _findings(capsys)["tinker on PATH"]
    assert found["state"] == "warn"
    assert found["mend"] == "tinker-cli doctor --fix"
    assert _findings(capsys, "--fix")["tinker on PATH"]["state"] == "ok"
    assert "tinker_cli.app" in script.read_text()
    assert _findings(capsys)["tinker on PATH"]["state"] == "ok"


def test_a_read_only_runs_root_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINKER_COOKBOOK_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert run(["doctor"]) == 1
    assert "can't be written" in capsys.readouterr().out


def test_a_server_s_models_are_named_and_an_accepted_key_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinker_cli.engine import start_engine

    with start_engine(threads=1, name="Qwen/Qwen3-8B") as engine:
        monkeypatch.setenv("TINKER_API_KEY", engine.key)
        found = _findings(capsys, "--base-url", engine.url)
        assert found["key"]["found"] == "present and accepted"
        assert "Qwen/Qwen3-8B" in found["server"]["found"]
        monkeypatch.setenv("TINKER_API_KEY", "tml-wrong")
        found = _findings(capsys, "--base-url", engine.url)
        assert (found["key"]["state"], found["key"]["found"]) == ("fail", "refused")
        assert "tinker auth login" in found["key"]["mend"]
        assert found["server"]["state"] == "fail"


def test_an_sdk_script_elsewhere_on_path_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "tinker"
    script.write_text("#!/usr/bin/python\nfrom tinker.cli.__main__ import cli\ncli()\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = script.read_text()
    found = _findings(capsys, "--fix")["tinker on PATH"]
    assert (found["state"], script.read_text()) == ("warn", before)
    assert "the SDK's" in found["found"]
    assert found["mend"] == "use tinker-cli"


def test_a_screen_that_is_too_small_or_knows_no_unicode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    found = _findings(capsys)["terminal"]
    assert found["state"] == "warn"
    assert "40 x 10" in found["found"]
    assert "80 x 24" in found["mend"]
