"""Write docs/spec.md: every field of a spec, from the classes themselves.

    python scripts/spec_reference.py            write it
    python scripts/spec_reference.py --print    show it

Names, types and defaults are those of the installed cookbook's classes; what a field does is said
here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tinker_cli.data.rewards import CHECKS
from tinker_cli.spec.builders import BUILDERS
from tinker_cli.spec.convert import MISSING, fields_of
from tinker_cli.spec.load import config_class

TARGET = Path(__file__).resolve().parents[1] / "docs" / "spec.md"
OWN = (
    ("kind", "sl or rl", "", "Which loop; must agree with the command."),
    ("extends", "text", "", "A spec beneath this one; mappings merge key by key."),
    ("local", "{model, device, threads, seed}", "", "How the embedded engine is started."),
    (
        "guards",
        "list of {when, for, do}",
        "",
        "Rules on each step; do is warn, checkpoint or stop.",
    ),
    ("on_end", "text", "", "A command to run when the run has ended."),
)
MEANING = {
    "answer_column": "The column that rewards compare with.",
    "convo_prefix": "Messages before every problem; `standard` is a worked example.",
    "model_name_for_tokenizer": "Whose tokenizer to use.",
    "sources": "Datasets of the hub with their weights, drawn from in turn.",
    "stopping_strategy": "When the drawing ends: at the first source used up, or the last.",
    "adam_beta1": "Adam's decay of the first moment.",
    "adam_beta2": "Adam's decay of the second moment.",
    "adam_eps": "Adam's term against division by zero.",
    "async_config": "Off-policy training: `{max_steps_off_policy, groups_per_batch}`.",
    "async_periodic_saves": "Periodic saves don't hold the loop up.",
    "base_url": "`local` is the embedded engine; a URL is any Tinker server.",
    "batch_size": "Examples (SL) or prompts (RL) a step.",
    "buffer_size": "Rows that a stream is shuffled within.",
    "completion_column": "The column of answers.",
    "compute_post_kl": "Also measure the KL after the update.",
    "dataset_builder": "What to train on; `type` and its fields below.",
    "enable_trace": "Write a trace of the loop.",
    "eval_every": "Steps between evaluations; 0 is never.",
    "evaluator_builders": "Evaluators of your own: `./evals.py:fn` or `package.module:fn`.",
    "fewshot": "Messages before every prompt.",
    "file_path": "JSONL, `.gz` too; relative to the spec.",
    "format_coef": "Weight of the format term: correct + coef * (format - 1).",
    "group_size": "Rollouts a prompt; advantages are centred within the group.",
    "include_fewshot": "Begin with a worked example.",
    "infrequent_eval_every": "Steps between the slow evaluations.",
    "infrequent_evaluator_builders": "Slow evaluators.",
    "kl_discount_factor": "Discount of future KL penalties.",
    "kl_penalty_coef": "Weight of the KL to the reference; needs `kl_reference_config`.",
    "kl_reference_config": "`{base_model, load_checkpoint_path}` of the reference.",
    "learning_rate": "A number; `auto`, the cookbook's rule for the model; or "
    "`{base: auto, at_batch_size: 128}`, the base x sqrt(batch_size / 128).",
    "load_checkpoint_path": "Weights to begin from, `tinker://...`; the optimizer starts anew.",
    "log_path": "The run directory; default: the spec's name under the runs root.",
    "lora_rank": "Rank of the adapter.",
    "loss_fn": "The RL loss.",
    "loss_fn_config": "Settings of the loss, as `{clip_low_threshold: 0.8}`.",
    "lr_schedule": "How the learning rate falls.",
    "max_length": "Tokens an example; longer ones are cut and counted.",
    "max_prompts": "Rows an epoch; a stream needs it.",
    "max_steps": "At most so many steps.",
    "max_tokens": "Longest reply.",
    "messages_column": "The column of messages.",
    "model_name": "A model of the service, `tiny`, or a folder.",
    "n_batches": "Steps.",
    "name": "The dataset's configuration on the hub.",
    "num_epochs": "Passes over the data.",
    "num_groups_to_log": "Groups a step whose text is kept.",
    "num_substeps": "Optimizer steps a batch.",
    "path": "A hub name, a folder or a file.",
    "prompt_column": "The column of prompts.",
    "prompt_template": "The user's message; any column in braces.",
    "recipe_name": "Filled in.",
    "remove_constant_reward_groups": "Leave out groups whose rewards are all equal.",
    "renderer_name": "`auto`, the default, is the one recommended for the model.",
    "reward": "A name, a mapping, a weighted list, or `./reward.py:score`.",
    "rolling_save_every": "Steps between light saves that only resume needs.",
    "rolling_ttl_seconds": "How long those live.",
    "rollout_error_tolerance": "What to do when a rollout fails.",
    "rollout_json_export": "Write a summary of every rollout.",
    "save_every": "Steps between checkpoints; 0 is never.",
    "save_every_seconds": "Seconds between checkpoints.",
    "save_every_tokens": "Tokens between checkpoints.",
    "seed": "Seed of the data's order.",
    "session_name": "The session's name on the service.",
    "shuffle_seed": "Seed of the data's order and of what is held out.",
    "span_chart_every": "Steps between charts of where time went.",
    "split": "Which split to train on.",
    "stream_minibatch_config": "Train while sampling: `{groups_per_batch, num_minibatches}`.",
    "streaming": "Read rows as they come.",
    "submit_ahead": "Batches sent before the last one is back.",
    "system_prompt": "A system message before every prompt.",
    "temperature": "Of the rollouts.",
    "termination": "How rollouts that are cut off are rewarded.",
    "test_file_path": "Held-out rows, in a file of their own.",
    "test_group_size": "Rollouts a held-out prompt.",
    "test_size": "Rows held out.",
    "test_split": "The split of held-out rows.",
    "train_on_what": "Which messages are trained.",
    "ttl_seconds": "How long periodic checkpoints live; null is for ever.",
    "wandb_name": "Run name at Weights & Biases.",
    "wandb_project": "Project at Weights & Biases.",
}
HEAD = """\
# Every field of a spec

