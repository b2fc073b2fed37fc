"""A frame around lines of text, with a title and what there is to say in its edges."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from tinker_cli.monitor.canvas import QUIET


def framed(
    title: Text,
    right: Text,
    body: Sequence[Text],
    note: Text,
    width: int,
    height: int,
    *,
    unicode: bool = True,
) -> list[Text]:
    """`body` in a frame of `width` x `height`: title at the left, newest values at the right.

    `note` is set into the lower edge; an empty one leaves the edge whole.
    """
    title, right, note = title.copy(), right.copy(), note.copy()
    tl, tr, bl, br, across, down = "╭╮╰╯─│" if unicode else "++++-|"
    inside = width - 2
    title.truncate(max(inside - 1, 0))
    right.truncate(max(inside - title.cell_len - 2, 0))
    fill = max(inside - title.cell_len - right.cell_len - 2, 0)
    corner = across * min(inside - title.cell_len - right.cell_len - 1, 1) + tr
    lines = [
        Text.assemble((tl + across, QUIET), title, (across * fill, QUIET), right, (corner, QUIET))
    ]
    for i in range(height - 2):
        line = body[i].copy() if i < len(body) else Text("")
        line.truncate(inside, pad=True)
        lines.append(Text.assemble((down, QUIET), line, (down, QUIET)))
    words = Text.assemble(" ", note, " ") if note.plain else Text("")
    words.truncate(max(inside - 2, 0))
    start = bl + (across if note.plain else "")
    rest = across * (inside - words.cell_len - len(start) + 1) + br
    lines.append(Text.assemble((start, QUIET), words, (rest, QUIET)))
    return lines
