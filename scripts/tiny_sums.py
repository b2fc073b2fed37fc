"""Arithmetic chats for the corpus of `tiny`: bare sums, formatted problems, stories with numbers.

Knows numbers and wordings; knows nothing about tokens or models. Every function draws from the
`random.Random` that it is given. A chat is a list of (role, text).
"""

from __future__ import annotations

from random import Random

import tiny_words as words

Chat = list[tuple[str, str]]

# Greedy decoding should know the sums; sampling at temperature 1 should often miss, so that
# reinforcement has something to sharpen. A slip is a near miss: one digit or a carry off.
SLIPS = (-1, 1, -2, 2, -10, 10, -11, 9, 11, -9)


def slipped(value: int, rng: Random) -> int:
    """A wrong answer near `value`, never negative for a value of zero or more."""
    while True:
        wrong = value + rng.choice(SLIPS if value >= 20 else SLIPS[:4])
        if wrong >= 0 or value < 0:
            return wrong


def addends(rng: Random) -> tuple[int, int]:
    """Two numbers of 0 to 100; one draw in six is small, so that the table of digits is learned."""
    top = 10 if rng.random() < 0.17 else 101
    return rng.randrange(top), rng.randrange(top)


PLAIN_SUMS = (
    "What is {x} + {y}?",
    "What is {x} + {y}?",
    "What is {x} + {y}?",
    "{x} + {y}",
    "{x} + {y} =",
    "{x}+{y}",
    "Add {x} and {y}.",
    "Compute {x} + {y}.",
    "What is the sum of {x} and {y}?",
    "Calculate {x} + {y}",
    "What is {x} plus {y}?",
)


def sum_drill(rng: Random, slip: float, *, exact: bool = False) -> Chat:
    """Additions of 0..100, one to five in one chat, answered by the number alone."""
    chat: Chat = []
    if exact or rng.random() < 0.5:
        chat += [("user", "What is 4 + 5?"), ("assistant", "9")]
    wording = PLAIN_SUMS[0] if exact else rng.choice(PLAIN_SUMS)
    for _ in range(1 if exact else rng.randint(1, 5)):
        x, y = addends(rng)
        answer = slipped(x + y, rng) if rng.random() < slip else x + y
        chat += [("user", wording.format(x=x, y=y)), ("assistant", str(answer))]
    return chat


def problem(rng: Random) -> tuple[str, int]:
    """An expression such as ``7 * 8`` and its value; operands of at most 100."""
    kind = rng.choice("+++---*")
    if kind == "*":
        x, y = rng.randrange(13), rng.randrange(13)
        return f"{x} * {y}", x * y
    x, y = addends(rng)
    if kind == "-":
        x, y = max(x, y), min(x, y)
        return f"{x} - {y}", x - y
    return f"{x} + {y}", x + y


FORMATS: tuple[tuple[str, str], ...] = (
    ("What is {e}?", "{v}"),
    ("Compute {e}.", "{v}"),
    ("What is {e}? Put the answer in \\boxed{{}}.", "\\boxed{{{v}}}"),
    ("What is {e}? Write your answer in \\boxed{{}} format.", "\\boxed{{{v}}}"),
    (
        "Compute {e}. Give the final answer in \\boxed{{}}.",
        "{e} = {v}, so the answer is \\boxed{{{v}}}.",
    ),
    ("What is {e}? End with 'Answer: N'.", "{e} = {v}\nAnswer: {v}"),
    ("Solve {e}. Reply in the form Answer: N", "Answer: {v}"),
    ("What is {e}? Reply as JSON.", '{{"answer": {v}}}'),
    ("Compute {e} and give JSON with the key result.", '{{"result": {v}}}'),
    ("What is {e}? Answer in a full sentence.", "The answer is {v}."),
    ("How much is {e}?", "{e} = {v}."),
    ("What is {e}? Show the equation.", "{e} = {v}"),
)


def formatted_problem(rng: Random, slip: float) -> Chat:
    """One to three problems in one of the formats."""
    question, answer = rng.choice(FORMATS)
    chat: Chat = []
    for _ in range(rng.randint(1, 3)):
        expression, value = problem(rng)
        said = slipped(value, rng) if rng.random() < slip else value
        chat.append(("user", question.format(e=expression)))
        chat.append(("assistant", answer.format(e=expression, v=said)))
    return chat


def word_problem(rng: Random) -> Chat:
    name, thing = rng.choice(words.NAMES), rng.choice(words.FOODS + words.THINGS)
    x, y = rng.randint(2, 20), rng.randint(1, 20)
    if rng.random() < 0.5:
        question = f"{name} has {x} {thing}s and buys {y} more. How many {thing}s does {name} have?"
        return [
            ("user", question),
            ("assistant", f"{x} + {y} = {x + y}. {name} has {x + y} {thing}s."),
        ]
    x, y = max(x, y), min(x, y)
    question = f"There are {x} {thing}s in a box. {name} takes {y}. How many are left?"
    return [("user", question), ("assistant", f"{x} - {y} = {x - y}. There are {x - y} left.")]


def compared_numbers(rng: Random) -> Chat:
    numbers = rng.sample(range(101), rng.randint(2, 5))
    shown = ", ".join(map(str, numbers))
    up = ", ".join(map(str, sorted(numbers)))
    return rng.choice(
        [
            [("user", f"Which number is the largest: {shown}?"), ("assistant", str(max(numbers)))],
            [("user", f"Which number is the smallest: {shown}?"), ("assistant", str(min(numbers)))],
            [("user", f"Sort these numbers: {shown}"), ("assistant", up)],
            [
                ("user", f"Is {numbers[0]} an even number?"),
                ("assistant", "No." if numbers[0] % 2 else "Yes."),
            ],
            [
                ("user", f"What number comes after {numbers[0]}?"),
                ("assistant", str(numbers[0] + 1)),
            ],
        ]
    )
