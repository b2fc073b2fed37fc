"""A rendered conversation for eyes and for programs: coloured text, a table, JSON.

Trained tokens stand out by colour, and by marks where there is none; control tokens too. Text of
data is never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tinker_cli.render.compare import Comparison
from tinker_cli.render.shown import Lens, Shown, Token
from tinker_cli.render.stats import Stats

STYLES = {"trained": "bold green", "context": "", "special": "magenta", "image": "cyan"}
# Where there is no colour: (opens, closes) a trained run, (opens, closes) a control token.
MARKS = (("\u258c", "\u2590"), ("\u27e6", "\u27e7"))
ASCII_MARKS = (("[[", "]]"), ("{", "}"))
LABEL = 14  # columns of a label in the table of counts
BESIDE, LONGEST_BAR = 36, 50  # columns beside a bar of the histogram, and of the bar


def as_text(shown: Shown, *, colour: bool, unicode: bool = True) -> Text:
    """The conversation as it reads, trained runs and special tokens told apart."""
    text = Text()
    (left, right), around = MARKS if unicode else ASCII_MARKS
    for segment in shown.segments():
        trained = segment[0].is_trained
        if segment[0].id is None:
            text.append(image_words(segment), STYLES["image"] if colour else "")
            continue
        if trained and not colour:
            text.append(left)
        for piece, special in _pieces(segment):
            style = STYLES["special"] if special else STYLES["trained" if trained else "context"]
            style = f"{style} underline" if special and trained else style
            piece = _visible(piece)
            piece = f"{around[0]}{piece}{around[1]}" if special and not colour else piece
            text.append(piece, style if colour else "")
        if trained and not colour:
            text.append(right)
    if shown.is_cut:
        text.append(f"\n... cut at {len(shown.tokens)} of {shown.whole} tokens", "yellow")
    return text


def image_words(segment: Sequence[Token]) -> str:
    """An image's place, and how many tokens it takes."""
    return f"<image, {len(segment):,} tokens>"


def _visible(text: str) -> str:
    """Text that a terminal shows and does not obey: control characters as \\xNN."""
    return "".join(
        c if (c >= " " and c != "\x7f") or c in "\n\t" else f"\\x{ord(c):02x}" for c in text
    )


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


def token_table(shown: Shown, *, colour: bool) -> Text:
    """A line a token (an image: one for all of its tokens); trained ones stand out in colour."""
    header = f"{'index':>6} {'id':>7} {'weight':>6}  {'role':<10} {'msg':>3} {'part':<6}  text"
    lines = [Text(header, "bold" if colour else "")]
    for segment in shown.segments():
        if segment[0].id is None:
            lines.append(Text(_token_line(segment[0], image_words(segment))))
            continue
        for token in segment:
            kind = "trained" if token.is_trained else "special" if token.is_special else "context"
            line = _token_line(token, _escaped(token.text))
            lines.append(Text(line, STYLES[kind] if colour else ""))
    if shown.is_cut:
        lines.append(Text(f"... cut at {len(shown.tokens)} of {shown.whole} tokens"))
    return Text("\n").join(lines)


def _token_line(token: Token, text: str) -> str:
    identity = "image" if token.id is None else str(token.id)
    message = "" if token.message is None else str(token.message)
    mark = "*" if token.is_special else " "
    return (
        f"{token.index:>6} {identity:>7} {token.weight:>6g}  {token.role or '':<10} "
        f"{message:>3} {token.part or '':<6} {mark}{text}"
    )


def _escaped(text: str) -> str:
    """Text on one line: what can't be printed as in a Python string."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_json(shown: Shown, where: dict[str, Any]) -> dict[str, Any]:
    """The conversation as one object: ids, weights, segments, counts."""
    return {
        **where,
        "tokens": [token.id for token in shown.tokens],
        "weights": [token.weight for token in shown.tokens],
        "segments": [_segment(run) for run in shown.segments()],
        "num_tokens": len(shown.tokens),
        "num_trained": shown.trained,
        "truncated": shown.is_cut,
    }


def _segment(run: Sequence[Token]) -> dict[str, Any]:
    is_image = run[0].id is None
    return {
        "message": run[0].message,
        "role": run[0].role,
        "part": "image" if is_image else run[0].part,
        "trained": run[0].is_trained,
        "start": run[0].index,
        "end": run[-1].index + 1,
        "text": "" if is_image else "".join(piece for piece, _ in _pieces(run)),
    }


def stop_words(stops: Sequence[Any], lens: Lens) -> str:
    """Where sampling stops, in words."""
    said = [repr(s) if isinstance(s, str) else f"{lens.text(s)} ({s})" for s in stops]
    return ", ".join(said)


def difference_lines(place: str, found: Comparison, name: str) -> list[str]:
    """Identical, or both sides around the first difference, and why it is expected."""
    if found.refused is not None:
        return [f"{place}  {found.refused}"]
    if found.difference is None:
        return [f"{place}  {found.form}: identical, {found.tokens:,} tokens"]
    label = max(len(name), len("template"))
    lines = [
        f"{place}  {found.form}: differs at token {found.difference.position}",
        f"  {'before':<{label}}  {found.difference.before!r}",
        f"  {name:<{label}}  {found.difference.ours!r}",
        f"  {'template':<{label}}  {found.difference.theirs!r}",
    ]
    return [*lines, f"  {'expected':<{label}}  {found.expected}"] if found.expected else lines


def stats_lines(stats: Stats, *, usd: float | None, width: int, unicode: bool) -> list[str]:
    """The counts as a table, and the histogram of lengths."""
    share = 100 * stats.trained / stats.tokens if stats.tokens else 0
    roles = ", ".join(f"{role} {n:,}" for role, n in stats.roles.most_common())
    lengths = "  ".join(f"p{p} {n:,}" for p, n in stats.percentiles().items())
    rows = [
        ("conversations", f"{stats.conversations:,}"),
        ("turns", f"{stats.turns:,} ({roles})" if roles else "not known"),
        ("tokens", f"{stats.tokens:,} an epoch"),
        ("trained", f"{stats.trained:,} ({share:.0f} %)"),
        ("length", lengths),
        ("cut", f"{stats.cut:,} by the maximal length"),
        ("untrained", f"{stats.untrained:,} have no trained token"),
        (
            "faulty",
            f"{stats.faulty:,} can't be rendered" + ("; --check says why" * bool(stats.faulty)),
        ),
    ]
    if usd is not None:
        rows.append(("cost", f"${usd:,.2f} an epoch"))
    lines = [f"  {label:<{LABEL}} {value}" for label, value in rows]
    return [*lines, "", *_bars(stats, width, "\u2588" if unicode else "#")]


def _bars(stats: Stats, width: int, mark: str) -> list[str]:
    bins = stats.histogram()
    most = max((each.count for each in bins), default=0)
    room = min(max(width - BESIDE, 10), LONGEST_BAR)
    return [
        f"  {each.low:>8,} to {each.high:<8,} {each.count:>8,} "
        f"{mark * round(room * each.count / most)}".rstrip()
        for each in bins
    ]
