"""The check of a conversation file against the cookbook building the same dataset, in one run.

    python benchmarks/check_data.py --rows 100000

Both render every row with the same renderer, once each, in alternating rounds on one thread. Below
1.2 the check costs next to nothing more than the data itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from tinker_cli.spec import load_spec
from tinker_cli.spec.check import check_data

MOST = 1.2
WORDS = "the model learns to answer a question about numbers and words"


def main() -> int:
    """Print both times and their ratio; 1 if it is above the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "chat.jsonl", options.rows)
        (folder / "spec.yaml").write_text(
            "kind: sl\nmodel_name: tiny\nbase_url: local\nlearning_rate: auto\ndataset_builder:\n"
            "  type: conversations\n  file_path: chat.jsonl\n  batch_size: 64\n  max_length: 512\n"
        )
        spec = load_spec(folder / "spec.yaml")
        check_data(load_spec(folder / "spec.yaml", overrides=["dataset_builder.test_size=0"]))
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(timed(lambda: check_data(spec)))
            theirs.append(timed(lambda: build(folder / "chat.jsonl")))
    ratio = median(ours) / median(theirs)
    print(f"{options.rows:,} conversations")
    print(f"check        {median(ours):.1f} s")
    print(f"the cookbook {median(theirs):.1f} s")
    print(f"ratio        {ratio:.2f}  (at most {MOST}){'' if ratio <= MOST else '  MISSED'}")
    return int(ratio > MOST)


def write_rows(path: Path, count: int) -> None:
    """Conversations of one to three turns of up to forty words."""
    source = random.Random(0)
    with path.open("w") as stream:
        for _ in range(count):
            messages = []
            for _ in range(source.randint(1, 3)):
                messages.append({"role": "user", "content": text(source)})
                messages.append({"role": "assistant", "content": text(source)})
            stream.write(json.dumps({"messages": messages}) + "\n")


def text(source: random.Random) -> str:
    return " ".join(source.choices(WORDS.split(), k=source.randint(3, 40)))


def build(path: Path) -> int:
    """Every datum of the cookbook's own dataset."""
    config = ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer="tiny",
        renderer_name="qwen3_instruct",
        max_length=512,
        batch_size=64,
    )
    dataset, _ = FromConversationFileBuilder(file_path=str(path), common_config=config)()
    return sum(len(dataset.get_batch(index)) for index in range(len(dataset)))


def timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
