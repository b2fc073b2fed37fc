"""The cookbook's RL loops inside our hooks, cut off everywhere and resumed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_supervised_resume import Watcher, _cut_file_writes, fresh_hooks
from toy_service import Power, PowerCut, ToyServiceClient, ToyStore, ToyTokenizer, rows

from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.trainer.hooks import Hooks, StopRun
from tinker_cli.trainer.resume import ResumePoint, find_point, rewind

N_BATCHES = 5


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[ToyServiceClient]:
    import tinker
    from tinker_cookbook.rl import train
    from tinker_cookbook.utils import ml_log

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    ToyServiceClient.store, ToyServiceClient.power = ToyStore(), Power()
    monkeypatch.setattr(tinker, "ServiceClient", ToyServiceClient)
    monkeypatch.setattr(train, "get_tokenizer", lambda _: ToyTokenizer())
    monkeypatch.setattr(train, "print_group", lambda *_: None)
    monkeypatch.setattr(ml_log, "configure_logging_module", lambda *_: None)
    monkeypatch.setattr(ml_log, "code_state", lambda *_: "")
    if hasattr(train, "fetch_model_pricing"):
        monkeypatch.setattr(train, "fetch_model_pricing", lambda *_: None)
    return ToyServiceClient


def make_config(run: Path, *, stream: bool = False, **fields: Any) -> Any:
    import chz
    import numpy as np
    import tinker
    from tinker_cookbook.rl.train import Config, StreamMinibatchConfig
    from tinker_cookbook.rl.types import (
        Env,
        EnvGroupBuilder,
        RLDataset,
        RLDatasetBuilder,
        StepResult,
    )

    class Guess(Env):
        def __init__(self, prompt: list[int]):
            self.prompt = prompt

        async def initial_observation(self) -> Any:
            return tinker.ModelInput.from_ints(self.prompt), []

        async def step(self, action: Any, **_: Any) -> Any:
            return StepResult(
                reward=float(action[0] % 5),
                episode_done=True,
                next_observation=tinker.ModelInput.empty(),
                next_stop_condition=[],
                metrics={"first": float(action[0])},
            )

    class Group(EnvGroupBuilder):
        def __init__(self, prompt: list[int]):
            self.prompt = prompt

        async def make_envs(self) -> Sequence[Env]:
            return [Guess(self.prompt) for _ in range(2)]

        def logging_tags(self) -> list[str]:
            return []

    class Prompts(RLDataset):
        def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
            return [Group([index, group, int(np.random.randint(1000))]) for group in range(4)]

        def __len__(self) -> int:
            return N_BATCHES

    @chz.chz
    class PromptsBuilder(RLDatasetBuilder):
        async def __call__(self) -> Any:
            return Prompts(), None

    streaming = StreamMinibatchConfig(groups_per_batch=4, num_minibatches=2) if stream else None
    return Config(
        log_path=str(run),
        model_name="toy",
        recipe_name="toy",
        dataset_builder=PromptsBuilder(),
        learning_rate=0.1,
        max_tokens=4,
        num_groups_to_log=0,
        rollout_json_export=False,
        stream_minibatch_config=streaming,
        **{"save_every": 2, "eval_every": 0, **fields},
    )


def train(run: Path, watcher: Watcher, *, cut_at: int | None = None, **fields: Any) -> ResumePoint:
    """One launch: find the point to go on from, rewind, train to an end of some kind."""
    from tinker_cookbook.rl import train as loop

    toy = ToyServiceClient
    toy.power = Power(cut_at)
    run.mkdir(exist_ok=True)
    point = find_point(run, "rl", n_batches=N_BATCHES, exists=lambda path: path in toy.store.states)
    rewind(run, point, "rl", N_BATCHES)
    config = make_config(run, **fields)
    hooks = Hooks("rl", watcher, start=point.step, seed=7, in_order=True)
    hooks.install(config)
    _cut_file_writes(hooks, toy.power)
    asyncio.run(asyncio.wait_for(hooks.run(loop.main, config), timeout=20))
    return point


def launch(patches: pytest.MonkeyPatch, run: Path, watcher: Watcher | None = None, **f: Any) -> Any:
    from tinker_cookbook.rl import train as loop

    with patches.context() as inner:
        fresh_hooks(inner)
        name = "do_group_rollout_and_filter_constant_reward"
        inner.setattr(loop, name, getattr(loop, name))
        return train(run, watcher or Watcher(), **f)


def comparable(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run) if "progress/batch" in row]


@pytest.mark.parametrize("stream", [False, True])
def test_cut_off_anywhere_and_resumed_equals_never_interrupted(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    fields = {"stream": stream, "rolling_save_every": 3}
    launch(monkeypatch, tmp_path / "whole", **fields)
    weights, whole = list(toy.last.weights), comparable(tmp_path / "whole")
    assert [step[0][0][0] for step in weights] == list(range(N_BATCHES))
    assert [row["step"] for row in whole] == list(range(N_BATCHES))
    events = toy.power.events
    for cut_at in range(0, events, 1 if not stream else 2):
        toy.store = ToyStore()
        run = tmp_path / f"cut{cut_at}"
        with pytest.raises(PowerCut):
            launch(monkeypatch, run, cut_at=cut_at, **fields)
        gc.collect()
        point = launch(monkeypatch, run, **fields)
        assert comparable(run) == whole, f"cut at event {cut_at}"
        if point.step < N_BATCHES:
            assert toy.last.weights == weights, f"cut at event {cut_at}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop_after", [0, 1, 2])
def test_stopped_run_saves_and_goes_on_where_it_was(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int, stream: bool
) -> None:
    run = tmp_path / "run"
    with pytest.raises(StopRun):
        launch(monkeypatch, run, Watcher(stop_after=stop_after), stream=stream)
    last = read_checkpoints(run)[0][-1]
    assert last.step == stop_after + 1 == len(comparable(run))
    assert len(toy.store.states[last.state_path]) == last.step
    assert launch(monkeypatch, run, stream=stream).step == last.step
    assert [step[0][0][0] for step in toy.last.weights] == list(range(N_BATCHES))


def test_finished_run_is_extended_by_max_steps(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, tmp_path / "whole")
    whole = comparable(tmp_path / "whole")
    run = tmp_path / "run"
    for steps in (2, 3, None):
        launch(monkeypatch, run, max_steps=steps)
    drop = "progress/done_frac"  # says how far along, of the steps known then
    assert [{k: v for k, v in row.items() if k != drop} for row in comparable(run)] == [
        {k: v for k, v in row.items() if k != drop} for row in whole
    ]
