"""What a shell offers after TAB: runs, metric names, templates, renderers.

Each function gets the word so far and returns the words that begin so. Nothing heavy is loaded,
and what can't be read is not offered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

METRIC_ROWS = 20  # rows of a run that are looked at for names
RENDERERS = (
    "deepseekv3",
    "deepseekv3_disable_thinking",
    "deepseekv3_thinking",
    "deepseekv4_1",
    "deepseekv4_1_disable_thinking",
    "deepseekv4_1_low_reasoning",
    "deepseekv4_1_max_reasoning",
    "deepseekv4_1_preserve_thinking",
    "glm5_3_high_reasoning",
    "glm5_3_low_reasoning",
    "glm5_3_max_reasoning",
    "gpt_oss_high_reasoning",
    "gpt_oss_low_reasoning",
    "gpt_oss_medium_reasoning",
    "gpt_oss_no_sysprompt",
    "kimi_k2",
    "kimi_k25",
    "kimi_k25_disable_thinking",
    "kimi_k26",
    "kimi_k26_disable_thinking",
    "kimi_k26_preserve_thinking",
    "llama3",
    "nemotron3",
    "nemotron3_disable_thinking",
    "nemotron3_low_thinking",
    "nemotron3_preserve_thinking",
    "nemotron3_ultra",
    "nemotron3_ultra_disable_thinking",
    "nemotron3_ultra_medium_thinking",
    "nemotron3_ultra_preserve_thinking",
    "qwen3",
    "qwen3_5",
    "qwen3_5_disable_thinking",
    "qwen3_5_preserve_thinking",
    "qwen3_8_disable_thinking",
    "qwen3_8_low_reasoning",
    "qwen3_8_medium_reasoning",
    "qwen3_8_xhigh_reasoning",
    "qwen3_disable_thinking",
    "qwen3_instruct",
    "qwen3_vl",
    "qwen3_vl_instruct",
    "role_colon",
    "tml_v0",
)


def complete_run(incomplete: str) -> list[str]:
    """Names of runs under the runs root, the newest first."""
    from tinker_cli.runs.paths import list_runs, runs_root

    try:
        names = [run.name for run in list_runs(runs_root())]
    except OSError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_metric(ctx: Any, incomplete: str) -> list[str]:
    """Runs, then metric names of the run that is on the line, else of the newest."""
    from tinker_cli.runs.names import ALIASES

    words = [str(word) for word in (ctx.params.get("words") or [])]
    names = [*ALIASES, *_keys(words[0] if words else "-")]
    found = [name for name in names if name.startswith(incomplete)]
    return [*complete_run(incomplete), *found]


def _keys(run: str) -> list[str]:
    import itertools
    import json

    from tinker_cli.errors import TinkerError
    from tinker_cli.runs.paths import resolve_run

    try:
        file: Path = resolve_run(run) / "metrics.jsonl"
        with file.open(encoding="utf-8", errors="replace") as lines:
            rows = list(itertools.islice(lines, METRIC_ROWS))
    except (TinkerError, OSError):
        return []
    keys: dict[str, None] = {}
    for line in rows:
        try:
            keys |= dict.fromkeys(json.loads(line))
        except (ValueError, TypeError):
            continue
    return sorted(keys)


def complete_template(incomplete: str) -> list[str]:
    """Names of the specs that ship."""
    from tinker_cli.commands.template import folder

    names = sorted(path.stem for path in folder().glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def complete_renderer(incomplete: str) -> list[str]:
    """Names of renderers."""
    return [name for name in RENDERERS if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """The model that needs no name of a folder or a hub."""
    from tinker_cli import tiny

    return [tiny.NAME] if tiny.NAME.startswith(incomplete) else []


BY_PARAMETER: dict[str, Callable[[Any, str], list[str]]] = {
    "run": lambda ctx, incomplete: complete_run(incomplete),
    "runs": lambda ctx, incomplete: complete_run(incomplete),
    "words": complete_metric,
    "renderer": lambda ctx, incomplete: complete_renderer(incomplete),
    "model": lambda ctx, incomplete: complete_model(incomplete),
}
BY_COMMAND = {("copy", "name"): complete_template, ("show", "name"): complete_template}


def attach(command: Any) -> None:
    """Give the parameters of a command, and of those below it, their completion."""
    for each in (command, *getattr(command, "commands", {}).values()):
        for parameter in each.params:
            named = BY_COMMAND.get((each.name, parameter.name))
            if named is not None:
                parameter._custom_shell_complete = _of_word(named)
            elif parameter.name in BY_PARAMETER:
                parameter._custom_shell_complete = _of_context(BY_PARAMETER[parameter.name])


def _of_word(complete: Callable[[str], list[str]]) -> Callable[..., list[str]]:
    return lambda ctx, parameter, incomplete: complete(incomplete)


def _of_context(complete: Callable[[Any, str], list[str]]) -> Callable[..., list[str]]:
    return lambda ctx, parameter, incomplete: complete(ctx, incomplete)
