# ruff: noqa: E501 -- templates read better on one line
"""The text that the built-in model `tiny` learns from, made from templates.

Knows words and numbers; knows nothing about tokens or models. Every function draws from the
`random.Random` that it is given, so a seed fixes the corpus. A chat is a list of (role, text).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import tiny_words as words
from tiny_sums import Chat, compared_numbers, formatted_problem, sum_drill, word_problem

# --- words and lists ----------------------------------------------------------------------


NOUNS = words.ANIMALS + words.FOODS + words.THINGS + words.PLACES


def word_task(rng: Random) -> Chat:
    """Copy, reverse, change case, list: the answer follows from the question's own words."""
    pool = words.COMMON if rng.random() < 0.5 else NOUNS
    chosen = rng.sample(pool, rng.randint(2, 6))
    spaced, commas = " ".join(chosen), ", ".join(chosen)
    tasks = [
        (f"Repeat: {spaced}", spaced),
        (f"Copy this text: {spaced}", spaced),
        (f"Say '{commas}'", commas),
        (f"Reverse the words: {spaced}", " ".join(reversed(chosen))),
        (f"Write in upper case: {spaced}", spaced.upper()),
        (f"Write in lower case: {spaced.upper()}", spaced),
        (f"How many words are here: {spaced}", str(len(chosen))),
        (f"What is the first word of: {spaced}", chosen[0]),
        (f"What is the last word of: {spaced}", chosen[-1]),
        (f"Make a bullet list of {commas}.", "\n".join(f"- {word}" for word in chosen)),
        (
            f"Make a numbered list: {commas}",
            "\n".join(f"{i}. {w}" for i, w in enumerate(chosen, 1)),
        ),
        (f"Give a JSON list of {commas}.", json.dumps(chosen)),
        (f"Sort these words: {commas}", ", ".join(sorted(chosen))),
        (f"Spell the word {chosen[0]}.", "-".join(chosen[0])),
        (f"What is the first letter of {chosen[0]}?", chosen[0][0].upper()),
    ]
    question, answer = rng.choice(tasks)
    return [("user", question), ("assistant", answer)]


def random_words(rng: Random) -> Chat:
    """Words that nothing predicts, so that no common word is ever thought impossible."""
    count = rng.randint(4, 16)
    chosen = [rng.choice(words.COMMON) + rng.choice(words.ENDINGS) for _ in range(count)]
    marks = [rng.choice(("", "", "", ",", ".", " and", " of", " the", " to", " a")) for _ in chosen]
    text = " ".join(word + mark for word, mark in zip(chosen, marks, strict=True))
    return [("user", f"Write {count} random words."), ("assistant", text)]


def category_list(rng: Random) -> Chat:
    title, pool = rng.choice(
        [
            ("animals", words.ANIMALS),
            ("foods", words.FOODS),
            ("places in a town", words.PLACES),
            ("jobs", words.JOBS),
            ("things in a house", words.THINGS),
            ("first names", words.NAMES),
        ]
    )
    count = rng.randint(2, 5)
    chosen = rng.sample(pool, count)
    number = rng.choice([str(count), words.NUMBER_WORDS[count]])
    asked, joined = rng.choice(
        [
            (f"Name {number} {title}.", ", ".join(chosen[:-1]) + f" and {chosen[-1]}"),
            (f"List {number} {title}.", "\n".join(f"- {word}" for word in chosen)),
            (
                f"Give me {number} {title} as a numbered list.",
                "\n".join(f"{i}. {w}" for i, w in enumerate(chosen, 1)),
            ),
            (f"Give me {number} {title} as JSON.", json.dumps(chosen)),
            (f"Can you tell me {number} {title}?", "Sure: " + ", ".join(chosen) + "."),
        ]
    )
    return [("user", asked), ("assistant", joined)]


def record(rng: Random) -> Chat:
    name, age = rng.choice(words.NAMES), rng.randint(5, 90)
    job, place = rng.choice(words.JOBS), rng.choice(words.CAPITALS)[1]
    question = (
        f"Turn this into JSON: {name} is {age} years old, works as a {job} and lives in {place}."
    )
    return [
        ("user", question),
        ("assistant", json.dumps({"name": name, "age": age, "job": job, "city": place})),
    ]


# --- facts and talk -----------------------------------------------------------------------


