"""The commands of the docs, run as they are printed.

Trainings are ended after few steps, and one engine serves all. What can't run here is only parsed
(test_pages.py): blocks that begin with the line `# on the service`, commands about a hub's model,
`make`, and `serve`, which does not end.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tinker_cli.app import run
from tinker_cli.engine import Engine, start_engine

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HOSTED = "# on the service"
STEPS = 2  # of a training here
COPIES = ("demo", "a", "b", "run-a", "run-b", "rl_arithmetic")  # names of runs in the docs
CHAT = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
]
SPEC = """
kind: rl
model_name: tiny
base_url: local
dataset_builder: {type: arithmetic, batch_size: 4, group_size: 4, n_batches: 20}
learning_rate: 1e-3
max_tokens: 8
eval_every: 0
"""

pytestmark = pytest.mark.xdist_group("docs")


def _lines(page: Path) -> list[str]:
    """The `tinker` lines of a page that run here."""
    found = []
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        if block.startswith(HOSTED):
            continue
        lines = [line.strip() for line in block.replace("\\\n", " ").split("\n")]
        found += [one for one in lines if re.match(r"(tinker|cat|printf) ", one)]
    elsewhere = ("Qwen/", " box:")  # a hosted model, another machine
    return [
        one
        for one in found
        if not any(word in one for word in elsewhere) and not one.startswith("tinker serve")
    ]


RUN_HERE = [page for page in PAGES if _lines(page)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with start_engine(threads=1, store=tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def trained(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs root with one real run, under every name that the docs give to runs."""
    root = tmp_path_factory.mktemp("docs") / "runs"
    root.mkdir()
    spec = root.parent / "gsm8k.yaml"
    spec.write_text(SPEC)
    words = ["train", "rl", str(spec), f"max_steps={STEPS}", f"log_path={root / 'gsm8k-grpo'}"]
    subprocess.run(
        [sys.executable, "-m", "tinker_cli", *words, f"base_url={engine.url}", "--plain"],
        env={**os.environ, "TINKER_API_KEY": engine.key},
        check=True,
        capture_output=True,
        timeout=200,
    )
    rows = (root / "gsm8k-grpo" / "checkpoints.jsonl").read_text().splitlines()
    last = {**json.loads(rows[-1]), "name": "000010"}
    for name in COPIES:
        shutil.copytree(root / "gsm8k-grpo", root / name)
        (root / name / "checkpoints.jsonl").write_text("\n".join([*rows, json.dumps(last)]) + "\n")
    return root


@dataclass
class Shell:
    """A shell for the lines of the docs: `|`, `&&`, `>`, `<`; `tinker` runs in this process."""

    folder: Path
    engine: Engine
    monkeypatch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    said: list[str] = field(default_factory=list)

    def line(self, text: str) -> int:
        """The exit code of a line."""
        code = 0
        words = shlex.split(_as_printed(text), comments=True)
        for chain in _split(words, "&&"):
            code = self._pipe(chain)
            if code:
                return code
        return code

    def _pipe(self, chain: list[str]) -> int:
        code, data = 0, ""
        for stage in _split(chain, "|"):
            words, target = (stage, None) if ">" not in stage else (stage[:-2], stage[-1])
            if words[0] == "tinker":
                code, data = self._tinker(words[1:], data)
            elif shutil.which(words[0]):
                done = subprocess.run(
                    words, input=data, capture_output=True, text=True, cwd=self.folder, check=False
                )
                code, data = code or done.returncode, done.stdout
                self.said.append(done.stderr)
            if target is not None:
                (self.folder / target).write_text(data)
        return code

    def _tinker(self, words: list[str], data: str) -> tuple[int, str]:
        file = self.folder / ".stdin"
        file.write_text(data)
        with file.open("rb") as raw:
            self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
            self.capture.readouterr()
            code = run(_shorter(words, self.engine))
        shown = self.capture.readouterr()
        self.said.append(shown.err)
        return code, shown.out


def _as_printed(text: str) -> str:
    """Quoted text keeps its `|`; shlex gives operators as words only if they stand apart."""
    return text.replace(" > ", " '>' ")


def _split(words: list[str], operator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == operator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _shorter(words: list[str], engine: Engine) -> list[str]:
    """The same command, ended early, and on files and runs that may be there already."""
    if words[:2] == ["template", "copy"]:
        return [*words, "--force"]
    if words[0] != "train" or "--dry-run" in words:
        return words
    here = f"base_url={engine.url}"
    if "--resume" in words:
        kept = [word for word in words if not word.startswith("max_steps")]
        return [*kept, here, f"max_steps={STEPS + 1}", "dataset_builder.batch_size=4"]
    return [*words, here, f"max_steps={STEPS}", "--new", "dataset_builder.batch_size=4"]


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_commands_work_as_printed(
    page: Path,
    engine: Engine,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(trained, runs)
    os.utime(runs / "demo" / "metrics.jsonl")  # the newest
    monkeypatch.setenv("TINKER_COOKBOOK_RUNS_DIR", str(runs))
    monkeypatch.setenv("TINKER_API_KEY", engine.key)
    monkeypatch.setattr("tinker_cli.engine.start_engine", lambda **_: nullcontext(engine))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.jsonl").write_text((json.dumps({"messages": CHAT}) + "\n") * 8)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "1+1?"}\n{"prompt": "2+1?"}\n')
    (tmp_path / "mine.yaml").write_text(SPEC)
    (tmp_path / "gsm8k.yaml").write_text(SPEC + f"log_path: {runs / 'gsm8k-grpo'}\n")
    for name in ("sl_chat", "rl_prompts", "rl_arithmetic"):
        assert run(["template", "copy", name]) == 0
    shell = Shell(tmp_path, engine, monkeypatch, capsys)
    for text in _lines(page):
        code = shell.line(text)
        allowed = {0, 3} if "--check" in text else {0, 1} if "doctor" in text else {0}
        assert code in allowed, (text, shell.said[-1])
        assert "Traceback" not in shell.said[-1], text
