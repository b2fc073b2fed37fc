"""`tinker metrics RUN... [NAME...]`: numbers and curves of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from tinker_cli.monitor.tables import Named
    from tinker_cli.runs.export import Rows
    from tinker_cli.runs.wanted import Source

POLL_SECONDS = 0.2
LAST_ROWS = 10  # of a table, and at the start of --follow

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("metrics")
def metrics(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN... [NAME...]",
            help="Directories, names, - for the newest run, files, host:path; then metrics.",
        ),
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="First, last, best, slope.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Every metric there is.")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw curves; runs overlaid.")] = False,
    diff_config: Annotated[
        bool, typer.Option("--diff-config", help="Where the runs' settings differ.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, help=f"The last N rows (table: {LAST_ROWS}; else all)."),
    ] = None,
    x: Annotated[
        str, typer.Option("--x", help="x of --plot and table: step, time, tokens or cost.")
    ] = "step",
    smoothing: Annotated[
        float,
        typer.Option("--smooth", min=0, max=0.999, help="Plot a moving average of that weight."),
    ] = 0.0,
    log: Annotated[bool, typer.Option("--log", help="Logarithmic y axis of --plot.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the plot as a picture.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the plot as a page.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Print rows as they come.")] = False,
    check: Annotated[
        str | None, typer.Option("--check", metavar="EXPR", help="Exit 3 unless true on all rows.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Rows, one object a line; else one document.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Rows, comma-separated.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", help="Write the rows to a file.")
    ] = None,
) -> None:
    """Numbers and curves of runs. NAME: a key, an alias (reward, kl, entropy, nll, lr), a glob.

    tinker metrics - reward kl --plot
    tinker metrics demo --check 'kl < 0.05' && echo healthy

    --json: {"step": 0, "env/all/reward/total": 0.31, ...}, one object a line
    --summary --json, --keys --json: [{"run": "demo", "metric": "optim/entropy", "count": 300,
    "first": 0.6, "last": 0.1, "best": null, "min": 0.1, "max": 0.6, ...}, ...]
    --diff-config --json: [{"setting": "learning_rate", "values": {"a": 0.0001, "b": 0.0003}}]
    """
    from tinker_cli.runs.derived import AXES

    if x not in AXES:
        raise UsageError(f"--x is one of {', '.join(AXES)}, not {x!r}")
    draws = plot or svg is not None or html is not None
    others = (summary, keys, diff_config, follow, check, parquet, as_json, as_csv)
    is_table = not draws and not any(others)
    if x != "step" and not draws and not is_table:
        raise UsageError("--x is of --plot and of the table", hint="--json and --csv tell the step")
    if (log or smoothing) and not draws:
        raise UsageError("--log and --smooth are of --plot", hint="add --plot")
    sources, names = _split(words or ["-"])
    if diff_config:
        _show_differences(sources, as_json)
        return
    if follow:
        if draws:
            raise UsageError("--follow prints rows", hint="tinker watch RUN draws as they come")
        _follow(sources, names, as_json, last)
        return
    for source in sources:
        source.read()
    if check is not None:
        _check(sources, check)
    elif parquet is not None:
        from tinker_cli.runs.export import write_parquet

        count = write_parquet(_rows(sources, names, last), parquet)
        console.say(f"wrote {count} rows to {parquet}")
    elif keys or summary:
        _summarise(sources, names, keys=keys, as_json=as_json)
    elif draws:
        _plot(sources, names, (x, smoothing, log), svg, html, show=plot)
    elif as_json or as_csv:
        from tinker_cli.runs.export import csv_lines, json_lines

        _write((json_lines if as_json else csv_lines)(_rows(sources, names, last)))
    else:
        _show_table(sources, names, last or LAST_ROWS, x)
    for source in sources:
        _say_notes(source, overwritten=not summary)


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        console.write(line)


def _split(words: list[str]) -> tuple[list[Source], list[str]]:
    from tinker_cli.runs.paths import NEWEST
    from tinker_cli.runs.wanted import split_words

    if words[0] == NEWEST and console.is_pipe_with_data():
        console.say("- is the newest run; /dev/stdin reads what is piped in")
    return split_words(words, may_ask=console.is_interactive())


def _rows(sources: list[Source], words: list[str], last: int | None) -> list[Rows]:
    from tinker_cli.runs.export import Rows
    from tinker_cli.runs.wanted import wanted_metrics

    wanted = wanted_metrics(sources, words) if words else None
    return [
        Rows(one.name, one.frame, one.frame.keys() if wanted is None else wanted, last)
        for one in sources
    ]


def _named(sources: list[Source]) -> list[Named]:
    from tinker_cli.monitor.tables import Named

    return [Named(source.name, source.frame) for source in sources]


def _say_notes(source: Source, *, overwritten: bool = True) -> None:
    """What a person should know of the rows; the table of `--summary` counts steps itself."""
    frame = source.frame
    sentences = source.reader.notes.sentences()
    if overwritten and frame.overwritten:
        steps = "step" if frame.overwritten == 1 else "steps"
        sentences.append(f"{frame.overwritten} {steps} overwritten, from step {frame.seams[0]} on")
    for sentence in sentences:
        console.say(f"{source.name}: {sentence}")


def _delta() -> str:
    return "Δ" if console.supports_unicode() else "diff"


def _show_table(sources: list[Source], words: list[str], last: int, axis: str) -> None:
    from tinker_cli.monitor.tables import rows_table, side_by_side
    from tinker_cli.runs.wanted import wanted_metrics

    names = wanted_metrics(sources, words)
    if len(sources) == 1:
        _write(rows_table(_named(sources)[0], names, last, axis=axis))
        return
    if axis != "step":
        raise UsageError("several runs stand side by side by step", hint="--x goes with --plot")
    for number, name in enumerate(names):
        console.write("") if number else None
        _write(side_by_side(_named(sources), name, last, delta=_delta()))


def _summarise(sources: list[Source], words: list[str], *, keys: bool, as_json: bool) -> None:
    from tinker_cli.monitor.tables import footer, keys_table, summaries_table, summary_table
    from tinker_cli.runs.derived import all_keys
    from tinker_cli.runs.wanted import wanted_metrics

    if as_json:
        names = wanted_metrics(sources, words) if words or not keys else None
        chosen = {one.name: names or all_keys(one.frame) for one in sources}
        console.emit([row for one in sources for row in _summaries(one, chosen[one.name])])
        return
    names = wanted_metrics(sources, words)
    if not keys and len(sources) > 1:
        _write(summaries_table(_named(sources), names, delta=_delta()))
    for source in sources:
        if len(sources) > 1 and keys:
            console.write(source.name)
        if keys:
            _write(keys_table(source.frame))
        elif len(sources) == 1:
            _write(summary_table(source.frame, names))
    if not keys:
        dot = " · " if console.supports_unicode() else " - "
        for source in sources:
            parts = [source.name] if len(sources) > 1 else []
            parts += footer(source.frame, names, source.resumes())
            console.write(dot.join(parts))


def _summaries(source: Source, names: list[str]) -> Iterable[dict[str, Any]]:
    from dataclasses import asdict

    from tinker_cli.runs.derived import all_keys, column_of
    from tinker_cli.runs.names import unit
    from tinker_cli.runs.stats import summarise

    there = set(all_keys(source.frame))
    for name in names:
        if name in there:
            row = asdict(summarise(column_of(source.frame, name)))
            low, high = row.pop("low"), row.pop("high")
            head = {"run": source.name, "metric": row.pop("key"), "unit": unit(name)}
            yield {**head, **row, "min": low, "max": high}


def _show_differences(sources: list[Source], as_json: bool) -> None:
    from tinker_cli.monitor.tables import differences_table
    from tinker_cli.runs.compare import config_differences

    runs = [source.run for source in sources if source.run is not None]
    if len(runs) < 2 or len(runs) < len(sources):
        raise UsageError("--diff-config compares the directories of two or more runs")
    names = [source.name for source in sources]
    found = config_differences(runs)
    if as_json:
        console.emit(
            [
                {"setting": one.key, "values": dict(zip(names, one.values, strict=True))}
                for one in found
            ]
        )
    elif found:
        _write(differences_table(names, found))
    else:
        console.say("the settings of these runs don't differ")


def _check(sources: list[Source], text: str) -> None:
    from tinker_cli.runs.expressions import parse
    from tinker_cli.runs.verdicts import hold

    expression = parse(text)
    looked = 0
    for source in sources:
        verdict = hold(expression, source.frame)
        looked += verdict.looked
        if verdict.false_at is not None:
            where = f"at step {verdict.false_at} ({verdict.values})"
            raise CheckFailed(f"{source.name}: not {text} {where}")
    if not looked:
        raise CheckFailed(f"no row has all of: {', '.join(expression.names)}")
    console.say(f"{text}: true on {looked} rows")


def _plot(
    sources: list[Source],
    words: list[str],
    how: tuple[str, float, bool],
    svg: Path | None,
    html: Path | None,
    *,
    show: bool,
) -> None:
    """Draw on stdout, and into files where they are named."""
    from dataclasses import replace

    from tinker_cli.monitor.picture import WIDTH, write_picture
    from tinker_cli.monitor.plots import DRAWN_BY_DEFAULT, Curves, Plot, plot_lines
    from tinker_cli.monitor.terminal import as_text
    from tinker_cli.runs.wanted import wanted_metrics

    names = wanted_metrics(sources, words)
    names = names if words else names[:DRAWN_BY_DEFAULT]
    runs = [Curves(one.name, one.frame, one.resumes(), one.checkpoints()) for one in sources]
    x, smoothing, log = how
    drawn = Plot(x, smoothing, log, console.width())
    drawn = replace(drawn, colour=console.wants_colour(), unicode=console.supports_unicode())
    if show or (svg is None and html is None):
        lines = as_text(plot_lines(runs, names, drawn), drawn.width, colour=drawn.colour)
        _write(line.rstrip() for line in lines)
    picture = replace(drawn, width=WIDTH, colour=True, unicode=True)
    for kind, target in (("svg", svg), ("html", html)):
        if target is not None:
            lines_there = plot_lines(runs, names, picture)
            title = " ".join(["tinker metrics", *(run.name for run in runs)])
            write_picture(lines_there, target, kind=kind, width=WIDTH, title=title)
            console.say(f"wrote {target}")


def _follow(sources: list[Source], words: list[str], as_json: bool, last: int | None) -> None:
    """Print rows as they come, until the runs or streams end or a person has seen enough."""
    from tinker_cli.runs.export import json_line
    from tinker_cli.runs.names import label
    from tinker_cli.runs.tail import Tails

    first = last if as_json else last or LAST_ROWS
    tails = Tails(sources, words, whole=as_json, last=first, say=console.say)
    many = len(sources) > 1
    width = max(len(source.name) for source in sources) if many else 0
    while True:
        for source, step, shown in tails.poll():
            if as_json:
                console.write(json_line(step, shown, source.name if many else None))
            else:
                head = f"{source.name:<{width}}  " if many else ""
                numbers = "  ".join(f"{label(n)} {_short(v)}" for n, v in shown.items())
                console.write(f"{head}step {step}  {numbers}")
        console.flush()
        if tails.ended:
            break
        time.sleep(POLL_SECONDS)
    for source in sources:
        _say_notes(source)


def _short(value: float) -> str:
    return f"{value:.4g}" if value == value else "NaN"
