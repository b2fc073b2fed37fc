"""How a run ends: one sentence and a code; the user's command; no half lines."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tinker_cli.errors import EXIT_FAILED, EXIT_SERVICE, ServiceError
from tinker_cli.runs.status import Status
from tinker_cli.trainer.ending import explain, mend_tails, run_on_end
from tinker_cli.trainer.guards import Guards
from tinker_cli.trainer.journal import Journal


def test_full_disk_is_named() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/runs/a/metrics.jsonl")
    assert explain(error) == ("the disk is full at /runs/a/metrics.jsonl", 1)


def test_errors_of_the_sdk_by_their_meaning() -> None:
    import httpx
    import tinker

    request = httpx.Request("GET", "http://x")
    refused = tinker.AuthenticationError(
        "no", response=httpx.Response(401, request=request), body=None
    )
    assert explain(refused) == ("the Tinker service refused the key", 4)
    gone = tinker.APIConnectionError(message="Connection error.", request=request)
    assert explain(gone)[1] == 4


def test_any_other_error_is_its_name_and_first_line() -> None:
    assert explain(ValueError("first\nsecond")) == ("ValueError: first", 1)
    assert explain(ValueError("")) == ("ValueError: ValueError", 1)
    assert len(explain(ValueError("x" * 10_000))[0]) < 400
    assert explain(ServiceError("no server")) == ("no server", 4)


def test_on_end_gets_the_facts(tmp_path: Path) -> None:
    status = Status(state="stopped", exit_code=3, step=4, reason="guard: x")
    command = 'cat > facts.json; echo "$TINKER_RUN_STATE $TINKER_RUN_EXIT_CODE" > words'
    assert run_on_end(command, tmp_path, status) is None
    assert (tmp_path / "words").read_text() == "stopped 3\n"
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["run"], facts["step"], facts["reason"]) == (str(tmp_path), 4, "guard: x")


def test_on_end_that_fails_is_said(tmp_path: Path) -> None:
    assert (
        run_on_end("exit 7", tmp_path, Status(state="finished")) == "on_end ended with exit code 7"
    )


def test_half_lines_are_cut_off(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"st')
    (tmp_path / "events.jsonl").write_text('{"kind": "a"}\n')
    mend_tails(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0}\n{"step": 1}\n'
    assert (tmp_path / "events.jsonl").read_text() == '{"kind": "a"}\n'


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path, Guards(), server="local")
    journal.begin()
    journal.first_batch()
    return journal


def test_pause_and_its_end_are_events(journal: Journal) -> None:
    journal.paused("no capacity")
    assert journal.status.state == "paused"
    journal.row({"train_mean_nll": 1.0}, 0)
    assert (journal.status.state, journal.status.reason) == ("running", None)
    journal.end_finished()
    kinds = [json.loads(line)["kind"] for line in (journal.run / "events.jsonl").open()]
    assert kinds == ["paused", "unpaused", "finished"]


def test_sdk_warning_is_heard_as_a_pause(journal: Journal) -> None:
    import logging

    from tinker_cli.trainer.child import _hear_pauses

    logging.getLogger("tinker").setLevel(logging.CRITICAL)  # as another command may have left it
    _hear_pauses(journal)
    logger = logging.getLogger("tinker.lib.queue_state_logger")
    logger.warning("Training for m is paused. Reason: short on capacity.")
    assert (journal.status.state, journal.status.reason) == ("paused", "short on capacity.")
    journal.end_finished()
    logging.getLogger("tinker").handlers.clear()
    logging.getLogger("tinker").setLevel(logging.NOTSET)


def test_first_reason_to_stop_stays(journal: Journal) -> None:
    journal.ask_stop("stopped on request")
    journal.ask_stop("guard", code=3)
    journal.end_as_asked()
    assert (journal.status.exit_code, journal.status.reason) == (130, "stopped on request")


def test_last_word_is_the_first_one(journal: Journal) -> None:
    assert journal.end("failed", "x", 1)
    assert not journal.end("finished", None, 0)
    journal.set(state="running")
    assert journal.status.state == "failed"


def test_after_the_last_step_a_stop_changes_nothing(journal: Journal) -> None:
    journal.count_steps(lambda batches: batches)
    journal.loop_ready(1)
    journal.row({}, 0)
    journal.ask_stop("stopped on request")
    assert not journal.wants_stop()
    journal.end_finished()


def test_a_refused_key_is_known_however_the_sdk_wraps_it() -> None:
    words = "Error retrieving result: Error code: 401 - {'detail': 'no'} with status 401 for x"
    assert explain(ValueError(words)) == ("the Tinker service refused the key", EXIT_SERVICE)
    assert explain(ValueError("Error code: 401 in my own words"))[1] == EXIT_FAILED
