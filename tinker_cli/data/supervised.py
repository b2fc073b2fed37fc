"""Supervised datasets: conversations from JSONL files, through the cookbook's renderers.

The tokens and weights are `conversation_to_datum`'s; this module adds what the cookbook's own file
builder lacks: faulty rows by line, rows without a trained token left out and counted, ShareGPT.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import chz
import tinker
from tinker_cookbook.renderers import Renderer, TrainOnWhat
from tinker_cookbook.supervised.common import datum_from_model_input_weights
from tinker_cookbook.supervised.types import ChatDatasetBuilder, SupervisedDataset

from tinker_cli import progress
from tinker_cli.data.conversations import Message, parse_conversation
from tinker_cli.data.rendering import has_images, renderer_of
from tinker_cli.data.rows import Row, require, sound_rows
from tinker_cli.errors import Fault, InputFaults


@dataclass(frozen=True)
class Example:
    """A conversation as it will be trained: its datum, and what was lost on the way."""

    row: Row
    messages: Sequence[Message]
    datum: tinker.Datum
    tokens: int  # before any cut
    trained: int  # tokens with weight
    truncated: bool


@contextmanager
def _no_collection() -> Iterator[None]:
    """No cyclic garbage collection: it would walk all the examples kept so far, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class ExampleDataset(SupervisedDataset):
    """Examples in batches, shuffled anew each epoch; a last partial batch is dropped."""

    def __init__(self, examples: Sequence[Example], batch_size: int):
        self._examples = list(examples)
        self._order = list(range(len(examples)))
        self._batch_size = batch_size

    def get_batch(self, index: int) -> list[tinker.Datum]:
        """The datums of batch `index` of this epoch."""
        start = index * self._batch_size
        return [self._examples[i].datum for i in self._order[start : start + self._batch_size]]

    def set_epoch(self, seed: int = 0) -> None:
        """Shuffle for an epoch; the same seed gives the same order."""
        self._order = list(range(len(self._examples)))
        random.Random(seed).shuffle(self._order)

    def __len__(self) -> int:
        """Full batches an epoch."""
        return len(self._examples) // self._batch_size


@chz.chz
class ConversationsBuilder(ChatDatasetBuilder):
    """Conversations from JSONL files, one a line; `test_size` of them are held out."""

    file_path: str | list[str]
    test_file_path: str | None = None
    test_size: int = 0
    shuffle_seed: int = 0

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        """The training and the held-out dataset; raises InputFaults for faulty rows."""
        train, held_out = self.examples()
        size = self.common_config.batch_size
        test = [example for example in held_out if example.trained]
        return (
            ExampleDataset([example for example in train if example.trained], size),
            ExampleDataset(test, len(test)) if test else None,
        )

    def examples(self) -> tuple[list[Example], list[Example]]:
        """Every row rendered: (train, held out), the untrained ones among them."""
        faults: list[Fault] = []
        rows = self.rows(faults)
        if self.test_file_path:
            held_rows = sound_rows(self.test_file_path, faults)
            both = self._render([*rows, *held_rows], faults)
            return both[: len(rows)], both[len(rows) :]
        order = list(range(len(rows)))
        random.Random(self.shuffle_seed).shuffle(order)
        held = set(order[: self.test_size])
        rendered = self._render(rows, faults)
        return (
            [example for i, example in enumerate(rendered) if i not in held],
            [example for i, example in enumerate(rendered) if i in held],
        )

    def rows(self, faults: list[Fault]) -> list[Row]:
        """The rows of all files, in order; what can't be read is noted in `faults`."""
        paths = [self.file_path] if isinstance(self.file_path, str) else self.file_path
        return [row for path in paths for row in sound_rows(path, faults)]

    @property
    def renderer(self) -> Renderer:
        """The run's renderer, with the model's image processor if a row has an image."""
        return self._renderer(False)

    def _renderer(self, with_images: bool) -> Renderer:
        config = self.common_config
        model = config.model_name_for_tokenizer
        return renderer_of(config.renderer_name, model, with_images=with_images)

    def _render(self, rows: Sequence[Row], faults: list[Fault]) -> list[Example]:
        """An example a row; raises InputFaults with `faults` and those of the rows."""
        examples: list[Example] = []
        renderers: dict[bool, Renderer] = {}
        with progress.counting("reading data", len(rows)) as advance, _no_collection():
            for row in rows:
                try:
                    examples.append(self._example(row, renderers))
                except InputFaults as error:
                    faults += error.faults
                advance(1)
        require(faults, "in the data")
        return examples

    def _example(self, row: Row, renderers: dict[bool, Renderer]) -> Example:
        parsed = parse_conversation(row)
        faults = [item for item in parsed if isinstance(item, Fault)]
        if faults:
            raise InputFaults("faulty row", faults)
        messages = [item for item in parsed if not isinstance(item, Fault)]
        with_images = has_images(messages)
        if (renderer := renderers.get(with_images)) is None:
            renderer = renderers[with_images] = self._renderer(with_images)
        config = self.common_config
        what = config.train_on_what or TrainOnWhat.ALL_ASSISTANT_MESSAGES
        try:
            # The two halves of the cookbook's conversation_to_datum: the length before the cut
            # is known between them.
            whole, marks = renderer.build_supervised_example(messages, train_on_what=what)
            datum = datum_from_model_input_weights(whole, marks, config.max_length, "mean")
        except (AssertionError, TypeError, KeyError, ValueError, AttributeError, OSError) as error:
            text = str(error) or type(error).__name__
            fault = Fault(f"{config.renderer_name}: {text}", file=row.file, line=row.line)
            raise InputFaults("faulty row", [fault]) from None
        except Exception as error:  # RendererError and kin, whose module moved between versions
            if "tinker_cookbook" not in type(error).__module__:
                raise
            fault = Fault(f"{config.renderer_name}: {error}", file=row.file, line=row.line)
            raise InputFaults("faulty row", [fault]) from None
        weights = datum.loss_fn_inputs["weights"].to_numpy()
        tokens = whole.length - 1  # the last one is a target only
        return Example(
            row,
            messages,
            datum,
            tokens,
            int((weights != 0).sum()),
            datum.model_input.length < tokens,
        )
