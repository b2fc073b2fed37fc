"""A conversation with a model: replies stream, and the conversation can be changed and saved.

Lines that begin with `/` are commands. Knows the conversation and its commands; where lines come
from and where replies go is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tinker_cli.errors import TinkerError
from tinker_cli.sampling.ask import Answer, Asker
from tinker_cli.sampling.prompts import Message

COMMANDS = {
    "/system": "TEXT  set the system message; alone: remove it",
    "/checkpoint": "NAME  go on with another checkpoint (a name, a step, base)",
    "/save": "FILE  append the conversation to FILE as a row of training data",
    "/undo": "forget the last exchange",
    "/reset": "forget all exchanges",
    "/help": "these lines",
    "/quit": "leave (also Ctrl-D)",
}


@dataclass
class Chat:
    """What was said so far, and with whom.

    `show` gets pieces of a reply, `reply` the whole of it, `tell` everything else; `switch` turns
    a checkpoint's name into another model to ask.
    """

    asker: Asker
    show: Callable[[str], None]
    reply: Callable[[Answer], None]
    tell: Callable[[str], None]
    switch: Callable[[str], Asker]
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        """What stands before the first exchange is never undone."""
        self._first = [m for m in self.messages if m["role"] != "system"]

    def run(self, lines: Iterable[str]) -> None:
        """Answer line after line until they end or /quit."""
        for line in lines:
            said = line.strip()
            if said in ("/quit", "/exit"):
                return
            if not said:
                continue
            try:
                if said.startswith("/"):
                    self._command(*said.split(None, 1))
                else:
                    self._exchange(said)
            except TinkerError as error:
                self.tell(error.message)
                if error.hint:
                    self.tell(f"  {error.hint}")

    def _exchange(self, said: str) -> None:
        """One reply; Ctrl-C ends it, and what was said until then stays."""
        asked = [*self.messages, {"role": "user", "content": said}]
        heard = ""
        try:
            for piece in self.asker.stream(asked):
                if isinstance(piece, Answer):
                    self.reply(piece)
                    heard = piece.text
                else:
                    heard += piece
                    self.show(piece)
        except KeyboardInterrupt:
            self.show("\n")
            self.tell("(stopped)")
        self.messages = [*asked, {"role": "assistant", "content": heard}]

    def _command(self, name: str, rest: str = "") -> None:
        if name == "/system":
            others = [m for m in self.messages if m["role"] != "system"]
            head: list[Message] = [{"role": "system", "content": rest}] if rest else []
            self.messages = [*head, *others]
        elif name == "/checkpoint" and rest:
            self.asker = self.switch(rest.strip())
            self.tell(f"(now {rest.strip()})")
        elif name == "/save" and rest:
            self._save(Path(rest.strip()).expanduser())
        elif name == "/undo":
            self._forget(2)
        elif name == "/reset":
            self._forget(len(self.messages))
        elif name == "/help":
            for command, meaning in COMMANDS.items():
                self.tell(f"{command:<12} {meaning}")
        elif name in COMMANDS:
            self.tell(f"{name} {COMMANDS[name]}")
        else:
            self.tell(f"no command {name}; /help lists them")

    def _forget(self, count: int) -> None:
        head = [m for m in self.messages if m["role"] == "system"]
        turns = [m for m in self.messages if m["role"] != "system"]
        kept = max(len(turns) - count, len(self._first))
        self.messages = [*head, *turns[:kept]]

    def _save(self, path: Path) -> None:
        row = json.dumps({"messages": self.messages}, ensure_ascii=False)
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(row + "\n")
        except OSError as error:
            self.tell(f"{path} can't be written: {error.strerror}")
            return
        self.tell(f"(saved to {path})")
