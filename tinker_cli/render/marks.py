"""Messages found by the marks in the tokens, for a renderer that renders conversations whole.

`tml_v0` writes <|message_ROLE|> ... <|end_message|> blocks: an answer is one or more blocks of the
model, and a block of the renderer's own says how hard to think. Knows tokens; renders nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tinker_cli.render.shown import Token

MARK = re.compile(r"<\|message_(\w+)\|>")
SPECIAL = re.compile(r"<\|[a-z_]+\|>")
ROLES = {"model": "assistant"}  # where the mark's word is not the role's
END_OF_ANSWER = "<|content_model_end_sampling|>"
OWN_BLOCK = "Thinking effort level:"


def attributed(tokens: Sequence[Token], count: int) -> tuple[Token, ...]:
    """The tokens with their messages, roles and parts; as they were if `count` doesn't fit."""
    turns = _turns(tokens)
    own = [turn for turn in turns if OWN_BLOCK in "".join(token.text for token in turn)]
    own = own if len(turns) - len(own) == count else []
    if len(turns) - len(own) != count:
        return tuple(tokens)
    found: list[Token] = []
    message = 0
    for turn in turns:
        is_own = any(turn is each for each in own)
        found += _of_turn(turn, None if is_own else message)
        message += not is_own
    return tuple(found)


def _turns(tokens: Sequence[Token]) -> list[list[Token]]:
    turns: list[list[Token]] = []
    for token in tokens:
        mark = MARK.fullmatch(token.text)
        goes_on = bool(
            turns
            and mark
            and mark[1] == "model"
            and turns[-1][0].text == token.text
            and turns[-1][-1].text != END_OF_ANSWER
        )
        if not turns or (mark and not goes_on):
            turns.append([])
        turns[-1].append(token)
    return turns


def _of_turn(turn: Sequence[Token], message: int | None) -> list[Token]:
    mark = MARK.fullmatch(turn[0].text)
    role = ROLES.get(mark[1], mark[1]) if mark else None
    found: list[Token] = []
    part = "header"
    for token in turn:
        special = bool(SPECIAL.fullmatch(token.text))
        found.append(replace(token, message=message, role=role, part=part, is_special=special))
        if token.text.startswith("<|content_"):
            part = "output"
    return found
