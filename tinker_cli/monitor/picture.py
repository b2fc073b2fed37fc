"""A screen as a picture: the same frame that the terminal shows, written as SVG or HTML."""

from __future__ import annotations

import io
import os
from html import escape
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tinker_cli.errors import RunFailed
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.panels import screen_lines
from tinker_cli.monitor.svg import as_svg
from tinker_cli.monitor.view import View

WIDTH, HEIGHT = 110, 32  # characters; fits a README
_HUES = [(213, 94, 0), (0, 158, 115), (230, 159, 0), (86, 180, 233), (204, 121, 167)]
THEME = TerminalTheme(
    (18, 20, 26),
    (214, 217, 224),
    [(18, 20, 26), *_HUES, (86, 180, 233), (214, 217, 224)],
    [(122, 128, 142), *_HUES, (86, 180, 233), (255, 255, 255)],
)


def save_picture(
    run: Path, target: Path, *, kind: str = "svg", width: int = WIDTH, height: int = HEIGHT
) -> None:
    """Write the dashboard of `run` to `target`, as `svg` or `html`.

    Raises RunFailed where the file can't be written.
    """
    facts, title = RunFacts(run), f"tinker watch {run.name}"
    lines = screen_lines(facts, View(), width, height)[:-1]  # a picture has no keys
    write_picture(lines, target, kind=kind, width=width, title=title)


def write_picture(lines: list[Text], target: Path, *, kind: str, width: int, title: str) -> None:
    """Write lines of at most `width` columns to `target`, as `svg` or `html`, in one go.

    Raises RunFailed where the file can't be written.
    """
    svg = kind != "html"
    text = as_svg(lines, width, THEME, title=title) if svg else _as_html(lines, width, title)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, target)
    except OSError as error:
        raise RunFailed(f"can't write {target}: {error.strerror or error}") from error


def _as_html(lines: list[Text], width: int, title: str) -> str:
    printer = Console(
        file=io.StringIO(),
        record=True,
        width=width,
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    for line in lines:
        printer.print(line, no_wrap=True, overflow="crop", crop=True)
    page = printer.export_html(theme=THEME, inline_styles=True)
    return page.replace("<head>", f"<head>\n<title>{escape(title)}</title>", 1)
