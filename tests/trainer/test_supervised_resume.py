"""The cookbook's supervised loop inside our hooks, cut off everywhere and resumed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from toy_service import (
    Power,
    PowerCut,
    ToyServiceClient,
    ToyStore,
    ToyTokenizer,
    rows,
)

from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.trainer.hooks import Hooks, StopRun
from tinker_cli.trainer.resume import ResumePoint, find_point, rewind

N_BATCHES = 5


class Watcher:
    """An observer that stops after the row of a step, if told to."""

    def __init__(self, stop_after: int | None = None, poisoned: bool = False):
        self.stop_after = stop_after
        self.poisoned = poisoned
        self.stopping = False
        self.steps: list[int] = []
        self.records: list[Any] = []

    def loop_ready(self, batches: int) -> None:
        assert batches == N_BATCHES

    def first_batch(self) -> None:
        pass

    def row(self, row: Any, step: int) -> None:
        self.steps.append(step)
        if step == self.stop_after:
            self.stopping = True

    def record(self, record: Any) -> None:
        self.records.append(record)

    def wants_stop(self) -> bool:
        return self.stopping

    def may_save(self) -> bool:
        return not self.poisoned


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[ToyServiceClient]:
    import tinker
    from tinker_cookbook import checkpoint_utils, tokenizer_utils
    from tinker_cookbook.supervised import train
    from tinker_cookbook.utils import ml_log

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    ToyServiceClient.store, ToyServiceClient.power = ToyStore(), Power()
    monkeypatch.setattr(tinker, "ServiceClient", ToyServiceClient)
    monkeypatch.setattr(train, "get_tokenizer", lambda _: ToyTokenizer())
    monkeypatch.setattr(tokenizer_utils, "get_tokenizer", lambda _: ToyTokenizer())
    monkeypatch.setattr(train, "compute_bpb", lambda *_: 0.0)
    monkeypatch.setattr(train, "colorize_example", lambda *_: "")
    monkeypatch.setattr(ml_log, "setup_logging", ml_log.setup_logging)
    monkeypatch.setattr(ml_log, "configure_logging_module", lambda *_: None)
    monkeypatch.setattr(ml_log, "code_state", lambda *_: "")
    monkeypatch.setattr(checkpoint_utils, "CheckpointManager", checkpoint_utils.CheckpointManager)
    return ToyServiceClient


def make_config(run: Path, **fields: Any) -> Any:
    import chz
    import tinker
    from tinker_cookbook.supervised.train import Config
    from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder

    class Numbers(SupervisedDataset):
        epoch = 0

        def set_epoch(self, seed: int = 0) -> None:
            self.epoch = seed

        def get_batch(self, index: int) -> list[Any]:
            import numpy as np

            # Drawn from the global generator, as careless datasets do.
            tokens = [self.epoch, index, int(np.random.randint(1000))]
            return [
                tinker.Datum(
                    model_input=tinker.ModelInput.from_ints(tokens),
                    loss_fn_inputs={
                        "target_tokens": tinker.TensorData(
                            data=tokens, dtype="int64", shape=[len(tokens)]
                        ),
                        "weights": tinker.TensorData(
                            data=[1.0] * len(tokens), dtype="float32", shape=[len(tokens)]
                        ),
                    },
                )
            ]

        def __len__(self) -> int:
            return N_BATCHES

    @chz.chz
    class NumbersBuilder(SupervisedDatasetBuilder):
        def __call__(self) -> Any:
            return Numbers(), None

    settings = {"save_every": 2, "num_epochs": 2, "learning_rate": 0.1, **fields}
    return Config(
        log_path=str(run),
        model_name="toy",
        recipe_name="toy",
        dataset_builder=NumbersBuilder(),
        **settings,
    )


def train(run: Path, watcher: Watcher, *, cut_at: int | None = None, **fields: Any) -> ResumePoint:
    """One launch: find the point to go on from, rewind, train to an end of some kind."""
    from tinker_cookbook.supervised import train as loop

    toy = ToyServiceClient
    toy.power = Power(cut_at)
    run.mkdir(exist_ok=True)
    epochs = fields.get("num_epochs", 2)
    total = min(N_BATCHES * epochs, fields.get("max_steps") or 10**9)
    point = find_point(
        run,
        "sl",
        n_batches=N_BATCHES,
        exists=lambda path: path in toy.store.states,
        total_steps=total,
    )
    rewind(run, point, "sl", N_BATCHES)
    config = make_config(run, **fields)
    hooks = Hooks("sl", watcher, start=point.step, seed=7)
    hooks.install(config)
    _cut_file_writes(hooks, toy.power)
    asyncio.run(hooks.run(loop.main, config))
    return point


def _cut_file_writes(hooks: Hooks, power: Power) -> None:
    """Power may also go just before a row or a checkpoint record is written."""
    wrap = hooks._wrap_logger

    def wrapped(logger: Any) -> Any:
        write_row, write_record = logger.log_metrics, logger.store.write_checkpoint

        def log_metrics(metrics: Any, step: int | None = None) -> None:
            power.tick()
            write_row(metrics, step)
            power.tick()

        def write_checkpoint(record: Any) -> None:
            power.tick()
            write_record(record)
            power.tick()

        logger.log_metrics, logger.store.write_checkpoint = log_metrics, write_checkpoint
        return wrap(logger)

    hooks._wrap_logger = wrapped  # type: ignore[method-assign]


def trained_steps() -> list[tuple[int, int]]:
    """(epoch, batch) of every step in the newest model's weights, in order."""
    assert ToyServiceClient.last is not None
    return [(step[0][0][0], step[0][0][1]) for step in ToyServiceClient.last.weights]


