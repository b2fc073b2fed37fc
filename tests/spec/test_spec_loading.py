"""Specs: what a value becomes, and how every fault is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinker_cli.errors import Fault, InputFaults
from tinker_cli.spec import Spec, load_spec
from tinker_cli.spec.config import build_config
from tinker_cli.spec.write import dump

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").glob("*.yaml"))
RL = """\
kind: rl
model_name: tiny
base_url: local
dataset_builder:
  type: arithmetic
  batch_size: 4
  group_size: 4
  n_batches: 2
learning_rate: 1e-4
max_tokens: 8
"""


def _load(folder: Path, text: str, *overrides: str, name: str = "run.yaml") -> Spec:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_spec(path, overrides=overrides)


def _faults(folder: Path, text: str, *overrides: str) -> list[Fault]:
    with pytest.raises(InputFaults) as caught:
        _load(folder, text, *overrides)
    assert caught.value.exit_code == 2
    return caught.value.faults


def test_a_number_is_a_number_where_the_field_wants_one(tmp_path: Path) -> None:
    values = _load(tmp_path, RL).values
    assert values["learning_rate"] == 0.0001
    assert isinstance(values["learning_rate"], float)


def test_text_fields_keep_their_text(tmp_path: Path) -> None:
    text = RL + "wandb_name: 1e5\nwandb_project: 2026_01\nsession_name: off\n"
    values = _load(tmp_path, text).values
    assert values["wandb_name"] == "1e5"
    assert values["wandb_project"] == "2026_01"
    assert values["session_name"] == "off"


@pytest.mark.parametrize("word", ['"false"', "no", "off", "False"])
def test_every_no_is_false_for_a_switch(tmp_path: Path, word: str) -> None:
    assert _load(tmp_path, RL + f"enable_trace: {word}\n").values["enable_trace"] is False


def test_an_explicit_false_is_kept(tmp_path: Path) -> None:
    values = _load(tmp_path, RL + "rollout_json_export: false\n").values
    assert values["rollout_json_export"] is False


def test_merge_keys_are_no_duplicates(tmp_path: Path) -> None:
    text = RL.replace("  n_batches: 2\n", "  n_batches: 2\n")
    text = text.replace("dataset_builder:", "local: &l {threads: 1}\ndataset_builder:")
    spec = _load(tmp_path, text + "guards:\n  - &g {when: kl > 1}\n  - {<<: *g, do: stop}\n")
    assert [guard.do for guard in spec.guards] == ["warn", "stop"]


def test_a_duplicate_key_names_both_lines(tmp_path: Path) -> None:
    faults = _faults(tmp_path, RL + "max_tokens: 9\n")
    assert (faults[0].line, faults[0].key) == (11, "max_tokens")
    assert "line 10" in faults[0].message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "empty"),
        ("# later\n", None, "empty"),
        ("- a\n- b\n", 1, "mapping"),
        ("---\na: 1\n---\na: 2\n", 4, "one document"),
        ("training:\n\tlearning_rate: 1.0e-4\n", 2, "tab"),
        ("a: [1, 2\n", 2, "expected"),
    ],
)
def test_what_is_no_mapping_is_told_in_a_sentence(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    fault = _faults(tmp_path, text)[0]
    assert fault.line == line
    assert words in fault.message


def test_python_tags_run_nothing(tmp_path: Path) -> None:
    owned = tmp_path / "owned.txt"
    text = RL + f'session_name: !!python/object/apply:os.system ["touch {owned}"]\n'
    assert "not allowed" in _faults(tmp_path, text)[0].message
    assert not owned.exists()
    assert "!env" in _faults(tmp_path, RL + "session_name: !env HOME\n")[0].message


def test_leading_zeros_are_refused_with_the_right_spelling(tmp_path: Path) -> None:
    fault = _faults(tmp_path, RL + "lora_rank: 010\n")[0]
    assert "write 10" in fault.message


@pytest.mark.parametrize("value", ["1:30", "nan", "-1", "abc", "[1]", "2.5e99"])
def test_a_learning_rate_must_be_a_sane_number(tmp_path: Path, value: str) -> None:
    text = RL.replace("1e-4", value)
    assert [fault.key for fault in _faults(tmp_path, text)] == ["learning_rate"]


def test_underscored_integers_are_read(tmp_path: Path) -> None:
    assert (
        _load(tmp_path, RL.replace("max_tokens: 8", "max_tokens: 2_048")).values["max_tokens"]
        == 2048
    )


def test_a_tilde_alone_is_null_and_in_a_path_the_home(tmp_path: Path) -> None:
    spec = _load(tmp_path, RL + "log_path: ~/runs/demo\nload_checkpoint_path: ~\n")
    assert spec.log_path == Path.home() / "runs/demo"
    assert spec.values["load_checkpoint_path"] is None


def test_all_faults_come_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
kind: rl
model_name: tiny
learning_rat: 1e-4
max_tokens: abc
loss_fn: ppoo
dataset_builder:
  type: promts
async_config: {max_steps_off_policy: 1, groups_per_batch: 8, foo: 1}
lora_rank: 0
"""
    faults = {fault.key: fault for fault in _faults(tmp_path, text)}
    assert {key: fault.line for key, fault in faults.items()} == {
        "learning_rate": 1,
        "learning_rat": 3,
        "max_tokens": 4,
        "loss_fn": 5,
        "dataset_builder.type": 7,
        "async_config.foo": 8,
        "lora_rank": 9,
    }
    assert faults["learning_rat"].suggestion == "learning_rate"
    assert faults["loss_fn"].suggestion == "ppo"
    assert faults["dataset_builder.type"].suggestion == "prompts"


