"""Metrics that no row holds but that its values tell: the time of a step, tokens a second.

A supervised loop doesn't write how long a step took: it submits one batch while another is
finished, so a step takes what its submitting and its finishing take together (and `time/step`,
the wait for a result that is already there, is next to nothing).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from tinker_cli.errors import UsageError
from tinker_cli.runs.frame import Column, Frame

SECONDS, RATE = "seconds/step", "tokens/s"
TOTAL, SUBMIT, FINISH, WAIT = (
    "time/total",
    "time/submit_batch",
    "time/finish_batch",
    "time/step",
)
TOKEN_KEYS = ("num_tokens", "env/all/total_ac_tokens", "env/all/total_ob_tokens")
AXES = ("step", "time", "tokens", "cost")
_SPENT = {  # written as a running total
    "tokens": "tokens/cumulative/trained",
    "cost": "cost/cumulative_usd",
}
_PARTS = {"tokens": TOKEN_KEYS, "cost": ("cost/step_usd",)}
_FEWEST_SECONDS = 1e-3  # a step can't take less: such a time was not that of a step


def step_seconds(row: Mapping[str, float]) -> float | None:
    """How long the step of a row took, evaluations and saving included; None if it can't tell."""
    if TOTAL in row:
        return row[TOTAL]
    if FINISH in row:
        return row.get(SUBMIT, 0.0) + row[FINISH]
    return row.get(WAIT)


def step_tokens(row: Mapping[str, float]) -> float | None:
    """Tokens that a step read and wrote."""
    found = [row[key] for key in TOKEN_KEYS if key in row]
    return sum(found) if found else None


def tokens_a_second(row: Mapping[str, float]) -> float | None:
    """The tokens of a step over its time."""
    seconds, tokens = step_seconds(row), step_tokens(row)
    if not seconds or not tokens or not seconds >= _FEWEST_SECONDS:
        return None
    return tokens / seconds


_DERIVED: dict[str, tuple[Callable[[Mapping[str, float]], float | None], tuple[str, ...]]] = {
    SECONDS: (step_seconds, (TOTAL, SUBMIT, FINISH, WAIT)),
    RATE: (tokens_a_second, (*TOKEN_KEYS, TOTAL, SUBMIT, FINISH, WAIT)),
}


def all_keys(frame: Frame) -> list[str]:
    """Every metric that can be asked for: what was written, then what can be derived."""
    keys = frame.keys()
    has_time = any(key in frame.columns for key in (TOTAL, FINISH, WAIT))
    has_tokens = any(key in frame.columns for key in TOKEN_KEYS)
    keys += [SECONDS] if has_time and SECONDS not in frame.columns else []
    return keys + ([RATE] if has_time and has_tokens and RATE not in frame.columns else [])


def column_of(frame: Frame, key: str) -> Column:
    """A metric, written or derived; KeyError if there is none."""
    if key in frame.columns or key not in _DERIVED:
        return frame.column(key)
    if key == SECONDS and TOTAL in frame.columns and SUBMIT not in frame.columns:
        whole = frame.column(TOTAL)
        return Column(key, whole.steps, whole.values)
    derive, wanted = _DERIVED[key]
    parts = [frame.column(part) for part in wanted if part in frame.columns]
    rows: dict[int, dict[str, float]] = {}
    for part in parts:
        for step, value in zip(part.steps, part.values, strict=True):
            rows.setdefault(step, {})[part.key] = value
    steps, values = array("q"), array("d")
    for step in sorted(rows):
        value_there = derive(rows[step])
        if value_there is not None and value_there == value_there:
            steps.append(step)
            values.append(value_there)
    return Column(key, steps, values)


def value_of(row: Mapping[str, float], key: str) -> float | None:
    """A value of a row, written or derived; None if the row lacks it."""
    if key in row or key not in _DERIVED:
        return row.get(key)
    return _DERIVED[key][0](row)


def spent(frame: Frame, axis: str) -> Column | None:
    """What had been spent on `axis` by each step; None if the run's rows don't tell.

    Seconds, tokens, or dollars. A value that isn't finite counts as nothing.
    """
    total = _SPENT.get(axis)
    if total is not None and total in frame.columns:
        return Column(axis, *frame.column(total).finite())
    if axis == "time":
        if SECONDS not in all_keys(frame):
            return None
        steps, values = column_of(frame, SECONDS).finite()
        return Column(axis, steps, array("d", accumulate(values)))
    parts = [frame.column(key) for key in _PARTS[axis] if key in frame.columns]
    if not parts:
        return None
    sums: dict[int, float] = {}
    for part in parts:
        for step, value in zip(*part.finite(), strict=True):
            sums[step] = sums.get(step, 0.0) + value
    steps = array("q", sorted(sums))
    return Column(axis, steps, array("d", accumulate(sums[step] for step in steps)))


def clock_of(frame: Frame, axis: str, name: str) -> Column:
    """`spent`, or a UsageError that says which axes the rows of the run `name` tell."""
    clock = spent(frame, axis)
    if clock is None:
        others = [a for a in AXES[1:] if a != axis and spent(frame, a) is not None]
        also = f"; so does --x {' and --x '.join(others)}" if others else ""
        raise UsageError(
            f"the rows of {name} don't tell its {axis}", hint=f"--x step always works{also}"
        )
    return clock


def along(clock: Column, steps: Sequence[float]) -> list[float]:
    """Where steps are on an axis: what had been spent when each was done; 0 before the first."""
    if len(steps) == len(clock.steps) and array("q", map(int, steps)) == clock.steps:
        return list(clock.values)
    places = (bisect_right(clock.steps, step) for step in steps)
    return [clock.values[at - 1] if at else 0.0 for at in places]
