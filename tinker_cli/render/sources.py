"""Where conversations come from, and the lens that they are seen through.

A JSONL file, standard input, a list of messages as text, or a spec: its data, its renderer and
what it trains on, as training would get them. Knows specs and files; knows nothing of screens.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row, locate, scan_jsonl
from tinker_cli.errors import Fault, InputFaults, UsageError, nearest
from tinker_cli.render.shown import Lens, Message, Shown

STDIN = "/dev/stdin"
SHORT = 40  # characters of a text that is worth remembering
REMEMBERED = 4096  # such texts
COUNT_BYTES = 1 << 20  # read at once while lines are counted
INLINE = "inline"  # what the file of messages given on the command line is called


@dataclass(frozen=True)
class LensMaker:
    """Makes the lens, here or in another process; raises UsageError."""

    model: str | None
    renderer: str | None
    tokenizer: str | None
    train_on: str
    max_length: int | None

    def __call__(self) -> Lens:
        """Load the tokenizer and the renderer."""
        from tinker_cookbook.renderers import get_renderer

        from tinker_cli.spec.models import load_tokenizer, recommended_renderer

        quiet()
        source = self.tokenizer or self.model
        if source is None:
            raise UsageError("which model? give --model, or --renderer and --tokenizer")
        name = self.renderer or recommended_renderer(self.model or source)
        _known(name)
        what = _what(self.train_on)
        loaded = load_tokenizer(source)
        remember_short_texts(loaded)
        try:
            renderer = get_renderer(name, loaded, _image_processor(name, source))
        except (AssertionError, KeyError, ValueError) as error:
            raise UsageError(f"{name} doesn't fit this tokenizer: {error}") from None
        return Lens(renderer, loaded, name, what, self.max_length)


def quiet() -> None:
    """No waiting for a hub, and no warnings of libraries: the views say it row by row."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.getLogger("tinker_cookbook").setLevel(logging.ERROR)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").addHandler(logging.NullHandler())


def remember_short_texts(tokenizer: Any) -> None:
    """Let a tokenizer encode each header and end of turn once: the same ids, sooner.

    Half of what a renderer encodes is a dozen such strings, over and over.
    """
    own = tokenizer.encode
    if getattr(own, "remembers", False):
        return

    @lru_cache(REMEMBERED)
    def known(text: str, special: bool) -> tuple[int, ...]:
        return tuple(own(text, add_special_tokens=special))

    def encode(text: Any, *rest: Any, **options: Any) -> Any:
        short = isinstance(text, str) and len(text) <= SHORT
        if short and not rest and list(options) == ["add_special_tokens"]:
            return list(known(text, options["add_special_tokens"]))
        return own(text, *rest, **options)

    encode.remembers = True  # type: ignore[attr-defined]
    with suppress(AttributeError):  # of a compiled class
        tokenizer.encode = encode


def _known(name: str) -> None:
    from tinker_cli.spec.rules import renderer_names

    if name not in renderer_names():
        near = nearest(name, renderer_names())
        hint = f"did you mean {near}?" if near else "--renderers lists them"
        raise UsageError(f"no renderer {name!r}", hint=hint)


def _what(word: str) -> Any:
    from tinker_cookbook.renderers import TrainOnWhat

    try:
        return TrainOnWhat(word)
    except ValueError:
        words = [str(each.value) for each in TrainOnWhat]
        near = nearest(word, words)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(words)}"
        raise UsageError(f"--train-on {word!r} is unknown", hint=hint) from None


def _image_processor(renderer: str, source: str) -> Any:
    """The model's image processor; None if the renderer has no images or it isn't here."""
    if not takes_images(renderer):
        return None
    place = str(Path(source).expanduser())
    try:
        return _from_transformers(place)
    except ImportError:  # torchvision is not installed: count with the processor that needs none
        return _without_torchvision(place)
    except (OSError, ValueError, KeyError):
        return None


def _from_transformers(place: str) -> Any:
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(place, trust_remote_code=False)


