"""Do the cookbook's renderers write what the models' own chat templates write?

    python benchmarks/parity.py [RENDERER...]

Prints, for each renderer, over the cookbook's 128 example conversations and 400 made ones (system
or not, several turns, Unicode, code, white space, long), and over 120 whose answers reason, how
many differ in any token from the model's own chat template, in the supervised form and in the
generation prompt. What differs by design is counted under its name and explained below the table.

`weights` counts conversations whose weights are not those of an independent computation: the
answers with their end tokens, found by a pattern in the text, for every answer and for the last.

Exit code 1 if anything differs that is not explained, or any weight.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import fetch_tokenizers as fetched
from package_tokenizer import PackageTokenizer
from tinker_cookbook.renderers import TrainOnWhat, get_renderer

from tinker_cli import tiny
from tinker_cli.data.rows import read_jsonl
from tinker_cli.render.compare import first_difference, template_tokens
from tinker_cli.render.shown import Lens, Shown, token_bytes
from tinker_cli.render.sources import quiet
from tinker_cli.spec.models import load_tokenizer

MADE = 400
EDGES = 60  # of them with white space at the ends of their texts
REASONING = 120
DATE = "2026-01-01"  # frozen, for templates and renderers that write the day
ALL, LAST = TrainOnWhat.ALL_ASSISTANT_MESSAGES, TrainOnWhat.LAST_ASSISTANT_MESSAGE
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Reason:
    """A difference that is by design: without `pattern`, both sides are the same text."""

    name: str
    why: str
    pattern: str
    by: str = ""

    def without(self, text: str) -> str:
        """The text without what differs by design."""
        return re.sub(self.pattern, self.by, text, flags=re.DOTALL)


EMPTY_BLOCK = Reason(
    "empty block",
    "the renderer writes <think></think> before a last answer that has no reasoning, as its own "
    "prompt begins with <think>; the template writes </think> alone",
    r"(<think>)?</think>",
)
HISTORY = Reason(
    "history",
    "the template drops reasoning of answers that it takes for history, Kimi's the last answer "
    "too; the renderer keeps what it trains",
    r"<think>.*?</think>|<\|channel\|>analysis<\|message\|>.*?<\|end\|><\|start\|>assistant",
)
INLINE = Reason(
    "inline history",
    "<think> text of earlier answers: the template drops it, the renderer drops reasoning that is "
    "given as parts only; `tinker render --check` tells of each",
    r"<think>.*?</think>\s*",
)
PREAMBLE = Reason(
    "date preamble",
    "the template begins its system message with a knowledge cutoff and a date; the renderer "
    "leaves them out, as its documentation says",
    r"(Cutting Knowledge Date: .*?\n\n)|(<\|start_header_id\|>system<\|end_header_id\|>\n\n"
    r"(?:Cutting Knowledge Date: .*?\n\n)<\|eot_id\|>)",
)
WHITE_SPACE = Reason(
    "white space",
    "at the ends of a text: Llama's template trims it and the renderer does not, Nemotron's "
    "renderer trims it and the template does not",
    r"\s*(<\|im_start\|>\w+\n|<\|im_end\|>|<\|end_header_id\|>|<\|eot_id\|>|</think>)\s*",
    r"\1",
)
# The one difference that is of tokens and not of text: `pattern` is where a token ends.
SEAM = Reason(
    "seam",
    "the same text, but the renderer ends a token where a header ends, as sampling does, and the "
    "template's text is tokenised across that place (a text or think block that begins with a "
    "newline)",
    # a header; with its whole empty think block; with the beginning of one
    r"(<\|im_start\|>\w+\n)|||(<\|im_start\|>\w+\n(?:<think>\n\n</think>\n\n)?)"
    r"|||(<\|im_start\|>\w+\n(?:<think>\n(?=\n</think>))?)",
)


@dataclass(frozen=True)
class Case:
    """A renderer, its tokenizer, its family's pattern of an answer, and what is by design.

    `answer` finds an answer in the text of a whole conversation; its group 1 is what is trained.
    """

    renderer: str
    tokenizer: str
    answer: str
    options: dict[str, Any] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    reasons_of_reasoning: tuple[Reason, ...] | None = None  # None: the renderer has no reasoning
    reasons_of_inline: tuple[Reason, ...] | None = None  # the same, written as text


CHATML = r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)"
# An empty think block's beginning (Qwen3.5) or the whole of it (Nemotron) is the header's.
QWEN35 = CHATML.replace("(", r"(?:<think>\n(?=\n</think>))?(", 1)
NEMOTRON = CHATML.replace("(", r"(?:<think></think>\n?)?(", 1)
LLAMA = r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n(.*?<\|eot_id\|>)"
HARMONY = (
    r"<\|start\|>assistant(<\|channel\|>.*?(?:<\|end\|>|<\|return\|>)(?!<\|start\|>assistant))"
)
DEEPSEEK = "<\uff5cAssistant\uff5c>(?:</think>)?(.*?<\uff5cend\u2581of\u2581sentence\uff5c>)"
KIMI = r"<\|im_assistant\|>assistant<\|im_middle\|>(.*?<\|im_end\|>)"

CASES = (
    Case("qwen3_instruct", tiny.NAME, CHATML, {}, (SEAM,)),
    Case("qwen3_instruct", "qwen3-instruct", CHATML, {}, (SEAM,)),
    Case("qwen3", "qwen3", CHATML, {"enable_thinking": True}, (SEAM,), (), (INLINE,)),
    Case("qwen3_disable_thinking", "qwen3", CHATML, {"enable_thinking": False}, (SEAM,)),
    Case("qwen3_5", "qwen3.5", QWEN35, {}, (SEAM,), (), (INLINE,)),
    Case("llama3", "llama3", LLAMA, {}, (WHITE_SPACE,)),
    Case("llama3", "llama3.1", LLAMA, {}, (PREAMBLE, WHITE_SPACE)),
    Case(
        "gpt_oss_medium_reasoning",
        "gptoss",
        HARMONY,
        {"reasoning_effort": "medium"},
        (),
        (HISTORY,),
    ),
    Case("deepseekv3", "deepseek-v3.1", DEEPSEEK, {"thinking": False}),
    Case("deepseekv3_thinking", "deepseek-v3.1", DEEPSEEK, {"thinking": True}, (EMPTY_BLOCK,)),
    Case("kimi_k2", "kimi-k2", KIMI, {}, (), (HISTORY,)),
    Case("nemotron3", "nemotron3", NEMOTRON, {}, (WHITE_SPACE,), (), (INLINE,)),
)


def conversations() -> list[Messages]:
    """The cookbook's examples and the made ones."""
    path = str(files("tinker_cookbook").joinpath("example_data/conversations.jsonl"))
    real = [list(row.value["messages"]) for row in read_jsonl(path)]
    rng = random.Random(0)
    made = [_made(rng) for _ in range(MADE)]
    for chat in made[:EDGES]:
        for message in chat:
            message["content"] = rng.choice(ENDS) + message["content"] + rng.choice(ENDS)
    return real + made


