"""The child process from its request to its exit code: check, make the run, train, end well.

Until it has answered, the child has made nothing and its words go to the launching side; after
that its words go to `trainer.log` and it belongs to no terminal. This is the edge of a process:
whatever goes wrong becomes a status that tells the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from tinker_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, TinkerError
from tinker_cli.runs.log import LOG_NAME
from tinker_cli.runs.status import process_mark
from tinker_cli.runs.stop_request import clear_stop_request
from tinker_cli.trainer.checks import Backend, Checked, check_request
from tinker_cli.trainer.draws import Draws, place_rollouts, steady_sampling
from tinker_cli.trainer.ending import explain, mend_tails, run_on_end
from tinker_cli.trainer.hooks import (
    Hooks,
    StopRun,
    quiet_deprecations,
    quiet_pricing,
    safe_code_diff,
)
from tinker_cli.trainer.journal import Journal
from tinker_cli.trainer.prepare import Prepared, prepare_run
from tinker_cli.trainer.reachability import watch_server
from tinker_cli.trainer.request import LaunchRequest, refusal_to_json

FAREWELL_SECONDS = 5.0  # for the SDK's own threads to close their session


def run_child() -> NoReturn:
    """Serve one launch request and exit with the run's code."""
    request = LaunchRequest.from_json(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # an import's chatter must not look like an answer
    backend = Backend()
    try:
        checked = check_request(request, backend)
        prepared = prepare_run(request, checked, backend)
    except TinkerError as error:
        _answer(answers, refusal_to_json(error))
        _leave(error.exit_code, backend)
    except Exception as error:  # the edge of the process
        traceback.print_exc()
        sentence, code = explain(error)
        _answer(answers, refusal_to_json(TinkerError(sentence, exit_code=code)))
        _leave(code, backend)
    if prepared.answer.complete:
        _answer(answers, prepared.answer.to_json())
        _leave(0, backend)
    trainer = Trainer(request, checked, prepared, backend)
    try:
        trainer.take_over()
    except OSError as error:
        sentence, code = explain(error)
        _answer(answers, refusal_to_json(TinkerError(sentence, exit_code=code)))
        _leave(code, backend)
    _answer(answers, prepared.answer.to_json())
    trainer.train()


def _answer(answers: IO[str], line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        answers.write(line + "\n")
        answers.flush()
    with contextlib.suppress(BrokenPipeError):
        answers.close()


def _leave(code: int, backend: Backend) -> NoReturn:
    backend.close()
    sys.stderr.flush()
    os._exit(code)


@dataclass
class Trainer:
    """One launch of a run, from the first status to the last."""

    request: LaunchRequest
    checked: Checked
    prepared: Prepared
    backend: Backend

    def __post_init__(self) -> None:
        self.run = self.prepared.run
        self.journal = self.prepared.journal

    def take_over(self) -> None:
        """Write the first status, and turn all output to the run's log. Raises OSError."""
        clear_stop_request(self.run)
        log = os.open(self.run / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.journal.on_hard_end = self._end_hard
        self.journal.begin()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        _obey_signals(self.journal)
        _hear_pauses(self.journal)
        if self.backend.engine is not None:
            self.journal.engine_words = self.backend.engine_words()
            self.journal.engine_alive = self._engine_alive
        elif self.backend.url is not None:
            watch_server(self.backend.url, self.journal)

    def train(self) -> NoReturn:
        """Run the cookbook's loop to an end of any kind, write it down, and exit."""
        try:
            self._run_loop()
        except StopRun:
            self.journal.end_as_asked()
        except BaseException as error:  # the edge of the process: the status must say so
            self._failed(error)
        else:
            self.journal.end_finished()
        self._after_end()
        self._exit()

    def _run_loop(self) -> None:
        spec, start = self.checked.spec, self.prepared.start
        from tinker_cli.spec.config import build_config

        config = build_config(self.prepared.spec, base_url=self.backend.url)
        self.journal.count_steps(lambda batches: total_steps(config, batches))
        if spec.is_local:
            quiet_pricing()
        quiet_deprecations()
        safe_code_diff()
        synchronous = getattr(config, "async_config", None) is None
        hooks = Hooks(
            spec.kind,
            self.journal,
            start=start,
            seed=spec.local.seed or 0,
            in_order=spec.is_local and synchronous,
        )
        self.journal.save = hooks.control.want_save
        self.journal.on_stop = hooks.control.close
        hooks.install(config)
        if spec.is_local:
            draws = Draws(spec.local.seed or 0, lambda: hooks.ledger.rows_until)
            steady_sampling(draws)
            if spec.kind == "rl":
                hooks.on_batch = draws.name_groups
                place_rollouts(draws)
        if spec.kind == "rl":
            from tinker_cookbook.rl.train import main
        else:
            from tinker_cookbook.supervised.train import main
        asyncio.run(hooks.run(main, config))

    def _failed(self, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, KeyboardInterrupt):
            self.journal.end("stopped", "interrupted", EXIT_INTERRUPTED)
            return
        sentence, code = explain(error)
        if not self._engine_alive():
            sentence, code = self.backend.engine_words(), EXIT_FAILED
        self.journal.end("failed", sentence, code, trace=trace)
        with contextlib.suppress(OSError):
            sys.stderr.write(trace)

    def _engine_alive(self) -> bool:
        """False once the engine's process is gone, even before it has been waited for."""
        engine = self.backend.engine
        return engine is None or process_mark(engine.pid) is not None

    def _end_hard(self) -> NoReturn:
        self._after_end()
        self.backend.close()
        os._exit(self.journal.status.exit_code or 0)

    def _after_end(self) -> None:
        mend_tails(self.run)
        command = self.checked.spec.on_end
        if command:
            wrong = run_on_end(command, self.run, self.journal.status)
            if wrong:
                self.journal.event("hook", message=wrong)

    def _exit(self) -> NoReturn:
        code = self.journal.status.exit_code or 0
        self.backend.close()
        if self.checked.spec.is_local:
            os._exit(code)
        threading.Timer(FAREWELL_SECONDS, os._exit, (code,)).start()
        sys.exit(code)


def total_steps(config: Any, batches: int) -> int:
    """How many steps a run of `config` has, if its dataset has so many batches."""
    total = batches * int(getattr(config, "num_epochs", 1) or 1)
    return total if config.max_steps is None else min(total, int(config.max_steps))


def _obey_signals(journal: Journal) -> None:
    """SIGTERM and SIGINT stop after the step, a second one at once; SIGHUP is nothing."""

    def stop(number: int, _frame: Any) -> None:
        name = signal.Signals(number).name
        if journal.stop_reason is None:
            journal.ask_stop(f"stopped by {name}")
        else:
            journal.end_now("stopped", f"stopped at once by a second {name}", EXIT_INTERRUPTED)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


class _PauseListener(logging.Handler):
    """Hears the SDK say that the service lets the client wait."""

    def __init__(self, journal: Journal):
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " is paused" in message:
            self._journal.paused(message.partition("Reason: ")[2] or message)


def _hear_pauses(journal: Journal) -> None:
    logger = logging.getLogger("tinker")
    if not logger.isEnabledFor(logging.WARNING):
        logger.setLevel(logging.WARNING)
    logger.addHandler(_PauseListener(journal))
