"""`tinker render`: what the model really sees, and a gate for data."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from tinker_cli.data.rows import Row
    from tinker_cli.errors import Fault
    from tinker_cli.render.choose import Chosen
    from tinker_cli.render.compare import Comparison
    from tinker_cli.render.faults import Problem
    from tinker_cli.render.pager import Show
    from tinker_cli.render.shown import Lens, Shown
    from tinker_cli.render.sources import LensMaker, SpecSource
    from tinker_cli.render.stats import Stats

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("render")
def render(
    file: Annotated[
        str | None, typer.Argument(help="JSONL of conversations, -, or a JSON list of messages.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Its recommended renderer, its tokenizer.")
    ] = None,
    renderer: Annotated[
        str | None, typer.Option("--renderer", help="Instead of the recommended one.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="A folder or a name; its code is never run.")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", help="Data, renderer and weights of a run's spec.")
    ] = None,
    train_on: Annotated[
        str, typer.Option("--train-on", help="all_assistant_messages, last_assistant_message, ...")
    ] = "all_assistant_messages",
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=1, help="Cut to so many tokens.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="A message, instead of a file.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="Before --user.")] = None,
    assistant: Annotated[str | None, typer.Option("--assistant", help="After --user.")] = None,
    index: Annotated[
        int | None, typer.Option("--index", min=0, help="One conversation, counted from 0.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", help="all, longest, truncated, untrained, faulty.")
    ] = "all",
    tokens: Annotated[bool, typer.Option("--tokens", help="A line a token.")] = False,
    generation: Annotated[
        bool, typer.Option("--generation", help="The sampling prompt and its stops.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 3 if anything is lost.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Counts of all conversations.")] = False,
    diff_hf: Annotated[
        bool, typer.Option("--diff-hf", help="Against the tokenizer's own chat template.")
    ] = False,
    renderers: Annotated[bool, typer.Option("--renderers", help="Every renderer's name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object a conversation.")] = False,
) -> int:
    """What training sees of conversations: tokens, weights, roles, and what is lost.

    tinker render chat.jsonl --model tiny --check
    tinker render --model tiny --user "2+2?" --assistant 4 --tokens

    --json: {"file", "line", "tokens", "weights", "segments": [{"message", "role", "part",
    "trained", "start", "end", "text"}], "num_tokens", "num_trained", "truncated"};
    with --check {"file", "line", "kind", "message", "reason"}; --stats is one document.
    """
    from tinker_cli.render import sources
    from tinker_cli.render.choose import WHERE

    if renderers:
        return _list_renderers(as_json)
    if where not in WHERE:
        raise UsageError(f"--where is one of {', '.join(WHERE)}, not {where!r}")
    sources.quiet()
    inline = [("system", system), ("user", user), ("assistant", assistant)]
    messages = [{"role": role, "content": text} for role, text in inline if text is not None]
    form = _Form(tokens, generation, diff_hf, as_json)
    total: int | None = None
    maker = sources.LensMaker(model, renderer, tokenizer, train_on, max_length)
    _no_contradiction(
        {"FILE": file, "--spec": spec, "--user, --system or --assistant": messages or None},
        {"--model": model, "--renderer": renderer, "--tokenizer": tokenizer,
         "--max-length": max_length},
    )  # fmt: skip
    if spec is not None:
        from tinker_cli.spec import load_spec

        source = sources.from_spec(load_spec(spec, kind="sl"))
        if source.rows is None:
            return _of_datums(source, form, index=index, where=where, check=check, stats=stats)
        maker, rows, model = source.maker, iter(source.rows), source.model
        total = sources.count_rows(source.files)
    elif messages:
        rows = sources.from_messages(messages)
    elif file is None and console.is_terminal(sys.stdin):
        raise UsageError("nothing to render: give a file, -, or --user and --assistant")
    else:
        rows = sources.from_file(file)
        total = sources.count_rows([file or "-"])
    if stats:
        return _show_stats(_counted(rows, maker, total), model, as_json)
    if check:
        return _check(rows, maker, total, as_json)
    _show_all(rows, maker(), form, index=index, where=where)
    return 0


def _no_contradiction(inputs: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise UsageError if there is more than one input, or settings beside a spec's own."""
    given = [name for name, value in inputs.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: give one of them")
    also = [name for name, value in settings.items() if value is not None]
    if inputs["--spec"] is not None and also:
        raise UsageError(f"--spec brings its own renderer and lengths: leave out {also[0]}")


@dataclass(frozen=True)
class _Form:
    """How a conversation is shown."""

    tokens: bool
    generation: bool
    diff_hf: bool
    as_json: bool


def _show_all(
    rows: Iterator[Row | Fault], lens: Lens, form: _Form, *, index: int | None, where: str
) -> None:
    from tinker_cli.render.choose import choose

    needs_view = not form.generation or where != "all"
    chosen = choose(rows, lens, index=index, where=where) if needs_view else _prompts(rows, index)
    if form.as_json:
        for each in chosen:
            console.emit_row(_document(each, lens, form))
        return
    from tinker_cli.render.pager import paging

    identical = looked = 0
    with paging() as show:
        for looked, each in enumerate(chosen, 1):
            identical += _show_one(each, lens, form, show, looked)
    if form.diff_hf and looked > 1:
        console.say(f"{identical:,} of {_many(looked, 'conversation')} identical")


def _prompts(rows: Iterator[Row | Fault], index: int | None) -> Iterator[Chosen]:
    """Rows for sampling prompts: they need no answer, so they are not rendered for training."""
    from tinker_cli.data.rows import Row
    from tinker_cli.errors import InputFaults
    from tinker_cli.render.choose import Chosen

    for number, row in enumerate(rows):
        if index is not None and number != index:
            continue
        if not isinstance(row, Row):
            raise InputFaults(f"{row.where} can't be rendered", [row])
        yield Chosen(row.file, row.line, row, None)


def _document(each: Chosen, lens: Lens, form: _Form) -> dict[str, Any]:
    from tinker_cli.render import views

    where: dict[str, Any] = {"file": each.file, "line": each.line}
    if each.problems:
        where["problems"] = [problem.as_json() for problem in each.problems]
    if each.row is not None and form.diff_hf:
        return {**where, **_compared(each, lens, form).as_json()}
    if each.row is not None and form.generation:
        prompt, stops = _prompt(each.row, lens)
        return {**where, "tokens": [token.id for token in prompt.tokens], "stop": stops}
    return views.as_json(each.shown, where) if each.shown is not None else where


def _show_one(each: Chosen, lens: Lens, form: _Form, show: Show, number: int) -> bool:
    """Show one row; True if it was compared and is identical."""
    from rich.text import Text

    from tinker_cli.render import views

    colour, unicode = console.wants_colour(), console.supports_unicode()
    if number > 1 and not form.diff_hf:
        show(Text(""))
    for problem in each.problems:
        show(Text(_told(problem), "yellow" if colour else ""))
    if each.row is not None and form.diff_hf:
        found = _compared(each, lens, form)
        place = f"{each.file}:{each.line}"
        show(Text("\n".join(views.difference_lines(place, found, lens.name))))
        return found.is_identical
    shown, caption = each.shown, ""
    if each.row is not None and form.generation:
        shown, stops = _prompt(each.row, lens)
        caption = f"{len(shown.tokens)} tokens; stops at {views.stop_words(stops, lens)}"
    elif shown is not None:
        caption = f"{len(shown.tokens)} tokens, {shown.trained} trained, {lens.name}"
    if shown is None:
        return False
    if form.tokens:
        show(views.token_table(shown, colour=colour))
    else:
        show(views.as_text(shown, colour=colour, unicode=unicode))
    if show is console.show:
        console.flush()
        console.say(caption)
    else:
        show(Text(f"{each.file}:{each.line}  {caption}", "dim" if colour else ""))
    return False


def _prompt(row: Row, lens: Lens) -> tuple[Shown, list[Any]]:
    """The sampling prompt after the row's last question."""
    from tinker_cli.render.sources import messages_of, refused, without_answer

    try:
        return lens.prompt(without_answer(messages_of(row)))
    except Exception as error:  # a renderer refuses in many ways
        raise refused(row, lens, error) from None


def _compared(each: Chosen, lens: Lens, form: _Form) -> Comparison:
    """The row against the tokenizer's own template."""
    from tinker_cli.render.compare import compare
    from tinker_cli.render.sources import messages_of, without_answer

    assert each.row is not None
    messages = messages_of(each.row)
    if form.generation:
        shown, _ = _prompt(each.row, lens)
        return compare(lens, shown, without_answer(messages), generation=True)
    assert each.shown is not None
    return compare(lens, each.shown, messages)


def _check(rows: Iterable[Row | Fault], maker: LensMaker, total: int | None, as_json: bool) -> int:
    from tinker_cli import progress
    from tinker_cli.render.faults import Problem, check_batch
    from tinker_cli.render.pool import worked

    looked, found, faulty, forms = 0, 0, 0, set[str]()
    with progress.counting("checking", total) as advance:
        for checked in worked(rows, maker, check_batch):
            looked += checked.rows
            found += len(checked.problems)
            faulty += len({problem.line for problem in checked.problems})
            forms |= checked.forms
            for problem in checked.problems:
                _tell(problem, as_json)
            advance(checked.rows)
    if len(forms) > 1:
        found += 1
        _tell(Problem("", 0, "schema", "some rows have messages, others conversations"), as_json)
    if not looked:
        raise UsageError("there are no conversations to check")
    if found:
        raise CheckFailed(
            f"{_many(found, 'problem')} in {faulty:,} of {_many(looked, 'conversation')}"
        )
    console.say(f"{_many(looked, 'conversation')}, nothing lost")
    return 0


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tell(problem: Problem, as_json: bool) -> None:
    if as_json:
        console.emit_row(problem.as_json())
    else:
        console.write(_told(problem))


def _told(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file or "the file"
    at = "" if problem.message is None else f"message {problem.message}: "
    return f"{place}  {problem.kind:<9} {at}{problem.reason}"


def _counted(rows: Iterable[Row | Fault], maker: LensMaker, total: int | None) -> Stats:
    from tinker_cli import progress
    from tinker_cli.render.stats import count

    with progress.counting("counting", total) as advance:
        return count(rows, maker, progress=advance)


def _show_stats(stats: Stats, model: str | None, as_json: bool) -> int:
    from tinker_cli.render import views
    from tinker_cli.spec.prices import training_usd

    usd = training_usd(model, stats.tokens) if model is not None else None
    if as_json:
        console.emit({**stats.as_json(), "epoch_usd": usd})
        return 0
    unicode = console.supports_unicode()
    lines = views.stats_lines(stats, usd=usd, width=console.width(), unicode=unicode)
    console.write("\n".join(lines).rstrip())
    return 0


def _of_datums(
    source: SpecSource, form: _Form, *, index: int | None, where: str, check: bool, stats: bool
) -> int:
    """The datums of a dataset whose rows are no files: tokens and weights, messages unknown."""
    from tinker_cli.render.datums import check_datums, choose_datums

    lens = source.maker()
    datums = iter(source.datums or ())
    if stats:
        from tinker_cli.render.stats import count_shown

        return _show_stats(count_shown(map(lens.show_datum, datums)), source.model, form.as_json)
    if check:
        looked, problems = check_datums(datums, lens)
        for problem in problems:
            _tell(problem, form.as_json)
        if problems:
            raise CheckFailed(f"{_many(len(problems), 'problem')} in {_many(looked, 'example')}")
        told = "trained tokens in each; the messages of this dataset can't be seen"
        console.say(f"{_many(looked, 'example')}, {told}")
        return 0
    if form.generation or form.diff_hf:
        raise UsageError("this spec's dataset gives tokens, not messages, to render")
    from tinker_cli.render.pager import paging

    chosen = choose_datums(datums, lens, index=index, where=where)
    if form.as_json:
        for each in chosen:
            console.emit_row(_document(each, lens, form))
        return 0
    with paging() as show:
        for number, each in enumerate(chosen, 1):
            _show_one(each, lens, form, show, number)
    return 0


def _list_renderers(as_json: bool) -> int:
    from tinker_cli.spec.rules import renderer_names

    names = renderer_names()
    if as_json:
        console.emit(list(names))
    else:
        console.write("\n".join(names))
    return 0
