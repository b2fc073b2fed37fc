"""A rendered conversation for eyes and for programs: coloured text, a table, JSON.

Trained tokens stand out by colour, and by marks where there is none. Text of data is never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tinker_cli.render.shown import Shown, Token

STYLES = {"trained": "bold green", "context": "", "special": "magenta", "image": "cyan"}
OPEN, CLOSE = "\u258c", "\u2590"  # around trained runs, where there is no colour
ASCII_OPEN, ASCII_CLOSE = "[[", "]]"


def as_text(shown: Shown, *, colour: bool, unicode: bool = True) -> Text:
    """The conversation as it reads, trained runs and special tokens told apart."""
    text = Text()
    left, right = (OPEN, CLOSE) if unicode else (ASCII_OPEN, ASCII_CLOSE)
    for segment in shown.segments():
        trained = segment[0].is_trained
        if trained and not colour:
            text.append(left)
        for piece, special in _pieces(segment):
            style = STYLES["special"] if special else STYLES["trained" if trained else "context"]
            style = f"{style} underline" if special and trained else style
            text.append(piece, style if colour else "")
        if trained and not colour:
            text.append(right)
    if shown.is_cut:
        text.append(f"\n... cut at {len(shown.tokens)} of {shown.whole} tokens", "yellow")
    return text


def _pieces(segment: Sequence[Token]) -> list[tuple[str, bool]]:
    """Text of a run, partial characters joined where they complete each other."""
    pieces: list[tuple[str, bool]] = []
    pending = bytearray()
    for token in segment:
        raw = _partial(token.text)
        if raw is not None:
            pending += raw
            continue
        if pending:
            pieces.append((pending.decode("utf-8", "replace"), False))
            pending.clear()
        pieces.append((token.text, token.is_special))
    if pending:
        pieces.append((pending.decode("utf-8", "replace"), False))
    return pieces


def _partial(text: str) -> bytes | None:
    if not text.startswith("<0x") or not text.endswith(">"):
        return None
    try:
        return bytes(int(part, 16) for part in text[3:-1].split("><0x"))
    except ValueError:
        return None


def token_lines(shown: Shown) -> list[str]:
    """A line a token: index, id, weight, role, message, part, text."""
    header = f"{'index':>6} {'id':>7} {'weight':>6}  {'role':<10} {'msg':>3} {'part':<6}  text"
    lines = [header]
    for token in shown.tokens:
        identity = "image" if token.id is None else str(token.id)
        message = "" if token.message is None else str(token.message)
        mark = "*" if token.is_special else " "
        lines.append(
            f"{token.index:>6} {identity:>7} {token.weight:>6g}  {token.role or '':<10} "
            f"{message:>3} {token.part or '':<6} {mark}{_escaped(token.text)}"
        )
    return lines


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text


def as_json(shown: Shown, where: dict[str, Any]) -> dict[str, Any]:
    """The conversation as one object: ids, weights, segments, counts."""
    segments = [
        {
            "message": run[0].message,
            "role": run[0].role,
            "part": run[0].part,
            "trained": run[0].is_trained,
            "start": run[0].index,
            "end": run[-1].index + 1,
            "text": "".join(piece for piece, _ in _pieces(run)),
        }
        for run in shown.segments()
    ]
    return {
        **where,
        "tokens": [token.id for token in shown.tokens],
        "weights": [token.weight for token in shown.tokens],
        "segments": segments,
        "num_tokens": len(shown.tokens),
        "num_trained": shown.trained,
        "truncated": shown.is_cut,
    }
