"""What a shell offers after TAB: runs, metric names, templates, renderers.

Each function gets the word so far and returns the words that begin so. Nothing heavy is loaded,
and what can't be read is not offered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

METRIC_ROWS = 20  # rows of a run that are looked at for names
RENDERERS = (
    "deepseekv3",
    "deepseekv3_thinking",
    "gpt_oss_high_reasoning",
    "gpt_oss_low_reasoning",
    "gpt_oss_medium_reasoning",
    "gpt_oss_no_sysprompt",
    "kimi_k2",
    "kimi_k25",
    "llama3",
    "nemotron3",
    "qwen3",
    "qwen3_5",
    "qwen3_disable_thinking",
    "qwen3_instruct",
    "qwen3_vl",
    "qwen3_vl_instruct",
    "role_colon",
)


def complete_run(incomplete: str) -> list[str]:
    """Names of runs under the runs root, the newest first."""
    from tinker_cli.runs.paths import list_runs, runs_root

    try:
        names = [run.name for run in list_runs(runs_root())]
    except OSError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_metric(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Metric names of the run that is on the line, else of the newest; a run's name comes first."""
    from tinker_cli.runs.names import ALIASES

    words = [str(word) for word in (ctx.params.get("words") or [])]
    offered = complete_run(incomplete)
    names = [*ALIASES, *_keys(words[0] if words else "-")]
    return [*offered, *(name for name in names if name.startswith(incomplete))]


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
