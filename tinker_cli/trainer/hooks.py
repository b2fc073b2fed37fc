"""What the trainer puts around a cookbook loop, from outside, the same for every version of it.

Seams: `ml_log.setup_logging` (rows and checkpoint records pass through its result),
`checkpoint_utils.CheckpointManager`, and the dataset that the builder returns. Nothing of the
cookbook's own code is copied or edited. Knows nothing of processes, signals and status files:
those hear through `Observer`.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Protocol

from tinker_cli.trainer.saves import CheckpointLedger, SaveControl, make_manager_class
from tinker_cli.trainer.secrets import without_secrets

TRAINING_ROW_KEYS = ("progress/batch", "training_client/step", "train_mean_nll")


class StopRun(BaseException):
    """Leaves a loop after a finished step; not an Exception, so that no retry swallows it."""


class Observer(Protocol):
    """Who hears of a run's progress and may end it."""

    def loop_ready(self, batches: int) -> None:
        """The dataset is built and has so many batches; training is about to begin."""

    def first_batch(self) -> None:
        """The first step of this launch has begun."""

    def row(self, row: Mapping[str, Any], step: int) -> None:
        """A training row was written; `step` is its step. Raises nothing."""

    def record(self, record: Mapping[str, Any]) -> None:
        """A checkpoint was recorded."""

    def wants_stop(self) -> bool:
        """True if the run is to end at this row."""

    def may_save(self) -> bool:
        """False if the weights aren't worth saving (they may hold NaN)."""


class Hooks:
    """The hooks of one launch: `install` puts them in place, before the loop's `main` is called.

    `start` is the step to begin with; `seed` fixes the draws of datasets that use the global
    generators, so that a step draws the same in every launch. `in_order` makes rollout groups
    arrive in the order in which they were begun, where that decides the minibatches.
    """

    def __init__(
        self, kind: str, observer: Observer, *, start: int, seed: int, in_order: bool = False
    ):
        self.kind = kind
        self.in_order = in_order
        self.observer = observer
        self.start = start
        self.seed = seed
        self.ledger = CheckpointLedger(start=start, on_record=observer.record)
        self.control = SaveControl(kind, self.ledger, start=start)
        self.on_batch: Callable[[int, Any], None] = lambda index, batch: None
        self._rollouts: StreamedRollouts | None = None

    def install(self, config: Any) -> None:
        """Wrap the cookbook's seams for a run of `config`."""
        from tinker_cookbook import checkpoint_utils
        from tinker_cookbook.utils import ml_log

        original_setup = ml_log.setup_logging

        def setup_logging(*args: Any, **kwargs: Any) -> Any:
            return self._wrap_logger(original_setup(*args, **kwargs))

        ml_log.setup_logging = setup_logging
        checkpoint_utils.CheckpointManager = make_manager_class(
            checkpoint_utils.CheckpointManager, self.control
        )
        self._wrap_builder(type(config.dataset_builder))
        streams = getattr(config, "stream_minibatch_config", None) is not None
        if streams and getattr(config, "async_config", None) is None:
            from tinker_cookbook.rl import train

            name = "do_group_rollout_and_filter_constant_reward"
            self._rollouts = StreamedRollouts(getattr(train, name), in_order=self.in_order)
            setattr(train, name, self._rollouts)

    async def run(self, main: Callable[[Any], Any], config: Any) -> None:
        """Run the cookbook's `main` with the hooks in place; raises what ended it."""
        if self._rollouts is None:
            await main(config)
            return
        self._rollouts.loop_task = asyncio.current_task()
        try:
            await main(config)
        except asyncio.CancelledError:
            if self._rollouts.failure is None:
                raise
            raise self._rollouts.failure from None

    def _wrap_logger(self, logger: Any) -> Any:
        # The table that the cookbook prints each step is in metrics.jsonl; here it only costs.
        logger.loggers = [
            each for each in logger.loggers if "PrettyPrint" not in type(each).__name__
        ]
        write_row, store = logger.log_metrics, logger.store
        self.ledger.write = store.write_checkpoint
        store.write_checkpoint = self.ledger.add

        def log_metrics(metrics: dict[str, Any], step: int | None = None) -> None:
            write_row(metrics, step)
            if step is not None and any(key in metrics for key in TRAINING_ROW_KEYS):
                self._row_written(metrics, step)

        logger.log_metrics = log_metrics
        return logger

    def _row_written(self, metrics: dict[str, Any], step: int) -> None:
        done = step + 1
        if self.kind == "rl":
            self.control.loop_state = _token_counts(metrics)
        self.ledger.row_logged(step)
        self.observer.row(metrics, step)
        if not self.observer.wants_stop():
            if self.kind == "rl" and self.control.force:
                self.control.save_now(done)
            return
        if not self.observer.may_save():
            raise StopRun
        self.control.close()
        if self.control.is_clean(done):
            self.control.save_now(done)
            raise StopRun

    def _wrap_builder(self, builder: Any) -> None:
        original, hooks = builder.__call__, self

        def call(builder_self: Any, *args: Any, **kwargs: Any) -> Any:
            built = original(builder_self, *args, **kwargs)
            if isawaitable(built):
                return _after(built, hooks._steady)
            return hooks._steady(built)

        builder.__call__ = call

    def _steady(self, built: Any) -> Any:
        dataset, *rest = built
        steady = SteadyDataset(dataset, self.seed, self.observer.first_batch, self.on_batch)
        self.control.n_batches = len(steady)
        self.observer.loop_ready(len(steady))
        return (steady, *rest)


