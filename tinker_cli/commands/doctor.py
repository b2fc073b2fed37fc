"""`tinker doctor`: what this machine has, and the one command that mends what it lacks."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from tinker_cli import __version__, console
from tinker_cli.errors import EXIT_DONE, EXIT_FAILED, ServiceError

LEAST_PYTHON = (3, 11)
RANGES = {"tinker": (0, 38), "tinker-cookbook": (0, 5, 8), "typer": (0, 26), "rich": (13, 7)}
TOO_NEW = {"tinker-cookbook": (0, 7)}
LEAST_DISK = 2 << 30  # bytes; a run's files and a few checkpoints
LEAST_SCREEN = (80, 24)
MODELS_SHOWN = 3
NEW_KEY = "tinker auth login, or export TINKER_API_KEY=tml-..."

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, ok, warn or fail, what was found, what mends it."""

    what: str
    state: str
    found: str
    mend: str | None = None


@app.command("doctor")
def doctor(
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="A server to ask, instead of the service.")
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend the `tinker` script if another package took it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> int:
    """Say what is installed, reachable and missing; exit 1 if anything fails.

    tinker doctor
    tinker doctor --json | jq '.[] | select(.state != "ok")'

    --json: [{"what", "state", "found", "mend"}]
    """
    findings = [finding for check in CHECKS for finding in check()]
    findings += _script(fix)
    findings += _service(base_url)
    if as_json:
        console.emit([asdict(finding) for finding in findings])
    else:
        _show(findings)
    return EXIT_FAILED if any(f.state == "fail" for f in findings) else EXIT_DONE


def _show(findings: list[Finding]) -> None:
    marks = {"ok": "✓", "warn": "!", "fail": "✗"} if console.supports_unicode() else {}
    colours = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}
    widest = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = marks.get(finding.state, finding.state)
        if console.wants_colour():
            mark = f"{colours[finding.state]}{mark}\x1b[0m"
        for number, line in enumerate(_folded(finding.found, widest)):
            head = f"{mark} {finding.what:<{widest}}" if number == 0 else " " * (widest + 2)
            console.write(f"{head}  {line}")
        if finding.mend:
            console.write(f"  {'':<{widest}}  -> {finding.mend}")


def _folded(text: str, widest: int) -> list[str]:
    """The text below itself where a terminal is too narrow; a command is never broken."""
    if not console.is_terminal():
        return [text]
    room = max(console.width() - widest - 4, 20)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= LEAST_PYTHON
    mend = None if good else "install Python 3.11 or newer, then: make PYTHON=python3.11"
    yield Finding("python", "ok" if good else "fail", f"{version} at {sys.executable}", mend)


