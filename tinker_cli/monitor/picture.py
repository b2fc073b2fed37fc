"""A screen as a picture: the same frame that the terminal shows, written as SVG."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.panels import screen
from tinker_cli.monitor.view import View

WIDTH, HEIGHT = 110, 32  # characters; fits a README


def save_screen(run: Path, target: Path, *, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Write the dashboard of `run` to `target`."""
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
    )
    facts = RunFacts(run)
    printer.print(screen(facts, View(), width, height))
    text = printer.export_svg(title=f"tinker watch {run.name}", theme=MONOKAI)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, target)
