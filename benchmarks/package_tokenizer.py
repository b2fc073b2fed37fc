"""Tokenizers that the cookbook's renderer package carries, with a chat template of another package.

`PackageTokenizer` is what a renderer and a template need of a tokenizer: encode, decode, special
tokens, the template. Special tokens in text become one id each, as in the models' own tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SPELLINGS = {  # how a family spells a special token's name in text
    "Qwen3Tokenizer": "<|{}|>",
    "Qwen35Tokenizer": "<|{}|>",
    "DeepSeekV31Tokenizer": "<\uff5c{}\uff5c>",
    "KimiK2ThinkingTokenizer": "<|{}|>",
    "Nemotron3Tokenizer": "<|{}|>",
}
PLAIN = ("think", "/think", "tool_call", "/tool_call", "tool_response", "/tool_response")


class PackageTokenizer:
    """A compiled tokenizer by its class's name, and a template's text."""

    def __init__(self, family: str, template: str) -> None:
        from tml_renderers import tokenizers

        self._own = getattr(tokenizers, family)()
        self._ids = {
            _spelling(family, name): self._own.encode_special(name)
            for name in self._own.special_tokens()
        }
        self._texts = {identity: text for text, identity in self._ids.items()}
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self.chat_template = template
        self.bos_token = _spelling(family, self._own.bos_token) if self._own.bos_token else ""
        self.eos_token = _spelling(family, self._own.eos_token)
        self.all_special_ids = list(self._texts)
        self.name_or_path = family

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text, its special tokens one id each."""
        ids: list[int] = []
        for piece in self._split.split(text):
            if piece in self._ids:
                ids.append(self._ids[piece])
            elif piece:
                ids += self._own.encode_ordinary(piece)
        return ids

    def decode(self, ids: Sequence[int] | int, **_: Any) -> str:
        """The text of ids, special tokens as they are spelt."""
        pieces, plain = [], list[int]()
        for identity in [ids] if isinstance(ids, int) else ids:
            if identity in self._texts:
                pieces.append(self._own.decode(plain) if plain else "")
                pieces.append(self._texts[identity])
                plain = []
            else:
                plain.append(identity)
        return "".join([*pieces, self._own.decode(plain) if plain else ""])

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids that are no special tokens."""
        return bytes(self._own.decode_bytes(list(ids)))

    def convert_tokens_to_ids(self, token: str) -> int:
        """The id of a special token's spelling, or of a text that is one token."""
        return self.encode(token)[0]

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, tokenize: bool, **options: Any
    ) -> str:
        """The template's text, rendered as transformers renders it."""
        from transformers.utils.chat_template_utils import render_jinja_template

        assert not tokenize
        texts, _ = render_jinja_template(
            [messages],
            chat_template=self.chat_template,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            **options,
        )
        return str(texts[0])


def _spelling(family: str, name: str) -> str:
    if re.fullmatch(r"[<\[].*[>\]]", name):
        return name
    if name in PLAIN:
        return f"<{name}>"
    if family.startswith("DeepSeek"):
        name = name.replace("_", "\u2581")
    return SPELLINGS[family].format(name)
