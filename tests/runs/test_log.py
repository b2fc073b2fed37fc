"""What of a trainer's log is shown: records and prints, not transcripts and bars."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinker_cli.runs.log import FIRST_LOOK_BYTES, KEPT, LogTail

GROUP = (
    "tinker_cookbook.rl.train:268 [\x1b[92mINFO\x1b[0m] \n====== Trajectory Group ======\n"
    "****** trajectory idx=0, reward=0 ******\n---- datum ----\nWhat is 4 + 5?\n"
    "====== End Trajectory Group ======\n"
)
METRICS = "tinker_cookbook.utils.ml_log:206 [\x1b[92mINFO\x1b[0m] Wrote metrics to /x/y.jsonl\n"
BARS = (
    "\rSampling batch 3:   0%|          | 0/8 [00:00<?, ?it/s]"
    "\rSampling batch 3: 100%|██████████| 8/8 [00:00<00:00,  9.83it/s]\n"
)


def test_records_and_prints_are_kept_and_the_rest_is_not(tmp_path: Path) -> None:
    path, tail = tmp_path / "trainer.log", LogTail(tmp_path)
    assert not tail.poll()
    path.write_text(f"{GROUP}{METRICS}{BARS}")
    assert not tail.poll()
    assert tail.lines == []
    record = "tinker_cookbook.x:3 [\x1b[93mWARNING\x1b[0m] the service is slow\n"
    with path.open("a") as log:
        log.write(f"reward.py: no number in 'four'\n{GROUP}{record}{BARS}")
    assert tail.poll()
    assert tail.lines == ["reward.py: no number in 'four'", "WARNING the service is slow"]
    assert not tail.poll()


def test_a_record_behind_a_bar_is_seen(tmp_path: Path) -> None:
    text = BARS.rstrip("\n") + "a.b:7 [ERROR] out of memory\n"
    (tmp_path / "trainer.log").write_text(text)
    tail = LogTail(tmp_path)
    tail.poll()
    assert tail.lines == ["ERROR out of memory"]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_log_read_in_pieces_is_the_log_read_at_once(tmp_path: Path, size: int) -> None:
    data = f"{GROUP}one\n{METRICS}zwei ü\n{BARS}{GROUP}a.b:1 [INFO] three\nhalf".encode()
    path, tail = tmp_path / "trainer.log", LogTail(tmp_path)
    for start in range(0, len(data), size):
        with path.open("ab") as log:
            log.write(data[start : start + size])
        tail.poll()
    assert tail.lines == ["one", "zwei ü", "INFO three"]


def test_only_the_end_of_a_long_log_is_read_and_the_newest_lines_kept(tmp_path: Path) -> None:
    count = FIRST_LOOK_BYTES // len(GROUP) + 10
    (tmp_path / "trainer.log").write_text("early\n" + GROUP * count + "a:1 [INFO] late\n")
    tail = LogTail(tmp_path)
    tail.poll()
    assert tail.lines == ["INFO late"]
    with (tmp_path / "trainer.log").open("a") as log:
        log.writelines(f"line {number}\n" for number in range(9))
    tail.poll()
    assert tail.lines == [f"line {number}" for number in range(9 - KEPT, 9)]


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path, tail = tmp_path / "trainer.log", LogTail(tmp_path)
    path.write_text("one\ntwo\n")
    tail.poll()
    path.write_text("new\n")
    tail.poll()
    assert tail.lines == ["new"]
