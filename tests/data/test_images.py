"""Conversations with images: the VL renderer, its image processor, what is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tinker_cli import tiny
from tinker_cli.data.supervised import ConversationsBuilder
from tinker_cli.errors import InputFaults
from tinker_cli.spec import load_spec

PIXELS = 64  # with patches of 16, merged two by two: (64 / 32)^2 = 4 tokens


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in tokenizer with an image processor of Qwen's kind, as a model's folder."""
    folder = tmp_path_factory.mktemp("vl") / "model"
    shutil.copytree(tiny.FOLDER, folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 16,
        "merge_size": 2,
        "min_pixels": 32 * 32,
        "max_pixels": 1024 * 1024,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def _builder(folder: Path, model: Path, renderer: str) -> ConversationsBuilder:
    (folder / "spec.yaml").write_text(
        f"kind: sl\nmodel_name: {model}\nrenderer_name: {renderer}\nbase_url: local\n"
        "learning_rate: 1e-3\n"
        "dataset_builder: {type: conversations, file_path: data.jsonl, batch_size: 1}\n"
    )
    builder: ConversationsBuilder = load_spec(folder / "spec.yaml").config_values["dataset_builder"]
    return builder


def _write(folder: Path, part: dict[str, object]) -> None:
    Image.new("RGB", (PIXELS, PIXELS), "red").save(folder / "red.png")
    user = {"role": "user", "content": [part, {"type": "text", "text": "Which colour?"}]}
    row = {"messages": [user, {"role": "assistant", "content": "Red."}]}
    (folder / "data.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": "red.png"},
        {"type": "image_url", "image_url": {"url": "red.png"}},
    ],
)
def test_an_image_beside_the_data_becomes_a_chunk_of_its_tokens(
    part: dict[str, object], tmp_path: Path, model: Path
) -> None:
    _write(tmp_path, part)
    (example,), _ = _builder(tmp_path, model, "qwen3_vl_instruct").examples()
    images = [chunk for chunk in example.datum.model_input.chunks if chunk.type == "image"]
    assert [chunk.expected_tokens for chunk in images] == [4]
    tokenizer = tiny_tokenizer()
    assert example.trained == len(tokenizer.encode("Red.<|im_end|>"))


def tiny_tokenizer() -> object:
    from tinker_cli.spec.models import load_tokenizer

    return load_tokenizer("tiny")


def test_a_text_renderer_refuses_an_image_by_row(tmp_path: Path, model: Path) -> None:
    _write(tmp_path, {"type": "image", "image": "red.png"})
    with pytest.raises(InputFaults) as caught:
        _builder(tmp_path, model, "llama3").examples()
    assert caught.value.faults[0].line == 1


def test_an_image_that_is_not_there_is_told_by_row(tmp_path: Path, model: Path) -> None:
    _write(tmp_path, {"type": "image", "image": "blue.png"})
    with pytest.raises(InputFaults) as caught:
        _builder(tmp_path, model, "qwen3_vl_instruct").examples()
    assert caught.value.faults[0].line == 1
    assert "blue.png" in caught.value.faults[0].message
