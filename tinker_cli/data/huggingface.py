"""Supervised data from `datasets`: a hub name, a local folder or a data file.

Rows hold a column of messages, or a prompt and a completion column. With `streaming`, rows are
rendered as they come through a shuffle buffer, `max_prompts` of them an epoch. The datasets are
the cookbook's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chz
import tinker
from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised.data import (
    StreamingSupervisedDatasetFromHFDataset,
    SupervisedDatasetFromHFDataset,
    conversation_to_datum,
)
from tinker_cookbook.supervised.types import ChatDatasetBuilder, SupervisedDataset

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row, locate
from tinker_cli.errors import Fault, InputFaults, UsageError

FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".gz": "json"}


@chz.chz
class HuggingFaceBuilder(ChatDatasetBuilder):
    """A dataset of the hub, a folder or a file, as conversations."""

    path: str
    name: str | None = None
    split: str = "train"
    test_split: str | None = None
    test_size: int = 0
    messages_column: str = "messages"
    prompt_column: str | None = None
    completion_column: str | None = None
    streaming: bool = False
    max_prompts: int | None = None
    buffer_size: int = 10_000
    shuffle_seed: int = 0

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        """The training and the held-out dataset; raises UsageError or InputFaults."""
        size = self.common_config.batch_size
        make = self._row_to_datum()
        if self.streaming:
            return self._stream(size, make), self._held_out(self.test_split, make)
        rows = self._load(self.split)
        if self.max_prompts is not None:
            rows = rows.select(range(min(self.max_prompts, len(rows))))
        if self.test_split:
            test = self._held_out(self.test_split, make)
        elif self.test_size:
            shuffled = rows.shuffle(seed=self.shuffle_seed)
            held = shuffled.select(range(min(self.test_size, len(shuffled))))
            rows = shuffled.select(range(len(held), len(shuffled)))
            test = SupervisedDatasetFromHFDataset(held, batch_size=len(held), map_fn=make)
        else:
            test = None
        return SupervisedDatasetFromHFDataset(rows, batch_size=size, map_fn=make), test

    def _stream(self, size: int, make: Callable[[dict[str, Any]], tinker.Datum]) -> Any:
        if self.max_prompts is None:
            raise UsageError("streaming needs max_prompts: the length of an epoch, in rows")
        return StreamingSupervisedDatasetFromHFDataset(
            self._load(self.split, streaming=True),
            batch_size=size,
            length=self.max_prompts,
            map_fn=make,
            buffer_size=self.buffer_size,
        )

    def _held_out(
        self, split: str | None, make: Callable[[dict[str, Any]], tinker.Datum]
    ) -> SupervisedDataset | None:
        if split is None:
            return None
        rows = self._load(split)
        if self.test_size:
            rows = rows.select(range(min(self.test_size, len(rows))))
        return SupervisedDatasetFromHFDataset(rows, batch_size=len(rows), map_fn=make)

    def _load(self, split: str, *, streaming: bool = False) -> Any:
        return load_table(self.path, self.name, split, streaming=streaming)

    def _row_to_datum(self) -> Callable[[dict[str, Any]], tinker.Datum]:
        renderer, config = self.renderer, self.common_config
        what = config.train_on_what or TrainOnWhat.ALL_ASSISTANT_MESSAGES

        def make(row: dict[str, Any]) -> tinker.Datum:
            messages = self.messages(row)
            datum: tinker.Datum = conversation_to_datum(messages, renderer, config.max_length, what)
            return datum

        return make

    def messages(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages of a row; raises InputFaults naming the column."""
        if self.prompt_column or self.completion_column:
            prompt, completion = (
                self.prompt_column or "prompt",
                self.completion_column or ("completion"),
            )
            for column in (prompt, completion):
                if row.get(column) is None:
                    raise self._fault(column, f"missing; the row has {', '.join(row)}")
            return [
                {"role": "user", "content": str(row[prompt])},
                {"role": "assistant", "content": str(row[completion])},
            ]
        if row.get(self.messages_column) is None:
            raise self._fault(self.messages_column, f"missing; the row has {', '.join(row)}")
        # `datasets` gives every message every key; those that are None were not there.
        said = [{k: v for k, v in m.items() if v is not None} for m in row[self.messages_column]]
        form = "conversations" if said and "from" in said[0] else "messages"
        parsed = parse_conversation(Row(self.path, 0, {form: said}))
        faults = [item for item in parsed if isinstance(item, Fault)]
        if faults:
            raise self._fault(faults[0].key or form, faults[0].message)
        return [item for item in parsed if not isinstance(item, Fault)]

    def _fault(self, column: str, message: str) -> InputFaults:
        fault = Fault(message, file=self.path, key=column)
        return InputFaults(f"{self.path} has a faulty row", [fault])


def load_table(path: str, name: str | None, split: str, *, streaming: bool = False) -> Any:
    """A split of a hub dataset, a saved folder or a data file; UsageError if it can't be had."""
    import datasets

    place = locate(path)
    kind = FORMATS.get(place.suffix) if place.is_file() else None
    try:
        if kind is not None:
            files = {split.partition("[")[0]: str(place)}
            return datasets.load_dataset(kind, data_files=files, split=split, streaming=streaming)
        if (place / "dataset_info.json").is_file() or (place / "dataset_dict.json").is_file():
            return _from_disk(place, split)
        source = str(place) if place.is_dir() else path
        return datasets.load_dataset(source, name, split=split, streaming=streaming)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise UsageError(f"the dataset {path} can't be loaded: {first}") from None


def _from_disk(place: Path, split: str) -> Any:
    import datasets

    loaded = datasets.load_from_disk(str(place))
    return loaded[split] if isinstance(loaded, datasets.DatasetDict) else loaded
