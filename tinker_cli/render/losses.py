"""What a renderer lost of a conversation, read off its tokens.

Each message's tokens are held against what was written: content that is not there, an end of turn
that is not trained, reasoning dropped or written as sampling never would, text that became a
control token, tokens that do not read back. Knows rendered conversations; knows nothing of files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinker_cli.render.shown import Lens, Message, Shown, Token

Found = tuple[str, str, int | None]
Loss = tuple[str, str]

OPEN_THOUGHT, END_THOUGHT = "<think>", "</think>"
# Control tokens that an answer may hold as text: its own reasoning and calls.
OWN_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
             "</tool_response>")  # fmt: skip
TAIL = 3  # trained tokens at a message's end among which its end of turn is looked for


def of_tokens(messages: Sequence[Message], shown: Shown, lens: Lens) -> list[Found]:
    """Every loss of a rendered conversation, in the order of its messages."""
    found: list[Found] = []
    cut = _first_cut(messages, shown)
    if shown.trained == 0:
        why = f", since it is cut at {len(shown.tokens)} of {shown.whole}" if shown.is_cut else ""
        found.append(("untrained", f"no token is trained{why}", None))
    elif shown.is_cut:
        found.append(("cut", f"cut at {len(shown.tokens)} of {shown.whole} tokens", cut))
    for index, message in enumerate(messages):
        if shown.is_cut and (cut is None or index >= cut):
            break  # what the cut took is told once, above
        tokens = shown.of_message(index)
        if not tokens and not any(token.message == index for token in shown.tokens):
            if any(token.message is not None for token in shown.tokens):
                found.append(("lost", "the whole message is not rendered", index))
            continue  # a renderer that can't be listened to
        is_last = index == len(messages) - 1
        if shown.trained and _should_train(messages, index, lens):
            found += _at(index, _end(tokens, lens, is_last=is_last))
        losses = [*_control_tokens(messages, index, tokens, lens)]
        losses += _lost_content(message, tokens, lens)
        if message["role"] == "assistant" and not losses and _ends_here(tokens, lens):
            losses += _round_trip(message, _answer(index, shown, lens), lens)
        found += _at(index, losses)
    return found + list(_reasoning(messages, shown, lens))


def _at(index: int, losses: Iterator[Loss] | Sequence[Loss]) -> list[Found]:
    return [(kind, why, index) for kind, why in losses]


def _first_cut(messages: Sequence[Message], shown: Shown) -> int | None:
    """The message that the cut falls into."""
    if not shown.is_cut or not shown.tokens:
        return None
    last = max((t.message for t in shown.tokens if t.message is not None), default=None)
    if last is None:
        return None
    whole = shown.tokens[-1].is_special and shown.tokens[-1].part == "output"
    return min(last + 1, len(messages) - 1) if whole else last


def _should_train(messages: Sequence[Message], index: int, lens: Lens) -> bool:
    """True if `train_on_what` asks for this answer."""
    message = messages[index]
    if message["role"] != "assistant":
        return False
    what = str(getattr(lens.train_on_what, "value", lens.train_on_what))
    if what == "last_assistant_message":
        return index == len(messages) - 1
    if what == "last_assistant_turn":
        return not any(later["role"] == "user" for later in messages[index:])
    if what == "customized":
        return bool(message.get("trainable"))
    return what in ("all_assistant_messages", "all_messages", "all_tokens")


def _end(tokens: Sequence[Token], lens: Lens, *, is_last: bool) -> Iterator[Loss]:
    stops = {stop for stop in lens.renderer.get_stop_sequences() if isinstance(stop, int)}
    trained = [token for token in tokens if token.is_trained]
    if not trained:
        yield "end", "none of its tokens is trained, its end of turn neither"
        return
    if not stops:
        return  # ends by text, which the next message's header completes
    tail = trained[-TAIL:]
    ends = any(token.id in stops for token in tail)
    if not ends and (is_last or not any(token.is_special for token in tail)):
        yield "end", "its end-of-turn token is not trained"


def _answer(index: int, shown: Shown, lens: Lens) -> Sequence[Token]:
    """What sampling would have had to write for this answer: its trained tokens."""
    trained = [token for token in shown.tokens if token.message == index and token.is_trained]
    everything = str(getattr(lens.train_on_what, "value", lens.train_on_what)) == "all_tokens"
    return shown.of_message(index) if everything or not trained else trained


def _ends_here(tokens: Sequence[Token], lens: Lens) -> bool:
    """True if the answer ends as a sampled one would, so that it can be parsed as one."""
    stops = {stop for stop in lens.renderer.get_stop_sequences() if isinstance(stop, int)}
    return not stops or any(token.id in stops for token in tokens[-TAIL:])


def _lost_content(message: Message, tokens: Sequence[Token], lens: Lens) -> Iterator[Loss]:
    text = written(tokens, lens)
    plain = "".join(text.split())
    has_image = any(token.id is None for token in tokens)
    for kind, piece in pieces_of(message["content"]):
        if kind == "image" and not has_image:
            yield "lost", "its image is not rendered by this renderer"
        elif kind == "text" and not _is_in(piece, text, plain):
            yield "lost", f"text is lost or changed: {piece.strip()[:40]!r}"
        elif kind not in ("image", "thinking", "text"):
            yield "lost", f"a part of type {kind!r} is not rendered"
    for call in message.get("tool_calls") or ():
        if call.function.name not in text:
            told = "the name" if call.function.arguments in text else "the call"
            yield "lost", f"{told} of {call.function.name} is not rendered by this renderer"
    name = message.get("name")
    if name and message["role"] != "tool" and str(name) not in text:
        yield "lost", f"its name {name!r} is not rendered by this renderer"


def _is_in(piece: str, text: str, plain: str) -> bool:
    """True if a text is written, give or take white space and the form of composed characters."""
    if piece.strip() in text or "".join(piece.split()) in plain:
        return True
    import unicodedata

    return "".join(unicodedata.normalize("NFC", piece).split()) in plain


def written(tokens: Sequence[Token], lens: Lens) -> str:
    """The text of tokens, images left out."""
    return str(lens.tokenizer.decode([token.id for token in tokens if token.id is not None]))


def _reasoning(messages: Sequence[Message], shown: Shown, lens: Lens) -> Iterator[Found]:
    """Reasoning that is dropped, forbidden, or kept where sampling would have dropped it."""
    if not any(pieces_hold_thoughts(message["content"]) for message in messages):
        return
    told = set()
    for index, message in enumerate(messages):
        thought = thoughts(message)
        tokens = shown.of_message(index)
        if not thought or not tokens or message["role"] != "assistant" or shown.is_cut:
            continue
        if not _is_in(thought, text := written(tokens, lens), "".join(text.split())):
            told.add(index)
            yield "reasoning", "its reasoning is not rendered here", index
        elif getattr(lens.renderer, "disables_thinking", False):
            told.add(index)
            yield "reasoning", f"it reasons, which the prompt of {lens.name} forbids", index
    for index in _written_otherwise(messages, shown, lens):
        if index not in told:
            why = "its reasoning is written as text, and rendered unlike reasoning given as parts"
            yield "reasoning", why, index


def _written_otherwise(messages: Sequence[Message], shown: Shown, lens: Lens) -> Iterator[int]:
    """Messages whose <think> text gives other tokens than the same as thinking parts."""
    inline = [
        index
        for index, message in enumerate(messages)
        if isinstance(message["content"], str) and END_THOUGHT in message["content"]
        and message["role"] == "assistant"
    ]  # fmt: skip
    if not inline or shown.is_cut:
        return
    as_parts = [
        {**message, "content": _parts(message["content"])} if index in inline else message
        for index, message in enumerate(messages)
    ]
    try:
        other = lens.show(as_parts)
    except Exception:  # then only the text form renders, and nothing can be told of it
        return
    for index in inline:
        one, two = (
            written([token for token in each.tokens if token.message == index], lens)
            for each in (shown, other)
        )
        if one.split() != two.split():
            yield index


def _parts(content: str) -> list[dict[str, str]]:
    thought, _, after = content.partition(END_THOUGHT)
    parts = [{"type": "thinking", "thinking": thought.removeprefix(OPEN_THOUGHT).strip()}]
    return [*parts, {"type": "text", "text": after.lstrip("\n")}]


def thoughts(message: Message) -> str:
    """The reasoning of a message, as text or as parts."""
    pieces = pieces_of(message["content"])
    return "".join(piece for kind, piece in pieces if kind == "thinking").strip()


def pieces_hold_thoughts(content: Any) -> bool:
    """True if a content reasons, in whatever spelling."""
    if isinstance(content, str):
        return END_THOUGHT in content
    return any(kind == "thinking" for kind, _ in pieces_of(content))


def pieces_of(content: Any) -> Iterator[tuple[str, str]]:
    """(kind, text) of a content's parts; <think> blocks in text are of the kind thinking."""
    if isinstance(content, str):
        before, tag, rest = content.partition(OPEN_THOUGHT)
        thought, closed, after = rest.partition(END_THOUGHT)
        if tag and closed:
            yield "text", before
            yield "thinking", thought
            yield "text", after
        else:
            yield "text", content
        return
    for part in content:
        kind = str(part.get("type")) if isinstance(part, Mapping) else type(part).__name__
        body = part.get(kind, "") if isinstance(part, Mapping) else ""
        yield kind, body if isinstance(body, str) else ""


