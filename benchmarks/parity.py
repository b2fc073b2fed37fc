"""Do the cookbook's renderers write what the models' own chat templates write?

    python benchmarks/parity.py

Prints, for each renderer, over the cookbook's 128 example conversations and 400 made ones (system
or not, several turns, Unicode, code, white space, long), how many differ in the supervised form and
in the generation prompt. What is known to differ by design is counted under its name. Exit code 1
if anything differs that is not explained.
"""

from __future__ import annotations

import os
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import fetch_tokenizers as fetched
from tinker_cookbook.renderers import TrainOnWhat, get_renderer

from tinker_cli import tiny
from tinker_cli.data.rows import read_jsonl
from tinker_cli.render.compare import first_difference, template_tokens
from tinker_cli.render.shown import Lens
from tinker_cli.spec.models import load_tokenizer

MADE = 400
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A renderer, its tokenizer, options of the template, and what makes both sides alike."""

    renderer: str
    tokenizer: str
    options: dict[str, Any]
    normalise: Callable[[str], str] | None = None
    explained: str = ""


def _no_preamble(text: str) -> str:
    """Llama 3's template may write a date preamble, gpt-oss's renderer leaves its system out."""
    return re.sub(r"Cutting Knowledge Date:.*?\n\n", "", text, flags=re.DOTALL)


CASES = (
    Case("qwen3_instruct", "tiny", {}),
    Case("qwen3_instruct", "qwen3-instruct", {}),
    Case("qwen3", "qwen3", {"enable_thinking": True}, explained="empty think block"),
    Case("qwen3_disable_thinking", "qwen3", {"enable_thinking": False}),
    Case("llama3", "llama3", {}, _no_preamble, explained="date preamble"),
)


def conversations() -> list[Messages]:
    """The cookbook's examples and the made ones."""
    path = str(files("tinker_cookbook").joinpath("example_data/conversations.jsonl"))
    real = [list(row.value["messages"]) for row in read_jsonl(path)]
    rng = random.Random(0)
    return real + [_made(rng) for _ in range(MADE)]


PIECES = (
    *("hello", "What is 2 + 2?", "d\u00e9j\u00e0 vu", "\u4f60\u597d\uff0c\u4e16\u754c"),
    *("\U0001f525\U0001f9ea", "def f(x):\n    return x ** 2\n", "a\n\n\nb", "x\ty"),
    *("* one\n* two", '{"k": [1, 2]}', "O'Brien & co.", "https://example.org/?q=1#f"),
    *("1,234.50", "\u202bRTL\u202c", "e\u0301", "  inner  spaces  here"),
)


def _made(rng: random.Random) -> Messages:
    messages: Messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": _text(rng)})
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        messages.append({"role": "user", "content": _text(rng)})
        messages.append({"role": "assistant", "content": _text(rng)})
    return messages


def _text(rng: random.Random) -> str:
    count = 60 if rng.random() < 0.05 else rng.randint(1, 4)
    return " ".join(rng.choice(PIECES) for _ in range(count)).strip()


def measure(case: Case, chats: Sequence[Messages]) -> Counter[str]:
    """Count differences of one case."""
    place = "tiny" if case.tokenizer == tiny.NAME else str(fetched.folder(case.tokenizer))
    tokenizer = load_tokenizer(place)
    what = TrainOnWhat.LAST_ASSISTANT_MESSAGE
    lens = Lens(get_renderer(case.renderer, tokenizer), tokenizer, case.renderer, what)
    counts: Counter[str] = Counter()
    for messages in chats:
        ours = [token.id for token in lens.show(messages).tokens if token.id is not None]
        _compare(case, tokenizer, "supervised", ours, messages, counts)
        prompt, _ = lens.prompt(messages[:-1])
        options = {"add_generation_prompt": True}
        _compare(case, tokenizer, "generation", prompt, messages[:-1], counts, **options)
        counts["weights"] += not _weights_hold(lens, messages)
    return counts


def _compare(
    case: Case,
    tokenizer: Any,
    form: str,
    ours: list[int],
    messages: Messages,
    counts: Counter[str],
    **options: Any,
) -> None:
    theirs = template_tokens(tokenizer, messages, **case.options, **options)
    if first_difference(tokenizer, ours, theirs) is None:
        return
    left, right = tokenizer.decode(ours), tokenizer.decode(theirs)
    if case.normalise is not None:
        left, right = case.normalise(left), case.normalise(right)
    alike = left.rstrip("\n") == right.rstrip("\n")
    if not alike and case.explained == "empty think block":
        alike = left.replace("<think>\n\n</think>\n\n", "").rstrip("\n") == right.replace(
            "<think>\n\n</think>\n\n", ""
        ).rstrip("\n")
    counts[f"{form} {'explained' if alike else 'differ'}"] += 1


def _weights_hold(lens: Lens, messages: Messages) -> bool:
    """Independently: the trained text is the last answer with its end token, and nothing else."""
    trained = [token.id for token in lens.show(messages).tokens if token.is_trained]
    text = lens.tokenizer.decode([i for i in trained if i is not None])
    bare = re.sub(r"^<think>\n\n</think>\n\n", "", text)
    answer = str(messages[-1]["content"])
    end = "<|eot_id|>" if lens.name == "llama3" else "<|im_end|>"
    # Qwen's tokenizers write text in its composed form (NFC): compare in that form.
    return unicodedata.normalize("NFC", bare) == unicodedata.normalize("NFC", f"{answer}{end}")


def main() -> int:
    """Print the table; 1 if a difference is not explained."""
    chats = conversations()
    print(f"{len(chats)} conversations\n")
    print(f"{'renderer':<24} {'tokenizer':<16} {'supervised':>10} {'generation':>10} "
          f"{'weights':>8}  explained")  # fmt: skip
    bad = 0
    for case in CASES:
        counts = measure(case, chats)
        known = counts["supervised explained"] + counts["generation explained"]
        why = f"{known} by {case.explained}" if known else ""
        print(f"{case.renderer:<24} {case.tokenizer:<16} {counts['supervised differ']:>10} "
              f"{counts['generation differ']:>10} {counts['weights']:>8}  {why}")  # fmt: skip
        bad += counts["supervised differ"] + counts["generation differ"] + counts["weights"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
