"""The language of guards and checks: comparisons over metric names.

`kl < 0.05 and not nan(loss)`. Names are metric keys (slashes and colons included), aliases, or
quoted text; + - * / and abs() work on values; `nan(x)` asks whether x was written but isn't a
number. Parsed here by precedence climbing: a dozen rules need no library.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cli.errors import UsageError
from tinker_cli.runs.names import resolve_name

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)(?![A-Za-z_/])"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.:]*(?:/[A-Za-z0-9_.:]+)*)"
    r"|(?P<sign><=|>=|==|!=|[<>+\-*/(),]))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan,
}
Lookup = Callable[[str], float | None]
Evaluator = Callable[[Lookup], Any]


class _Absent(Exception):
    """A metric that this row does not have."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression; `names` are the words that stand for metrics."""

    text: str
    names: tuple[str, ...]
    _evaluator: Evaluator

    def evaluate(self, row: Mapping[str, float], keys: Sequence[str] | None = None) -> bool | None:
        """True or false for a row; None if the row lacks one of the metrics.

        `keys` are the metrics known to the run: a word that is none of them raises UsageError.
        """

        def lookup(word: str) -> float | None:
            try:
                key = resolve_name(word, list(row))
            except UsageError:
                if keys is not None:
                    resolve_name(word, list(keys))
                return None
            return float(row[key])

        try:
            return bool(self._evaluator(lookup))
        except _Absent:
            return None


def parse(text: str) -> Expression:
    """Parse an expression; UsageError says where it goes wrong."""
    parser = _Parser(text)
    evaluator = parser.disjunction()
    parser.expect_end()
    return Expression(text, tuple(dict.fromkeys(parser.names)), evaluator)


class _Parser:
    def __init__(self, text: str):
        self.text, self.names = text, list[str]()
        self.tokens, self.at = self._split(text), 0

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        tokens, position = [], 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(position)
            kind = str(match.lastgroup)
            tokens.append((kind, match.group(kind), match.start(kind)))
            position = match.end()
        return tokens

    def _wrong(self, position: int) -> UsageError:
        return UsageError(
            f"{self.text!r} is not an expression: stuck at column {position + 1}",
            hint="for example: kl < 0.05 and not nan(loss)",
        )

    def _peek(self) -> str | None:
        if self.at >= len(self.tokens):
            return None
        kind, text, _ = self.tokens[self.at]
        return text if kind in ("sign", "name") else f"{kind} {text}"

    def _take(self, *texts: str) -> str | None:
        found = self._peek()
        if found in texts:
            self.at += 1
            return found
        return None

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise self._wrong(self.tokens[self.at][2])

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._wrong(self._position())

    def _position(self) -> int:
        return self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)

    def disjunction(self) -> Evaluator:
        left = self.conjunction()
        while self._take("or"):
            left = _either(left, self.conjunction())
        return left

    def conjunction(self) -> Evaluator:
        left = self.negation()
        while self._take("and"):
            left = _both(left, self.negation())
        return left

    def negation(self) -> Evaluator:
        if self._take("not"):
            inner = self.negation()
            return lambda look: not inner(look)
        return self.comparison()

    def comparison(self) -> Evaluator:
        left = self.total()
        sign = self._take(*_COMPARE)
        return left if sign is None else _apply(_COMPARE[sign], left, self.total())

    def total(self) -> Evaluator:
        left = self.product()
        while (sign := self._take("+", "-")) is not None:
            left = _apply(_ARITHMETIC[sign], left, self.product())
        return left

    def product(self) -> Evaluator:
        left = self.factor()
        while (sign := self._take("*", "/")) is not None:
            left = _apply(_ARITHMETIC[sign], left, self.factor())
        return left

    def factor(self) -> Evaluator:
        if self._take("-"):
            inner = self.factor()
            return lambda look: -inner(look)
        if self._take("("):
            inner = self.disjunction()
            self._expect(")")
            return inner
        if self.at >= len(self.tokens):
            raise self._wrong(len(self.text))
        kind, text, position = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return lambda look, value=float(text): value  # type: ignore[misc]
        if kind == "sign" or text in ("and", "or", "not"):
            raise self._wrong(position)
        if text in ("nan", "abs") and self._take("("):
            return self._call(text)
        return self._name(text.strip("'\"") if kind == "quoted" else text)

    def _call(self, function: str) -> Evaluator:
        inner = self.total()
        self._expect(")")
        if function == "abs":
            return lambda look: abs(inner(look))
        return lambda look: not math.isfinite(inner(look))

    def _name(self, word: str) -> Evaluator:
        self.names.append(word)

        def value(look: Lookup) -> float:
            found = look(word)
            if found is None:
                raise _Absent
            return found

        return value


def _either(left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda look: left(look) or right(look)


def _both(left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda look: left(look) and right(look)


def _apply(function: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda look: function(left(look), right(look))
