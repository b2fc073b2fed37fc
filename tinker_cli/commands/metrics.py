"""`tinker metrics RUN... [NAME...]`: numbers and curves of runs."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tinker_cli import console
from tinker_cli.errors import CheckFailed, RunFailed, UsageError

if TYPE_CHECKING:
    from tinker_cli.runs.frame import Frame
    from tinker_cli.runs.metrics import MetricsReader

PLOT_LINES = 16  # height of one chart
POLL_SECONDS = 0.2

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("metrics")
def metrics(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN... [NAME...]", help="Runs, then metrics or aliases."),
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="First, last, best, slope.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Every metric there is.")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw curves.")] = False,
    last: Annotated[int, typer.Option("--last", min=1, help="The last N steps.")] = 10,
    x: Annotated[str, typer.Option("--x", help="step, time, tokens or cost.")] = "step",
    smoothing: Annotated[
        float, typer.Option("--smooth", min=0, max=0.999, help="Weight of the moving average.")
    ] = 0.0,
    log: Annotated[bool, typer.Option("--log", help="Logarithmic y axis.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print rows as they come.")] = False,
    check: Annotated[
        str | None, typer.Option("--check", metavar="EXPR", help="Exit 3 unless true on all rows.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write a file.")] = None,
) -> None:
    """Numbers and curves of runs. NAME: a key, an alias (reward, kl, entropy, nll, lr), a glob.

    tinker metrics - reward kl --plot
    tinker metrics demo --check 'kl < 0.05' && echo healthy

    --json: {"step": 0, "env/all/reward/total": 0.31, ...}, one object a line
    """
    runs, names = _split(words or ["-"])
    if x not in X_KEYS:
        raise UsageError(f"--x is one of {', '.join(X_KEYS)}, not {x!r}")
    if follow:
        _follow(runs[0], names, as_json)
        return
    readers = {run: _read(run) for run in runs}
    if check is not None:
        _check(readers, check)
    elif parquet is not None:
        _write_parquet(readers, names, parquet)
    elif as_json or as_csv:
        (_emit_json if as_json else _emit_csv)(readers, names)
    elif keys:
        _show_keys(readers)
    elif plot:
        _plot(readers, names, x, smoothing, log)
    elif summary:
        _show_summary(readers, names)
    else:
        _show_table(readers, names, last)
    for run, reader in readers.items():
        for sentence in reader.notes.sentences():
            console.say(f"{run.name}: {sentence}")


X_KEYS: dict[str, tuple[str, ...]] = {
    "step": (),
    "time": ("time/total", "time/step"),
    "tokens": ("tokens/cumulative/trained", "num_tokens", "env/all/total_ac_tokens"),
    "cost": ("cost/cumulative_usd",),
}


def _split(words: list[str]) -> tuple[list[Path], list[str]]:
    """Leading words that name runs or files, then names of metrics."""
    from tinker_cli.runs.paths import resolve_run

    runs: list[Path] = []
    for index, word in enumerate(words):
        path = Path(word).expanduser()
        if path.is_file():
            runs.append(path)
            continue
        try:
            runs.append(resolve_run(word))
        except UsageError:
            if not runs:
                raise
            return runs, words[index:]
    return runs, []


def _read(run: Path) -> MetricsReader:
    from tinker_cli.runs.metrics import read_metrics

    reader = read_metrics(run)
    if not len(reader.frame):
        raise RunFailed(f"no metrics yet in {reader.path}", hint="--follow waits for them")
    return reader


def _names(frame: Frame, words: list[str]) -> list[str]:
    from tinker_cli.runs.names import default_names, resolve_names

    return resolve_names(words, frame.keys()) if words else default_names(frame.keys())


def _all_or(frame: Frame, words: list[str]) -> list[str]:
    return _names(frame, words) if words else frame.keys()


def _chosen(row: dict[str, float], names: list[str]) -> dict[str, float]:
    return {name: row[name] for name in names if name in row}


def _emit_json(readers: dict[Path, MetricsReader], words: list[str]) -> None:
    for run, reader in readers.items():
        head = {"run": run.name} if len(readers) > 1 else {}
        names = _all_or(reader.frame, words)
        for step, row in reader.frame.rows():
            console.emit_row({**head, "step": step, **_chosen(row, names)})


def _emit_csv(readers: dict[Path, MetricsReader], words: list[str]) -> None:
    many = len(readers) > 1
    names = list(
        dict.fromkeys(n for reader in readers.values() for n in _all_or(reader.frame, words))
    )
    _write_csv_row([*(["run"] if many else []), "step", *names])
    for run, reader in readers.items():
        for step, row in reader.frame.rows():
            cells = [repr(row[name]) if name in row else "" for name in names]
            _write_csv_row([*([run.name] if many else []), str(step), *cells])


def _write_csv_row(cells: list[str]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    console.write(out.getvalue())


def _write_parquet(readers: dict[Path, MetricsReader], words: list[str], target: Path) -> None:
    import pandas

    rows = [
        {"run": run.name, "step": step, **_chosen(row, _all_or(reader.frame, words))}
        for run, reader in readers.items()
        for step, row in reader.frame.rows()
    ]
    pandas.DataFrame(rows).to_parquet(target)
    console.say(f"wrote {len(rows)} rows to {target}")


def _check(readers: dict[Path, MetricsReader], text: str) -> None:
    from tinker_cli.runs.expressions import parse

    expression = parse(text)
    looked = 0
    for run, reader in readers.items():
        for step, row in reader.frame.rows():
            verdict = expression.evaluate(row, reader.frame.keys())
            looked += verdict is not None
            if verdict is False:
                values = ", ".join(f"{n} {_value_of(row, n)}" for n in expression.names)
                raise CheckFailed(f"{run.name}: not {text} at step {step} ({values})")
    if not looked:
        raise CheckFailed(f"no row has all of: {', '.join(expression.names)}")
    console.say(f"{text}: true on {looked} rows")


def _value_of(row: dict[str, float], word: str) -> str:
    from tinker_cli.runs.names import resolve_name

    return f"{row[resolve_name(word, list(row))]:.4g}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if value == value else "NaN"


def _print_table(header: list[str], rows: list[list[str]], *, words: int = 1) -> None:
    """Columns as wide as they need to be; the first `words` of them are flush left."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.ljust(w) if i < words else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        console.write("  ".join(cells).rstrip())


