"""The lines above and below the panels: where the run is, its pace and cost, what it says.

Text of models and users comes without control codes and is never markup.
"""

from __future__ import annotations

import re
import time

from rich.text import Text

from tinker_cli.monitor.canvas import ALARM, COLOURS, QUIET
from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.view import View
from tinker_cli.runs.derived import step_seconds
from tinker_cli.runs.rollouts import SampleLine
from tinker_cli.runs.status import duration

STATES = {
    "running": COLOURS[2],
    "finished": COLOURS[2],
    "starting": COLOURS[0],
    "paused": COLOURS[1],
    "stalled": COLOURS[1],
    "stopping": COLOURS[1],
    "stopped": COLOURS[1],
    "failed": ALARM,
    "crashed": ALARM,
}
SIGNS = {"finished": "✓ ", "failed": "✗ ", "crashed": "✗ ", "paused": "◐ ", "running": "● "}
LONG_HELP = (
    "q       leave; the run goes on",
    "s       finish the step, save a checkpoint, end the run (asks first)",
    "tab     the other curves          x   the x axis: step, time, tokens, cost",
    "+ -     smooth more, less; the raw curve stays faint behind",
    "┴ checkpoint   ┊ resumed   × not a number   ▲ beyond the chart   ┄ limit of KL",
)
PHASES = {
    "rl": (
        ("sampling", ("time/sampling",)),
        ("train", ("time/train_step",)),
        ("eval", ("time/run_evals", "time/evals")),
        ("save", ("time/save_checkpoint", "time/save_checkpoint_async")),
    ),
    "sl": (  # what is left is the wait for the batch that is being trained
        ("data", ("time/get_batch",)),
        ("eval", ("time/evals", "time/infrequent_evals")),
        ("save", ("time/save_checkpoint",)),
    ),
}
REST = {"rl": "other", "sl": "train"}
ROOM_FOR_QUESTION = 40  # columns; from it on a sample is shown with what was asked
ROOM_FOR_REPLIES = 100  # columns; from it on the length of replies is beside the time by phase
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\s]+")


def one_line(text: str) -> str:
    """`text` on one line, without escape sequences, control or direction codes."""
    return _CONTROLS.sub(" ", _ESCAPES.sub("", text)).strip()


def header(facts: RunFacts, view: View, width: int) -> list[Text]:
    """Name, state and place; a bar with pace and cost; a note where the state needs one."""
    lines = [_title(facts, view, width), _progress(facts, view, width)]
    if facts.note:
        note = f" {view.plain('⚠')} {one_line(facts.note)}"
        lines.append(_cut(Text(note, style=STATES.get(facts.state, COLOURS[1])), width, view))
    return lines


def _title(facts: RunFacts, view: View, width: int) -> Text:
    described, status = facts.description, facts.status
    dot = view.plain(" · ")
    left = Text(f" {one_line(facts.run.name)}", style="bold")
    sign = SIGNS.get(facts.state, "") if view.unicode else ""
    state = Text(f"{sign}{facts.state}", style=STATES.get(facts.state, ""))
    model = one_line(described.model or "") if described else ""
    backend = one_line(described.backend or "") if described else ""
    step = status.step if status else len(facts.reader.frame)
    total = status.total_steps if status else None
    place = f"step {step}/{total}" if total else f"step {step}"
    share = f"   {100 * step / total:.0f} %" if total else ""
    elapsed = facts.elapsed()
    took = f"   {duration(elapsed)}" if elapsed is not None else ""
    left_over = facts.seconds_left() if not facts.has_ended else None
    remaining = f"{dot}{duration(left_over)} left" if left_over is not None else ""
    short = model.rpartition("/")[2]
    full = share + took + remaining
    choices = [(dot.join(part for part in (model, backend) if part), full), (model, full)]
    choices += [(short, full), (short, share + (remaining or took)), (short, remaining or took)]
    choices += [("", share + (remaining or took)), ("", share), ("", "")]
    for words, tail in choices:  # what is said least often goes first
        right = Text.assemble((place, "bold"), f"{tail} ")
        middle = Text.assemble("   ", (words, QUIET), dot if words else "", state)
        if left.cell_len + middle.cell_len + right.cell_len + 1 <= width:
            break
    return _ends(Text.assemble(left, middle), right, width, view)


def _progress(facts: RunFacts, view: View, width: int) -> Text:
    status = facts.status
    step, total = (status.step, status.total_steps) if status else (0, None)
    rates = []
    if (pace := facts.step_seconds()) is not None:
        rates.append(f"{pace:.3g} s/step")
    if (rate := facts.tokens_a_second()) is not None:
        rates.append(f"{rate / 1000:.1f}k tok/s" if rate >= 1000 else f"{rate:.0f} tok/s")
    if (cost := facts.last("cost")) is not None:
        share = f" of ~${cost * total / step:.2f}" if total and step and not facts.has_ended else ""
        rates.append(f"${cost:.2f}{share}")
    while rates and sum(map(len, rates)) + 3 * len(rates) + 12 > width:
        rates.pop(0 if len(rates) > 1 and width > 40 else -1)
    tail = view.plain(" · ").join(rates)
    room = max(width - len(tail) - 4, 1)
    done = round(min(max(step / total if total else 0.0, 0.0), 1.0) * room)
    full, empty = ("━", "━" if view.colour else "┄") if view.unicode else ("#", "-")
    bar = Text(" ") + Text(full * done, style=STATES.get(facts.state, COLOURS[2]))
    bar.append(empty * (room - done), style=QUIET)
    return _ends(bar, Text(tail + " "), width, view)


