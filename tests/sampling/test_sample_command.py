"""`tinker sample` on a real engine: files of prompts, ends in the middle, checkpoints, no key."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.app import run
from tinker_cli.engine import Engine, start_engine

FRESH = ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "PYTHONPATH")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with start_engine(threads=1, store=tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def here(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that ask the engine of these tests."""
    monkeypatch.setenv("TINKER_API_KEY", engine.key)
    return ["--model", "tiny", "--base-url", engine.url]


def _stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    file = tmp_path / "stdin.jsonl"
    file.write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file.open("rb")))


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_come_back_in_order_with_their_ids_and_a_bad_one_costs_only_itself(
    here: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts = [{"prompt": f"What is {n} + 1?", "id": f"q{n}"} for n in range(40)]
    prompts[7]["prompt"] = "word " * 5000
    _stdin(monkeypatch, tmp_path, "\n".join(map(json.dumps, prompts)))
    code = run(["sample", "-", *here, "--json", "--max-tokens", "6", "-n", "2", "--logprobs"])
    shown = capsys.readouterr()
    rows = _rows(shown.out)
    assert [row["id"] for row in rows] == [f"q{n}" for n in range(40)]
    assert code == 1
    assert "> 4096, the model's context" in rows[7]["error"]
    for row in rows[:7]:
        for sample in row["samples"]:
            assert len(sample["tokens"]) == len(sample["logprobs"]) <= 6
            assert "<|im_end|>" not in sample["text"]


def test_one_prompt_too_long_is_refused_with_exit_2(
    here: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sample", "word " * 5000, *here, "--max-tokens", "1"]) == 2
    assert "+ 1 to sample > 4096" in capsys.readouterr().err


def test_a_stop_string_and_a_system_message(
    here: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*here, "--temperature", "0", "--max-tokens", "20", "--system", "Be kind."]
    assert run(["sample", "Hello there, who are you?", *arguments]) == 0
    whole = capsys.readouterr().out
    stop = whole.strip()[3:5]
    assert run(["sample", "Hello there, who are you?", *arguments, "--stop", stop]) == 0
    assert capsys.readouterr().out.strip("\n") == whole[: whole.index(stop)]


def test_killed_in_the_middle_and_run_again_no_prompt_is_asked_twice_or_lost(
    engine: Engine, here: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = 400
    text = "\n".join(json.dumps({"prompt": f"{n} + {n}?", "id": n * 10}) for n in range(count))
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text(text)
    arguments = ["sample", "-", *here, "--output", str(answers), "--max-tokens", "24"]
    with prompts.open("rb") as stdin:
        first = subprocess.Popen(
            [sys.executable, "-m", "tinker_cli", *arguments],
            stdin=stdin,
            env={**os.environ, "TINKER_API_KEY": engine.key},
        )
    while not answers.exists() or answers.read_bytes().count(b"\n") < 30:
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = {row["index"]: row for row in _whole_rows(answers)}
    assert 30 <= len(before) < count
    _stdin(monkeypatch, tmp_path, text)
    assert run(arguments) == 0
    rows = _rows(answers.read_text())
    assert [row["index"] for row in rows] == list(range(count))
    assert [row["id"] for row in rows] == [n * 10 for n in range(count)]
    assert all(rows[index] == row for index, row in before.items())


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_checkpoints_side_by_side_score_each_other_s_answers(
    engine: Engine, here: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    import tinker

    service = tinker.ServiceClient(base_url=engine.url)
    training = service.create_lora_training_client("tiny", rank=4).result()
    path = training.save_weights_for_sampler("untrained").result().path
    service.close("success").result()
    arguments = [*here, "--checkpoint", "base", "--checkpoint", path, "--temperature", "0"]
    assert run(["sample", "What is 2 + 2?", *arguments, "--json"]) == 0
    (row,) = _rows(capsys.readouterr().out)
    base, same = row["checkpoints"]
    assert [base["checkpoint"], same["checkpoint"]] == ["base", path]
    assert base["samples"][0]["text"] == same["samples"][0]["text"]
    scores = base["samples"][0]["logprob"]
    assert scores["base"] == pytest.approx(scores[path], abs=1e-5)  # an untrained LoRA is nothing
    assert run(["sample", "What is 2 + 2?", *arguments]) == 0
    assert f"logprob by {path}" in capsys.readouterr().out


def test_a_conversation_from_a_pipe(
    here: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved = tmp_path / "talk.jsonl"
    _stdin(monkeypatch, tmp_path, f"What is 1 + 1?\nWhat is 2 + 3?\n/save {saved}\n")
    assert run(["sample", "--chat", *here, "--json", "--max-tokens", "40"]) == 0
    replies = _rows(capsys.readouterr().out)
    messages = json.loads(saved.read_text())["messages"]
    assert [m["content"] for m in messages if m["role"] == "assistant"] == [
        reply["text"] for reply in replies
    ]


def test_characters_that_the_output_lacks_are_replaced_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    script = (
        "from tinker_cli.app import _degrade_encodings\n"
        "from tinker_cli.commands.sample_views import show_answers\n"
        "from tinker_cli.sampling.ask import Answer\n"
        "_degrade_encodings()\n"
        "show_answers([Answer('done \\U0001f389 \\u2581\\u2582', (1,), 'stop')], None,"
        " logprobs=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"done ? ??\n"


@pytest.mark.parametrize(
    "words",
    [
        ["sample", "hi", "--model", "Qwen/Qwen3-8B"],
        ["sample", "--chat", "--model", "Qwen/Qwen3-8B"],
        ["sample", "hi", "--model", "tinker://abc:train:0/sampler_weights/final"],
        ["train", "sl", "hosted.yaml", "--plain"],
        ["train", "sl", "hosted.yaml", "--detach"],
        ["model", "list"],
        ["checkpoint", "list"],
    ],
    ids=" ".join,
)
def test_without_a_key_it_says_how_to_get_one_and_how_to_stay_here(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "chat.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    )
    (tmp_path / "hosted.yaml").write_text(
        "model_name: Qwen/Qwen3-8B\n"
        "dataset_builder: {type: conversations, file_path: chat.jsonl, batch_size: 1}\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in FRESH}
    environment["HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tinker_cli", *words],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "TINKER_API_KEY" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "tinker auth login" in done.stderr
    assert "this machine" in done.stderr
