"""`tinker sample`: completions of a model, a run or a checkpoint."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.commands import sample_views
from tinker_cli.errors import InputFaults, RunFailed, UsageError

if TYPE_CHECKING:
    from tinker_cli.commands.sample_sources import Connection, Source
    from tinker_cli.sampling.answers_file import AnswersFile
    from tinker_cli.sampling.framing import Framing
    from tinker_cli.sampling.options import SamplingOptions
    from tinker_cli.sampling.prompts import Prompt

DEFAULT_MAX_TOKENS = 256
COMPARED_IN_FLIGHT = 16  # prompts; each is several requests

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("sample")
def sample(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt, or - for JSONL lines on stdin.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="tiny, a folder, a name.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Name, directory, -."),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="C", help="Name, step, base, tinker://; repeatable."),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Completions a prompt.")] = 1,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="256, or what still fits.")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", metavar="T")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", metavar="P")] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", metavar="K")] = -1,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="Never shown; repeatable.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="The system message.")
    ] = None,
    renderer: Annotated[
        str | None,
        typer.Option("--renderer", metavar="NAME", help="Not the run's own."),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Without what the run puts around prompts.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="No template: the text as it is.")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="A conversation; /help in it.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="JSONL; run again, it goes on."),
    ] = None,
    unordered: Annotated[bool, typer.Option("--unordered", help="Answers as they come.")] = False,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Of each token.")] = False,
    local: Annotated[bool, typer.Option("--local", help="On the embedded engine.")] = False,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="A server that runs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object a prompt.")] = False,
) -> int:
    """Ask a model, a run or checkpoints; one prompt, or JSONL with prompt or messages a line.

    tinker sample --run - --checkpoint base --checkpoint final "What is 17 + 25?"
    tinker sample - --model tiny --json --output answers.jsonl < prompts.jsonl

    --json: {"id", "samples": [{"text", "stop_reason", "tokens", "logprobs"}]}, in input order;
    of several checkpoints {"id", "checkpoints": [{"checkpoint", "samples": [{..., "logprob":
    {CHECKPOINT: nats}}]}]}; a prompt that failed {"id", "error"}, and exit 1
    """
    from tinker_cli.commands.sample_sources import Connection, find_source
    from tinker_cli.sampling.options import SamplingOptions

    limit = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    options = SamplingOptions(
        limit, temperature, top_p, top_k, seed, tuple(stop or ()), n, max_tokens is not None
    )
    options.check()
    source = find_source(model, run, checkpoint or (), local=local, url=base_url)
    framing = _framing(source, bare=bare or raw)
    with ExitStack() as stack:
        if chat:
            connection = Connection(stack, source, options, "" if raw else renderer)
            return _chat(connection, source, framing, system, as_json=as_json)
        many = prompt == "-" or (prompt is None and not sys.stdin.isatty())
        prompts, total = _prompts(prompt, many, system, framing)
        connection = Connection(stack, source, options, "" if raw else renderer)
        job = Job(
            stack, connection, source, options, in_order=not unordered, logprobs=logprobs, many=many
        )
        if output is not None:
            return job.into_file(output, prompts, total, renderer)
        return job.print(prompts, total, as_json=as_json)


def _framing(source: Source, *, bare: bool) -> Framing:
    from tinker_cli.sampling.framing import Framing

    if bare:
        return Framing()
    framing = source.framing()
    if framing and console.is_terminal(sys.stderr):
        turns = len(framing.before)
        also = f"{turns} messages before the prompt" if turns else "in its template"
        console.say(f"(asked as it was trained, {also}; --bare: without)")
    return framing


def _prompts(
    prompt: str | None, many: bool, system: str | None, framing: Framing
) -> tuple[Iterator[Prompt], int | None]:
    """The prompts, and how many there are if that can be known."""
    from tinker_cli.sampling.prompts import from_lines, from_text

    if many:
        lines, total = _stdin_lines()
        return from_lines(lines, "stdin", system, framing), total
    if prompt is None:
        raise UsageError("no prompt", hint='tinker sample --model tiny "What is 2 + 2?"')
    return iter([from_text(prompt, system, framing)]), 1


def _stdin_lines() -> tuple[Iterable[bytes], int | None]:
    """Lines of stdin, through a reader of our own: another thread may still wait for it at exit."""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer, None
    stream = io.BufferedReader(io.FileIO(descriptor, closefd=False))
    if not stream.seekable():
        return stream, None
    start = stream.tell()
    total = sum(1 for line in stream if line.strip())
    stream.seek(start)
    return stream, total


class Job:
    """Prompts to one model, or to several side by side."""

    def __init__(
        self,
        stack: ExitStack,
        connection: Connection,
        source: Source,
        options: SamplingOptions,
        *,
        in_order: bool,
        logprobs: bool,
        many: bool,
    ):
        from tinker_cli.sampling.ask import IN_FLIGHT
        from tinker_cli.sampling.compare import Comparer

        self.source, self.options = source, options
        self.in_order, self.logprobs, self.many = in_order, logprobs, many
        self.failed = 0
        askers = {name: connection.asker(name) for name in source.checkpoints}
        self.send: Any
        if len(askers) > 1:
            comparer = Comparer(askers, COMPARED_IN_FLIGHT)
            stack.callback(comparer.close)
            self.send, self.in_flight = comparer.ask, COMPARED_IN_FLIGHT
        else:
            self.send, self.in_flight = next(iter(askers.values())).ask, IN_FLIGHT

    def land(self, prompts: Iterable[Prompt]) -> Iterator[tuple[Prompt, Any, str | None]]:
        """Each prompt with its answers, or with what went wrong; raises what ends all of them."""
        from tinker_cli.commands.sample_sources import said
        from tinker_cli.sampling.flight import fly

        fatal: Exception | None = None
        flight = fly(
            prompts, self.send, in_flight=self.in_flight, in_order=self.in_order, ends=_ends_all
        )
        for landed in flight:
            if landed.error is not None and _ends_all(landed.error):
                fatal = fatal or landed.error
                continue
            if landed.error is not None:
                self.failed += 1
                yield landed.question, None, said(landed.error)
            else:
                yield landed.question, landed.answer, None
        if fatal is not None:
            raise fatal

    def print(self, prompts: Iterable[Prompt], total: int | None, *, as_json: bool) -> int:
        """Answers on stdout."""
        with sample_views.progress(total, hidden=not self.many) as advance:
            for prompt, answers, error in self.land(prompts):
                if error is not None and not self.many:
                    raise self._refused(error)
                if as_json:
                    row = {"error": error} if error is not None else self._row(answers)
                    console.emit_row({"id": prompt.name, **row})
                elif error is not None:
                    console.say(f"prompt {prompt.name}: {error}")
                else:
                    sample_views.show_answers(answers, self.options, logprobs=self.logprobs)
                advance()
        return self._end()

    def into_file(
        self, path: Path, prompts: Iterable[Prompt], total: int | None, renderer: str | None
    ) -> int:
        """Answers appended to a file; those that it has are not asked for again."""
        from tinker_cli.sampling.answers_file import AnswersFile, settings_digest

        facts = {"checkpoints": self.source.checkpoints, "model": self.source.model}
        settings = {**facts, **vars(self.options), "renderer": renderer or self.source.renderer}
        in_order, self.in_order = self.in_order, False
        with AnswersFile(path, settings_digest(settings)) as file:
            found = file.count
            with sample_views.progress(total, hidden=False) as advance:
                for prompt, answers, error in self.land(_missing(prompts, file, advance)):
                    if error is not None:
                        console.say(f"prompt {prompt.name}: {error}")
                    else:
                        file.add(prompt, self._row(answers))
                    advance()
            if in_order:
                file.sort()
            there = f", {found} of them from before" if found else ""
            console.say(f"{file.count} answers in {path}{there}")
        return self._end()

    def _row(self, answers: Any) -> dict[str, Any]:
        from tinker_cli.sampling.compare import compared_as_json

        if isinstance(answers, dict):
            return {"checkpoints": compared_as_json(answers, logprobs=self.logprobs)}
        return {"samples": [answer.as_json(logprobs=self.logprobs) for answer in answers]}

    def _refused(self, error: str) -> Exception:
        return UsageError(error) if "too long" in error else RunFailed(error)

    def _end(self) -> int:
        if self.failed:
            console.say(f"{self.failed} prompts have no answer")
        return 1 if self.failed else 0


def _missing(prompts: Iterable[Prompt], file: AnswersFile, advance: Any) -> Iterator[Prompt]:
    for prompt in prompts:
        if file.done(prompt):
            advance()
        else:
            yield prompt


def _ends_all(error: Exception) -> bool:
    """True unless the error is one prompt's own: too long, or refused by the server."""
    import tinker

    if isinstance(error, tinker.RequestFailedError):
        return False
    return not (isinstance(error, UsageError) and not isinstance(error, InputFaults))


def _chat(
    connection: Connection, source: Source, framing: Framing, system: str | None, *, as_json: bool
) -> int:
    from tinker_cli.sampling.chat import Chat

    if len(source.checkpoints) != 1:
        raise UsageError("--chat speaks with one checkpoint; /checkpoint changes it")
    framing = framing.with_system(system) if system else framing
    name = next(iter(source.checkpoints))
    chat = Chat(
        connection.asker(name),
        show=(lambda piece: None) if as_json else sample_views.show_piece,
        reply=sample_views.emit_reply if as_json else sample_views.end_reply,
        tell=console.say,
        switch=connection.asker,
        messages=list(framing.before),
    )
    interactive = console.is_interactive()
    if interactive:
        console.say(f"{source.run or source.model} ({name}); /help for commands, Ctrl-D leaves")
    chat.run(sample_views.typed_lines() if interactive else _plain_lines())
    return 0


def _plain_lines() -> Iterator[str]:
    for raw in sys.stdin.buffer:
        yield raw.decode("utf-8", "replace")