def _show_table(readers: dict[Path, MetricsReader], words: list[str], last: int) -> None:
    from tinker_cli.runs.names import label

    for run, reader in readers.items():
        if len(readers) > 1:
            console.write(run.name)
        names = _names(reader.frame, words)
        rows = [
            [str(step), *(_number(row.get(name)) for name in names)]
            for step, row in reader.frame.rows()
            if any(name in row for name in names)
        ]
        _print_table(["step", *map(label, names)], rows[-last:])


def _show_keys(readers: dict[Path, MetricsReader]) -> None:
    from tinker_cli.runs.stats import summarise

    for run, reader in readers.items():
        if len(readers) > 1:
            console.write(run.name)
        rows = []
        for key in reader.frame.columns:
            s = summarise(reader.frame.column(key))
            rows.append([key, str(s.count), *map(_number, (s.first, s.last, s.low, s.high))])
        _print_table(["metric", "count", "first", "last", "min", "max"], rows)


def _show_summary(readers: dict[Path, MetricsReader], words: list[str]) -> None:
    from tinker_cli.runs.names import label
    from tinker_cli.runs.stats import summarise

    for run, reader in readers.items():
        if len(readers) > 1:
            console.write(run.name)
        frame, rows = reader.frame, []
        for name in _names(frame, words):
            s = summarise(frame.column(name))
            best = "" if s.best is None else f"{_number(s.best)} @ {s.best_step}"
            slope = "" if s.slope is None else f"{s.slope:+.3g}"
            shown = [_number(s.first), _number(s.last), best, _number(s.last_tenth), slope]
            rows.append([label(name), name, *shown])
        header = ["metric", "", "first", "last", "best", "last tenth", "slope/100"]
        _print_table(header, rows, words=2)
        console.write(_footer(frame, _names(frame, words)))


