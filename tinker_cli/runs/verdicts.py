"""An expression held against every row of a run, once for all rows or up to the first that fails.

Words are looked up among all metrics of the run, so that `kl` means the same in each row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinker_cli.runs.derived import all_keys, value_of
from tinker_cli.runs.expressions import Expression
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.names import resolve_name


@dataclass(frozen=True)
class Verdict:
    """How many rows have all metrics of the expression; the step where it is false, and why."""

    looked: int
    false_at: int | None = None
    values: str = ""


def hold(expression: Expression, frame: Frame) -> Verdict:
    """Look at rows by ascending step; UsageError if a word names no metric of the run."""
    keys = all_keys(frame)
    wanted = {word: resolve_name(word, keys) for word in expression.names}
    looked = 0
    for step, row in frame.rows():
        values = {word: value_of(row, key) for word, key in wanted.items()}
        known = {word: value for word, value in values.items() if value is not None}
        verdict = expression.evaluate(known)
        looked += verdict is not None
        if verdict is False:
            said = ", ".join(f"{word} {value:.4g}" for word, value in known.items())
            return Verdict(looked, step, said)
    return Verdict(looked)
