"""Secrets out of a text, before it is written to a run's directory.

A secret is the value of an environment variable that is named like one, or a word that has the
form of a key of a known service. Knows text only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MASK = "[secret]"
SHORTEST = 8  # characters; a shorter value is no secret worth the name
_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_FORMS = re.compile(r"\b(?:tml-|sk-|hf_|ghp_|github_pat_|xox[abp]-|AKIA|eyJ)[A-Za-z0-9_\-./+=]{8,}")


def without_secrets(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` with every secret masked; `environment` defaults to the process's own."""
    values = os.environ if environment is None else environment
    found = {
        value
        for name, value in values.items()
        if _NAMES.search(name) and len(value) >= SHORTEST and not value.startswith("/")
    }
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, MASK)
    return _FORMS.sub(MASK, text)
