"""Where conversations come from: specs, messages, images, many rows; and how they are chosen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from transformers import PreTrainedTokenizerFast

from tinker_cli import tiny
from tinker_cli.app import run
from tinker_cli.data.rows import Row, scan_jsonl
from tinker_cli.errors import InputFaults
from tinker_cli.render.choose import choose
from tinker_cli.render.faults import check_batch
from tinker_cli.render.pool import worked
from tinker_cli.render.shown import Lens
from tinker_cli.render.sources import LensMaker, remember_short_texts
from tinker_cli.render.stats import Stats, count
from tinker_cli.spec.models import load_tokenizer

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}
LONG = {"role": "assistant", "content": "one two three four five six seven eight"}
MAKER = LensMaker("tiny", None, None, "all_assistant_messages", None)
SPEC = """\
kind: sl
model_name: tiny
base_url: local
log_path: {folder}/run
dataset_builder:
{builder}
"""


def _rows(*chats: Any) -> list[Row]:
    return [Row("f.jsonl", n, {"messages": chat}) for n, chat in enumerate(chats, 1)]


def _spec(tmp_path: Path, builder: str, chats: list[Any]) -> Path:
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    path = tmp_path / "run.yaml"
    path.write_text(SPEC.format(folder=tmp_path, builder=builder.format(data=data)))
    return path


def _output(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


CONVERSATIONS = """\
  type: conversations
  file_path: {data}
  batch_size: 1
  max_length: 16
  train_on_what: last_assistant_message
"""
FOREIGN = """\
  type: tinker_cookbook.supervised.data:FromConversationFileBuilder
  file_path: {data}
  common_config:
    batch_size: 2
