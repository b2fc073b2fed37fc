"""One conversation through the renderer that trains: each token with its weight and its message.

The renderer's own `render_message` is listened to while it builds the supervised example, so that
a token's message and part (header, output) are the renderer's word, not a guess. Knows renderers
and tokenizers; knows nothing of files or screens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A token of the example. `id` is None for the place of an image; `text` is escaped bytes.

    `message` is its message's index (None for what belongs to none, as BOS), `part` header or
    output, `weight` its weight in the loss before normalisation.
    """

    index: int
    id: int | None
    text: str
    weight: float
    message: int | None
    role: str | None
    part: str | None
    is_special: bool

    @property
    def is_trained(self) -> bool:
        """True if the loss counts it."""
        return self.weight != 0


@dataclass(frozen=True)
class Shown:
    """A rendered conversation; `whole` is its length before it was cut to max_length."""

    tokens: tuple[Token, ...]
    whole: int

    @property
    def trained(self) -> int:
        """Tokens that the loss counts."""
        return sum(token.is_trained for token in self.tokens)

    @property
    def is_cut(self) -> bool:
        """True if max_length took something away."""
        return len(self.tokens) < self.whole

    def segments(self) -> Iterator[tuple[Token, ...]]:
        """Runs of tokens of one message, part and weight."""
        run: list[Token] = []
        for token in self.tokens:
            if run and _kind(run[-1]) != _kind(token):
                yield tuple(run)
                run = []
            run.append(token)
        if run:
            yield tuple(run)


def _kind(token: Token) -> tuple[int | None, str | None, bool, bool]:
    return token.message, token.part, token.is_trained, token.id is None


@dataclass(frozen=True)
class Lens:
    """A renderer with its tokenizer and what training asks of them."""

    renderer: Any
    tokenizer: Any
    name: str
    train_on_what: Any
    max_length: int | None = None

    def show(self, messages: Sequence[Message]) -> Shown:
        """Render a conversation as training would; raises what the renderer raises."""
        with _listening(self.renderer) as heard:
            model_input, weights = self.renderer.build_supervised_example(
                list(messages), train_on_what=self.train_on_what
            )
        tokens = list(self._tokens(model_input, weights.tolist(), heard, messages))
        whole = len(tokens)
        if self.max_length is not None:
            tokens = tokens[: self.max_length]
        return Shown(tuple(tokens), whole)

    def _tokens(
        self,
        model_input: Any,
        weights: Sequence[float],
        heard: Sequence[_Heard],
        messages: Sequence[Message],
    ) -> Iterator[Token]:
        special = set(self.tokenizer.all_special_ids)
        special |= set(getattr(self.tokenizer, "added_tokens_decoder", {}))
        index = 0
        for chunk, said in _aligned(model_input.chunks, heard):
            ids = list(chunk.tokens) if hasattr(chunk, "tokens") else [None] * chunk.length
            message, role, part = (said.message, said.role, said.part) if said else (None,) * 3
            message = None if message is None or message >= len(messages) else message
            for token in ids:
                text = "<image>" if token is None else readable(self.tokenizer, int(token))
                yield Token(
                    index, token, text, weights[index], message, role, part, token in special
                )
                index += 1

    def prompt(self, messages: Sequence[Message]) -> tuple[list[int], list[Any]]:
        """The tokens that sampling would begin with after `messages`, and where it would stop."""
        model_input = self.renderer.build_generation_prompt(list(messages))
        return list(model_input.to_ints()), list(self.renderer.get_stop_sequences())


def readable(tokenizer: Any, token: int) -> str:
    """A token's text; bytes that are no whole character as <0xNN>."""
    text = str(tokenizer.decode([token]))
    if "\ufffd" not in text:
        return text
    piece = tokenizer.convert_ids_to_tokens(token)
    raw = _raw_bytes(str(piece)) if piece is not None else None
    return text if raw is None else "".join(f"<0x{byte:02X}>" for byte in raw)


def _raw_bytes(piece: str) -> bytes | None:
    """The bytes that a byte-level BPE piece stands for; None if it is of another kind."""
    table = _byte_table()
    if any(character not in table for character in piece):
        return None
    return bytes(table[character] for character in piece)


def _byte_table() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others from U+0100 upwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


@dataclass(frozen=True)
class _Heard:
    message: int
    role: str
    part: str
    chunk: Any


@contextmanager
def _listening(renderer: Any) -> Iterator[list[_Heard]]:
    heard: list[_Heard] = []
    own = renderer.render_message

    def listen(message: Any, ctx: Any, *rest: Any, **more: Any) -> Any:
        rendered = own(message, ctx, *rest, **more)
        role = str(message["role"])
        parts = [("header", rendered.header)] if rendered.header else []
        parts += [("output", part) for part in rendered.output if part]
        if rendered.stop_overlap:
            parts.append(("output", rendered.stop_overlap))
        heard.extend(_Heard(ctx.idx, role, part, chunk) for part, chunk in parts)
        return rendered

    renderer.render_message = listen
    try:
        yield heard
    finally:
        del renderer.render_message


def _aligned(chunks: Sequence[Any], heard: Sequence[_Heard]) -> Iterator[tuple[Any, _Heard | None]]:
    """Each chunk of the example with what was heard of it; None for what no message wrote."""
    rest = list(heard)
    for chunk in chunks:
        found = next((i for i, said in enumerate(rest) if _same(said.chunk, chunk)), None)
        if found is None:
            yield chunk, None
            continue
        yield chunk, rest[found]
        rest = rest[found + 1 :]


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    tokens = getattr(one, "tokens", None), getattr(other, "tokens", None)
    return tokens[0] is not None and tokens[1] is not None and list(tokens[0]) == list(tokens[1])
