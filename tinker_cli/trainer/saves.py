"""The cookbook's checkpoint manager, with records that say exactly what each state holds.

Every record gets `step`: the number of steps in the saved state, which is the next step to train.
A record is written only when the rows of all those steps are in `metrics.jsonl`, so that a kill
at any moment leaves a pair that fits. For supervised runs the saves are made clean first (see
`pipeline`). Knows nothing of processes or signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tinker_cli.trainer.pipeline import Pipeline


class CheckpointLedger:
    """Writes checkpoint records, in order, once the rows before them are on disk.

    `write` appends one record to the run's file; `on_record` hears of each that was written.
    """

    def __init__(self, *, start: int, on_record: Callable[[dict[str, Any]], None]):
        self.rows_until = start  # rows of all steps below this one are logged
        self.write: Callable[[dict[str, Any]], None] | None = None
        self._on_record = on_record
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._known: set[int] = {start}

    def add(self, record: dict[str, Any]) -> None:
        """Take a record whose `step` (or, in RL, `batch`) says what the state holds."""
        step = int(record.get("step", record.get("batch", 0)))
        record = {**record, "step": step}
        if record.get("state_path"):
            self._known.add(step)
        self._waiting.append((step, record))
        self._write_due()

    def row_logged(self, step: int) -> None:
        """The row of `step` is in metrics.jsonl."""
        self.rows_until = max(self.rows_until, step + 1)
        self._write_due()

    def has_state(self, step: int) -> bool:
        """True if a resumable state that holds `step` steps was saved (or was the start)."""
        return step in self._known

    def _write_due(self) -> None:
        due = [record for step, record in self._waiting if step <= self.rows_until]
        self._waiting = [pair for pair in self._waiting if pair[0] > self.rows_until]
        for record in due:
            assert self.write is not None
            self.write(record)
            self._on_record(record)


class SaveControl:
    """What the hooks tell the manager: save now, and how far the run is.

    `n_batches` is the length of one epoch (known once the dataset is built).
    """

    def __init__(self, kind: str, ledger: CheckpointLedger, *, start: int):
        self.kind = kind
        self.ledger = ledger
        self.start = start
        self.n_batches: int | None = None
        self.force = False
        self.manager: Any = None
        self.client: Any = None
        self.pipeline: Pipeline | None = None
        self.loop_state: dict[str, Any] = {}  # of the last finished step

    def want_save(self) -> None:
        """Save at the next point where the state is clean."""
        self.force = True
        if self.pipeline is not None:
            self.pipeline.want_save()

    def close(self) -> None:
        """The run is about to stop: start no further step, and save."""
        self.force = True
        if self.pipeline is not None:
            self.pipeline.close()

    def position(self, step: int) -> dict[str, Any]:
        """The loop state that makes the cookbook go on with `step`."""
        if self.kind == "rl":
            return {**self.loop_state, "batch": step, "step": step}
        epoch, batch = divmod(step, self.n_batches or max(step, 1))
        return {**self.loop_state, "epoch": epoch, "batch": batch, "step": step}

    def is_clean(self, step: int) -> bool:
        """True if the client's weights hold exactly `step` steps."""
        return self.pipeline is None or self.pipeline.is_clean(step)

    def save_now(self, step: int) -> None:
        """Save a full checkpoint of `step` steps and wait for it; the state must be clean."""
        manager, client = self.manager, self.client
        if manager is None or client is None or self.ledger.has_state(step):
            return
        name, ttl = f"{step:06d}", manager._ttl_seconds
        if self.pipeline is not None:
            self.pipeline.begin_save()
        state = client.save_state(name, ttl_seconds=ttl)
        sampler = client.save_weights_for_sampler(name, ttl_seconds=ttl)
        paths = {"state_path": state.result().path, "sampler_path": sampler.result().path}
        self.ledger.add({"name": name, **self.position(step), **paths})
        self.force = False


def make_manager_class(base: Any, control: SaveControl) -> Any:
    """Return the cookbook's `CheckpointManager` with exact records; `control` steers it."""

    class ExactCheckpointManager(base):
        def __init__(self, training_client: Any, *args: Any, **kwargs: Any):
            super().__init__(training_client, *args, **kwargs)
            control.manager, control.client = self, training_client
            self._last_looked_at = control.start
            if control.kind == "sl":
                control.pipeline = Pipeline(
                    training_client, start=control.start, is_due=self._is_due_by_step
                )

        def _is_due_by_step(self, step: int) -> bool:
            if step <= self._last_looked_at:
                return False  # the loop has been there: saved, or not wanted
            every = (self._save_every, self._rolling_save_every)
            return any(n > 0 and step % n == 0 for n in every)

        def should_save_periodic(self, step: int, **kwargs: Any) -> bool:
            due = bool(control.force or super().should_save_periodic(step, **kwargs))
            return due and step > control.start

        async def maybe_save_rolling_async(self, step: int, loop_state: dict[str, Any]) -> None:
            """Start the background save, and see it into the queue before the next step's work."""
            await super().maybe_save_rolling_async(step, loop_state)
            await asyncio.sleep(0)

        async def save_periodic_async(self, step: int, loop_state: dict[str, Any]) -> Any:
            control.force = False
            state = {**loop_state, "step": step} if control.kind == "rl" else loop_state
            return await super().save_periodic_async(step, state)

        async def maybe_save_async(self, step: int, loop_state: Any, **kwargs: Any) -> Any:
            """Supervised: called while step `step` finishes, with later steps maybe submitted."""
            done = step + 1
            control.loop_state = dict(loop_state)
            pipeline = control.pipeline
            assert pipeline is not None
            self._last_looked_at = done
            if control.ledger.has_state(done):
                return None
            if not pipeline.is_clean(done):
                if self.should_save_periodic(done, **kwargs):
                    control.want_save()
                return None
            return await self._save_clean(done, pipeline, **kwargs)

        async def _save_clean(self, done: int, pipeline: Pipeline, **kwargs: Any) -> Any:
            periodic = self.should_save_periodic(done, **kwargs)
            if not periodic and not self._should_save_rolling(done):
                pipeline.flush()
                return None
            last = "save_weights_for_sampler" if periodic else "save_state"
            pipeline.begin_save()
            save = asyncio.ensure_future(
                super().maybe_save_async(done, control.position(done), **kwargs)
            )
            for _ in range(1000):  # until the save is in the server's queue
                if last in pipeline.saves_submitted:
                    break
                await asyncio.sleep(0 if not save.done() else 0.001)
            pipeline.end_save()
            return await save

        async def save_final_async(self, loop_state: dict[str, Any]) -> Any:
            """The record says what was really trained, so that the run can be extended."""
            done = control.ledger.rows_until
            state = control.position(done) if control.kind == "sl" else {**loop_state, "step": done}
            return await super().save_final_async(state)

    return ExactCheckpointManager
