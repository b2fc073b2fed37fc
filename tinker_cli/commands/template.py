"""`tinker template list|show|copy`: the specs that ship."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import UsageError, nearest

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="""The specs that ship: each runs here as it is, and is commented.

    tinker template list
    tinker template copy rl_prompts

    list --json: [{"name", "kind", "summary"}]
    """,
)
Name = Annotated[str, typer.Argument(help="A template's name.")]
_DATA_FILE = re.compile(r"^\s*(?:(?:test_)?file_)?path:\s*([^\s#]+)", re.MULTILINE)
_PYTHON_FILE = re.compile(r"\./([\w/]+\.py):\w+")  # ./file.py:name


def folder() -> Path:
    """Where the templates are: in the package when installed, else in the repository."""
    import tinker_cli

    package = Path(tinker_cli.__file__).resolve().parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _find(name: str) -> Path:
    path = folder() / f"{name.removesuffix('.yaml')}.yaml"
    if not path.is_file():
        names = [each.stem for each in folder().glob("*.yaml")]
        near = nearest(name, names)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(sorted(names))}"
        raise UsageError(f"no template {name!r}", hint=hint)
    return path


@app.command("list")
def list_templates(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Name and purpose of each template."""
    rows = []
    for path in sorted(folder().glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        kind = re.search(r"^kind:\s*(\w+)", text, re.MULTILINE)
        summary = text.split("\n", 1)[0].lstrip("# ")
        rows.append({"name": path.stem, "kind": kind.group(1) if kind else "", "summary": summary})
    if as_json:
        console.emit(rows)
        return
    widest = max(len(row["name"]) for row in rows)
    for row in rows:
        console.write(f"{row['name']:<{widest}}  {row['kind']}  {row['summary']}")


@app.command("show")
def show(name: Name) -> None:
    """Print a template."""
    console.write(_find(name).read_text(encoding="utf-8").rstrip("\n"))


@app.command("copy")
def copy(
    name: Name,
    target: Annotated[Path | None, typer.Argument(help="File to write; default: here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Copy a template, and the files it names, to start your own from."""
    source = _find(name)
    target = target or Path(source.name)
    if target.is_dir():
        target = target / source.name
    files = [(source, target)]
    text = source.read_text(encoding="utf-8")
    named = [*_DATA_FILE.findall(text), *_PYTHON_FILE.findall(text)]
    for inner in dict.fromkeys(named):
        if (source.parent / inner).is_file():
            files.append((source.parent / inner, target.parent / inner))
    taken = [str(to) for _, to in files if to.exists()]
    if taken and not force:
        raise UsageError(f"{', '.join(taken)} exists already", hint="--force replaces it")
    for origin, to in files:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, to)
        console.write(str(to))
