"""One conversation through the renderer that trains: each token with its weight and its message.

The renderer's own `render_message` is listened to while it builds the supervised example, so that
a token's message and part (header, output) are the renderer's word, not a guess. Knows renderers
and tokenizers; knows nothing of files or screens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A token of the example. `id` is None for a place of an image; `text` is escaped bytes.

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

    def of_message(self, index: int) -> tuple[Token, ...]:
        """What the renderer wrote as the content of a message, its end of turn included."""
        return tuple(t for t in self.tokens if t.message == index and t.part == "output")

    def segments(self) -> Iterator[tuple[Token, ...]]:
        """Runs of tokens of one message, part and weight; an image is a run of its own."""
        run: list[Token] = []
        for token in self.tokens:
            if run and _kind(run[-1]) != _kind(token):
                yield tuple(run)
                run = []
            run.append(token)
        if run:
            yield tuple(run)


def _kind(token: Token) -> tuple[int | None, str | None, bool, str | None]:
    return token.message, token.part, token.is_trained, token.text if token.id is None else None


@dataclass(frozen=True)
class Lens:
    """A renderer with its tokenizer and what training asks of them."""

    renderer: Any
    tokenizer: Any
    name: str
    train_on_what: Any
    max_length: int | None = None

    def example(self, messages: Sequence[Message]) -> tuple[Any, Any]:
        """The renderer's (ModelInput, weights) for training; raises what the renderer raises."""
        return self.renderer.build_supervised_example(  # type: ignore[no-any-return]
            list(messages), train_on_what=self.train_on_what
        )

    def show(self, messages: Sequence[Message]) -> Shown:
        """Render a conversation as training would; raises what the renderer raises."""
        with _listening(self.renderer, messages) as heard:
            model_input, weights = self.example(messages)
        pieces = ((chunk, said) for chunk, said in _aligned(model_input.chunks, heard))
        tokens = tuple(self._tokens(pieces, weights.tolist()))
        if not heard:
            from tinker_cli.render.marks import attributed

            tokens = attributed(tokens, len(messages))
        return self._cut(tokens)

    def show_datum(self, datum: Any) -> Shown:
        """A datum of anyone's dataset; its messages are not known, its weights are exact."""
        inputs = datum.loss_fn_inputs
        targets = inputs["target_tokens"].to_numpy().tolist()
        weights = inputs["weights"].to_numpy().tolist()
        tokens = tuple(
            self._tokens(((chunk, None) for chunk in datum.model_input.chunks), [0.0, *weights])
        )
        last = Token(
            len(tokens), targets[-1], self.text(targets[-1]), weights[-1], None, None, None,
            targets[-1] in self.special,
        )  # fmt: skip
        return Shown((*tokens, last), len(tokens) + 1)

    def prompt(self, messages: Sequence[Message]) -> tuple[Shown, list[Any]]:
        """The tokens that sampling would begin with after `messages`, and where it would stop."""
        model_input = self.renderer.build_generation_prompt(list(messages))
        pieces = ((chunk, None) for chunk in model_input.chunks)
        tokens = tuple(self._tokens(pieces, [0.0] * model_input.length))
        return Shown(tokens, len(tokens)), list(self.renderer.get_stop_sequences())

    def text(self, token: int) -> str:
        """The token's text, escaped where it is no whole character."""
        known = self._texts.get(token)
        if known is None:
            known = self._texts[token] = readable(self.tokenizer, token)
        return known

    @cached_property
    def special(self) -> frozenset[int]:
        """Ids of control tokens, those that are not flagged special (as <think>) among them."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        return frozenset([*getattr(self.tokenizer, "all_special_ids", ()), *added])

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    def _cut(self, tokens: tuple[Token, ...]) -> Shown:
        """As the cookbook cuts: an image that is not whole goes, and no image stands at the end."""
        end = len(tokens) if self.max_length is None else min(self.max_length, len(tokens))
        while end and tokens[end - 1].id is None:
            end -= 1
        return Shown(tokens[:end], len(tokens))

    def _tokens(
        self, pieces: Iterator[tuple[Any, _Heard | None]], weights: Sequence[float]
    ) -> Iterator[Token]:
        index, images = 0, 0
        for chunk, said in pieces:
            ids = list(chunk.tokens) if hasattr(chunk, "tokens") else [None] * chunk.length
            images += not hasattr(chunk, "tokens")
            message, role, part = (said.message, said.role, said.part) if said else (None,) * 3
            for token in ids:
                text = f"<image {images}>" if token is None else self.text(token)
                yield Token(
                    index, token, text, weights[index], message, role, part, token in self.special
                )
                index += 1


def readable(tokenizer: Any, token: int) -> str:
    """A token's text; bytes that are no whole character as <0xNN>."""
    text = str(tokenizer.decode([token]))
    if "\ufffd" not in text:
        return text
    raw = token_bytes(tokenizer, token)
    return text if raw is None else "".join(f"<0x{byte:02X}>" for byte in raw)


