"""The same work on every row, in order, on all cores once there are many rows.

The first rows are done here and at once, so that a slow input shows its first results; the rest go
to one process a core in batches, a bounded number of them at a time. Knows rows and lenses.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import TypeVar

from tinker_cli.data.rows import Row
from tinker_cli.errors import Fault
from tinker_cli.render.shown import Lens

BATCH_ROWS = 200  # conversations handed to a process at once
SERIAL_ROWS = 1_000  # below it, starting processes costs more than they bring
AHEAD = 3  # batches a process that wait for it
YOUNGEST = 100_000  # objects made before the collector looks: a rendered row makes no cycles

Result = TypeVar("Result")
Work = Callable[[Lens, Sequence["Row | Fault"]], Result]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worked(
    rows: Iterable[Row | Fault],
    make_lens: Callable[[], Lens],
    work: Work[Result],
    *,
    workers: int | None = None,
    serial_rows: int = SERIAL_ROWS,
) -> Iterator[Result]:
    """Yield `work(lens, batch)` for batches of rows, in their order.

    `work` must be a module's function and `make_lens` survive pickling. `workers` is the number of
    processes (default: the cores).
    """
    source = iter(rows)
    lens = make_lens()
    for row in islice(source, serial_rows):
        yield work(lens, [row])
    workers = workers or cores()
    if workers == 1:
        for batch in _batches(source):
            yield work(lens, batch)
        return
    first = list(islice(source, BATCH_ROWS))
    if not first:
        return
    _LENS[:] = [lens]  # a forked process finds it there
    gc.freeze()
    with ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_start, initargs=(make_lens,)
    ) as pool:
        waiting: deque[Future[Result]] = deque([pool.submit(_call, work, first)])
        for batch in _batches(source):
            waiting.append(pool.submit(_call, work, batch))
            while len(waiting) > AHEAD * workers or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _context() -> multiprocessing.context.BaseContext:
    # A fork shares the loaded libraries' memory and starts at once; it is safe on Linux alone.
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _batches(source: Iterator[Row | Fault]) -> Iterator[list[Row | Fault]]:
    while batch := list(islice(source, BATCH_ROWS)):
        yield batch


_LENS: list[Lens] = []  # one a process


def _start(make_lens: Callable[[], Lens]) -> None:
    import torch

    torch.set_num_threads(1)
    gc.set_threshold(YOUNGEST, 50, 50)
    if not _LENS:
        _LENS.append(make_lens())


def _call(work: Work[Result], batch: Sequence[Row | Fault]) -> Result:
    return work(_LENS[0], batch)
