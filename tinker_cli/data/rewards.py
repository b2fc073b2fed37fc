"""Rewards: an answer and its row in, a number out.

A reward is a name, a mapping with options, a weighted list of these, or a function
`score(response, row) -> float | (float, {metric: value})`, sync or async, given as
`./file.py:score` or `package.module:score`. A failure names the row; it is never a silent 0.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import math
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tinker_cli.errors import RunFailed, UsageError, nearest

Scored = float | tuple[float, Mapping[str, float]]
Check = Callable[[str, str, Mapping[str, Any]], float]
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Score:
    """The value of one answer; `correct` is None for a function that gives the whole reward."""

    value: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Reward:
    """Something that scores an answer."""

    name: str
    score: Callable[[str, Mapping[str, Any]], Scored | Awaitable[Scored]]
    is_whole: bool  # True: the reward itself; False: correctness, shaped with the format term

    async def __call__(self, response: str, row: Mapping[str, Any], where: str) -> Score:
        """Score `response`; RunFailed naming `where` if the function fails or gives no number."""
        try:
            result = self.score(response, row)
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:  # a user's function may raise anything
            raise RunFailed(
                f"reward {self.name} failed on {where}: {type(error).__name__}: {error}"
            ) from error
        value, metrics = result if isinstance(result, tuple) else (result, {})
        if isinstance(value, bool):
            value = float(value)
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise RunFailed(
                f"reward {self.name} gave {value!r} on {where}; a finite number expected"
            )
        return Score(float(value), dict(metrics))


def _answer(row: Mapping[str, Any]) -> str:
    return str(row["answer"])


def _exact(response: str, answer: str, options: Mapping[str, Any]) -> float:
    fold = str.casefold if options.get("ignore_case") else str
    return float(fold(response.strip()) == fold(answer.strip()))


def _contains(response: str, answer: str, options: Mapping[str, Any]) -> float:
    fold = str.casefold if options.get("ignore_case") else str
    return float(fold(answer.strip()) in fold(response))


def last_number(text: str) -> float | None:
    """The last number of a text, thousands separators removed."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _numeric(response: str, answer: str, options: Mapping[str, Any]) -> float:
    said, right = last_number(response), last_number(answer)
    if said is None or right is None:
        return 0.0
    tolerance = float(options.get("tolerance", 1e-9))
    return float(math.isclose(said, right, rel_tol=tolerance, abs_tol=tolerance))


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces balanced; None without one."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + len("\\boxed{")
    for index in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[begin:index]
    return None


def _math(response: str, answer: str, options: Mapping[str, Any]) -> float:
    said, right = boxed(response), boxed(answer) or answer
    if said is None:
        return 0.0
    if said.replace(" ", "") == right.replace(" ", ""):
        return 1.0
    try:
        return float(math.isclose(float(said.replace(",", "")), float(right.replace(",", ""))))
    except ValueError:
        return 0.0


def _regex(response: str, answer: str, options: Mapping[str, Any]) -> float:
    pattern = str(options["pattern"]).replace("{answer}", re.escape(answer))
    return float(re.search(pattern, response) is not None)


def _json(response: str, answer: str, options: Mapping[str, Any]) -> float:
    try:
        return float(json.loads(response) == json.loads(answer))
    except ValueError:
        return 0.0


def _format(response: str, answer: str, options: Mapping[str, Any]) -> float:
    return float(re.search(str(options["pattern"]), response) is not None)


CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "exact": (_exact, ("ignore_case",)),
    "contains": (_contains, ("ignore_case",)),
    "numeric": (_numeric, ("tolerance",)),
    "math": (_math, ()),
    "regex": (_regex, ("pattern",)),
    "json": (_json, ()),
    "format": (_format, ("pattern",)),
}
_NEEDED = {"regex": "pattern", "format": "pattern"}


def resolve_reward(value: Any, base_dir: Path | None = None) -> Reward:
    """The reward that a spec's value names; raises UsageError in one sentence."""
    if isinstance(value, str):
        return _by_function(value, base_dir) if ":" in value else _by_name(value, {})
    if isinstance(value, Mapping):
        options = {key: item for key, item in value.items() if key not in ("type", "weight")}
        return _by_name(str(value.get("type")), options)
    if isinstance(value, list) and value:
        return _weighted(value, base_dir)
    raise UsageError(f"reward {value!r} is not a name, a mapping, a list or ./file.py:function")


def _by_name(name: str, options: Mapping[str, Any]) -> Reward:
    if name not in CHECKS:
        near = nearest(name, tuple(CHECKS))
        tail = f"; did you mean {near}?" if near else f"; one of {', '.join(CHECKS)}"
        raise UsageError(f"no reward {name!r}{tail}")
    check, known = CHECKS[name]
    if unknown := sorted(set(options) - set(known)):
        raise UsageError(f"reward {name} has no option {', '.join(unknown)}")
    if (needed := _NEEDED.get(name)) and needed not in options:
        raise UsageError(f"reward {name} needs {needed}")

    def score(response: str, row: Mapping[str, Any]) -> float:
        return check(response, "" if name == "format" else _answer(row), options)

    return Reward(name, score, is_whole=False)


def _weighted(items: list[Any], base_dir: Path | None) -> Reward:
    parts = [
        (
            float(item.get("weight", 1.0)) if isinstance(item, Mapping) else 1.0,
            resolve_reward(
                item["type"]
                if isinstance(item, Mapping) and ":" in str(item.get("type"))
                else item,
                base_dir,
            ),
        )
        for item in items
    ]

    async def score(response: str, row: Mapping[str, Any]) -> Scored:
        total, metrics = 0.0, {}
        for weight, part in parts:
            got = await part(response, row, "this row")
            total += weight * got.value
            metrics[f"reward/{part.name}"] = got.value
        return total, metrics

    return Reward("+".join(part.name for _, part in parts), score, is_whole=True)


def _by_function(reference: str, base_dir: Path | None) -> Reward:
    function = load_object(reference, base_dir)
    if not callable(function):
        raise UsageError(f"{reference} is not a function")
    return Reward(reference.rpartition(":")[2], function, is_whole=True)


def load_object(reference: str, base_dir: Path | None = None) -> Any:
    """The object that `./file.py:name` or `package.module:name` names, or UsageError."""
    module_name, _, attribute = reference.rpartition(":")
    try:
        module = (
            _load_file(Path(module_name), base_dir)
            if module_name.endswith(".py")
            else importlib.import_module(module_name)
        )
    except FileNotFoundError as error:
        raise UsageError(f"{reference}: no such file {error.filename}") from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise UsageError(
            f"{reference} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, attribute):
        near = nearest(attribute, tuple(vars(module)))
        tail = f"; did you mean {near}?" if near else ""
        raise UsageError(f"{module_name} has no {attribute!r}{tail}")
    return getattr(module, attribute)


def _load_file(path: Path, base_dir: Path | None) -> ModuleType:
    whole = path if path.is_absolute() else (base_dir or Path.cwd()) / path
    name = f"tinker_spec_{abs(hash(str(whole.resolve())))}"
    if name in sys.modules:
        return sys.modules[name]
    if not whole.is_file():
        raise FileNotFoundError(2, "no such file", str(whole))
    found = importlib.util.spec_from_file_location(name, whole)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