def _packages() -> Iterator[Finding]:
    yield Finding("tinker-runs", "ok", __version__)
    for name in ("tinker", "tinker-cookbook", "torch", "transformers", "typer", "rich"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(name, "fail", "not installed", f"pip install {name}")
            continue
        numbers = _numbers(version)
        if numbers < RANGES.get(name, ()):
            least = ".".join(map(str, RANGES[name]))
            yield Finding(name, "fail", version, f"pip install -U '{name}>={least}'")
        elif name in TOO_NEW and numbers >= TOO_NEW[name]:
            most = ".".join(map(str, TOO_NEW[name]))
            yield Finding(name, "warn", f"{version} is untested", f"pip install '{name}<{most}'")
        else:
            yield Finding(name, "ok", version)


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def _model() -> Iterator[Finding]:
    from tinker_cli import tiny

    weights = tiny.FOLDER / "model.safetensors"
    if weights.is_file():
        yield Finding("model tiny", "ok", f"{weights.stat().st_size / 1e6:.1f} MB in the package")
    else:
        yield Finding("model tiny", "fail", "its weights are missing", "install tinker-runs anew")


def _tokenizers() -> Iterator[Finding]:
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    count = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    yield Finding("tokenizer cache", "ok", f"{count} models in {cache}")


def _terminal() -> Iterator[Finding]:
    width, height = console.width(), console.height()
    small = (width, height) < LEAST_SCREEN or height < LEAST_SCREEN[1]
    words = [f"{width} x {height}"]
    words.append("colour" if console.wants_colour() else "no colour")
    words.append("Unicode" if console.supports_unicode() else "ASCII")
    mend = f"enlarge the window to {LEAST_SCREEN[0]} x {LEAST_SCREEN[1]}" if small else None
    if not console.supports_unicode():
        mend = mend or "export LC_ALL=C.UTF-8"
    yield Finding("terminal", "warn" if mend else "ok", ", ".join(words), mend)


def _disk() -> Iterator[Finding]:
    from tinker_cli.runs.paths import runs_root

    root = runs_root()
    here = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        mend = "export TINKER_COOKBOOK_RUNS_DIR=/somewhere/writable"
        yield Finding("runs", "fail", f"{root} can't be written", mend)
    elif free < LEAST_DISK:
        yield Finding("runs", "warn", f"{free / 1e9:.1f} GB free for {root}", "make room there")
    else:
        yield Finding("runs", "ok", f"{free / 1e9:.0f} GB free for {root}")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _model,
    _tokenizers,
    _terminal,
    _disk,
)


def _script(fix: bool) -> Iterator[Finding]:
    """Which `tinker` the shell finds: the SDK installs a script of the same name."""
    found = shutil.which("tinker")
    own = Path(sys.executable).with_name("tinker")
    if found is None:
        mend = f"export PATH={own.parent}:$PATH" if own.exists() else "python -m tinker_cli"
        yield Finding("tinker on PATH", "warn", "none", mend)
        return
    if _is_ours(Path(found)):
        yield Finding("tinker on PATH", "ok", found)
        return
    if fix and Path(found).parent == own.parent:
        _write_script(Path(found))
        yield Finding("tinker on PATH", "ok", f"{found} is ours again")
        return
    owner = "the SDK's" if "tinker.cli" in _text(Path(found)) else "another program's"
    mend = "tinker-cli doctor --fix" if Path(found).parent == own.parent else "use tinker-cli"
    yield Finding("tinker on PATH", "warn", f"{found} is {owner}", mend)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:10_000]
    except OSError:
        return ""


def _is_ours(path: Path) -> bool:
    return "tinker_cli.app" in _text(path)


def _write_script(path: Path) -> None:
    """Replace the script in one move."""
    beside = path.with_name(f".tinker.{os.getpid()}")
    text = f"#!{sys.executable}\nfrom tinker_cli.app import main\n\nmain()\n"
    beside.write_text(text, encoding="utf-8")
    beside.chmod(0o755)
    os.replace(beside, path)


def _service(base_url: str | None) -> Iterator[Finding]:
    """The key (never shown), the server and its models; none is needed for local runs."""
    from tinker_cli.trainer.service import ask_service, check_key

    try:
        check_key()
    except ServiceError as error:
        missing = not os.environ.get("TINKER_API_KEY")
        found = "none; local runs need none" if missing else error.message
        yield Finding("key", "warn", found, NEW_KEY)
        yield Finding("server", "ok", "not asked, for want of a key")
        return
    try:
        url, models = ask_service(base_url)
    except ServiceError as error:
        if "refused the key" in error.message:
            yield Finding("key", "fail", "refused", NEW_KEY)
        else:
            yield Finding("key", "ok", "present")
        yield Finding("server", "fail", error.message, error.hint)
        return
    yield Finding("key", "ok", "present and accepted")
    yield Finding("server", "ok", f"{url} answered; {_some(models)}")


def _some(models: list[str]) -> str:
    """How many models, and the first of them."""
    more = ", ..." if len(models) > MODELS_SHOWN else ""
    named = ", ".join(models[:MODELS_SHOWN])
    return f"{len(models)} models: {named}{more}" if models else "it names no models"
