"""No secret reaches a run's directory, not even from a file that was not committed."""

from __future__ import annotations

from typing import Any

import pytest

from tinker_cli.trainer.hooks import safe_code_diff
from tinker_cli.trainer.secrets import MASK, without_secrets


@pytest.mark.parametrize(
    "line",
    [
        "+key = 'tml-abcdefghijklmnop'",
        "+HF=hf_ABCDEFGHIJKLMNOP",
        "+token: sk-proj-abcdefghijk",
        "+url = postgres://u:correct-horse@h/db",
    ],
)
def test_keys_by_form_and_by_value_are_masked(line: str) -> None:
    masked = without_secrets(line, {"DB_PASSWORD": "correct-horse", "HOME": "/root", "A_KEY": "x"})
    assert MASK in masked
    for secret in ("abcdefghijk", "ABCDEFGHIJKLMNOP", "correct-horse"):
        assert secret not in masked


def test_plain_text_is_left_alone() -> None:
    text = "+max_tokens = 8\n+keyboard = 'task-force'\n"
    assert without_secrets(text, {"MY_TOKEN": "short"}) == text


def test_the_cookbooks_diff_goes_through_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinker_cookbook.utils import ml_log

    def dirty(*_: Any) -> str:
        return "+API = 'tml-0123456789abcdef'\n"

    monkeypatch.setattr(ml_log, "code_state", dirty)
    safe_code_diff()
    assert ml_log.code_state() == f"+API = '{MASK}'\n"
