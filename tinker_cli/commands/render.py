"""`tinker render`: what the model really sees, and a gate for data."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import CheckFailed, Fault, InputFaults, UsageError, nearest

if TYPE_CHECKING:
    from tinker_cli.data.rows import Row
    from tinker_cli.render.shown import Lens, Shown

WHERE = ("all", "longest", "truncated", "untrained", "faulty")
HISTOGRAM_ROWS = 8
PROGRESS_EVERY = 1_000  # conversations

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("render")
def render(
    file: Annotated[str | None, typer.Argument(help="JSONL of conversations, or -.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Its renderer and tokenizer.")
    ] = None,
    renderer: Annotated[str | None, typer.Option("--renderer")] = None,
    tokenizer: Annotated[str | None, typer.Option("--tokenizer", help="Folder or name.")] = None,
    spec: Annotated[Path | None, typer.Option("--spec", help="Data, renderer as it says.")] = None,
    train_on: Annotated[
        str, typer.Option("--train-on", help="all_assistant_messages, last_assistant_message, ...")
    ] = "all_assistant_messages",
    max_length: Annotated[int | None, typer.Option("--max-length", min=1)] = None,
    user: Annotated[str | None, typer.Option("--user", help="Instead of a file.")] = None,
    system: Annotated[str | None, typer.Option("--system")] = None,
    assistant: Annotated[str | None, typer.Option("--assistant")] = None,
    index: Annotated[int | None, typer.Option("--index", help="One conversation, from 0.")] = None,
    where: Annotated[str, typer.Option("--where", help=", ".join(WHERE) + ".")] = "all",
    tokens: Annotated[bool, typer.Option("--tokens", help="A line a token.")] = False,
    generation: Annotated[bool, typer.Option("--generation", help="The sampling prompt.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 3 if anything is lost.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Counts of the whole file.")] = False,
    diff_hf: Annotated[
        bool, typer.Option("--diff-hf", help="Against the tokenizer's own template.")
    ] = False,
    renderers: Annotated[bool, typer.Option("--renderers", help="Every renderer's name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object a conversation.")] = False,
) -> int:
    """What training sees of conversations: tokens, weights, roles, and what is lost.

    tinker render chat.jsonl --model tiny --check
    tinker render --model tiny --user "2+2?" --assistant 4 --tokens

    --json: {"file", "line", "tokens", "weights", "segments": [{"message", "role", "part",
    "trained", "start", "end", "text"}], "num_tokens", "num_trained", "truncated"}
    """
    if renderers:
        _list_renderers(as_json)
        return 0
    if where not in WHERE:
        raise UsageError(f"--where is one of {', '.join(WHERE)}, not {where!r}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.getLogger("tinker_cookbook").setLevel(logging.ERROR)  # the views say it per row
    inline = [("system", system), ("user", user), ("assistant", assistant)]
    messages = [{"role": role, "content": text} for role, text in inline if text is not None]
    maker, rows = (
        _of_spec(spec)
        if spec
        else (
            _Maker(model, renderer, tokenizer, train_on, max_length),
            _rows(file, messages),
        )
    )
    if stats:
        return _show_stats(rows, maker, as_json)
    lens = maker()
    if check:
        return _check(rows, lens, as_json)
    chosen = _chosen(rows, lens, index, where)
    for number, row in enumerate(chosen):
        if number and not as_json:
            console.write("")
        _show(row, lens, tokens=tokens, generation=generation, diff_hf=diff_hf, as_json=as_json)
    return 0


@dataclass(frozen=True)
class _Maker:
    """Makes the lens, here or in another process."""

    model: str | None
    renderer: str | None
    tokenizer: str | None
    train_on: str
    max_length: int | None

    def __call__(self) -> Lens:
        from tinker_cookbook.renderers import TrainOnWhat, get_renderer

        from tinker_cli.render.shown import Lens
        from tinker_cli.spec.models import load_tokenizer, recommended_renderer
        from tinker_cli.spec.rules import renderer_names

        logging.getLogger("tinker_cookbook").setLevel(logging.ERROR)
        source = self.tokenizer or self.model
        if source is None:
            raise UsageError("which model? give --model, or --renderer and --tokenizer")
        name = self.renderer or recommended_renderer(self.model or source)
        if name not in renderer_names():
            near = nearest(name, renderer_names())
            hint = f"did you mean {near}?" if near else "--renderers lists them"
            raise UsageError(f"no renderer {name!r}", hint=hint)
        try:
            what = TrainOnWhat(self.train_on)
        except ValueError:
            words = [str(each.value) for each in TrainOnWhat]
            near = nearest(self.train_on, words)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(words)}"
            raise UsageError(f"--train-on {self.train_on!r} is unknown", hint=hint) from None
        loaded = load_tokenizer(source)
        return Lens(get_renderer(name, loaded), loaded, name, what, self.max_length)


def _of_spec(path: Path) -> tuple[_Maker, Iterator[Row | Fault]]:
    """The lens and the rows that training by this spec would have."""
    from tinker_cli.data.rows import scan_jsonl
    from tinker_cli.spec import load_spec

    spec = load_spec(path, kind="sl")
    builder = spec.config_values["dataset_builder"]
    names = getattr(builder, "file_path", None)
    if names is None:
        raise UsageError(f"{path} has no conversations in files to render")
    common = builder.common_config
    what = common.train_on_what.value if common.train_on_what else "all_assistant_messages"
    maker = _Maker(spec.model_name, spec.renderer_name, None, what, common.max_length)
    files = [names] if isinstance(names, str) else names
    return maker, (row for name in files for row in scan_jsonl(name))


def _rows(file: str | None, messages: list[dict[str, Any]]) -> Iterator[Row | Fault]:
    from tinker_cli.data.rows import Row, scan_jsonl

    if messages:
        return iter([Row("inline", 1, {"messages": messages})])
    if file is not None and file.lstrip().startswith("["):
        try:
            return iter([Row("inline", 1, {"messages": json.loads(file)})])
        except ValueError as error:
            raise UsageError(f"the messages are not JSON: {error}") from None
    if file is None and sys.stdin.isatty():
        raise UsageError("nothing to render: give a file, -, or --user and --assistant")
    return scan_jsonl(
        "/dev/stdin" if file in (None, "-") else str(file),
        name="stdin" if file in (None, "-") else None,
    )


def _messages(row: Row) -> list[dict[str, Any]]:
    """The row's messages; raises InputFaults."""
    from tinker_cli.data.conversations import parse_conversation

    parsed = parse_conversation(row)
    faults = [item for item in parsed if isinstance(item, Fault)]
    if faults:
        raise InputFaults(f"{row.file}:{row.line} can't be rendered", faults)
    return [item for item in parsed if not isinstance(item, Fault)]


