"""The docs: every link leads somewhere, every command exists, the reference is current."""

from __future__ import annotations

import importlib.util
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from tinker_cli.app import GROUPS, SDK_COMMANDS, run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {e.name for entries in GROUPS.values() for e in entries} | {e.name for e in SDK_COMMANDS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def _shown_commands(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"```(?:\w*)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").split("\n"):
            for part in re.split(r"\||&&", line):
                words = part.split("#")[0].strip()
                if words.startswith("tinker "):
                    found.append(shlex.split(words))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_pages_exist_with_their_options(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helps: dict[tuple[str, ...], str] = {}
    for words in _shown_commands(page):
        name = words[1]
        assert name in COMMANDS, words
        path = (name, words[2]) if name in ("train", "template") else (name,)
        if name in {e.name for e in SDK_COMMANDS}:
            continue
        if path not in helps:
            assert run([*path, "--help"]) == 0
            helps[path] = capsys.readouterr().out
        for word in words:
            if re.fullmatch(r"--[a-z][a-z-]*", word):
                assert word in helps[path], (words, word)


def test_the_reference_of_fields_is_current() -> None:
    page = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    made_with = re.search(r"tinker-cookbook (\S+?)\. A spec", page)
    assert made_with is not None
    if made_with.group(1) != version("tinker-cookbook"):
        return  # the page is made for one version; the newer one has fields of its own
    path = ROOT / "scripts" / "spec_reference.py"
    spec = importlib.util.spec_from_file_location("spec_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == page