"""


def test_a_spec_shows_exactly_what_its_training_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tinker_cli.spec import load_spec

    chats = [[USER, ANSWER], [USER, LONG, USER, ANSWER], [USER, LONG]]
    path = _spec(tmp_path, CONVERSATIONS, chats)
    assert run(["render", "--spec", str(path), "--json"]) == 0
    shown = _output(capsys)
    train, _ = load_spec(path, kind="sl").config_values["dataset_builder"].examples()
    assert len(shown) == len(train) == 3
    for row, example in zip(shown, train, strict=True):
        datum = example.datum
        targets = datum.loss_fn_inputs["target_tokens"].to_numpy().tolist()
        weights = datum.loss_fn_inputs["weights"].to_numpy()
        assert row["tokens"][1:] == targets
        assert [w != 0 for w in row["weights"][1:]] == [w != 0 for w in weights.tolist()]
        assert row["tokens"][:-1] == datum.model_input.to_ints()
        assert row["truncated"] == example.truncated


def test_a_spec_with_another_dataset_shows_its_datums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _spec(tmp_path, FOREIGN, [[USER, ANSWER], [USER, LONG]])
    assert run(["render", "--spec", str(path), "--json"]) == 0
    shown = {json.dumps(row["tokens"]): row["num_trained"] for row in _output(capsys)}
    lens = MAKER()
    wanted = [lens.show(chat) for chat in ([USER, ANSWER], [USER, LONG])]
    assert shown == {json.dumps([t.id for t in each.tokens]): each.trained for each in wanted}
    assert run(["render", "--spec", str(path), "--stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == sum(len(w.tokens) for w in wanted)
    assert run(["render", "--spec", str(path), "--check"]) == 0
    assert run(["render", "--spec", str(path), "--diff-hf"]) == 2


def test_messages_may_be_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", json.dumps([USER, ANSWER]), "--model", "tiny", "--json"]) == 0
    assert _output(capsys)[0]["num_trained"] == 2
    long = json.dumps([{**USER, "content": "x" * 5_000}, ANSWER])  # longer than a file's name
    assert run(["render", long, "--model", "tiny", "--check"]) == 0
    assert run(["render", "[{", "--model", "tiny"]) == 2


def test_a_generation_prompt_needs_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "tiny", "--system", "S", "--user", "2+2?", "--generation", "--json"]
    assert run(["render", *arguments]) == 0
    row = _output(capsys)[0]
    assert load_tokenizer("tiny").decode(row["tokens"]).endswith("<|im_start|>assistant\n")
    assert load_tokenizer("tiny").decode(row["stop"]) == "<|im_end|>"


@pytest.mark.parametrize(
    ("where", "lines"),
    [("all", [1, 2, 3, 4]), ("longest", [3]), ("truncated", [3]), ("untrained", [4])],
)
def test_rows_are_chosen_by_what_becomes_of_them(where: str, lines: list[int]) -> None:
    rows = _rows([USER, ANSWER], [USER, ANSWER, USER, ANSWER], [USER, LONG, USER, LONG], [USER])
    tokenizer = load_tokenizer("tiny")
    what = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    renderer = get_renderer("qwen3_instruct", tokenizer)
    lens = Lens(renderer, tokenizer, "qwen3_instruct", what, 40)
    assert [chosen.line for chosen in choose(rows, lens, where=where)] == lines


def test_faulty_rows_are_chosen_with_their_problems(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    rows = [json.dumps({"messages": chat}) for chat in ([USER, ANSWER], [USER, ANSWER, USER])]
    path.write_text("\n".join([*rows, "{", rows[0]]))
    chosen = list(choose(scan_jsonl(path), MAKER(), where="faulty"))
    assert [(each.line, each.shown is None) for each in chosen] == [(2, False), (3, True)]
    assert [each.problems[0].kind for each in chosen] == ["ending", "form"]


def test_rows_that_cannot_be_rendered_are_told_together_after_the_others() -> None:
    rows = _rows([USER, ANSWER], [{"role": "nobody", "content": ""}], [USER, ANSWER], [])
    seen = []
    with pytest.raises(InputFaults) as raised:
        seen.extend(each.line for each in choose(rows, MAKER()))
    assert seen == [1, 3]
    assert [fault.line for fault in raised.value.faults] == [2, 4]


def test_one_conversation_by_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(
        "".join(json.dumps({"messages": c}) + "\n" for c in ([USER, ANSWER], [USER, LONG]))
    )
    assert run(["render", str(path), "--model", "tiny", "--index", "1", "--json"]) == 0
    assert [row["line"] for row in _output(capsys)] == [2]
    assert run(["render", str(path), "--model", "tiny", "--index", "2"]) == 2
    assert "there are 2" in capsys.readouterr().err


def test_many_rows_on_many_processes_give_what_one_gives() -> None:
    rows = _rows(*([USER, ANSWER] if n % 3 else [USER, LONG, USER] for n in range(1_200)))
    alone, together = count(rows, MAKER, workers=1), count(rows, MAKER, workers=2)
    assert alone.as_json() == together.as_json()
    assert alone.conversations == 1_200
    checked = list(worked(rows, MAKER, check_batch, workers=2, serial_rows=10))
    assert [p.line for c in checked for p in c.problems] == list(range(1, 1_201, 3))


def test_percentiles_are_nearest_ranks_and_bins_hold_everything() -> None:
    stats = Stats()
    for length in range(1, 101):
        stats.add_example(length, length, 1)
    assert stats.percentiles() == {50: 50, 90: 90, 95: 95, 99: 99, 100: 100}
    bins = stats.histogram()
    assert sum(each.count for each in bins) == 100
    assert (bins[0].low, bins[-1].high >= 100) == (1, True)


def test_remembered_texts_encode_as_they_did() -> None:
    plain, quick = (PreTrainedTokenizerFast.from_pretrained(tiny.FOLDER) for _ in range(2))
    remember_short_texts(quick)
    for text in ("<|im_end|>", "\n<|im_start|>user\n", "", " a", "x" * 100):
        for _ in range(2):
            ids = quick.encode(text, add_special_tokens=False)
            assert ids == plain.encode(text, add_special_tokens=False)
            ids.append(0)  # a caller may keep and change its list


@pytest.fixture
def vision(tmp_path: Path) -> Path:
    """A folder of a model with images: the tiny tokenizer, Qwen's image processor."""
    from PIL import Image

    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny.FOLDER / name, folder)
    size = {"shortest_edge": 3136, "longest_edge": 12845056}
    config = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "merge_size": 2,
              "temporal_patch_size": 2, "size": size}  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    Image.new("RGB", (64, 96), "red").save(tmp_path / "red.png")
    parts = [{"type": "image", "image": "red.png"}, {"type": "text", "text": " what?"}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": "red"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    return tmp_path


def test_an_image_is_shown_with_its_tokens(
    vision: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["render", str(vision / "chats.jsonl"), "--renderer", "qwen3_vl_instruct"]
    seeing = [*arguments, "--tokenizer", str(vision / "model")]
    assert run([*seeing, "--json"]) == 0
    row = _output(capsys)[0]
    images = [s for s in row["segments"] if s["part"] == "image"]
    # 64 x 96 pixels in patches of 16, four patches a token: 4 * 6 / 4
    assert [image["end"] - image["start"] for image in images] == [6]
    assert row["tokens"].count(None) == 6
    assert run(seeing) == 0
    assert "<image, 6 tokens>" in capsys.readouterr().out
    assert run([*seeing, "--check"]) == 0
    assert run([*arguments, "--model", "tiny", "--check"]) == 3
    assert "image processor isn't here" in capsys.readouterr().out


def test_a_cut_takes_a_whole_image(vision: Path) -> None:
    maker = LensMaker(
        None, "qwen3_vl_instruct", str(vision / "model"), "all_assistant_messages", 16
    )
    row = next(iter(scan_jsonl(vision / "chats.jsonl")))
    shown = next(iter(choose([row], maker()))).shown
    assert shown is not None
    assert all(token.id is not None for token in shown.tokens)
    assert len(shown.tokens) == 13  # header 3, <|vision_start|> 10 of the tiny tokenizer


def test_a_template_s_difference_is_shown_with_both_sides_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.FOLDER, folder)
    template = folder / "chat_template.jinja"
    refuse = "{%- if messages|length > 2 %}{{ raise_exception('too long') }}{% endif %}"
    template.write_text(refuse + template.read_text().replace("user", "human"))
    path = tmp_path / "chats.jsonl"
    chats = [[USER, ANSWER], [{"role": "system", "content": "s"}, USER, ANSWER]]
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    arguments = ["render", str(path), "--renderer", "qwen3_instruct", "--diff-hf"]
    assert run([*arguments, "--tokenizer", "tiny"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("identical") == 2
    assert "2 of 2 conversations identical" in captured.err
    assert run([*arguments, "--tokenizer", str(folder), "--json"]) == 0
    first, second = _output(capsys)
    assert first["identical"] is False
    assert second["refused"].endswith("too long")
