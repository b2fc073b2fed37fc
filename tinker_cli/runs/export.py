"""Rows of runs for other programs: JSON lines, CSV, parquet. Knows frames; prints nothing."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from tinker_cli.errors import RunFailed
from tinker_cli.runs.derived import column_of, value_of
from tinker_cli.runs.frame import NOT_FINITE, Frame


@dataclass(frozen=True)
class Rows:
    """What of a run is exported: its keys, and its last so many rows (None: all)."""

    run: str
    frame: Frame
    keys: Sequence[str]
    last: int | None = None

    def __iter__(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, chosen values) by ascending step."""
        whole = list(self.keys) == self.frame.keys()
        for step, row in self.frame.rows(-self.last if self.last else 0):
            yield step, row if whole else chosen(row, self.keys)


def chosen(row: Mapping[str, float], keys: Sequence[str]) -> dict[str, float]:
    """The values of a row that have one of the keys, derived ones too."""
    found = {}
    for key in keys:
        value = value_of(row, key)
        if value is not None:
            found[key] = value
    return found


def json_line(step: int, row: Mapping[str, float], run: str | None = None) -> str:
    """A row as strict JSON: what isn't finite is null."""
    head = {} if run is None else {"run": run}
    return orjson.dumps({**head, "step": step, **row}).decode()


def json_lines(runs: Sequence[Rows]) -> Iterator[str]:
    """An object a row; `run` is in it where there are several."""
    for rows in runs:
        name = rows.run if len(runs) > 1 else None
        for step, row in rows:
            yield json_line(step, row, name)


def csv_lines(runs: Sequence[Rows]) -> Iterator[str]:
    """A heading and a line a row; an empty cell where a row lacks the metric."""
    many = len(runs) > 1
    keys = list(dict.fromkeys(key for rows in runs for key in rows.keys))
    yield _csv_line([*(["run"] if many else []), "step", *keys])
    for rows in runs:
        for step, row in rows:
            cells = [repr(row[key]) if key in row else "" for key in keys]
            yield _csv_line([*([rows.run] if many else []), str(step), *cells])


def _csv_line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def write_parquet(runs: Sequence[Rows], target: Path) -> int:
    """Write a table with the columns run, step and the metrics; returns how many rows.

    RunFailed where the file can't be written.
    """
    import pandas

    tables = []
    for rows in runs:
        steps = pandas.Index(sorted(rows.frame.steps), name="step")
        columns = {}
        for key in rows.keys:
            column = column_of(rows.frame, key)
            values = pandas.Series(column.values, index=column.steps, dtype="float64")
            columns[key] = values.replace(NOT_FINITE, float("nan")).reindex(steps)
        frame = pandas.DataFrame(columns, index=steps).reset_index()
        frame.insert(0, "run", rows.run)
        tables.append(frame.tail(rows.last) if rows.last else frame)
    whole = pandas.concat(tables, ignore_index=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        whole.to_parquet(beside, index=False)
        os.replace(beside, target)
    except OSError as error:
        raise RunFailed(f"can't write {target}: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
    return len(whole)