Made by `python scripts/spec_reference.py` from the classes of tinker-cookbook {version}. A spec has
the fields of the cookbook's Config at its top level, and a few of this program's.

## This program's own

| field | type | what it does |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    from importlib.metadata import version

    lines = [HEAD.format(version=version("tinker-cookbook"))]
    lines += [f"| `{name}` | {kind} | {text} |\n" for name, kind, _, text in OWN]
    for kind, title in (("sl", "kind: sl"), ("rl", "kind: rl")):
        cls = config_class(kind)  # type: ignore[arg-type]
        lines += [f"\n## {title}\n\n", *_table(cls)]
        for name, reference in BUILDERS[kind].items():
            lines += _builder(name, reference)
    lines += ["\n## Rewards of `type: prompts`\n\n| name | options |\n|---|---|\n"]
    lines += [f"| `{name}` | {', '.join(options)} |\n" for name, (_, options) in CHECKS.items()]
    return "".join(lines)


def _builder(name: str, reference: str) -> list[str]:
    from importlib import import_module

    module, _, attribute = reference.partition(":")
    try:
        cls = getattr(import_module(module), attribute)
    except ImportError as error:
        extra = f"needs a package that is not installed: {error.name or error}"
        return [f"\n### dataset_builder: {{type: {name}}}\n\n`{reference}` {extra}.\n"]
    summary = (cls.__doc__ or "").strip().split("\n")[0]
    if not reference.startswith("tinker_cli"):
        summary = f"The cookbook's `{reference}`."
    return [f"\n### dataset_builder: {{type: {name}}}\n\n{summary}\n\n", *_table(cls)]


def _table(cls: type) -> list[str]:
    rows = ["| field | type | default | what it does |\n|---|---|---|---|\n"]
    for name, one in _flat(cls):
        default = "required" if one.default is MISSING else f"`{_plain(one.default)}`"
        if name in ("model_name_for_tokenizer",) or (
            name == "renderer_name" and "Config" not in cls.__name__
        ):
            default = "the run's"
        text = MEANING.get(name, "")
        rows.append(f"| `{name}` | {_type(one.type)} | {default} | {text} |\n")
    return rows


def _flat(cls: type) -> list[tuple[str, Any]]:
    """The fields, those of a common config in its place: they may be written flat."""
    found: list[tuple[str, Any]] = []
    for name, one in fields_of(cls).items():
        found += fields_of(one.type).items() if name == "common_config" else [(name, one)]
    return found


def _type(wanted: Any) -> str:
    text = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    text = re.sub(r"(?:[a-z_]+\.)+([A-Za-z_]+)", r"\1", text).replace("|", "\\|")
    return text.replace("Literal", "one of ").replace("NoneType", "None")


def _plain(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page())
    else:
        TARGET.write_text(page(), encoding="utf-8")
