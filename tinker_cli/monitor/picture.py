"""A screen as a picture: the same frame that the terminal shows, written as SVG or HTML."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from tinker_cli.errors import RunFailed
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.panels import screen
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
    printer = Console(
        file=io.StringIO(),
        record=True,
        width=width,
        height=height,
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    facts = RunFacts(run)
    printer.print(screen(facts, View(), width, height))
    if kind == "html":
        text = printer.export_html(theme=THEME, inline_styles=True)
    else:
        text = printer.export_svg(title=f"tinker watch {run.name}", theme=THEME)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, target)
    except OSError as error:
        raise RunFailed(f"can't write {target}: {error.strerror or error}") from error
