"""`tinker sample`: completions of a model, a run or a checkpoint."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinker_cli import console
from tinker_cli.errors import ServiceError, UsageError, nearest

if TYPE_CHECKING:
    from tinker_cli.sampling.ask import Asker
    from tinker_cli.sampling.prompts import Prompt

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(frozen=True)
class Source:
    """What to sample from: weights, the names they go by, and where they are served."""

    model: str
    renderer: str | None
    path: str | None  # a tinker:// path, or None for the base model
    base_url: str | None
    is_local: bool


@app.command("sample")
def sample(
    prompt: Annotated[str | None, typer.Argument(help="The prompt, or - for JSONL lines.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A base model.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="A run: name, directory, -.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Its name or step, base, tinker://...")
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Completions a prompt.")] = 1,
    max_tokens: Annotated[int, typer.Option("--max-tokens")] = 256,
    temperature: Annotated[float, typer.Option("--temperature")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p")] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k")] = -1,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Repeatable.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
    renderer: Annotated[str | None, typer.Option("--renderer")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="No template: the text as it is.")] = False,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="With --json.")] = False,
    local: Annotated[bool, typer.Option("--local", help="On the embedded engine.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a prompt.")] = False,
) -> None:
    """Ask a model, a run or a checkpoint; one prompt, or JSONL with prompt or messages a line.

    tinker sample --run - "What is 17 + 25?"
    cat prompts.jsonl | tinker sample - --model tiny --json

    --json: {"id", "samples": [{"text", "stop_reason", "tokens", "logprobs"}]}, in input order
    """
    from tinker_cli.sampling.options import SamplingOptions

    options = SamplingOptions(max_tokens, temperature, top_p, top_k, seed, tuple(stop or ()), n)
    options.check()
    source = _source(model, run, checkpoint, local)
    prompts = _prompts(prompt, system)
    with ExitStack() as stack:
        asker = _asker(stack, source, renderer, options, raw=raw)
        for asked, answers in asker.ask_all(prompts):
            if as_json:
                shown = [answer.as_json(logprobs=logprobs) for answer in answers]
                head = asked.index if asked.id is None else asked.id
                console.emit_row({"id": head, "samples": shown})
                continue
            for answer in answers:
                console.write(answer.text)
                if answer.stop_reason == "length":
                    console.say(f"(cut off at {max_tokens} tokens)")


def _prompts(prompt: str | None, system: str | None) -> Iterator[Prompt]:
    from tinker_cli.sampling.prompts import from_lines, from_text

    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        return from_lines(sys.stdin.buffer, "stdin", system)
    if prompt is None:
        raise UsageError("no prompt", hint='tinker sample --model tiny "What is 2 + 2?"')
    return iter([from_text(prompt, system)])


def _source(model: str | None, run: str | None, checkpoint: str | None, local: bool) -> Source:
    from tinker_cli import tiny

    if run is not None:
        if model is not None:
            raise UsageError("--model and --run exclude each other")
        return _of_run(run, checkpoint, local)
    path = checkpoint if checkpoint and checkpoint.startswith("tinker://") else None
    if model is None:
        raise UsageError(
            "which model? give --model or --run", hint="for example: --model tiny, or --run -"
        )
    here = local or model == tiny.NAME or Path(model).expanduser().is_dir()
    return Source(model, None, path, None, here)


def _of_run(name: str, checkpoint: str | None, local: bool) -> Source:
    import yaml

    from tinker_cli.runs.checkpoints import read_checkpoints
    from tinker_cli.runs.paths import resolve_run

    where = resolve_run(name)
    try:
        spec: dict[str, Any] = yaml.safe_load((where / "spec.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        raise UsageError(f"{where} has no spec.yaml that can be read") from None
    rows, _ = read_checkpoints(where)
    path = _checkpoint_path(where.name, rows, checkpoint)
    url = spec.get("base_url")
    here = local or url == "local"
    renderer = spec.get("renderer_name")
    return Source(str(spec["model_name"]), renderer, path, None if here else url, here)


def _checkpoint_path(name: str, rows: list[Any], wanted: str | None) -> str | None:
    """The sampler path of the checkpoint that is meant; None for the base model."""
    if wanted == "base":
        return None
    if wanted is not None and wanted.startswith("tinker://"):
        return wanted
    saved = {row.name: row.sampler_path for row in rows if row.sampler_path}
    if not saved:
        raise UsageError(
            f"{name} has no checkpoint that can be sampled", hint="--checkpoint base asks the base"
        )
    if wanted is None:
        return str(list(saved.values())[-1])
    for key in (wanted, wanted.zfill(6)):
        if key in saved:
            return str(saved[key])
    near = nearest(wanted, tuple(saved))
    names = ", ".join([*saved, "base"])
    raise UsageError(
        f"{name} has no checkpoint {wanted!r}", hint=f"did you mean {near}?" if near else names
    )


def _asker(
    stack: ExitStack, source: Source, renderer: str | None, options: Any, *, raw: bool
) -> Asker:
    url = _serve(stack, source)
    from tinker_cli.sampling.ask import Asker
    from tinker_cli.spec.models import load_tokenizer, recommended_renderer

    tokenizer = load_tokenizer(source.model)
    chosen = None
    if not raw:
        from tinker_cookbook.renderers import get_renderer

        trained_with = source.renderer
        name = renderer or trained_with or recommended_renderer(source.model)
        if renderer and trained_with and renderer != trained_with:
            console.say(f"warning: trained with {trained_with}, asked with {renderer}")
        chosen = get_renderer(name, tokenizer)
    import tinker

    service = tinker.ServiceClient(base_url=url)
    if source.path is not None:
        client = service.create_sampling_client(model_path=source.path)
    else:
        client = service.create_sampling_client(base_model=source.model)
    return Asker(
        client.result() if hasattr(client, "result") else client, tokenizer, chosen, options
    )


def _serve(stack: ExitStack, source: Source) -> str | None:
    """The server's URL: an engine of our own for what is local, else the service's."""
    if not source.is_local:
        key = os.environ.get("TINKER_API_KEY", "")
        stored = Path("~/.tinker/credentials.json").expanduser().exists()
        if not key and not stored and not os.environ.get("TINKER_CREDENTIAL_CMD"):
            raise ServiceError(
                "no key for the Tinker service: set TINKER_API_KEY, or run tinker auth login",
                hint="to stay on this machine: --model tiny, or --local",
            )
        return source.base_url
    from tinker_cli.engine import start_engine

    os.environ.update({"HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"})
    engine = stack.enter_context(start_engine(model=source.model))
    os.environ["TINKER_API_KEY"] = engine.key
    return engine.url
