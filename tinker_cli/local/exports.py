"""Checkpoints to be downloaded: files encrypted with age, and links that expire.

A link carries the file it stands for, its expiry and a signature of the engine's key, so that it
works without the key in a header, as downloads do. Knows files; knows nothing of models.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

from tinker_cli.local.faults import ClientFault, NotFound

LINK_SECONDS = 3600
AGE_SUFFIX = ".age"
MOST_RECIPIENTS = 10


def write_export(folder: Path, recipients: list[str] | None) -> None:
    """Encrypt every file of a folder to the recipients, in place; none means leave them readable.

    Raises ClientFault for a recipient that age does not know.
    """
    if not recipients:
        return
    if len(recipients) > MOST_RECIPIENTS:
        raise ClientFault(f"at most {MOST_RECIPIENTS} age recipients, not {len(recipients)}")
    import pyrage

    keys = [_recipient(pyrage, text) for text in recipients]
    for file in sorted(folder.iterdir()):
        pyrage.encrypt_file(str(file), f"{file}{AGE_SUFFIX}", keys)
        file.unlink()


def _recipient(pyrage: Any, text: str) -> Any:
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text)
    except Exception as error:  # pyrage's own errors have no common type
        raise ClientFault(f"{text!r} is not an age recipient: {error}") from None


def sign(key: str, path: str, expires: int) -> str:
    """The signature of a link to `path` until `expires` (Unix seconds)."""
    return hmac.new(key.encode(), f"{expires} {path}".encode(), hashlib.sha256).hexdigest()


def check(key: str, path: str, expires: int, signature: str) -> None:
    """NotFound unless the signature is ours and the link has not expired."""
    if not hmac.compare_digest(sign(key, path, expires), signature) or expires < time.time():
        raise NotFound("this link is not valid, or no longer")