def below(facts: RunFacts, view: View, width: int, *, roomy: bool) -> list[Text]:
    """Time by phase, the newest sample, the last log line, alerts, and the keys."""
    lines = [line for line in (_phases(facts, view, width),) if line is not None]
    lines += [_sample(sample, view, width) for sample in facts.samples[:2]]
    for number, said in enumerate(facts.log.lines[-2:] if roomy else []):
        word = "" if number else "log"
        lines.append(_cut(Text(f" {word:<6} {one_line(said)}", style=QUIET), width, view))
    lines.append(_ends(_alert(facts, view), _last_checkpoint(facts, view), width, view))
    lines += _keys(view, width)
    return lines


def _sample(sample: SampleLine, view: View, width: int) -> Text:
    """Reward, question and reply; the question takes what the reply leaves, at least a third."""
    cut = " (cut off)" if sample.truncated else ""
    line = Text.assemble((f" {sample.label:<6}", QUIET), f"{sample.reward:>6.2f}  ")
    room = max(width - line.cell_len - len(cut) - 2, 4)
    question, reply, arrow = Text(one_line(sample.prompt)), Text(one_line(sample.text)), " → "
    if question and room >= ROOM_FOR_QUESTION:
        question.truncate(max(room // 3, room - reply.cell_len - len(arrow)), overflow="ellipsis")
        line.append(question.plain + view.plain(arrow), style=QUIET)
        room -= question.cell_len + len(arrow)
    reply.truncate(room, overflow="ellipsis")
    line.append(reply.plain)
    return _cut(Text.assemble(line, (cut, COLOURS[1])), width, view)


def _keys(view: View, width: int) -> list[Text]:
    if view.asking:
        question = " Stop the run after this step, with a checkpoint?   y yes   any other key no"
        return [_cut(Text(question, style=f"bold {COLOURS[1]}"), width, view)]
    if view.help:
        return [_cut(Text(view.plain(f" {line}")), width, view) for line in LONG_HELP]
    smoothing = f" ({view.smoothing:g})" if view.smoothing else ""
    stop = "s stop   " if view.can_stop else ""
    words = f" q detach   {stop}tab panels   x axis: {view.x}   +/- smoothing{smoothing}   ? help"
    if view.said:
        words = f" {view.said}"
    return [_cut(Text(words, style=QUIET), width, view)]


def _phases(facts: RunFacts, view: View, width: int) -> Text | None:
    """Where the time of the newest step went."""
    row = facts.newest_row()
    total = step_seconds(row)
    if not total or not total < float("inf"):
        return None
    spent = [(n, sum(row.get(key, 0.0) for key in keys)) for n, keys in PHASES[facts.kind]]
    spent = [(name, seconds) for name, seconds in spent if seconds > 0.005 * total]
    known = sum(seconds for _, seconds in spent)
    total = max(total, known)
    if total - known > 0.005 * total:
        spent.append((REST[facts.kind], total - known))
    words = [f" {name} {100 * seconds / total:.0f} %" for name, seconds in spent]
    replies = _replies(facts, view) if width >= ROOM_FOR_REPLIES else Text("")
    taken = sum(map(len, words)) + 10 + 2 * len(spent) + replies.cell_len
    room = max(min(width - taken, 60), len(spent))
    line = Text.assemble((" time   ", QUIET))
    block = "█" if view.unicode else "#"
    for number, ((_, seconds), word) in enumerate(zip(spent, words, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        line.append(block * max(round(room * seconds / total), 1), style=colour)
        line.append(f"{word}  ")
    if line.cell_len + replies.cell_len < width:
        return _ends(line, replies, width, view)
    return _cut(line, width, view)


def _replies(facts: RunFacts, view: View) -> Text:
    """How long replies are, and how many of them were cut off."""
    words = []
    if (length := facts.last("ac_tokens_per_turn")) is not None:
        words.append(f"tokens/turn {length:.3g}")
    if facts.cut_off is not None:
        words.append(f"cut off {100 * facts.cut_off:.3g} %")
    return Text(f"{view.plain(' · ').join(words)} ", style=QUIET)


def _alert(facts: RunFacts, view: View) -> Text:
    alerts = facts.alerts()
    if not alerts:
        return Text("")
    more = f" (and {len(alerts) - 1} before)" if len(alerts) > 1 else ""
    return Text(f" {view.plain('⚠')} {one_line(alerts[-1])}{more}", style=COLOURS[1])


def _last_checkpoint(facts: RunFacts, view: View) -> Text:
    name = facts.status.last_checkpoint if facts.status else None
    if not name:
        return Text("no checkpoint yet ", style=QUIET)
    at = facts.checkpoint_time
    ago = ""
    if at is not None and not facts.has_ended:
        ago = f"{view.plain(' · ')}{duration(max(0.0, time.time() - at))} ago"
    return Text(f"checkpoint {one_line(name)}{ago} ", style=QUIET)


def _ends(left: Text, right: Text, width: int, view: View) -> Text:
    """`left` and `right` at the two ends of a line; the left one gives way."""
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        left.truncate(max(width - right.cell_len - 1, 1), overflow="ellipsis")
        gap = max(width - left.cell_len - right.cell_len, 0)
    return _cut(Text.assemble(left, " " * gap, right), width, view)


def _cut(text: Text, width: int, view: View) -> Text:
    text.truncate(width, overflow="ellipsis")
    if not view.unicode:
        text.plain = text.plain.translate({ord("…"): "."})
    return text