class StreamedRollouts:
    """The rollouts of a streaming loop: they end in the order they began, and fail aloud.

    The loop starts them as tasks that nobody awaits: one that fails would leave it waiting for
    ever. Here a failure ends the loop's task, and `failure` holds it. Groups may run at once;
    with `in_order`, one that overtakes waits, since arrival decides the minibatches.
    """

    def __init__(self, rollout: Callable[..., Any], *, in_order: bool):
        self.failure: BaseException | None = None
        self.loop_task: asyncio.Task[Any] | None = None
        self._rollout = rollout
        self._in_order = in_order
        self._last: asyncio.Future[None] | None = None

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one group."""
        before, mine = self._last, asyncio.get_running_loop().create_future()
        self._last = mine
        try:
            result = await self._rollout(*args, **kwargs)
            if before is not None and self._in_order:
                await before
            return result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            if self.loop_task is not None:
                self.loop_task.cancel()
            raise
        finally:
            if not mine.done():
                mine.set_result(None)


async def _after(awaitable: Any, then: Callable[[Any], Any]) -> Any:
    return then(await awaitable)


class SteadyDataset:
    """A dataset whose batch depends on its index alone, even if it draws from global generators."""

    def __init__(
        self,
        dataset: Any,
        seed: int,
        on_first: Callable[[], None],
        on_batch: Callable[[int, Any], None] = lambda index, batch: None,
    ):
        self._dataset, self._on_batch = dataset, on_batch
        self._seed = seed
        self._epoch = 0
        self._on_first: Callable[[], None] | None = on_first

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def set_epoch(self, seed: int = 0) -> None:
        """Begin an epoch, as the dataset does it."""
        self._epoch = seed
        seed_generators(self._seed, self._epoch, -1)
        self._dataset.set_epoch(seed=seed)

    def get_batch(self, index: int) -> Any:
        """The batch at `index`, drawn with generators seeded by seed, epoch and index."""
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        seed_generators(self._seed, self._epoch, index)
        batch = self._dataset.get_batch(index)
        self._on_batch(index, batch)
        return batch


def seed_generators(*parts: int) -> None:
    """Seed Python's and numpy's global generators from `parts`."""
    import numpy as np

    digest = hashlib.sha256(repr(parts).encode()).digest()
    random.seed(digest)
    np.random.seed(int.from_bytes(digest[:4], "little"))


def _token_counts(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The running totals that newer cookbooks keep in a checkpoint, read from a row."""
    counts: dict[str, Any] = {}
    for prefix, field in (("tokens/cumulative/", "cumulative_tokens"),):
        found = {
            key.removeprefix(prefix): value
            for key, value in metrics.items()
            if key.startswith(prefix)
        }
        if found:
            counts[field] = found
    return counts


def quiet_pricing() -> None:
    """Keep newer cookbooks from asking a web page for prices; rows then count tokens only."""
    with suppress(ImportError):
        from tinker_cookbook.utils import cost_estimation

        cost_estimation._pricing_fetched = True


def quiet_deprecations() -> None:
    """Keep out of the log what the SDK says of the cookbook's calls: no user can mend them."""
    warnings.filterwarnings("ignore", "DEPRECATED: ", FutureWarning, r"tinker_cookbook\.")


def safe_code_diff() -> None:
    """Keep secrets of uncommitted files out of `code.diff`; do without git where there is none.

    The cookbook writes the whole difference of the repository that it is installed in, which may
    be the user's own, and dies on a machine without git.
    """
    import shutil

    from tinker_cookbook.utils import ml_log

    original = ml_log.code_state

    def code_state(*arguments: Any, **named: Any) -> str:
        if shutil.which("git") is None:
            return "(no git on this machine)\n"
        return without_secrets(original(*arguments, **named))

    ml_log.code_state = code_state
