"""The screens of runs: what they hold at each size, and how the terminal is left behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_run import make_run
from rich.cells import cell_len

from tinker_cli.monitor.facts import RunFacts
from tinker_cli.monitor.fleet import fleet_lines
from tinker_cli.monitor.panels import screen_lines
from tinker_cli.monitor.picture import save_picture
from tinker_cli.monitor.plain import follow_plain
from tinker_cli.monitor.strips import one_line
from tinker_cli.monitor.view import View

SIZES = [(80, 24), (120, 40), (200, 60), (40, 12), (10, 5), (1, 1)]


@pytest.fixture(scope="module")
def rl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "gsm8k-grpo", steps=300, total=400)


def text(facts: RunFacts, view: View, width: int, height: int) -> str:
    return "\n".join(line.plain for line in screen_lines(facts, view, width, height))


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("unicode", [True, False])
def test_a_screen_never_exceeds_its_size(rl: Path, width: int, height: int, unicode: bool) -> None:
    facts = RunFacts(rl)
    for view in (View(unicode=unicode), View(unicode=unicode, help=True), View(asking=True)):
        lines = screen_lines(facts, view, width, height)
        assert len(lines) <= height
        assert max(line.cell_len for line in lines) <= width


def test_the_frames_stand_straight(rl: Path) -> None:
    for line in screen_lines(RunFacts(rl), View(), 120, 40):
        if line.plain.startswith(("│", "╭", "╰")):
            assert cell_len(line.plain) == 120
            assert line.plain[-1] in "│╮╯"


def test_a_screen_without_unicode_is_ascii_but_for_what_the_model_said(rl: Path) -> None:
    facts = RunFacts(rl)
    facts.samples = []
    assert text(facts, View(unicode=False, can_stop=True), 120, 40).isascii()
    assert text(facts, View(unicode=False, help=True), 120, 40).isascii()


def test_one_look_answers_the_questions(rl: Path) -> None:
    shown = text(RunFacts(rl), View(can_stop=True), 80, 24)
    for words in (
        "gsm8k-grpo",
        "● running",
        "step 300/400",
        "75 %",
        " left",
        "tok/s",
        "$6.60 of ~$8.80",
        "reward",
        "KL",
        "entropy",
        "groups",
        "sampling 6",
        "best    1.10  How many apples? → …so she has",
        "worst  -0.10  How many apples? → Let me",
        "(cut off)",
        "step 240: KL v2 0.0112 > 0.01",
        "checkpoint 000300",
        "1 NaN @ 168",
        "resumed @ 88",
        "s stop",
    ):
        assert words in shown, words


def test_replies_that_were_cut_off_are_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=3)
    (run / "config.json").write_text('{"max_tokens": 256}')  # both replies of the step have 256
    assert "cut off 100 %" in text(RunFacts(run), View(), 120, 40)
    (run / "config.json").write_text('{"max_tokens": 512}')
    assert "cut off 0 %" in text(RunFacts(run), View(), 120, 40)


def test_time_left_is_that_of_the_recent_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=20, total=30)
    rows = [{"step": i, "time/total": 100.0 if i < 10 else 2.0} for i in range(20)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert RunFacts(run).seconds_left() == 20.0  # ten steps of two seconds


def test_a_supervised_run_shows_its_losses(tmp_path: Path) -> None:
    run = make_run(tmp_path / "chat", kind="sl", steps=40, state="finished")
    shown = text(RunFacts(run), View(), 80, 24)
    assert "NLL" in shown
    assert "○ test" in shown
    assert "✓ finished" in shown
    assert " left" not in shown


def test_the_axis_can_be_time_tokens_and_cost(rl: Path) -> None:
    facts = RunFacts(rl)
    assert facts.along("cost", [9])[0] == pytest.approx(0.22)
    assert facts.along("tokens", [0])[0] == 126_544
    seconds = sum(facts.reader.frame.row(step)["time/total"] for step in range(10))
    assert facts.along("time", [9])[0] == pytest.approx(seconds)
    assert "$0.02" in text(facts, View(x="cost"), 80, 24)


def test_before_the_first_step_the_screen_waits(tmp_path: Path) -> None:
    run = make_run(tmp_path / "new", steps=0, total=10)
    assert "waiting for the first step" in text(RunFacts(run), View(), 80, 24)


def test_an_empty_directory_has_a_screen(tmp_path: Path) -> None:
    assert text(RunFacts(tmp_path), View(), 80, 24)


def test_text_of_models_and_logs_brings_no_escape_codes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30)
    (run / "trainer.log").write_text("a [\x1b[92mINFO\x1b[0m] ok\x07\x1b]0;title\x07 end\n")
    shown = text(RunFacts(run), View(), 120, 40)
    assert "\x1b" not in shown
    assert "a [INFO] ok end" in shown


def test_the_log_on_the_screen_is_what_a_person_would_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30)
    record = "tinker_cookbook.rl.train:9 [\x1b[93mWARNING\x1b[0m] 3 of 8 groups failed\n"
    transcript = "====== Trajectory Group ======\nidx=0\n====== End Trajectory Group ======\n"
    (run / "trainer.log").write_text(f"my reward: 3\n{transcript}{record}{transcript}")
    shown = text(RunFacts(run), View(), 120, 40)
    assert "log    my reward: 3" in shown
    assert "       WARNING 3 of 8 groups failed" in shown
    assert "Trajectory" not in shown
    assert "[bold]损失🔥 is" in shown
    assert one_line("a\u202eb\nc\x9b31m") == "a b c 31m"


def test_new_rows_are_seen_and_old_facts_kept(rl: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    facts = RunFacts(run)
    assert not facts.refresh()
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 30, "env/all/reward/total": 0.987}\n')
    assert facts.refresh()
    assert facts.last("reward") == 0.987


def test_several_runs_have_a_row_each(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a-run-with-quite-a-long-name-of-its-own", steps=50, total=60),
        make_run(tmp_path / "损失", kind="sl", steps=40, state="finished"),
        make_run(tmp_path / "broke", steps=5, state="failed"),
    ]
    facts = [RunFacts(run) for run in runs]
    for width in (120, 80, 50, 10):
        lines = fleet_lines(facts, View(), width)
        assert len(lines) == 4
        assert max(line.cell_len for line in lines) <= width
    rows = [line.plain for line in fleet_lines(facts, View(), 120)]
    assert "50/60" in rows[1]
    assert "✓ 损失" in rows[2]
    assert "failed" in rows[3]


@pytest.mark.parametrize(("kind", "start"), [("svg", "<svg xmlns"), ("html", "<!DOCTYPE html>")])
def test_a_picture_holds_the_screen(rl: Path, tmp_path: Path, kind: str, start: str) -> None:
    target = tmp_path / f"screen.{kind}"
    save_picture(rl, target, kind=kind)
    written = target.read_text(encoding="utf-8")
    assert written.startswith(start)
    assert "300/400" in written
    if kind == "svg":
        from xml.etree import ElementTree

        assert ElementTree.fromstring(written).tag.endswith("svg")
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_plain_lines_are_one_a_step_and_talk_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", steps=250, state="failed")
    follow_plain(run)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 250
    assert re.fullmatch(
        r"step 250/250  reward 0\.\d+  KL v2 0\.\d+  entropy 0\.\d+  \d+ tok/s  \d+\.\d s",
        lines[-1],
    )
    assert "warning: step 240: KL v2 0.0112 > 0.01" in err
    assert "run failed" in err


def test_plain_json_is_one_strict_row_a_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follow_plain(make_run(tmp_path / "run", steps=50, state="finished"), as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["step"] for row in rows] == list(range(50))
    assert rows[21]["env/all/reward/total"] is None  # NaN in the file
    assert rows[22]["env/all/reward/total"] > 0


@contextmanager
def on_a_terminal(run: Path, *, env: dict[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """`tinker watch RUN` on a pseudo-terminal of 80 x 24: (its pid, the terminal's descriptor)."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    environment.pop("NO_COLOR", None)
    environment |= {"PYTHONIOENCODING": "utf-8", **(env or {})}
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tinker_cli", "watch", str(run)],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )
    os.close(child)
    try:
        yield process.pid, parent
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def _heed_interrupts() -> None:
    """A shell's background job ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(descriptor: int, wanted: bytes, seconds: float = 20.0) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                seen += os.read(descriptor, 65536)
            except OSError:
                break
    assert wanted in seen, seen[-400:]
    return seen


def test_q_leaves_the_screen_and_puts_the_terminal_back(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run) as (_, terminal):
        shown = read_until(terminal, b"\x1b[?2026l")
        assert b"\x1b[?1049h" in shown
        os.write(terminal, b"q")
        rest = read_until(terminal, f"detached; tinker watch {run} shows it again".encode())
        assert b"\x1b[?25h" in rest
        assert b"\x1b[?1049l" in rest


def test_keys_typed_in_one_go_all_count(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run) as (_, terminal):
        read_until(terminal, b"\x1b[?2026l")
        os.write(terminal, b"++\x1b[Ax")
        read_until(terminal, b"x axis: time   +/- smoothing (0.8)")


def test_a_new_row_is_on_the_screen_at_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run) as (_, terminal):
        read_until(terminal, b"\x1b[?2026l")
        with (run / "metrics.jsonl").open("a") as stream:
            stream.write('{"step": 30, "env/all/reward/total": 0.987}\n')
        read_until(terminal, b"0.987", seconds=5)


def test_stopping_asks_once_and_writes_the_request(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run) as (_, terminal):
        read_until(terminal, b"\x1b[?2026l")
        os.write(terminal, b"s")
        read_until(terminal, b"Stop the run after this step")
        assert not (run / ".stop").exists()
        os.write(terminal, b"n")
        read_until(terminal, b"s stop")
        assert not (run / ".stop").exists()
        os.write(terminal, b"s")
        read_until(terminal, b"Stop the run after this step")
        os.write(terminal, b"y")
        read_until(terminal, b"stopping after this step")
        assert (run / ".stop").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run) as (pid, terminal):
        read_until(terminal, b"\x1b[?2026l")
        os.kill(pid, number)
        rest = read_until(terminal, b"\x1b[?1049l")
        assert b"\x1b[?25h" in rest
        assert b"Traceback" not in rest


def test_the_end_of_the_run_ends_the_screen_and_stays_in_the_scrollback(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=30)
    with on_a_terminal(run) as (_, terminal):
        read_until(terminal, b"\x1b[?2026l")
        make_run(run, steps=30, total=30, state="finished")
        rest = read_until(terminal, b"\x1b[?1049l")
        after = rest.partition(b"\x1b[?1049l")[2] + read_until(terminal, b"checkpoint 000020")
        assert "finished" in after.decode("utf-8", "replace")


def test_a_terminal_without_unicode_does_not_end_the_screen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, total=60)
    with on_a_terminal(run, env={"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}) as (_, terminal):
        shown = read_until(terminal, b"\x1b[?2026l")
        assert shown.isascii()
        assert not re.search(rb"\x1b\[[0-9;]*m", shown)  # no colour


def test_a_finished_run_in_a_pipe_is_one_frame(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30, state="finished")
    done = subprocess.run(
        [sys.executable, "-m", "tinker_cli", "watch", str(run)],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert b"\x1b" not in done.stdout
    assert "✓ finished" in done.stdout.decode()
    assert len(done.stdout.splitlines()) <= 24