def _control_tokens(
    messages: Sequence[Message], index: int, tokens: Sequence[Token], lens: Lens
) -> Iterator[Loss]:
    """Text that became a control token: more of them than the same message has without its text."""
    message = messages[index]
    content = "".join(piece for _, piece in _raw_pieces(message["content"]))
    marks = {t.id: t.text.strip() for t in tokens if t.is_special and t.text.strip() in content}
    if message["role"] == "assistant":
        marks = {identity: text for identity, text in marks.items() if text not in OWN_MARKS}
    if not marks:
        return
    silent = [{**m, "content": "x"} if i == index else m for i, m in enumerate(messages)]
    own = Counter(token.id for token in lens.show(silent).of_message(index))
    written = Counter(token.id for token in tokens)
    for identity, text in marks.items():
        if written[identity] > own[identity]:
            yield "control", f"its text {text!r} becomes the control token {identity}"


def _raw_pieces(content: Any) -> Iterator[tuple[str, str]]:
    return iter([("text", content)]) if isinstance(content, str) else pieces_of(content)


def _round_trip(message: Message, tokens: Sequence[Token], lens: Lens) -> Iterator[Loss]:
    """parse_response(render(x)) against x: text, and calls by name and arguments."""
    if pieces_hold_thoughts(message["content"]):
        return  # told as reasoning
    if not message["content"] and not message.get("tool_calls"):
        return  # told as empty
    from tinker_cookbook.renderers import get_text_content

    ids = [token.id for token in tokens if token.id is not None]
    try:
        parsed, _ = lens.renderer.parse_response(ids)
    except Exception as error:  # a parser that raises on its own renderer's tokens
        yield "parse", f"its tokens don't read back: {error}"
        return
    calls = _calls(parsed.get("tool_calls"))
    if calls != _calls(message.get("tool_calls")):
        yield "parse", f"its calls read back as {calls}"
    back = get_text_content(parsed)
    said = "".join(piece for kind, piece in pieces_of(message["content"]) if kind == "text")
    if _is_same(back, said):
        return
    if _is_same(back.strip(), said.strip()):
        if not message.get("tool_calls"):  # a call's own layout stands around the text
            yield "spaces", "white space at its ends does not come back from the tokens"
    else:
        yield "parse", f"its tokens read back as {back[:40]!r}"


def _is_same(one: str, other: str) -> bool:
    import unicodedata

    return one == other or unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


def _calls(calls: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls or ()]
