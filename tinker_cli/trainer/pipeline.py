"""Keep a saved state clean while the next batch is already on its way.

The cookbook's supervised loop submits batch N+1 before it finishes batch N, so a save "after
step N" may hold the weights of N+1. `Pipeline` stands in for a training client's `forward_backward`
and `optim_step`: as a save comes due, it keeps later submissions back until the save has been
submitted, and then sends them on. The loop sees futures and notices nothing. Costs one overlap a
save; knows nothing of files, runs or resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any


class DelayedFuture:
    """A future for a request that isn't submitted yet; waits for the submission, then for it."""

    def __init__(self, submit: Callable[[], Any]):
        self._submit = submit
        self._real: Any = None

    def send(self) -> None:
        """Submit the request, once."""
        if self._real is None:
            self._real = self._submit()

    def result(self, timeout: float | None = None) -> Any:
        """The result; submits first if nobody has."""
        self.send()
        return self._real.result(timeout)

    async def result_async(self, timeout: float | None = None) -> Any:
        """The result; submits first if nobody has."""
        self.send()
        return await self._real.result_async(timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result_async().__await__()


class Pipeline:
    """Counts the optimizer steps submitted to one training client and holds back what must wait.

    `start` is the number of steps that the client's weights hold at the beginning. `is_due(n)`
    says whether a save is wanted after n steps. `submitted` counts steps really sent.
    """

    # Requests that see the weights: what was held back must be sent before them.
    SEES_WEIGHTS = (
        "forward",
        "forward_backward_custom",
        "save_weights_for_sampler",
        "save_weights_and_get_sampling_client",
        "save_weights_external",
        "save_state",
    )

    def __init__(self, client: Any, *, start: int, is_due: Callable[[int], bool]):
        self.submitted = start
        self.saves_submitted: set[str] = set()
        self._is_due = is_due
        self._wanted = False
        self._closed = False
        self._saving = False
        self._held: list[DelayedFuture] = []
        self._held_steps = 0
        self._forward_backward = client.forward_backward
        self._optim_step = client.optim_step
        client.forward_backward = self._submit_forward_backward
        client.optim_step = self._submit_optim_step
        for name in self.SEES_WEIGHTS:
            if hasattr(client, name):
                setattr(client, name, self._flush_before(name, getattr(client, name)))

    def want_save(self) -> None:
        """Ask for a clean point as soon as possible: hold back all that comes after now."""
        self._wanted = True

    def close(self) -> None:
        """Hold back everything from now on, for good: the run is about to stop."""
        self._closed = True

    def is_clean(self, done: int) -> bool:
        """True if the client's weights, once its queue is empty, hold exactly `done` steps."""
        return self.submitted == done

    def begin_save(self) -> None:
        """The next saves are those that the held requests wait for."""
        self._saving = True
        self.saves_submitted.clear()

    def end_save(self) -> None:
        """The save has been submitted: send what was held back."""
        self._saving = False
        self._wanted = False
        self.flush()

    def flush(self) -> None:
        """Send what was held back, in order; a closed pipeline sends nothing any more."""
        if self._closed:
            return
        held, self._held = self._held, []
        for future in held:
            future.send()
        self.submitted += self._held_steps
        self._held_steps = 0

    def _must_hold(self) -> bool:
        return bool(self._held) or self._closed or self._wanted or self._is_due(self.submitted)

    def _submit_forward_backward(self, *args: Any, **kwargs: Any) -> Any:
        if not self._must_hold():
            return self._forward_backward(*args, **kwargs)
        return self._hold(lambda: self._forward_backward(*args, **kwargs))

    def _submit_optim_step(self, *args: Any, **kwargs: Any) -> Any:
        if not self._held:
            self.submitted += 1
            return self._optim_step(*args, **kwargs)
        self._held_steps += 1
        return self._hold(lambda: self._optim_step(*args, **kwargs))

    def _hold(self, submit: Callable[[], Any]) -> DelayedFuture:
        future = DelayedFuture(submit)
        self._held.append(future)
        return future

    def _flush_before(self, name: str, request: Callable[..., Any]) -> Callable[..., Any]:
        def ordered(*args: Any, **kwargs: Any) -> Any:
            if self._saving:
                self.saves_submitted.add(name)
            else:
                self.flush()
            return request(*args, **kwargs)

        return ordered