def _footer(frame: Frame, names: list[str]) -> str:
    steps = [frame.steps[i] for i in frame.order()]
    parts = [f"{len(steps)} rows", f"steps {steps[0]} to {steps[-1]}"]
    if frame.overwritten:
        many = "step" if frame.overwritten == 1 else "steps"
        parts.append(f"{frame.overwritten} {many} overwritten from {frame.seams[0]}")
    for name in names:
        if bad := frame.column(name).not_finite:
            parts.append(f"{len(bad)} NaN in {name} (step {bad[0]})")
    return " · ".join(parts) if console.supports_unicode() else " - ".join(parts)


def _plot(
    readers: dict[Path, MetricsReader], words: list[str], x: str, smoothing: float, log: bool
) -> None:
    from tinker_cli.monitor.charts import Series, line_chart
    from tinker_cli.runs.names import default_names, label, resolve_names
    from tinker_cli.runs.stats import smooth

    first = next(iter(readers.values())).frame
    names = resolve_names(words, first.keys()) if words else default_names(first.keys())[:4]
    for name in names:
        series: list[Series] = []
        for run, reader in readers.items():
            if name not in reader.frame.columns:
                continue
            column = reader.frame.column(name)
            xs, ys = _along(reader.frame, list(column.steps), x), list(column.values)
            title = run.name if len(readers) > 1 else label(name)
            series.append(Series(title, xs, ys, faint=smoothing > 0))
            if smoothing > 0:
                kept = [(a, b) for a, b in zip(xs, ys, strict=True) if b < float("inf")]
                curve = smooth([b for _, b in kept], smoothing)
                series.append(Series(title, [a for a, _ in kept], curve))
        text = line_chart(
            series,
            width=console.width(),
            height=PLOT_LINES,
            title=label(name),
            log=log,
            threshold=0.01 if "kl_sample_train" in name else None,
            x_label={"time": "seconds"}.get(x, x),
            colour=console.wants_colour(),
            unicode=console.supports_unicode(),
        )
        console.write(text)


def _along(frame: Frame, steps: list[int], x: str) -> list[float]:
    """The x of each step: itself, or what had been spent by then."""
    if x == "step":
        return [float(step) for step in steps]
    key = next((key for key in X_KEYS[x] if key in frame.columns), None)
    if key is None:
        raise UsageError(f"this run has no {x}", hint="--x step always works")
    column = frame.column(key)
    spent, total = {}, 0.0
    for step, value in zip(column.steps, column.values, strict=True):
        value = value if value < float("inf") else 0.0
        total = value if "cumulative" in key else total + value
        spent[step] = total
    at, along = 0.0, []
    for step in steps:
        at = spent.get(step, at)
        along.append(at)
    return along


def _follow(run: Path, words: list[str], as_json: bool) -> None:
    """Print rows as they come, until the run ends or a person has seen enough."""
    from tinker_cli.runs.metrics import MetricsReader
    from tinker_cli.runs.names import label
    from tinker_cli.runs.status import effective_state, read_status

    reader, seen = MetricsReader(run), set[int]()
    while True:
        reader.poll()
        status = read_status(run) if run.is_dir() else None
        state, _ = effective_state(run, status)
        for step, row in reader.frame.rows():
            if step in seen:
                continue
            seen.add(step)
            names = _all_or(reader.frame, words) if as_json else _names(reader.frame, words)
            shown = _chosen(row, names)
            if as_json:
                console.emit_row({"step": step, **shown})
            elif shown:
                numbers = "  ".join(f"{label(n)} {_number(v)}" for n, v in shown.items())
                console.write(f"step {step}  {numbers}")
                console.flush()
        if state in ("finished", "stopped", "failed", "crashed"):
            return
        time.sleep(POLL_SECONDS)
