"""A progress bar on stderr, for work that may be long; nothing where nobody looks.

Shown only on a terminal, only after a second, and gone when the work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tinker_cli import console

QUIET_SECONDS = 1.0  # shorter work needs no bar
LOOK_EVERY = 64  # pieces of work between two looks at the clock


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told of each piece of work done; `total` may be unknown."""
    if not console.is_interactive():
        yield lambda count: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=console.stderr_console(), transient=True
    )
    task = bar.add_task(what, total=total)
    started, done, shown = time.monotonic(), 0, False

    def advance(count: int) -> None:
        nonlocal done, shown
        done += count
        if done % LOOK_EVERY >= count:
            return
        if not shown and time.monotonic() - started > QUIET_SECONDS:
            bar.start()
            shown = True
        if shown:
            bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
