"""`sample --run` shows the model what its training loop showed it: same tokens, same stop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tinker_cli.commands.sample_sources import find_source
from tinker_cli.commands.template import folder
from tinker_cli.sampling.ask import Asker
from tinker_cli.sampling.framing import Framing, framing_of
from tinker_cli.sampling.options import SamplingOptions
from tinker_cli.sampling.prompts import from_lines, from_text
from tinker_cli.spec import load_spec
from tinker_cli.spec.config import build_config
from tinker_cli.spec.models import load_tokenizer
from tinker_cli.spec.write import dump

RL = sorted(path.stem for path in folder().glob("rl_*.yaml"))
FRAMED = [
    "dataset_builder.system_prompt=Add.",
    "dataset_builder.prompt_template=Sum of {prompt} Now:",
]


def _loop_s_environment(config: Any) -> Any:
    dataset, _ = asyncio.run(config.dataset_builder())
    return asyncio.run(dataset.get_batch(0)[0].make_envs())[0]


@pytest.mark.parametrize(
    ("name", "changes"), [*((name, []) for name in RL), ("rl_prompts", FRAMED)]
)
def test_the_prompt_and_the_stop_are_those_of_the_loop_s_own_sampler(
    name: str, changes: list[str], runs_root: Path
) -> None:
    spec = load_spec(folder() / f"{name}.yaml", overrides=changes)
    run = runs_root / "demo"
    run.mkdir()
    (run / "spec.yaml").write_text(dump(spec))
    (run / "checkpoints.jsonl").write_text(
        json.dumps({"name": "final", "batch": 1, "sampler_path": "tinker://a/sampler_weights/f"})
    )
    environment = _loop_s_environment(build_config(spec, base_url="http://127.0.0.1:1"))
    seen, stop = asyncio.run(environment.initial_observation())
    source = find_source(None, "demo", (), local=False, url=None)
    assert source.renderer is not None
    from tinker_cookbook.renderers import get_renderer

    tokenizer = load_tokenizer(source.model)
    asker = Asker(None, tokenizer, get_renderer(source.renderer, tokenizer), SamplingOptions())
    if hasattr(environment, "row"):  # a row of the training file, as it is there
        line = json.dumps(environment.row.value).encode()
        (prompt,) = from_lines([line], "rows", None, source.framing())
    else:
        prompt = from_text(environment.get_question(), None, source.framing())
    assert asker.prompt_tokens(prompt).to_ints() == seen.to_ints()
    assert asker.stop() == stop


def test_maths_prompts_get_the_examples_and_the_ending_of_their_loop() -> None:
    from tinker_cookbook.recipes.math_rl.math_env import MathEnv

    framing = framing_of({"type": "gsm8k"})
    assert list(framing.before) == MathEnv.standard_fewshot_prefix()
    assert framing.text({"prompt": "1+1?"}) == "1+1?" + MathEnv.question_suffix()
    assert framing_of({"type": "gsm8k", "convo_prefix": None}).before == ()


def test_other_builders_put_nothing_around() -> None:
    assert not framing_of({"type": "conversations"})
    assert not framing_of({})
    assert not framing_of({"type": "./mine.py:Builder", "prompt_template": "x"})


def test_another_system_message_replaces_the_run_s() -> None:
    framing = framing_of({"type": "prompts", "system_prompt": "A", "fewshot": []})
    assert [m["content"] for m in from_text("q", "B", framing).messages] == ["B", "q"]
    assert [m["content"] for m in from_text("q", None, framing).messages] == ["A", "q"]


def test_a_prompt_without_the_template_s_columns_goes_bare() -> None:
    framing = Framing(template="{context}: {prompt}")
    assert framing.text({"prompt": "q"}) == "q"
    assert framing.text({"prompt": "q", "context": "c"}) == "c: q"
