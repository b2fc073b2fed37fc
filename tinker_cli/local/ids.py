"""Names that no other thing of this engine has, nor one of another engine."""

from __future__ import annotations

import itertools
import secrets

_ENGINE, _COUNT = secrets.token_hex(10), itertools.count(1)


def new_id() -> str:
    """32 hexadecimal digits: 80 random bits of this process, and a count.

    A random number for each would cost a call of the system; the key guards the engine, not they.
    """
    return f"{_ENGINE}{next(_COUNT):012x}"