def reasoning() -> list[Messages]:
    """Conversations whose answers reason, all of them or the last."""
    rng = random.Random(1)
    chats = [_made(rng) for _ in range(REASONING)]
    for number, chat in enumerate(chats):
        for message in chat if number % 2 else chat[-1:]:
            if message["role"] == "assistant":
                thought = {"type": "thinking", "thinking": _text(rng)}
                message["content"] = [thought, {"type": "text", "text": message["content"]}]
    return chats


ENDS = ("", " ", "\n", "  \n\n", "\t")


def as_text(chats: Sequence[Messages]) -> list[Messages]:
    """The conversations with their reasoning as <think> text in place of parts."""
    return [
        [
            {**message, "content": "<think>\n{}\n</think>\n\n{}".format(*map(_body, content))}
            if isinstance(content := message["content"], list)
            else message
            for message in chat
        ]
        for chat in chats
    ]


def _body(part: dict[str, str]) -> str:
    return part[part["type"]]


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


def lens_of(case: Case) -> Lens:
    """The case's renderer and tokenizer, the day frozen."""
    source = None if case.tokenizer == tiny.NAME else fetched.SOURCES[case.tokenizer]
    if source is not None and source.family is not None:
        tokenizer: Any = PackageTokenizer(source.family, fetched.template(case.tokenizer))
    else:
        place = tiny.NAME if source is None else str(fetched.folder(case.tokenizer))
        tokenizer = load_tokenizer(place)
    renderer = get_renderer(case.renderer, tokenizer)
    if hasattr(renderer, "current_date"):
        renderer.current_date = DATE
    return Lens(renderer, tokenizer, case.renderer, LAST)


def measure(case: Case, chats: Sequence[Messages], reasons: Sequence[Reason]) -> Counter[str]:
    """Count the differences of one case."""
    lens = lens_of(case)
    everything = replace(lens, train_on_what=ALL)
    options = {**case.options, "strftime_now": lambda form: DATE}
    counts: Counter[str] = Counter()
    for messages in chats:
        shown = lens.show(messages)
        prompt, _ = lens.prompt(messages[:-1])
        for form, ours, said, more in (
            ("supervised", shown, messages, {}),
            ("generation", prompt, messages[:-1], {"add_generation_prompt": True}),
        ):
            theirs = template_tokens(lens.tokenizer, said, **options, **more)
            ids = [token.id for token in ours.tokens if token.id is not None]
            counts[_verdict(lens.tokenizer, form, ids, theirs, reasons)] += 1
        counts["weights"] += not (
            _weights_hold(case, lens, shown, len(prompt.tokens), only_last=True)
            and _weights_hold(case, lens, everything.show(messages), 0, only_last=False)
        )
    return counts


