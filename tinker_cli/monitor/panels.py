"""The dashboard's screen from a run's facts: header, curves, bars, samples, alerts, keys.

Pure drawing: `screen` gives one renderable of the size it is asked for. Text of models and users is
never markup.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.box import Box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tinker_cli.monitor.charts import Series, line_chart
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.runs.frame import Column
from tinker_cli.runs.stats import smooth
from tinker_cli.runs.status import duration

KL_WARNING = 0.01
STATE_COLOURS = {"running": "green", "finished": "green", "failed": "red", "crashed": "red"}
HELP = "q detach   s stop   tab panels   x axis   +/- smoothing   ? help"
LONG_HELP = (
    "q leaves; the run goes on.  s asks, then finishes the step, saves and ends the run.",
    "tab shows the other curves.  x: step or time.  + and - smooth the curves; raw stays faint.",
)
PAGES: dict[str, tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]] = {
    "rl": (
        (
            ("reward", ("reward", "test_reward")),
            ("KL sampler to learner", ("kl_v1", "kl_v2")),
            ("entropy", ("entropy",)),
            ("tokens a turn", ("env/all/ac_tokens_per_turn",)),
        ),
        (
            ("correct", ("correct", "test/env/all/correct")),
            ("format", ("format",)),
            ("learning rate", ("lr",)),
            ("seconds a step", ("time/total",)),
        ),
    ),
    "sl": (
        (
            ("NLL", ("nll", "test_nll")),
            ("learning rate", ("lr",)),
            ("tokens a step", ("num_tokens",)),
            ("seconds a step", ("time/step",)),
        ),
    ),
}
PHASES = {
    "rl": (
        ("sampling", ("time/sampling",)),
        ("train", ("time/train_step",)),
        ("eval", ("time/run_evals", "time/evals")),
        ("save", ("time/save_checkpoint", "time/save_checkpoint_async")),
    ),
    "sl": (
        ("data", ("time/get_batch",)),
        ("train", ("time/finish_batch", "time/submit_batch")),
        ("eval", ("time/evals",)),
        ("save", ("time/save_checkpoint",)),
    ),
}


@dataclass
class View:
    """What a person has chosen to see."""

    page: int = 0
    smoothing: float = 0.0
    by_time: bool = False
    help: bool = False
    asking: bool = False
    colour: bool = True
    unicode: bool = True


def screen(facts: RunFacts, view: View, width: int, height: int) -> RenderableType:
    """The whole screen, `width` x `height`."""
    top: list[RenderableType] = [*_header(facts, view, width)]
    below = _below(facts, view, width, roomy=height >= 30)
    room = max(height - len(top) - len(below), 6)
    panels = _panels(facts, view, width, room)
    return Group(*top, *panels, *below)


def _header(facts: RunFacts, view: View, width: int) -> list[Text]:
    description, status = facts.description, facts.status
    name = Text(f" {facts.run.name}", style="bold")
    model = description.model if description and description.model else ""
    backend = description.backend if description and description.backend else ""
    parts = [part for part in (model, backend) if part]
    dot = " · " if view.unicode else " - "
    left = name + Text("   " + dot.join(parts) + (dot if parts else ""))
    left.append(facts.state, style=STATE_COLOURS.get(facts.state, "yellow"))
    step, total = (status.step, status.total_steps) if status else (len(facts.reader.frame), None)
    right = f"step {step}/{total}   {100 * step / total:.0f} %" if total else f"step {step}"
    elapsed = facts.elapsed()
    if elapsed is not None:
        right += f"   {duration(elapsed)}"
    left_over = facts.seconds_left()
    if left_over is not None and not facts.has_ended:
        right += f"{dot}{duration(left_over)} left"
    rates = []
    if (pace := facts.step_seconds()) is not None:
        rates.append(f"{pace:.3g} s/step")
    if (rate := facts.tokens_a_second()) is not None:
        rates.append(f"{rate / 1000:.1f}k tok/s" if rate >= 1000 else f"{rate:.0f} tok/s")
    if (cost := facts.last("cost")) is not None:
        share = f" of ~${cost * total / step:.2f}" if total and step else ""
        rates.append(f"${cost:.2f}{share}")
    tail = dot.join(rates)
    bar = _bar(step / total if total else 0, max(width - len(tail) - 4, 8), view)
    lines = [_ends(left, Text(right + " "), width), _ends(Text(" ") + bar, Text(tail + " "), width)]
    if facts.note:
        lines.append(Text(f" {facts.note}"[:width], style="yellow"))
    return lines


def _bar(share: float, width: int, view: View) -> Text:
    full, empty = ("━", "━") if view.unicode else ("#", "-")
    done = round(min(max(share, 0), 1) * width)
    text = Text(full * done, style="green")
    text.append((empty if view.colour or not view.unicode else "┄") * (width - done), style="dim")
    return text


def _ends(left: Text, right: Text, width: int) -> Text:
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        left.truncate(max(width - right.cell_len - 1, 1), overflow="ellipsis")
        gap = max(width - left.cell_len - right.cell_len, 0)
    joined = left + Text(" " * gap) + right
    joined.truncate(width)
    return joined


def _panels(facts: RunFacts, view: View, width: int, room: int) -> list[RenderableType]:
    pages = PAGES[facts.kind]
    chosen = [p for p in pages[view.page % len(pages)] if any(facts.column(n) for n in p[1])]
    if not chosen:
        return [Panel(Text("waiting for the first step ..."), height=max(room, 3), box=_box(view))]
    wide = width >= 72
    columns = 2 if wide and len(chosen) > 1 else 1
    rows = max(1, min((len(chosen) + columns - 1) // columns, room // 6))
    shown = chosen[: rows * columns]
    height = max(room // rows, 6)
    each = width // columns
    table = Table.grid(expand=False)
    for index in range(columns):
        table.add_column(width=each if index else width - each * (columns - 1))
    for start in range(0, len(shown), columns):
        cells = shown[start : start + columns]
        table.add_row(*(_panel(facts, view, title, names, each, height) for title, names in cells))
    return [table]


def _box(view: View) -> Box:
    return box.ROUNDED if view.unicode else box.ASCII


def _panel(
    facts: RunFacts, view: View, title: str, names: tuple[str, ...], width: int, height: int
) -> Panel:
    columns = [column for name in names if (column := facts.column(name)) is not None]
    series = [one for column in columns for one in _series(facts, column, view)]
    threshold = KL_WARNING if title.startswith("KL") else None
    chart = line_chart(
        series,
        width=width - 2,
        height=height - 2,
        threshold=threshold,
        x_label="",
        colour=view.colour,
        unicode=view.unicode,
    )
    lines = chart.split("\n")[: height - 2]
    body = Text.from_ansi("\n".join(lines))
    body.no_wrap = True
    head = Text(f" {title} ", style="bold")
    head.append(_latest(columns))
    return Panel(body, title=head, title_align="left", height=height, padding=0, box=_box(view))


def _latest(columns: list[Column]) -> str:
    said = []
    for column in columns:
        values = column.finite()[1]
        if values:
            short = {"optim/kl_sample_train_v1": "v1 ", "optim/kl_sample_train_v2": "v2 "}.get(
                column.key, "test " if column.key.startswith("test/") else ""
            )
            said.append(f"{short}{values[-1]:.4g}")
    return "  ".join(said) + " "


def _series(facts: RunFacts, column: Column, view: View) -> list[Series]:
    xs: list[float] = [float(step) for step in column.steps]
    if view.by_time and (times := facts.column("time/total") or facts.column("time/step")):
        clock, at = {}, 0.0
        for step, seconds in zip(times.steps, times.values, strict=True):
            at += seconds if seconds < float("inf") else 0
            clock[step] = at
        xs = [clock.get(step, at) for step in column.steps]
    ys = list(column.values)
    name = "test" if column.key.startswith("test/") else column.key.rpartition("/")[2][-12:]
    if view.smoothing <= 0:
        return [Series(name, xs, ys)]
    kept = [(x, y) for x, y in zip(xs, ys, strict=True) if y < float("inf")]
    smoothed = smooth([y for _, y in kept], view.smoothing)
    return [Series(name, xs, ys, faint=True), Series(name, [x for x, _ in kept], smoothed)]


def _below(facts: RunFacts, view: View, width: int, *, roomy: bool) -> list[Text]:
    lines: list[Text] = []
    if facts.kind == "rl" and (groups := _groups(facts, view, width)) is not None:
        lines.append(groups)
    lines.append(_phases(facts, view, width))
    for sample in facts.samples[: 2 if roomy or len(lines) < 3 else 1]:
        cut = " (cut off)" if sample.truncated else ""
        text = f" {sample.label:<6}{sample.reward:>6.2f}  {_one_line(sample.text)}{cut}"
        lines.append(_cut(Text(text), width))
    if roomy and facts.log_line:
        lines.append(_cut(Text(f" log    {_one_line(facts.log_line)}", style="dim"), width))
    lines.append(_ends(_alert(facts, view), _last_checkpoint(facts), width))
    if view.asking:
        lines.append(_cut(Text(" stop after this step, with a checkpoint? y / n", "bold"), width))
    elif view.help:
        lines += [_cut(Text(f" {line}", style="dim"), width) for line in LONG_HELP]
    else:
        lines.append(_cut(Text(f" {HELP}", style="dim"), width))
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _groups(facts: RunFacts, view: View, width: int) -> Text | None:
    names = ("all_good", "mixed", "all_bad")
    shares = [facts.last(f"env/all/by_group/frac_{name}") for name in names]
    if any(share is None for share in shares):
        return None
    marks = "█▓░" if view.unicode else "#=."
    label = "  ".join(
        f"{name.replace('_', ' ')} {100 * (share or 0):.0f} %"
        for name, share in zip(names, shares, strict=True)
    )
    room = max(width - len(label) - 12, 6)
    bar = "".join(m * round((s or 0) * room) for m, s in zip(marks, shares, strict=True))
    return _cut(Text(f" groups {bar[:room]:<{room}}  {label}"), width)


def _phases(facts: RunFacts, view: View, width: int) -> Text:
    total = facts.last("time/total") or facts.last("time/step")
    if not total:
        return Text("")
    spent = [
        (name, sum(facts.last(key) or 0.0 for key in keys)) for name, keys in PHASES[facts.kind]
    ]
    spent = [(name, seconds) for name, seconds in spent if seconds > 0]
    known = sum(seconds for _, seconds in spent)
    total = max(total, known)
    if total > known:
        spent.append(("other", total - known))
    block = "█" if view.unicode else "#"
    room = max(width - 16 * len(spent) - 8, 4)
    parts = [
        f"{name} {block * max(round(room * seconds / total), 1)} {100 * seconds / total:.0f} %"
        for name, seconds in spent
    ]
    return _cut(Text(" time   " + "  ".join(parts)), width)


def _alert(facts: RunFacts, view: View) -> Text:
    alerts = facts.alerts()
    if not alerts:
        return Text("")
    sign = "⚠" if view.unicode else "!"
    more = f" (and {len(alerts) - 1} before)" if len(alerts) > 1 else ""
    return Text(f" {sign} {alerts[-1]}{more}", style="yellow")


def _last_checkpoint(facts: RunFacts) -> Text:
    name = facts.status.last_checkpoint if facts.status else None
    return Text(f"checkpoint {name} " if name else "no checkpoint yet ", style="dim")
