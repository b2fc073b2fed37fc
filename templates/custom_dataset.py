"""The dataset and the evaluator of sl_custom.yaml: flash cards from a CSV file."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import chz
import tinker
from tinker_cookbook.eval.evaluators import SamplingClientEvaluator
from tinker_cookbook.renderers import TrainOnWhat, get_renderer, get_text_content
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import ChatDatasetBuilder, SupervisedDataset
from tinker_cookbook.tokenizer_utils import get_tokenizer

ELEMENTS = Path(__file__).parent / "data" / "elements.csv"


class Cards(SupervisedDataset):
    """Datums in batches; a last partial batch is dropped."""

    def __init__(self, datums: list[tinker.Datum], batch_size: int):
        self.datums, self.batch_size = datums, batch_size

    def get_batch(self, index: int) -> list[tinker.Datum]:
        """The datums of batch `index`."""
        return self.datums[index * self.batch_size : (index + 1) * self.batch_size]

    def __len__(self) -> int:
        """Full batches."""
        return len(self.datums) // self.batch_size


@chz.chz
class Flashcards(ChatDatasetBuilder):
    """Rows `element,symbol` as questions and answers."""

    file_path: str
    test_size: int = 0

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        """The training and the held-out cards."""
        config = self.common_config
        what = config.train_on_what or TrainOnWhat.ALL_ASSISTANT_MESSAGES
        datums = [
            conversation_to_datum(card, self.renderer, config.max_length, what)
            for card in read_cards(Path(self.file_path))
        ]
        held, kept = datums[: self.test_size], datums[self.test_size :]
        return Cards(kept, config.batch_size), Cards(held, len(held)) if held else None


def read_cards(path: Path) -> list[list[dict[str, str]]]:
    """Each row as a conversation."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            [
                {"role": "user", "content": f"Symbol of {row['element']}?"},
                {"role": "assistant", "content": row["symbol"]},
            ]
            for row in csv.DictReader(stream)
        ]


class ExactAnswers(SamplingClientEvaluator):
    """The share of first cards that the model answers word for word."""

    async def __call__(self, sampling_client: tinker.SamplingClient) -> dict[str, float]:
        """Ask 16 cards; the number appears in the row as cards/exact."""
        tokenizer = get_tokenizer(os.environ.get("CARDS_MODEL", "tiny"))
        renderer = get_renderer(os.environ.get("CARDS_RENDERER", "qwen3_instruct"), tokenizer)
        params = tinker.SamplingParams(
            max_tokens=8, temperature=0, stop=renderer.get_stop_sequences()
        )
        right = 0
        cards = read_cards(ELEMENTS)[:16]
        for question, answer in cards:
            prompt = renderer.build_generation_prompt([question])
            got = await sampling_client.sample_async(prompt, 1, params)
            message, _ = renderer.parse_response(list(got.sequences[0].tokens))
            right += get_text_content(message).strip() == answer["content"]
        return {"cards/exact": right / len(cards)}


def exact_answers() -> SamplingClientEvaluator:
    """Build the evaluator; named in the spec."""
    return ExactAnswers()