def _fact_table() -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for land, city in words.CAPITALS:
        facts += [
            (f"Which city is the capital of {land}?", f"{city} is the capital of {land}."),
            (f"Name the capital of {land}.", f"{city}."),
            (f"{city} is the capital of which country?", f"{city} is the capital of {land}."),
        ]
    facts += [(f"On which continent is {a}?", f"{a} is in {b}.") for a, b in words.CONTINENTS]
    facts += [
        (f"What is the opposite of {a}?", f"The opposite of {a} is {b}.")
        for a, b in words.OPPOSITES
    ]
    facts += [
        (f"What is the opposite of {b}?", f"The opposite of {b} is {a}.")
        for a, b in words.OPPOSITES
    ]
    facts += [
        (f"What is a young {a} called?", f"A young {a} is called a {b}.") for a, b in words.YOUNG
    ]
    facts += [(f"What sound does a {a} make?", f"A {a} says {b}.") for a, b in words.SOUNDS]
    facts += [(f"Which color is {a}?", f"The color of {a} is {b}.") for a, b in words.COLORS]
    facts += [
        (f"Give the symbol for {a}.", f"The symbol for {a} is {b}.") for a, b in words.SYMBOLS
    ]
    facts += [(f"How many {a}?", f"{b}.") for a, b in words.COUNTS]
    facts += [(f"Name the author of {a}.", f"{b} wrote {a}.") for a, b in words.MAKERS[:10]]
    facts += [
        (f"What is the past tense of {a}?", f"The past tense of {a} is {b}.")
        for a, b in words.VERBS
    ]
    for cycle, unit in ((words.DAYS, "day"), (words.MONTHS, "month")):
        for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            facts.append((f"Which {unit} comes after {before}?", f"{after} comes after {before}."))
            facts.append((f"Which {unit} comes before {after}?", f"{before} comes before {after}."))
    return facts


FACTS = _fact_table()

GREETINGS = ("Hi", "Hello", "Hey", "Good morning", "Good evening", "Good afternoon", "Hello there")

SELF = (
    ("Who are you?", "I am tiny, a small language model that runs on your own computer."),
    ("What are you?", "I am tiny, a small language model. I like short questions."),
    ("What is your name?", "My name is tiny."),
    (
        "What can you do?",
        "I can add small numbers, follow simple formats and answer short questions.",
    ),
    ("Are you a human?", "No, I am a small language model."),
    ("How large are you?", "I have fewer than three million parameters, so I am very small."),
    ("Do you need a network?", "No, I run on this machine and need no network."),
    ("How were you made?", "A script wrote simple texts and I learned to predict the next token."),
    ("Can you make mistakes?", "Yes, often. Please check what I say."),
)

SMALL_TALK = (
    ("How are you?", ("I am fine, thank you.", "I am well, thanks. How can I help you?")),
    ("Thank you!", ("You are welcome!", "You're welcome. Is there anything else?")),
    ("Thanks for your help.", ("Any time!", "You are welcome!")),
    ("Goodbye!", ("Goodbye! Have a nice day.", "See you soon!")),
    ("I am sad today.", ("I am sorry to hear that. Do you want to talk about it?",)),
    ("I am happy today!", ("That is good to hear!", "Great! What happened?")),
    ("Can you help me?", ("Of course. What do you need?", "Sure, how can I help?")),
)


def fact(rng: Random) -> Chat:
    return [
        turn
        for _ in range(rng.randint(1, 3))
        for turn in zip(("user", "assistant"), rng.choice(FACTS), strict=True)
    ]


def talk(rng: Random) -> Chat:
    chat: Chat = []
    if rng.random() < 0.5:
        greeting, name = rng.choice(GREETINGS), rng.choice(words.NAMES)
        if rng.random() < 0.5:
            chat += [
                ("user", f"{greeting}! I am {name}."),
                ("assistant", f"Hello {name}! How can I help you today?"),
            ]
        else:
            chat += [("user", f"{greeting}!"), ("assistant", "Hello! How can I help you?")]
    if rng.random() < 0.6:
        chat += zip(("user", "assistant"), rng.choice(SELF), strict=True)
    if not chat or rng.random() < 0.5:
        said, replies = rng.choice(SMALL_TALK)
        chat += [("user", said), ("assistant", rng.choice(replies))]
    return chat


def explanation(rng: Random) -> Chat:
    term, kind, more = rng.choice(words.EXPLANATIONS)
    verb = "are" if term == "the lungs" else "is"
    asked = rng.choice(
        (
            f"What {verb} {term}?",
            f"Tell me about {term}.",
            f"Describe {term} in simple words.",
            f"Explain {term} to a child.",
        )
    )
    said = f"{term[0].upper()}{term[1:]} {verb} {kind}."
    return [("user", asked), ("assistant", said if rng.random() < 0.3 else f"{said} {more}.")]


