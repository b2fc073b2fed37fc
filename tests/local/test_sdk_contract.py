"""Every public method of the SDK's clients works or is refused in words, and the docs say which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sdk_contract import NO_TOKENIZER, markdown, outcomes, public_methods

pytestmark = [pytest.mark.xdist_group("engine"), pytest.mark.filterwarnings("ignore")]
DOCS = Path(__file__).parents[2] / "docs" / "engine.md"
BEGIN, END = "<!-- methods -->\n", "\n<!-- end of methods -->"
REWRITE = "TINKER_REWRITE_DOCS"


@pytest.fixture(scope="module")
def found(engine: Any) -> dict[tuple[str, str], str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_API_KEY", engine.key)
        patch.setenv("TINKER_BASE_URL", engine.url)
        return outcomes(engine.url)


def test_no_public_method_fails_without_saying_why(found: dict[tuple[str, str], str]) -> None:
    assert list(found) == public_methods()
    fine = ("works", "on the client alone", NO_TOKENIZER)
    for pair, outcome in found.items():
        said = outcome.startswith("refused: the local engine does not")
        # The SDK itself refuses this without a signed token, before any request.
        said |= pair == ("RestClient", "whoami") and "requires JWT auth" in outcome
        assert outcome in fine or said, (pair, outcome)


def test_the_docs_table_is_current(found: dict[tuple[str, str], str]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    if os.environ.get(REWRITE):
        DOCS.write_text(before + BEGIN + markdown(found) + END + after, encoding="utf-8")
        return
    assert table == markdown(found), f"run this test once with {REWRITE}=1 and look at the change"
