"""Finished datums of a spec's dataset, whose rows can't be seen: what is still to be told of them.

Examples are named by their place in the first epoch, from 1. Knows datums and lenses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.render.choose import Chosen
from tinker_cli.render.faults import Problem
from tinker_cli.render.shown import Lens, Shown

PLACE = "example"  # stands where a file's name stands


def check_datums(datums: Iterable[Any], lens: Lens) -> tuple[int, list[Problem]]:
    """How many there are, and those that train nothing or fill the maximal length."""
    looked, problems = 0, []
    for looked, datum in enumerate(datums, 1):
        shown = lens.show_datum(datum)
        if not shown.trained:
            problems.append(Problem(PLACE, looked, "untrained", "no token is trained"))
        elif _is_full(shown, lens):
            why = f"fills the maximal length of {lens.max_length}: it is cut, or just fits"
            problems.append(Problem(PLACE, looked, "cut", why))
    return looked, problems


def choose_datums(
    datums: Iterable[Any], lens: Lens, *, index: int | None, where: str
) -> Iterator[Chosen]:
    """The chosen examples, rendered."""
    shown = ((number, lens.show_datum(datum)) for number, datum in enumerate(datums, 1))
    if index is not None:
        found = next((each for each in shown if each[0] == index + 1), None)
        if found is None:
            raise UsageError(f"there is no example {index}")
        shown = (each for each in [found])
    if where == "longest":
        most = max(shown, key=lambda each: each[1].whole, default=None)
        shown = (each for each in ([most] if most else []))
    for number, each in shown:
        if where in ("all", "longest") or _fits(each, lens, where):
            yield Chosen(PLACE, number, None, each)


def _fits(shown: Shown, lens: Lens, where: str) -> bool:
    full, untrained = _is_full(shown, lens), not shown.trained
    return {"truncated": full, "untrained": untrained}.get(where, full or untrained)


def _is_full(shown: Shown, lens: Lens) -> bool:
    return lens.max_length is not None and len(shown.tokens) >= lens.max_length