def token_bytes(tokenizer: Any, token: int) -> bytes | None:
    """The bytes of a token of a byte-level tokenizer; None for one of another kind."""
    if hasattr(tokenizer, "decode_bytes"):
        return bytes(tokenizer.decode_bytes([token]))
    convert = getattr(tokenizer, "convert_ids_to_tokens", None)
    piece = convert(token) if convert is not None else None
    if isinstance(piece, bytes):
        return piece
    return _raw_bytes(str(piece)) if piece is not None else None


def _raw_bytes(piece: str) -> bytes | None:
    """The bytes that a byte-level BPE piece stands for; None if it is of another kind."""
    if any(character not in _BYTES for character in piece):
        return None
    return bytes(_BYTES[character] for character in piece)


def _byte_table() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others from U+0100 upwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_table()


@dataclass(frozen=True)
class _Heard:
    message: int | None
    role: str
    part: str
    chunk: Any


@contextmanager
def _listening(renderer: Any, messages: Sequence[Message]) -> Iterator[list[_Heard]]:
    """What `render_message` returns while the example is built, in order.

    A renderer may put messages of its own before the given ones (a default system prompt), and may
    copy the given ones: a message is found by identity, or else by its place from the end.
    """
    heard: list[_Heard] = []
    places = {id(message): index for index, message in enumerate(messages)}
    own = renderer.render_message
    most = -1  # the greatest place that the renderer counted to

    def listen(message: Any, ctx: Any, *rest: Any, **more: Any) -> Any:
        nonlocal most
        rendered = own(message, ctx, *rest, **more)
        role = str(message["role"])
        most = max(most, ctx.idx)
        place = places.get(id(message), -1 - ctx.idx)  # negative: to be counted from the end
        parts = [("header", rendered.header)] if rendered.header else []
        parts += [("output", part) for part in rendered.output if part]
        if rendered.stop_overlap:
            parts.append(("output", rendered.stop_overlap))
        heard.extend(_Heard(place, role, part, chunk) for part, chunk in parts)
        return rendered

    renderer.render_message = listen
    try:
        yield heard
    finally:
        del renderer.render_message
        before = most + 1 - len(messages)  # messages of the renderer's own
        heard[:] = [
            replace(said, message=_from_end(-1 - said.message, before))
            if said.message is not None and said.message < 0
            else said
            for said in heard
        ]


def _from_end(place: int, before: int) -> int | None:
    return place - before if place >= before else None


def _aligned(chunks: Sequence[Any], heard: Sequence[_Heard]) -> Iterator[tuple[Any, _Heard | None]]:
    """Each chunk of the example with what was heard of it; None for what no message wrote."""
    start = 0
    for chunk in chunks:
        found = _place(chunk, heard, start)
        yield chunk, None if found is None else heard[found]
        start = start if found is None else found + 1


def _place(chunk: Any, heard: Sequence[_Heard], start: int) -> int | None:
    for index in range(start, len(heard)):
        if heard[index].chunk is chunk:
            return index
    for index in range(start, len(heard)):
        if _same(heard[index].chunk, chunk):
            return index
    return None


def _same(one: Any, other: Any) -> bool:
    tokens = getattr(one, "tokens", None), getattr(other, "tokens", None)
    return tokens[0] is not None and tokens[1] is not None and list(tokens[0]) == list(tokens[1])
