"""What the words of a command line mean: runs, files and streams first, then metrics.

Knows names and readers; knows nothing of what is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tinker_cli.errors import RunFailed, UsageError
from tinker_cli.runs.checkpoints import read_checkpoints
from tinker_cli.runs.derived import all_keys
from tinker_cli.runs.events import read_events
from tinker_cli.runs.frame import Frame
from tinker_cli.runs.metrics import MetricsReader
from tinker_cli.runs.names import default_names, resolve_names
from tinker_cli.runs.paths import is_run, resolve_run
from tinker_cli.runs.sources import (
    RemoteReader,
    StreamReader,
    is_metrics_file,
    open_source,
    remote,
)
from tinker_cli.runs.status import END_STATES, effective_state, read_status


@dataclass(frozen=True)
class Source:
    """A run, a file, a pipe or a file of another machine, and the reader of its rows."""

    name: str
    run: Path | None  # the run directory, if it is one of this machine
    reader: MetricsReader

    @property
    def frame(self) -> Frame:
        """The rows that have been read."""
        return self.reader.frame

    def read(self) -> None:
        """Read all that there is; RunFailed if that is nothing."""
        if isinstance(self.reader, StreamReader):
            self.reader.read_all()
        else:
            self.reader.poll()
            self.reader.settled()
        if isinstance(self.reader, RemoteReader):
            self.reader.close()
        if not len(self.frame):
            why = "; ".join(self.reader.notes.sentences())
            is_remote = isinstance(self.reader, RemoteReader)
            where = f"no metrics yet in {self.name if is_remote else self.reader.path}"
            raise RunFailed(f"{where}: {why}" if why else where, hint="--follow waits for them")

    def has_ended(self) -> bool:
        """True if no row will come any more: the run is over, or the writer of the pipe gone."""
        if isinstance(self.reader, StreamReader):
            return self.reader.ended
        if self.run is None:
            return False
        return effective_state(self.run, read_status(self.run))[0] in END_STATES

    def resumes(self) -> list[int]:
        """The steps at which the run was resumed, as its events and its rows tell."""
        events = read_events(self.run) if self.run is not None else []
        steps = [event.get("step") for event in events if event["kind"] == "resumed"]
        return sorted({*(s for s in steps if isinstance(s, int)), *self.frame.seams})

    def checkpoints(self) -> list[int]:
        """The steps at which a checkpoint was saved."""
        rows = read_checkpoints(self.run)[0] if self.run is not None else []
        steps = [row.step if row.step is not None else row.batch for row in rows]
        return [step for step in steps if step is not None]


def split_words(words: Sequence[str], *, may_ask: bool) -> tuple[list[Source], list[str]]:
    """Leading words that name runs or files, then names of metrics; nothing is read yet.

    After the first word only a directory that holds a run's files is a run, and `host:path` needs
    a path that begins with `/`, `~` or `.`: metrics have names like `loss:sum`. UsageError if the
    first word names nothing.
    """
    found: list[Source] = []
    rest: list[str] = []
    for index, word in enumerate(words):
        there = remote(word)
        path: Path | None = Path(word).expanduser()
        run = None
        if is_metrics_file(word):
            there = None
        elif there and (not found or there[1][0] in "/~."):
            path = None
        else:
            try:
                run = path = resolve_run(word)
            except UsageError:
                if not found:
                    raise
            if run is None or (found and not is_run(run)):
                rest = list(words[index:])
                break
        reader = open_source(word, path, may_ask=may_ask)
        found.append(Source(_name(word, run, path), run, reader))
    return _told_apart(found), rest


def _name(word: str, run: Path | None, path: Path | None) -> str:
    if run is not None:
        return run.name or str(run)
    if path is None or not path.name.startswith("metrics."):
        return word
    return path.absolute().parent.name or word  # every such file has one name


def _told_apart(sources: list[Source]) -> list[Source]:
    """The sources under names that differ."""
    names = [source.name for source in sources]
    if len(set(names)) == len(names):
        return sources
    return [replace(one, name=str(one.run or one.reader.path)) for one in sources]


def wanted_metrics(sources: Sequence[Source], words: Sequence[str]) -> list[str]:
    """The metrics that are asked for, or those that a person looks at first.

    UsageError names the nearest where there is none.
    """
    keys = list(dict.fromkeys(key for one in sources for key in all_keys(one.frame)))
    return resolve_names(words, keys) if words else default_names(keys)
