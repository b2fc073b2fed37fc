"""Tokens -> text as they come: characters whole, stop strings never shown.

A character may be spread over several tokens, and a stop string over several characters: text is
held back until it can no longer become part of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

UNFINISHED = "\ufffd"  # what a decoder makes of bytes that are not (yet) a character
LONGEST_CHARACTER = 4  # bytes of UTF-8; more undecodable tokens than these are no character's start


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


class TextStream:
    """Decodes one answer piece by piece; `stopped` is set once a stop string has come."""

    def __init__(self, tokenizer: Any, stop_strings: Sequence[str] = ()):
        self._tokenizer, self._stops = tokenizer, tuple(stop_strings)
        self._tokens: list[int] = []
        self._start = 0  # tokens before it are no longer decoded
        self._read = 0  # tokens before it are in `_ready` or were given out
        self._ready = ""  # decoded text that may begin a stop string
        self.stopped = False

    def push(self, tokens: Iterable[int]) -> str:
        """Take in tokens; return the text that is certain now."""
        for token in tokens:
            if self.stopped:
                break
            self._tokens.append(token)
            self._decode()
        return self._release(self._held())

    def finish(self) -> str:
        """Return what was held back; a cut-off character becomes one U+FFFD."""
        if not self.stopped:
            rest = self._new_text(len(self._tokens))
            self._ready += rest.rstrip(UNFINISHED) + (UNFINISHED if UNFINISHED in rest else "")
            self._read = len(self._tokens)
            self._look_for_stop()
        return self._release(0)

    def _decode(self) -> None:
        text = self._new_text(len(self._tokens))
        waits = len(self._tokens) - self._read
        if text.endswith(UNFINISHED) and waits < LONGEST_CHARACTER:
            return
        self._ready += text
        # The last piece stays in the window: a decoder may join it to the next (spaces, accents).
        self._start, self._read = self._read, len(self._tokens)
        self._look_for_stop()

    def _new_text(self, end: int) -> str:
        before = self._tokenizer.decode(self._tokens[self._start : self._read])
        whole = self._tokenizer.decode(self._tokens[self._start : end])
        return str(whole)[len(before) :]

    def _look_for_stop(self) -> None:
        cut = cut_at_stop(self._ready, self._stops)
        if len(cut) < len(self._ready):
            self._ready, self.stopped = cut, True

    def _held(self) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        if self.stopped:
            return 0
        longest = max(map(len, self._stops), default=1) - 1
        for count in range(min(longest, len(self._ready)), 0, -1):
            if any(stop.startswith(self._ready[-count:]) for stop in self._stops):
                return count
        return 0

    def _release(self, held: int) -> str:
        end = len(self._ready) - held
        given, self._ready = self._ready[:end], self._ready[end:]
        return given
