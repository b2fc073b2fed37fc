"""Ask a Tinker server, before anything is made, whether it is there and takes the key.

Plain HTTP with short time-outs, since the SDK itself retries a refused connection for minutes.
Knows nothing of specs or runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tinker_cli.errors import ServiceError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0


def check_service(base_url: str | None) -> str:
    """Return the server's URL once it has answered and taken the key; raises ServiceError."""
    return ask_service(base_url)[0]


def ask_service(base_url: str | None) -> tuple[str, list[str]]:
    """The server's URL and the names of its models, as `check_service`."""
    from tinker.lib.base_url import resolve_base_url

    url = resolve_base_url(base_url)
    key = check_key()
    response = _get(url, "/api/v1/get_server_capabilities", key)
    if key and response.status_code in (401, 403):
        raise ServiceError(
            f"{url} refused the key in TINKER_API_KEY",
            hint="set a valid key, or use --local to stay on this machine",
        )
    return url, _model_names(response)


def _model_names(response: Any) -> list[str]:
    try:
        models = response.json()["supported_models"]
        return [str(model["model_name"]) for model in models]
    except (ValueError, KeyError, TypeError):
        return []


def check_key(locally: str = "--local stays on this machine") -> str | None:
    """Return the key in TINKER_API_KEY, None if another credential stands in for it.

    `locally` says how to do the same without a key.
    """
    key = os.environ.get("TINKER_API_KEY")
    if not key and not _has_other_credentials():
        raise ServiceError(
            "no key for the Tinker service: tinker auth login gets one, or set TINKER_API_KEY;"
            f" {locally}"
        )
    if key and not key.startswith(("tml-", "eyJ")):
        raise ServiceError(
            "TINKER_API_KEY is no Tinker key: a key begins with tml-",
            hint="copy it again from the console, or use --local to stay on this machine",
        )
    return key


def checkpoint_exists(url: str, key: str | None, tinker_path: str) -> bool:
    """Ask the server whether it still has the state at `tinker_path`; raises ServiceError."""
    response = _request("POST", url, "/api/v1/weights_info", key, {"tinker_path": tinker_path})
    if response.status_code in (400, 404, 410, 422):
        return False
    if response.status_code in (401, 403):
        raise ServiceError(f"{url} refused access to {tinker_path}")
    return True


def _has_other_credentials() -> bool:
    stored = Path.home() / ".tinker" / "credentials.json"
    return bool(os.environ.get("TINKER_CREDENTIAL_CMD")) or stored.exists()


def _get(url: str, path: str, key: str | None) -> Any:
    return _request("GET", url, path, key, None)


def _request(method: str, url: str, path: str, key: str | None, body: Any) -> Any:
    import httpx

    headers = {"X-API-Key": key} if key else {}
    timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    try:
        return httpx.request(method, url + path, headers=headers, json=body, timeout=timeout)
    except httpx.InvalidURL as error:
        raise ServiceError(f"base_url {url} is no URL: {error}") from None
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        raise ServiceError(
            f"no Tinker server answered at {url} ({words})",
            hint="check base_url and the network, or use --local to stay on this machine",
        ) from None
