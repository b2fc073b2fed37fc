"""Which conversations of many to look at: one by its place, the longest, or those with a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault, InputFaults, UsageError
from tinker_cli.render.faults import Problem, check_batch
from tinker_cli.render.shown import Lens, Shown
from tinker_cli.render.sources import view

WHERE = ("all", "longest", "truncated", "untrained", "faulty")


@dataclass(frozen=True)
class Chosen:
    """A row to look at: rendered (None if it can't be), and what is wrong with it."""

    file: str
    line: int
    row: Row | None
    shown: Shown | None
    problems: tuple[Problem, ...] = ()


def choose(
    rows: Iterable[Row | Fault], lens: Lens, *, index: int | None = None, where: str = "all"
) -> Iterator[Chosen]:
    """The chosen rows, rendered, one by one as they come.

    With `where` faulty, rows that can't be rendered are among them with their problems. Else they
    are left out, and raised as one InputFaults after the last row.
    """
    if index is not None:
        rows = [_nth(rows, index)]
    if where == "faulty":
        yield from _faulty(rows, lens)
        return
    refused: list[Fault] = []
    longest: Chosen | None = None
    for row in rows:
        chosen = _seen(row, lens, refused)
        if chosen is None or chosen.shown is None:
            continue
        if where == "longest":
            if longest is None or longest.shown is None or chosen.shown.whole > longest.shown.whole:
                longest = chosen
        elif _fits(chosen.shown, where):
            yield chosen
    if longest is not None:
        yield longest
    if refused:
        many = f"{len(refused)} conversations can't be rendered"
        one = f"{refused[0].where} can't be rendered"
        raise InputFaults(one if len(refused) == 1 else many, refused)


def _nth(rows: Iterable[Row | Fault], index: int) -> Row | Fault:
    count = 0
    for row in rows:
        if count == index:
            return row
        count += 1
    raise UsageError(f"there is no conversation {index}: there are {count}, counted from 0")


def _seen(row: Row | Fault, lens: Lens, refused: list[Fault]) -> Chosen | None:
    if isinstance(row, Fault):
        refused.append(row)
        return None
    try:
        return Chosen(row.file, row.line, row, view(row, lens))
    except InputFaults as error:
        refused += error.faults
        return None


def _fits(shown: Shown, where: str) -> bool:
    if where == "truncated":
        return shown.is_cut
    return where == "all" or shown.trained == 0


def _faulty(rows: Iterable[Row | Fault], lens: Lens) -> Iterator[Chosen]:
    for row in rows:
        problems = check_batch(lens, [row]).problems
        if not problems:
            continue
        chosen = None if isinstance(row, Fault) else _seen(row, lens, [])
        file, line = row.file or "", row.line or 0
        sound = row if isinstance(row, Row) else None
        shown = chosen.shown if chosen else None
        yield Chosen(file, line, sound, shown, problems)