def _sound(rows: Iterator[Row | Fault]) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, Fault):
            raise InputFaults(f"{row.file} can't be rendered", [row])
        yield row


def _chosen(
    rows: Iterator[Row | Fault], lens: Lens, index: int | None, where: str
) -> Iterator[Row]:
    if index is not None:
        for number, row in enumerate(_sound(rows)):
            if number == index:
                yield row
                return
        raise UsageError(f"there is no conversation {index}")
    if where == "all":
        yield from _sound(rows)
    elif where == "longest":
        yield from sorted(_sound(rows), key=lambda row: -_view(row, lens).whole)[:1]
    else:
        yield from (row for row in _sound(rows) if _fits(row, lens, where))


def _fits(row: Row, lens: Lens, where: str) -> bool:
    from tinker_cli.render.faults import check_row

    if where == "faulty":
        return bool(check_row(row, lens))
    shown = _view(row, lens)
    return shown.is_cut if where == "truncated" else shown.trained == 0


def _view(row: Row, lens: Lens) -> Shown:
    messages = _messages(row)
    try:
        return lens.show(messages)
    except Exception as error:  # a renderer refuses in many ways
        reason = f"{lens.name} refuses it: {str(error) or type(error).__name__}"
        fault = Fault(reason, file=row.file, line=row.line)
        raise InputFaults(f"{row.file}:{row.line} can't be rendered", [fault]) from None


def _show(
    row: Row, lens: Lens, *, tokens: bool, generation: bool, diff_hf: bool, as_json: bool
) -> None:
    from tinker_cli.render import views

    if generation:
        _show_prompt(row, lens, as_json)
        return
    shown = _view(row, lens)
    if as_json:
        console.emit_row(views.as_json(shown, {"file": row.file, "line": row.line}))
    elif diff_hf:
        _show_difference(row, lens, shown)
    elif tokens:
        console.write("\n".join(views.token_lines(shown)))
    else:
        colour, unicode = console.wants_colour(), console.supports_unicode()
        console.show(views.as_text(shown, colour=colour, unicode=unicode))
        console.say(f"{len(shown.tokens)} tokens, {shown.trained} trained, {lens.name}")