def test_the_last_override_wins_and_brings_its_renderer(tmp_path: Path) -> None:
    spec = _load(
        tmp_path, RL, "model_name=Qwen/Qwen3-8B", "model_name=meta-llama/Llama-3.1-8B-Instruct"
    )
    assert spec.renderer_name == "llama3"
    assert spec.values["dataset_builder"]["model_name_for_tokenizer"] == spec.model_name


def test_dotted_overrides_are_typed_as_the_spec_is(tmp_path: Path) -> None:
    values = _load(tmp_path, RL, "dataset_builder.batch_size=2", "learning_rate=3e-5").values
    assert values["dataset_builder"]["batch_size"] == 2
    assert values["learning_rate"] == 3e-5
    assert _faults(tmp_path, RL, "dataset_builder.batch_size=two", "nonsense")[0].file


def test_a_model_that_nobody_knows_needs_a_renderer(tmp_path: Path) -> None:
    text = RL.replace("tiny", "Qwen/Qwen3-0.6B")
    assert "renderer_name" in _faults(tmp_path, text)[0].message
    assert _load(tmp_path, text + "renderer_name: qwen3\n").renderer_name == "qwen3"


def test_a_misspelt_renderer_is_refused(tmp_path: Path) -> None:
    assert (
        _faults(tmp_path, RL + "renderer_name: qwen3_instuct\n")[0].suggestion == "qwen3_instruct"
    )


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("kl_penalty_coef: 0.1", "kl_penalty_coef"),
        ("temperature: 0", "temperature"),
        ("ttl_seconds: 60", "ttl_seconds"),
        ("max_steps: 0", "max_steps"),
        ("num_substeps: 0", "num_substeps"),
        ("save_every: -1", "save_every"),
        ("loss_fn: stable_reinforce", "loss_fn"),
        ("stream_minibatch_config: {groups_per_batch: 4, num_minibatches: 3}",
         "stream_minibatch_config"),
    ],
)  # fmt: skip
def test_what_the_loops_refuse_late_is_refused_early(tmp_path: Path, line: str, key: str) -> None:
    faults = _faults(tmp_path, RL + line + "\n")
    assert [(fault.key, fault.line) for fault in faults] == [(key, 11)]


def test_extends_lays_one_spec_over_another(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(RL)
    spec = _load(tmp_path, "extends: base.yaml\ndataset_builder: {group_size: 8}\n")
    assert spec.values["dataset_builder"]["group_size"] == 8
    assert spec.values["dataset_builder"]["batch_size"] == 4


def test_a_spec_that_extends_itself_is_refused(tmp_path: Path) -> None:
    faults = _faults(tmp_path, "extends: run.yaml\n" + RL)
    assert any("extends itself" in fault.message for fault in faults)


def test_environment_variables_and_their_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATE", "2e-4")
    text = RL.replace("1e-4", "${RATE}") + "session_name: ${NONE:-mine}\n"
    spec = _load(tmp_path, text)
    assert spec.values["learning_rate"] == 2e-4
    assert spec.values["session_name"] == "mine"
    assert "NONE" in _faults(tmp_path, RL + "session_name: ${NONE}\n")[0].message


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_the_resolved_spec_runs_again_to_the_same_config(template: Path, tmp_path: Path) -> None:
    first = load_spec(template)
    path = tmp_path / "resolved.yaml"
    path.write_text(dump(first), encoding="utf-8")
    again = load_spec(path)
    assert again.values == first.values
    assert again.hash == first.hash
    assert build_config(again) == build_config(first)
