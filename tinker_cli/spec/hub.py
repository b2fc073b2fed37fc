"""Is the model hub there? If it can't be reached, its libraries are told at once to stay offline.

They retry an unreachable host for most of a minute, for each file. What is in the cache can still
be loaded offline. Knows an address and a few environment variables; knows nothing of models.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from urllib.parse import urlsplit

OFFLINE = "HF_HUB_OFFLINE"
ENDPOINT = "HF_ENDPOINT"
DEFAULT = "https://huggingface.co"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
SECONDS = 2.0  # for an answer, the look-up of the name included


def mind_the_hub() -> bool:
    """True if the hub may be asked; else the libraries of this process stay offline."""
    if os.environ.get(OFFLINE, "").lower() in ("1", "true", "yes", "on"):
        return False
    if any(os.environ.get(name) for name in PROXIES) or _answers():
        return True
    os.environ[OFFLINE] = "1"
    for name in ("huggingface_hub.constants", "datasets.config"):
        if (
            module := sys.modules.get(name)
        ) is not None:  # imported before: it has read the variable
            setattr(module, OFFLINE, True)
    return False


def _answers() -> bool:
    """True if the hub's host takes a connection in time."""
    address = urlsplit(os.environ.get(ENDPOINT) or DEFAULT)
    port = address.port or (443 if address.scheme == "https" else 80)
    reached = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((address.hostname, port), timeout=SECONDS).close()
        except OSError:
            return
        reached.set()

    # The look-up of a name can't be given a time limit, so it has a thread to itself.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return reached.is_set()
