"""Specs gone wrong: seven faults in three files, and 300 random mutations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_cli.engine import Engine, start_engine
from tinker_cli.errors import Fault, InputFaults
from tinker_cli.spec import load_spec

SPECS = {
    "rl": """\
kind: rl
model_name: tiny
base_url: local
dataset_builder:
  type: prompts
  file_path: data.jsonl
  reward: {type: regex, pattern: "^{answer}$"}
  batch_size: 4
  group_size: 4
  fewshot:
    - {role: user, content: hi}
learning_rate: {base: 1e-4, at_batch_size: 4}
loss_fn: ppo
loss_fn_config: {clip_low_threshold: 0.9}
stream_minibatch_config:
  groups_per_batch: 4
  num_minibatches: 2
max_tokens: 8
save_every: 3
guards:
  - when: kl > 0.01
    for: 2
    do: stop
local: {threads: 1}
""",
    "sl": """\
kind: sl
model_name: tiny
base_url: local
dataset_builder:
  type: conversations
  file_path: data.jsonl
  common_config:
    batch_size: 4
    max_length: 128
    train_on_what: all_assistant_messages
  test_size: 2
learning_rate: auto
lr_schedule: linear
num_epochs: 2
eval_every: 5
ttl_seconds: 7200
""",
}
WORDS = [
    *("", "null", "~", "true", "no", "abc", "-1", "0", "1e400", ".nan", "1:30", "08", "0x1F"),
    *("[]", "{}", "[1, 2]", "{a: 1}", "[[[", "{", "'", "!!python/name:os.system", "!x y", "&a *a"),
    *("*missing", "${NOWHERE}", "1_000", "\u2028", "\ud7ff", "2020-01-01", "? x", "- y", "%", "@z"),
    *('"\\x00"', "|", ">-", "tiny", "nobody/nothing", "./no.py:f", "os:nothing", "e" * 300),
]
ACTIONS = ["value", "rename", "drop", "indent", "double", "tab", "list"]
# Changing one of these moves what is wrong to other lines.
FAR_REACHING = ("kind", "type", "model_name", "base_url", "fewshot", "local", "guards")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["rl", "sl"]),
    at=st.integers(0, 100),
    word=st.sampled_from(WORDS) | st.text(max_size=12),
    action=st.sampled_from(ACTIONS),
)
def test_a_mutated_spec_is_sound_or_its_faults_name_the_line(
    tmp_path_factory: pytest.TempPathFactory, kind: str, at: int, word: str, action: str
) -> None:
    lines = SPECS[kind].rstrip("\n").split("\n")
    index = at % len(lines)
    line = lines[index]
    key = line.strip().lstrip("- ").partition(":")[0]
    lines[index : index + 1] = _mutated(line, key, word, action)
    folder = tmp_path_factory.mktemp("mutated")
    (folder / "data.jsonl").write_text("{}\n")
    path = folder / "spec.yaml"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    try:
        load_spec(path)
        faults: list[Fault] = []
    except InputFaults as error:
        faults = error.faults
        assert faults
    assert all(fault.message and "Traceback" not in fault.message for fault in faults)
    if faults and action in ("rename", "double") and key not in FAR_REACHING:
        assert {index + 1, index + 2} & {fault.line for fault in faults}, faults
    if faults and action == "value" and word in ("abc", "-1", "[1, 2]", "{a: 1}"):
        near = {index, index + 1, index + 2}
        assert key in FAR_REACHING or near & {fault.line for fault in faults}, faults


def _mutated(line: str, key: str, word: str, action: str) -> list[str]:
    before, _, _ = line.partition(f"{key}:")
    match action:
        case "value":
            return [f"{before}{key}: {word}"]
        case "rename":
            return [line.replace(key, f"{key}x", 1)]
        case "drop":
            return []
        case "indent":
            return [f"   {line}"]
        case "double":
            return [line, line]
        case "tab":
            return [f"\t{line}"]
        case _:
            return [f"{before}- {line.strip()}"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    with start_engine(threads=1, store=folder, log=folder / "log") as running:
        yield running


def test_seven_faults_in_three_files_come_at_once_and_nothing_is_created(
    engine: Engine, tmp_path: Path
) -> None:
    """A misspelt field, a wrong type, a bad word, a combination, a guard; and two faulty rows."""
    (tmp_path / "base.yaml").write_text(
        f"kind: rl\nmodel_name: tiny\nbase_url: {engine.url}\nlearning_rat: 1e-4\n"
        "learning_rate: 1e-4\nmax_tokens: many\n"
    )
    (tmp_path / "run.yaml").write_text(
        "extends: base.yaml\nloss_fn: ppoo\nkl_penalty_coef: 0.1\n"
        "guards:\n  - {when: 'kl >', do: stop}\n"
        "dataset_builder:\n  type: prompts\n  file_path: q.jsonl\n  reward: numeric\n"
        "  batch_size: 1\n  group_size: 2\n"
    )
    rows = [{"prompt": "1 + 1?", "answer": "2"}, {"prompt": "2 + 2?"}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{broken\n")
    assert engine.log is not None
    before = engine.log.read_text()
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tinker_cli", "train", "rl", str(tmp_path / "run.yaml"), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "TINKER_API_KEY": engine.key},
    )
    took = time.monotonic() - started
    assert done.returncode == 2
    found = {
        (Path(fault["file"]).name, fault["line"], fault.get("key"))
        for fault in json.loads(done.stderr)["faults"]
    }
    assert found == {
        ("base.yaml", 4, "learning_rat"),
        ("base.yaml", 6, "max_tokens"),
        ("run.yaml", 2, "loss_fn"),
        ("run.yaml", 3, "kl_penalty_coef"),
        ("run.yaml", 5, "guards[0].when"),
        ("q.jsonl", 2, "answer"),
        ("q.jsonl", 3, None),
    }
    assert engine.log.read_text() == before
    assert took < 30  # on a busy machine; a quiet one needs 3


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("num_epochs: 2\n", "num_epochs"),
        (
            "async_config: {max_steps_off_policy: 1, groups_per_batch: 4, loss_fn: ppo}\n",
            "async_config.loss_fn",
        ),
        ("renderer_name: kimi_k31_pro_low_reasoning\n", "renderer_name"),
    ],
)
def test_what_only_the_newer_cookbook_has_is_refused_by_name_on_the_older(
    tmp_path: Path, text: str, key: str
) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "x", "answer": "y"}\n')
    (tmp_path / "spec.yaml").write_text(SPECS["rl"] + text)
    try:
        load_spec(tmp_path / "spec.yaml")
        told: list[str] = []
    except InputFaults as error:
        told = [fault.message for fault in error.faults if fault.key == key]
    if version("tinker-cookbook").startswith("0.5"):
        assert any("0.6 has" in message for message in told)
    else:
        assert not any("0.6 has" in message for message in told)
