"""What a person has chosen to see, and what their terminal can show. Knows nothing of runs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rich.text import Text

X_AXES = ("step", "time", "tokens", "cost")
_PLAIN = str.maketrans(
    {
        "→": ">",
        "·": "-",
        "…": ".",
        "⚠": "!",
        "▲": "^",
        "▼": "v",
        "○": "o",
        "┴": "+",
        "┊": ":",
        "×": "!",
        "┄": "-",
    }
)


@dataclass
class View:
    """The state of a screen: page of panels, x axis, smoothing, open questions; the terminal."""

    page: int = 0
    smoothing: float = 0.0
    x: str = "step"
    help: bool = False
    asking: bool = False
    said: str = ""
    can_stop: bool = False
    colour: bool = True
    unicode: bool = True
    kept: tuple[Hashable, list[Text]] | None = None  # the panels of the last frame, and of what

    def plain(self, text: str) -> str:
        """`text` with signs that the terminal has."""
        return text if self.unicode else text.translate(_PLAIN)
