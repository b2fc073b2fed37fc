"""What a client may get wrong, told apart from what the engine got wrong."""

from __future__ import annotations


class ClientFault(Exception):
    """The request can't be served as it is; the message says what to change."""


class NotFound(ClientFault):
    """The request names a session, model, checkpoint or future that does not exist."""


class TooLarge(ClientFault):
    """The body is larger than the engine takes; `beginning` holds its first bytes."""

    def __init__(self, message: str, beginning: bytes):
        super().__init__(message)
        self.beginning = beginning