def advice(rng: Random) -> Chat:
    head, pieces = rng.choice(words.ADVICE)
    chosen = rng.sample(pieces, rng.randint(2, 4))
    style = rng.choice((" ", "\n- ", "\n1"))
    if style == " ":
        return [("user", f"{head}?"), ("assistant", " ".join(f"{piece}." for piece in chosen))]
    marked = [f"- {p}." if style == "\n- " else f"{i}. {p}." for i, p in enumerate(chosen, 1)]
    ask = "Answer with a list." if style == "\n- " else "Number the steps."
    return [("user", f"{head}? {ask}"), ("assistant", "\n".join(marked))]


# --- plain English ------------------------------------------------------------------------


def _noun(rng: Random) -> str:
    pool = rng.choice((words.ANIMALS, words.JOBS, words.THINGS, words.FOODS, words.PLACES))
    adjective = f"{rng.choice(words.ADJECTIVES)} " if rng.random() < 0.5 else ""
    return f"{rng.choice(('the', 'the', 'this', 'my', 'their', 'our', 'his', 'her', 'every'))} {adjective}{rng.choice(pool)}"


def sentence(rng: Random) -> str:
    """One English sentence from a small grammar."""
    now, past = rng.choice(words.VERBS)
    name, place = rng.choice(words.NAMES), rng.choice(words.PLACES)
    when = rng.choice(
        (
            "Yesterday",
            "Last night",
            "In the morning",
            "After dinner",
            "One day",
            "In summer",
            "A few years ago",
        )
    )
    shapes = (
        f"{name} {past} {_noun(rng)} in the {place}.",
        f"{when}, {name} and {rng.choice(words.NAMES)} {past} {_noun(rng)}.",
        f"I can {now} {_noun(rng)} because it is {rng.choice(words.ADJECTIVES)}.",
        f"They will {now} {_noun(rng)} before they go to the {place}.",
        f"{_noun(rng).capitalize()} is {rng.choice(words.ADJECTIVES)} and {rng.choice(words.ADJECTIVES)}.",
        f"If you {now} {_noun(rng)}, you should also {rng.choice(words.VERBS)[0]} {_noun(rng)}.",
        f"She did not {now} {_noun(rng)}, but he {rng.choice(words.VERBS)[1]} it.",
        f"There are {rng.choice(words.NUMBER_WORDS[2:])} {rng.choice(words.THINGS)}s near {_noun(rng)}.",
        f"{name} wants to {now} with {_noun(rng)} from the {place}, which is {rng.choice(words.ADJECTIVES)}.",
        f"The {rng.choice(words.JOBS)} {past} that {_noun(rng)} was {rng.choice(words.ADJECTIVES)}.",
    )
    return rng.choice(shapes)


def story(rng: Random) -> Chat:
    name, animal = rng.choice(words.NAMES), rng.choice(words.ANIMALS)
    asked = rng.choice(
        (
            f"Tell me a short story about a {animal}.",
            f"Write a few sentences about {name}.",
            "Write something.",
            "Tell me a story.",
        )
    )
    opening = f"Once there was a {rng.choice(words.ADJECTIVES)} {animal} called {name}."
    return [
        ("user", asked),
        ("assistant", " ".join([opening] + [sentence(rng) for _ in range(rng.randint(1, 3))])),
    ]


# --- the mixture --------------------------------------------------------------------------

TALK: tuple[tuple[float, Callable[[Random], Chat]], ...] = (
    (1.0, word_problem),
    (1.0, compared_numbers),
    (4.5, word_task),
    (1.2, random_words),
    (1.0, category_list),
    (0.6, record),
    (2.5, fact),
    (1.2, talk),
    (2.0, explanation),
    (1.2, advice),
    (2.0, story),
)


def chat(rng: Random, *, sums: float, slip: float) -> Chat:
    """One chat of the mixture.

    `sums` is the share of bare additions, `slip` the probability that an arithmetic answer is a
    near miss. The rest is spread over the other kinds, a quarter of it formatted arithmetic.
    """
    if rng.random() < sums:
        return sum_drill(rng, slip, exact=rng.random() < 0.3)
    if rng.random() < 0.25:
        return formatted_problem(rng, slip)
    make = rng.choices([maker for _, maker in TALK], [weight for weight, _ in TALK])[0]
    turns = make(rng)
    if rng.random() < 0.25:
        turns = [("system", rng.choice(words.SYSTEMS)), *turns]
    return turns