def _verdict(
    tokenizer: Any, form: str, ours: list[int], theirs: list[int], reasons: Sequence[Reason]
) -> str:
    """`FORM same`, `FORM differ`, or the name of the reasons that explain all of it."""
    if first_difference(tokenizer, ours, theirs) is None:
        return f"{form} same"
    left, right = tokenizer.decode(ours).rstrip("\n"), tokenizer.decode(theirs).rstrip("\n")
    if left == right:
        if SEAM in reasons and ours in _apart(tokenizer, tokenizer.decode(ours)):
            return f"by design: {SEAM.name}"
    else:
        for chosen in [[reason] for reason in reasons] + [list(reasons)]:
            if _without(chosen, left) == _without(chosen, right):
                return f"by design: {' and '.join(reason.name for reason in chosen)}"
    if os.environ.get("PARITY_SHOW"):
        print(form, first_difference(tokenizer, ours, theirs))
    return f"{form} differ"


def _without(reasons: Sequence[Reason], text: str) -> str:
    for reason in reasons:
        text = reason.without(text)
    return text.strip()


def _apart(tokenizer: Any, text: str) -> list[list[int]]:
    """The tokens of a text that is tokenised apart at the ends of headers, by where these are."""
    tokens = []
    for pattern in SEAM.pattern.split("|||"):
        pieces = [piece for piece in re.split(pattern, text) if piece]
        ids = [tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]
        tokens.append([i for each in ids for i in each])
    return tokens


def _weights_hold(case: Case, lens: Lens, shown: Shown, prompt: int, *, only_last: bool) -> bool:
    """True if the trained tokens are those of the answers and their ends, and no others.

    The answers are found in the bytes of the whole text by the family's pattern; of the last one,
    what the sampling prompt would have supplied (its first `prompt` tokens) is not trained.
    """
    ends: list[int] = []
    text = b""
    for token in shown.tokens:
        assert token.id is not None
        special = token.id in lens.special
        raw = None if special else token_bytes(lens.tokenizer, token.id)
        text += lens.tokenizer.decode([token.id]).encode() if raw is None else raw
        ends.append(len(text))
    spans = [match.span(1) for match in re.finditer(case.answer.encode(), text, re.DOTALL)]
    spans = spans[-1:] if only_last else spans
    wanted = [
        any(start < end <= stop for start, stop in spans) and index >= prompt
        for index, end in enumerate(ends)
    ]
    return wanted == [token.is_trained for token in shown.tokens]


def main(names: Sequence[str]) -> int:
    """Print the table; 1 if a difference is not explained."""
    quiet()
    plain, thinking = conversations(), reasoning()
    print(f"{len(plain)} conversations, {len(thinking)} with reasoning\n")
    print(f"{'renderer':<26} {'tokenizer':<15} {'data':<10} {'supervised':>10} {'generation':>10} "
          f"{'weights':>8}  by design")  # fmt: skip
    bad = 0
    used: dict[str, str] = {}
    for case in CASES:
        if names and case.renderer not in names:
            continue
        rows: list[tuple[str, Sequence[Messages], tuple[Reason, ...]]]
        rows = [("plain", plain, case.reasons)]
        if case.reasons_of_reasoning is not None:
            rows.append(("reasoning", thinking, case.reasons_of_reasoning))
        if case.reasons_of_inline is not None:
            rows.append(("<think>", as_text(thinking), case.reasons_of_inline))
        for data, chats, reasons in rows:
            counts = measure(case, chats, reasons)
            bad += _print_row(case, data, counts)
            used |= {r.name: r.why for r in reasons if any(r.name in key for key in counts)}
    for name, why in used.items():
        print(f"\n{name}: {why}.")
    return 1 if bad else 0


def _print_row(case: Case, data: str, counts: Counter[str]) -> int:
    known = {k.removeprefix("by design: "): n for k, n in counts.items() if k.startswith("by ")}
    why = ", ".join(f"{n} {name}" for name, n in known.items())
    bad = [counts["supervised differ"], counts["generation differ"], counts["weights"]]
    print(f"{case.renderer:<26} {case.tokenizer:<15} {data:<10} {bad[0]:>10} {bad[1]:>10} "
          f"{bad[2]:>8}  {why}".rstrip(), flush=True)  # fmt: skip
    return sum(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