def _without_torchvision(place: str) -> Any:
    """Qwen's image processor in its plain form, which counts the same tokens; None for others."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    try:
        kind = Qwen2VLImageProcessorPil.get_image_processor_dict(place)[0]["image_processor_type"]
        named = str(kind).startswith(("Qwen2VL", "Qwen3VL"))
        return Qwen2VLImageProcessorPil.from_pretrained(place) if named else None
    except (OSError, ValueError, KeyError):
        return None


def takes_images(renderer: str) -> bool:
    """True for renderers that write images, given an image processor."""
    return renderer.startswith(
        ("qwen3_vl", "qwen3_5", "qwen3_8", "kimi_k25", "kimi_k26", "kimi_k31", "nemotron3_ultra")
    )


def from_file(name: str | None) -> Iterator[Row | Fault]:
    """The rows of a JSONL file, of standard input (None or -), or of messages given as JSON."""
    if name is not None and is_messages(name):
        try:
            return iter([Row(INLINE, 1, {"messages": json.loads(name)})])
        except ValueError as error:
            raise UsageError(f"the messages are not JSON: {error}") from None
    if name in (None, "-"):
        return _listed(scan_jsonl(STDIN, name="stdin"))
    return _listed(scan_jsonl(str(name)))


def is_messages(name: str) -> bool:
    """True if what stands in a file's place is a JSON list of messages."""
    return name.lstrip().startswith("[")


def count_rows(names: Sequence[str]) -> int | None:
    """The lines of plain files, for a progress bar; None where they can't be counted cheaply."""
    total = 0
    for name in names:
        place = locate(name)
        if is_messages(name) or place.suffix == ".gz" or not place.is_file():
            return None
        with place.open("rb") as stream:
            while block := stream.read(COUNT_BYTES):
                total += block.count(b"\n")
    return total


def _listed(rows: Iterator[Row | Fault]) -> Iterator[Row | Fault]:
    """A missing file is the command line's fault, not a row's."""
    for row in rows:
        if isinstance(row, Fault) and row.line is None:
            raise InputFaults(f"{row.file} can't be read", [row])
        yield row


def from_messages(messages: Sequence[Message]) -> Iterator[Row | Fault]:
    """One conversation."""
    return iter([Row(INLINE, 1, {"messages": list(messages)})])


@dataclass(frozen=True)
class SpecSource:
    """What a spec trains on: rows of conversations, or finished datums of another dataset."""

    maker: LensMaker
    rows: Iterable[Row | Fault] | None
    datums: Iterable[Any] | None
    model: str
    files: Sequence[str] = ()


def from_spec(spec: Any) -> SpecSource:
    """The lens and the data that training by a loaded spec would have; raises InputFaults."""
    from tinker_cli.spec.models import register_tokenizers

    builder = spec.config_values["dataset_builder"]
    common = getattr(builder, "common_config", None)
    what = getattr(common, "train_on_what", None)
    maker = LensMaker(
        spec.model_name,
        spec.renderer_name,
        None,
        what.value if what else "all_assistant_messages",
        getattr(common, "max_length", None),
    )
    quiet()
    if hasattr(builder, "examples"):
        names = builder.file_path
        files = [names] if isinstance(names, str) else names
        rows = (row for name in files for row in _listed(scan_jsonl(name)))
        return SpecSource(maker, rows, None, spec.model_name, files)
    register_tokenizers()
    return SpecSource(maker, None, _datums(builder), spec.model_name)


def _datums(builder: Any) -> Iterator[Any]:
    train, _ = builder()
    if hasattr(train, "set_epoch"):
        train.set_epoch(seed=0)
    for index in range(len(train)):
        yield from train.get_batch(index)


def messages_of(row: Row) -> list[Message]:
    """The row's messages; raises InputFaults."""
    parsed = parse_conversation(row)
    faults = [item for item in parsed if isinstance(item, Fault)]
    if faults:
        raise InputFaults(f"{row.file}:{row.line} can't be rendered", faults)
    return [item for item in parsed if not isinstance(item, Fault)]


def without_answer(messages: Sequence[Message]) -> list[Message]:
    """The messages before the answer, with which sampling would begin."""
    kept = list(messages)
    while kept and kept[-1]["role"] == "assistant":
        kept.pop()
    return kept


def view(row: Row, lens: Lens) -> Shown:
    """The row as training sees it; raises InputFaults."""
    messages = messages_of(row)
    try:
        return lens.show(messages)
    except Exception as error:  # a renderer refuses in many ways
        raise refused(row, lens, error) from None


def refused(row: Row, lens: Lens, error: Exception) -> InputFaults:
    """What a renderer's refusal of a row is to a user."""
    fault = Fault(refusal(lens, error), file=row.file, line=row.line)
    return InputFaults(f"{row.file}:{row.line} can't be rendered", [fault])


def refusal(lens: Lens, error: Exception) -> str:
    """A renderer's refusal in one sentence."""
    said = " ".join(str(error).split()) or type(error).__name__
    if "image_processor is required" in said or "image_processor is not None" in said:
        said = (
            "its image's tokens can't be counted: the model's image processor isn't here"
            if takes_images(lens.name)
            else "it writes no images"
        )
    return f"{lens.name} refuses it: {said}"