def _show_prompt(row: Row, lens: Lens, as_json: bool) -> None:
    messages = _messages(row)
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    ids, stops = lens.prompt(messages)
    if as_json:
        console.emit_row({"file": row.file, "line": row.line, "tokens": ids, "stop": stops})
        return
    console.write(str(lens.tokenizer.decode(ids)))
    said = [s if isinstance(s, str) else f"{lens.tokenizer.decode([s])} ({s})" for s in stops]
    console.say(f"{len(ids)} tokens; stops at {', '.join(map(str, said))}")


def _show_difference(row: Row, lens: Lens, shown: Shown) -> None:
    from tinker_cli.render.compare import first_difference, template_tokens

    ours = [token.id for token in shown.tokens if token.id is not None]
    theirs = template_tokens(lens.tokenizer, _messages(row))
    difference = first_difference(lens.tokenizer, ours, theirs)
    place = f"{row.file}:{row.line}"
    if difference is None:
        console.write(f"{place}  identical, {len(ours)} tokens")
        return
    console.write(f"{place}  differs at token {difference.position}")
    console.write(f"  before   {difference.before!r}")
    console.write(f"  {lens.name:<8} {difference.ours!r}")
    console.write(f"  template {difference.theirs!r}")


def _check(rows: Iterator[Row | Fault], lens: Lens, as_json: bool) -> int:
    from tinker_cli.render.faults import Problem, check_row

    looked, found, keys = 0, 0, set[str]()
    for row in rows:
        if isinstance(row, Fault):
            problems = [Problem(row.file or "", row.line or 0, "form", row.message)]
        else:
            problems = check_row(row, lens)
            keys |= {key for key in ("messages", "conversations") if key in row.value}
        looked += 1
        for problem in problems:
            found += 1
            _tell(problem, as_json)
    if len(keys) > 1:
        found += 1
        _tell(Problem("", 0, "schema", "some rows have messages, others conversations"), as_json)
    if found:
        raise CheckFailed(f"{found} problems in {looked} conversations ({lens.name})")
    console.say(f"{looked} conversations, nothing lost ({lens.name})")
    return 0


def _tell(problem: Any, as_json: bool) -> None:
    if as_json:
        console.emit_row(problem.as_json())
        return
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file or "the file"
    at = "" if problem.message is None else f"message {problem.message}: "
    console.write(f"{place}  {problem.kind:<9} {at}{problem.reason}")


def _show_stats(rows: Iterator[Row | Fault], maker: _Maker, as_json: bool) -> int:
    from tinker_cli.render.stats import PERCENTILES, count

    live = console.is_terminal(sys.stderr)

    def progress(done: int) -> None:
        if live and done % PROGRESS_EVERY < 200:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r{done:,} conversations")
                sys.stderr.flush()

    stats = count(rows, maker, progress=progress)
    if live:
        sys.stderr.write("\r\x1b[K")
    if as_json:
        console.emit(stats.as_json())
        return 0
    share = 100 * stats.trained / stats.tokens if stats.tokens else 0
    roles = ", ".join(f"{role} {n:,}" for role, n in stats.roles.most_common())
    lengths = "  ".join(f"p{p} {stats.percentile(p):,}" for p in PERCENTILES)
    for label, value in (
        ("conversations", f"{stats.conversations:,}"),
        ("turns", f"{stats.turns:,} ({roles})"),
        ("tokens", f"{stats.tokens:,}, {share:.0f} % trained"),
        ("length", lengths),
        ("cut", f"{stats.cut:,} by --max-length"),
        ("untrained", f"{stats.untrained:,} have no trained token"),
        ("faulty", f"{stats.faulty:,} can't be rendered; --check says why"),
    ):
        console.write(f"  {label:<14} {value}")
    _histogram(stats.lengths)
    return 0


def _histogram(lengths: list[int]) -> None:
    if not lengths:
        return
    low, high = min(lengths), max(lengths)
    size = max(-(-(high - low + 1) // HISTOGRAM_ROWS), 1)
    counts = [0] * (-(-(high - low + 1) // size))
    for length in lengths:
        counts[(length - low) // size] += 1
    mark = "█" if console.supports_unicode() else "#"
    room = max(console.width() - 36, 10)
    console.write("")
    for number, amount in enumerate(counts):
        start = low + number * size
        bar = mark * round(room * amount / max(counts))
        console.write(f"  {start:>8,} to {start + size - 1:<8,} {amount:>8,} {bar}".rstrip())


def _list_renderers(as_json: bool) -> None:
    from tinker_cli.spec.rules import renderer_names

    names = renderer_names()
    if as_json:
        console.emit(list(names))
        return
    for name in names:
        console.write(name)
