"""Lines of styled text as SVG that looks the same wherever it is opened.

Braille, blocks and box lines are drawn as shapes, every word is put at its own column, so that no
viewer's font moves anything. Knows text; knows nothing of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 9.0, 20.0, 14.5  # pixels
MARGIN, BAR = 14.0, 34.0  # around the text; the bar with the title above it
_HALF, _BASE = CELL_HEIGHT / 2, CELL_HEIGHT * 0.73
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
# Box lines as ways within a cell of 1 x 1: left, right, up, down meet in the middle.
_WAYS = {
    "─": "M0 .5H1", "━": "M0 .5H1", "│": "M.5 0V1", "┄": "M.1 .5H.4M.6 .5H.9",
    "┊": "M.5 .1V.4M.5 .6V.9", "┴": "M0 .5H1M.5 .5V.15",
    "╭": "M.5 1V.75Q.5 .5 1 .5", "╮": "M.5 1V.75Q.5 .5 0 .5",
    "╰": "M.5 0V.25Q.5 .5 1 .5", "╯": "M.5 0V.25Q.5 .5 0 .5",
}  # fmt: skip
_SHADES = {"█": 1.0, "▓": 0.62, "░": 0.34}


@dataclass(frozen=True)
class _Cell:
    sign: str
    column: int
    colour: str
    bold: bool


def as_svg(lines: Sequence[Text], width: int, theme: TerminalTheme, *, title: str) -> str:
    """The lines as one SVG document, `width` columns wide."""
    across, down = width * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + BAR + MARGIN
    back = _hex(theme.background_color)
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down:g}" '
        f'font-family="{_FONT}" font-size="{FONT_SIZE}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{across:g}" height="{down:g}" rx="9" fill="{back}"/>',
        f'<text x="{across / 2:g}" y="22" text-anchor="middle" fill="#7a808e">'
        f"{escape(title)}</text>",
    ]
    console = Console(width=width, color_system="truecolor", force_terminal=True)
    for row, line in enumerate(lines):
        shapes += _line(list(_cells(line, console, theme)), BAR + row * CELL_HEIGHT)
    return "\n".join([*shapes, "</svg>", ""])


def _cells(line: Text, console: Console, theme: TerminalTheme) -> Iterator[_Cell]:
    column = 0
    for segment in Text.assemble(line).render(console):
        style = segment.style
        colour = _hex(theme.foreground_color)
        if style is not None and style.color is not None:
            colour = _hex(style.color.get_truecolor(theme))
        for sign in segment.text:
            if not sign.isspace():
                yield _Cell(sign, column, colour, bool(style and style.bold))
            column += cell_len(sign)


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _line(cells: Sequence[_Cell], top: float) -> Iterator[str]:
    """The shapes of one line; neighbours of one kind and colour become one shape."""
    start = 0
    for i in range(1, len(cells) + 1):
        if i == len(cells) or not _go_together(cells[i - 1], cells[i]):
            yield _shape(cells[start:i], top)
            start = i


def _go_together(one: _Cell, other: _Cell) -> bool:
    """True if one shape can hold both: of one kind, and letters without a gap between them."""
    next_column = one.column + cell_len(one.sign)
    return _kind(one) == _kind(other) and (_kind(one)[0] != "text" or other.column == next_column)


def _kind(cell: _Cell) -> tuple[str, str, bool]:
    if 0x2800 <= ord(cell.sign) < 0x2900:
        return ("dots", cell.colour, False)
    if cell.sign in _SHADES or cell.sign in _WAYS:
        return (cell.sign, cell.colour, False)
    return ("text", cell.colour, cell.bold)


def _shape(cells: Sequence[_Cell], top: float) -> str:
    kind, colour, bold = _kind(cells[0])
    if kind == "text":
        word = "".join(cell.sign for cell in cells)
        bold_too = ' font-weight="bold"' if bold else ""
        length = f' textLength="{cell_len(word) * CELL_WIDTH:g}"' if len(word) > 1 else ""
        place = f'x="{_x(cells[0]):g}" y="{top + _BASE:g}"{length}'
        return f'<text {place} fill="{colour}"{bold_too}>{escape(word)}</text>'
    if kind == "dots":
        return f'<path d="{"".join(_dots(cell, top) for cell in cells)}" fill="{colour}"/>'
    if kind in _SHADES:
        ways = "".join(
            f"M{_x(c):g} {top:g}h{CELL_WIDTH:g}v{CELL_HEIGHT:g}h-{CELL_WIDTH:g}z" for c in cells
        )
        return f'<path d="{ways}" fill="{colour}" fill-opacity="{_SHADES[kind]}"/>'
    thick = 3.0 if kind == "━" else 1.2
    ways = "".join(_scaled(_WAYS[kind], _x(cell), top) for cell in cells)
    return f'<path d="{ways}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'


def _x(cell: _Cell) -> float:
    return MARGIN + cell.column * CELL_WIDTH


def _dots(cell: _Cell, top: float) -> str:
    """The dots of a braille sign as small squares."""
    bits, size = ord(cell.sign) - 0x2800, 2.6
    order = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
    ways = []
    for bit, (across, down) in enumerate(order):
        if bits >> bit & 1:
            x = _x(cell) + (across + 0.5) * CELL_WIDTH / 2 - size / 2
            y = top + (down + 0.5) * CELL_HEIGHT / 4 - size / 2
            ways.append(f"M{x:.4g} {y:.4g}h{size}v{size}h-{size}z")
    return "".join(ways)


def _scaled(way: str, x: float, y: float) -> str:
    """A way within a cell of 1 x 1 moved to its place; M and Q take pairs, H and V one number."""
    out, command, numbers = [], "", list[str]()
    for token in _tokens(way):
        if token.isalpha():
            command, numbers = token, []
            out.append(token)
            continue
        is_x = command == "H" or (command in "MQ" and len(numbers) % 2 == 0)
        numbers.append(token)
        value = x + float(token) * CELL_WIDTH if is_x else y + float(token) * CELL_HEIGHT
        out.append(f"{value:.5g} ")
    return "".join(out)


def _tokens(way: str) -> list[str]:
    spaced = "".join(f" {sign} " if sign.isalpha() else sign for sign in way)
    return spaced.split()
