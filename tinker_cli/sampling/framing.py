"""What a run's loop puts around a prompt: turns before it, a template or an ending on its text.

A model is asked as it was trained only if it sees the same tokens. Knows the dataset builders
that a spec can name; of any other, nothing is put around.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
_MATH_NAMES = ("gsm8k", "math", "polaris", "deepmath")


@dataclass(frozen=True)
class Framing:
    """`before` are the turns ahead of a prompt; `template` holds its columns in braces."""

    before: tuple[Message, ...] = ()
    template: str = "{prompt}"

    def text(self, row: Mapping[str, Any]) -> str:
        """The prompt of a row, as training shows it; bare if the template's columns are missing."""
        columns = {key: str(value) for key, value in row.items()}
        try:
            return self.template.format_map(columns)
        except (KeyError, IndexError, ValueError):
            return columns["prompt"]

    def with_system(self, text: str) -> Framing:
        """The same with another system message."""
        rest = tuple(message for message in self.before if message.get("role") != "system")
        return Framing(({"role": "system", "content": text}, *rest), self.template)

    def __bool__(self) -> bool:
        """True if there is anything to put around."""
        return self != Framing()


def framing_of(builder: Mapping[str, Any]) -> Framing:
    """The framing that the dataset builder of a resolved spec gives to its prompts."""
    name = str(builder.get("type", ""))
    if name == "prompts" or name.endswith(":PromptsBuilder"):
        return _of_prompts(builder)
    if name == "arithmetic" or name.endswith(":ArithmeticDatasetBuilder"):
        from tinker_cookbook.recipes.math_rl.arithmetic_env import ArithmeticEnv

        shown = builder.get("include_fewshot", True)
        return Framing(_turns(ArithmeticEnv.standard_fewshot_prefix()) if shown else ())
    if name in _MATH_NAMES or "recipes.math_rl.math_env:" in name:
        return _of_maths(builder)
    return Framing()


def _of_prompts(builder: Mapping[str, Any]) -> Framing:
    system = builder.get("system_prompt")
    before = ({"role": "system", "content": str(system)},) if system else ()
    template = str(builder.get("prompt_template") or "{prompt}")
    return Framing((*before, *_turns(builder.get("fewshot") or ())), template)


def _of_maths(builder: Mapping[str, Any]) -> Framing:
    from tinker_cookbook.recipes.math_rl.math_env import MathEnv

    before = builder.get("convo_prefix", "standard")
    if before == "standard":
        before = MathEnv.standard_fewshot_prefix()
    ending = MathEnv.question_suffix().replace("{", "{{").replace("}", "}}")
    return Framing(_turns(before or ()), "{prompt}" + ending)


def _turns(messages: Any) -> tuple[Message, ...]:
    return tuple({"role": str(m["role"]), "content": m["content"]} for m in messages)