EVERY_STEP = [(epoch, batch) for epoch in range(2) for batch in range(N_BATCHES)]


@pytest.mark.parametrize(
    ("ahead", "schedule", "stride"), [(0, "constant", 4), (1, "linear", 1), (2, "cosine", 4)]
)
def test_cut_off_anywhere_and_resumed_equals_never_interrupted(
    toy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    schedule: str,
    stride: int,
) -> None:
    fields = {"submit_ahead": ahead, "lr_schedule": schedule, "rolling_save_every": 3}
    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        train(tmp_path / "whole", Watcher(), **fields)
    weights, whole = list(toy.last.weights), rows(tmp_path / "whole")
    assert trained_steps() == EVERY_STEP
    assert [row["step"] for row in whole] == list(range(10))
    events = toy.power.events
    for cut_at in range(0, events, stride):
        toy.store = ToyStore()
        run = tmp_path / f"cut{cut_at}"
        with monkeypatch.context() as patches:
            fresh_hooks(patches)
            with pytest.raises(PowerCut):
                train(run, Watcher(), cut_at=cut_at, **fields)
        gc.collect()  # the dead process's tasks go here, not in the middle of something
        with monkeypatch.context() as patches:
            fresh_hooks(patches)
            point = train(run, Watcher(), **fields)
        if point.step < 10:
            assert toy.last.weights == weights, f"cut at event {cut_at}"
        assert rows(run) == whole, f"cut at event {cut_at}"


def fresh_hooks(patches: pytest.MonkeyPatch) -> None:
    """Let `Hooks.install` change the cookbook's seams until the end of the context."""
    from tinker_cookbook import checkpoint_utils
    from tinker_cookbook.utils import ml_log

    patches.setattr(ml_log, "setup_logging", ml_log.setup_logging)
    patches.setattr(checkpoint_utils, "CheckpointManager", checkpoint_utils.CheckpointManager)


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("stop_after", [0, 1, 4, 7])
def test_stopped_run_saves_and_goes_on_where_it_was(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, stop_after: int
) -> None:
    run = tmp_path / "run"
    watcher = Watcher(stop_after=stop_after)
    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        with pytest.raises(StopRun):
            train(run, watcher, submit_ahead=ahead)
    last = read_checkpoints(run)[0][-1]
    assert last.step == len(rows(run)) == watcher.steps[-1] + 1
    assert len(toy.store.states[last.state_path]) == last.step
    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        assert train(run, Watcher(), submit_ahead=ahead).step == last.step
    assert trained_steps() == EVERY_STEP
    assert [row["step"] for row in rows(run)] == list(range(10))


def test_poisoned_weights_are_not_saved(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        with pytest.raises(StopRun):
            train(tmp_path / "run", Watcher(stop_after=2, poisoned=True))
    assert [c.step for c in read_checkpoints(tmp_path / "run")[0]] == [2]


def test_finished_run_is_extended_by_max_steps(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for steps in (3, 7, None):
        with monkeypatch.context() as patches:
            fresh_hooks(patches)
            train(run, Watcher(), max_steps=steps, lr_schedule="constant")
    assert trained_steps() == EVERY_STEP
    assert [row["step"] for row in rows(run)] == list(range(10))


def test_finished_run_is_extended_by_num_epochs(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for epochs in (1, 2):
        with monkeypatch.context() as patches:
            fresh_hooks(patches)
            train(run, Watcher(), num_epochs=epochs)
    assert trained_steps() == EVERY_STEP
    # The linear schedule spans all ten steps once there are ten.
    assert rows(run)[5]["learning_rate"] == pytest.approx(0.1 * (1 - 5 / 10))


def test_resume_takes_the_optimizer_and_warm_start_does_not(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for steps in (2, 4):
        with monkeypatch.context() as patches:
            fresh_hooks(patches)
            train(run, Watcher(), max_steps=steps)
    start = read_checkpoints(run)[0][-1].state_path
    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        train(tmp_path / "warm", Watcher(), max_steps=2, load_checkpoint_path=start)
    assert toy.store.created == ["new", "with optimizer", "weights only"]


def test_pipelining_is_kept_between_saves(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    for name in ("forward_backward", "save_state"):
        original = getattr(toy_client_class(), name)

        def noted(
            self: Any, *args: Any, _name: str = name, _call: Any = original, **kw: Any
        ) -> Any:
            order.append(_name)
            return _call(self, *args, **kw)

        monkeypatch.setattr(toy_client_class(), name, noted)

    class Noting(Watcher):
        def row(self, row: Any, step: int) -> None:
            order.append(f"row {step}")

    with monkeypatch.context() as patches:
        fresh_hooks(patches)
        train(tmp_path / "run", Noting(), num_epochs=1, save_every=3)
    # Two batches in flight, save after exactly three, then two in flight again.
    f = "forward_backward"
    assert order == [f, f, "row 0", f, "row 1", "save_state", f, "row 2", f, "row 3", "row 4",
                     "save_state"]  # fmt: skip


def toy_client_class() -> Any:
    from toy_service import ToyTrainingClient

    return ToyTrainingClient
