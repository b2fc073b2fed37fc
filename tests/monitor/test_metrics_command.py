"""`tinker metrics` as a person calls it: odd files, strange curves, several runs, pipes."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_run import make_run  # type: ignore[import-not-found]
from rich.cells import cell_len

from tinker_cli.app import run as run_tinker

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `tinker metrics` here: (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR", "LINES"):
        monkeypatch.delenv(name, raising=False)

    def metrics(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_tinker(["metrics", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return metrics


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(text.encode())
        return path

    return write


def losses(*values: object) -> str:
    return "".join(f'{{"step":{i},"loss":{v}}}\n' for i, v in enumerate(values))


def rows(text: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in text.splitlines()]


def dots(text: str) -> int:
    return sum((ord(sign) - 0x2800).bit_count() for sign in text if 0x2800 <= ord(sign) < 0x2900)


def test_a_torn_line_is_told_once(call: Call, file: Callable[[str], Path]) -> None:
    path = file('{"step":0,"loss":3}\n{"step":1,"lo\n{"step":2,"loss":1}\n\n')
    code, out, err = call(path, "--json")
    assert code == 0
    assert [row["step"] for row in rows(out)] == [0, 2]
    assert err.count("line 2") == 1


def test_the_backup_of_a_resume_is_not_counted(call: Call, file: Callable[[str], Path]) -> None:
    path = file(losses(*range(46)))
    path.with_name("metrics.jsonl.pre_resume_000040").write_text(losses(*range(45)))
    assert len(rows(call(path.parent, "--json")[1])) == 46


def test_steps_trained_again_count_once(call: Call, file: Callable[[str], Path]) -> None:
    pairs = [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (3, 2.5), (4, 1.5), (5, 0.5)]
    path = file("".join(json.dumps({"step": s, "loss": v}) + "\n" for s, v in pairs))
    assert [row["loss"] for row in rows(call(path, "--json")[1])] == [5, 4, 3, 2.5, 1.5, 0.5]
    assert "2 steps overwritten" in call(path, "--summary")[1]
    assert "resumed @ 3" in call(path, "loss", "--plot")[1]


def test_values_that_other_loggers_write(call: Call, file: Callable[[str], Path]) -> None:
    path = file('{"step":0,"loss":nan}\n{"step":1,"loss":null}\n{"step":2,"loss":"NaN"}\n')
    with path.open("a") as stream:
        stream.write('{"step":3,"loss":0.5}\n')
    code, out, err = call(path, "loss", "--plot")
    assert code == 0
    assert "0.5" in out
    assert "line 1" in err


def test_a_late_key_has_empty_cells_before(call: Call, file: Callable[[str], Path]) -> None:
    path = file('{"step":0,"train_mean_nll":2}\n{"step":1,"train_mean_nll":1,"test/nll":1.5}\n')
    assert call(path, "--csv")[1].splitlines() == [
        "step,train_mean_nll,test/nll",
        "0,2.0,",
        "1,1.0,1.5",
    ]
    keys = next(x for x in call(path, "--keys")[1].splitlines() if x.startswith("test/nll"))
    assert keys.split() == ["test/nll", "nats/token", "1", "1.5", "1.5", "1.5", "1.5"]


def test_odd_names_and_values_are_chosen_exactly(call: Call, file: Callable[[str], Path]) -> None:
    path = file(
        '{"step":1,"ok":true,"note":"warm","opt":{"lr":0.0001},"hist":[1,2],"loss:sum":-66.9,'
        '"env/all/reward/total":0.5}\n'
    )
    _, out, _ = call(path, "loss:sum", "env/all/reward/total", "opt/lr", "--json")
    assert rows(out) == [
        {"step": 1, "loss:sum": -66.9, "env/all/reward/total": 0.5, "opt/lr": 0.0001}
    ]
    assert call(path, "note")[0] == 2


def test_square_brackets_are_printed_as_they_are(call: Call, file: Callable[[str], Path]) -> None:
    path = file('{"step":0,"reward[math]":1,"acc[/x]":0.5,"[bold]z":2}\n')
    for how in ("--keys", "--plot", "--summary"):
        code, out, _ = call(path, *(() if how == "--keys" else ("reward[math]", "acc[/x]")), how)
        assert code == 0
        assert "reward[math]" in out
        assert "acc[/x]" in out
    assert "[bold]z" in call(path, "--keys")[1]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ('\ufeff{"step":0,"loss":2}\r\n{"step":1,"loss":1}\r\n', [0, 1]),
        ('{"step":0,"note":"a\u2028b","loss":2}\n{"step":1,"loss":1}\n', [0, 1]),
        (
            '{"loss":9}\n{"step":1.0,"loss":3}\n{"step":"2","loss":2}\n{"step":true,"loss":8}\n'
            '{"step":3,"loss":1}\n',
            [1, 3],
        ),
    ],
)
def test_rows_of_odd_files(
    call: Call, file: Callable[[str], Path], text: str, steps: list[int]
) -> None:
    assert [row["step"] for row in rows(call(file(text), "--json")[1])] == steps


def test_a_spike_of_one_step_is_seen(call: Call, file: Callable[[str], Path]) -> None:
    values = [1.0] * 5000
    values[2500] = 100.0
    path = file(losses(*values))
    assert "100" in call(path, "loss", "--plot")[1]
    keys = call(path, "--keys")[1].splitlines()[1].split()
    assert keys[-1] == "100"


def test_sixty_thousand_rows_are_all_there(call: Call, file: Callable[[str], Path]) -> None:
    path = file(losses(*range(60_000)))
    found = json.loads(call(path, "loss", "--summary", "--json")[1])[0]
    assert (found["count"], found["first"], found["last"]) == (60_000, 0, 59_999)


def test_no_metrics_yet_is_said(call: Call, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    for how in ([], ["--json"], ["--plot"]):
        code, out, err = call(tmp_path, *how)
        assert (code, out) == (1, "")
        assert "no metrics yet" in err


def test_nan_breaks_the_curve_and_is_said(call: Call, file: Callable[[str], Path]) -> None:
    code, out, _ = call(file(losses(3, 2, "NaN", 1)), "loss", "--plot")
    assert code == 0
    assert "1 non-finite value (step 2)" in out
    assert dots(out) > 0
    out = call(file(losses(1, "NaN", "NaN", "NaN", 1)), "loss", "--plot")[1]
    assert "3 of 5 non-finite values" in out


def test_null_and_huge_integers_are_gaps(call: Call, file: Callable[[str], Path]) -> None:
    assert call(file(losses(1, "null", 3)), "loss", "--plot")[0] == 0
    code, out, _ = call(file(losses(1, "1" + "0" * 400)), "loss", "--plot")
    assert code == 0
    assert "1 non-finite value" in out


def test_nothing_finite_and_unknown_names(call: Call, file: Callable[[str], Path]) -> None:
    path = file(losses("NaN", "NaN"))
    code, out, _ = call(path, "loss", "--plot")
    assert code == 0
    assert "no finite values" in out
    code, _, err = call(path, "los", "--plot")
    assert code == 2
    assert "did you mean loss?" in err


def test_single_points_and_zeros_are_drawn(call: Call, file: Callable[[str], Path]) -> None:
    assert "●" in call(file(losses(3.5)), "loss", "--plot")[1]
    assert dots(call(file(losses(0, 0, 0)), "loss", "--plot")[1]) > 0


def test_a_log_axis_counts_what_it_cannot_show(call: Call, file: Callable[[str], Path]) -> None:
    code, out, _ = call(file(losses(-0.25, 0, 0.3125)), "loss", "--plot", "--log")
    assert code == 0
    assert "2 values <= 0" in out


@pytest.mark.parametrize("columns", ["1", "10", "24", "80", "200"])
def test_no_line_of_a_plot_is_wider_than_the_terminal(
    call: Call, file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "5")
    code, out, _ = call(file(losses(1, 2, 3)), "loss", "--plot")
    assert code == 0
    assert max(map(cell_len, out.splitlines())) <= int(columns)


def test_a_wide_name_leaves_the_frame_straight(call: Call, file: Callable[[str], Path]) -> None:
    path = file('{"step":0,"损失🔥/loss":1}\n{"step":1,"损失🔥/loss":2}\n')
    out = call(path, "--plot")[1]
    framed = [line for line in out.splitlines() if line.startswith(("╭", "│", "╰"))]
    assert {cell_len(line) for line in framed} == {80}


def test_smoothing_keeps_the_raw_curve(call: Call, file: Callable[[str], Path]) -> None:
    path = file(losses(*(i % 2 for i in range(100))))
    smooth = call(path, "loss", "--plot", "--smooth", "0.9")[1]
    assert 0 < dots(smooth) < dots(call(path, "loss", "--plot")[1])


@pytest.mark.parametrize(("x", "end"), [("time", "5 min"), ("tokens", "1.27M"), ("cost", "$0.22")])
def test_x_is_time_tokens_or_cost(call: Call, tmp_path: Path, x: str, end: str) -> None:
    run = make_run(tmp_path / "run", steps=10, state="finished")
    out = call(run, "reward", "--plot", "--x", x)[1]
    assert re.search(rf"{re.escape(end)}│$", out, re.MULTILINE)


def test_an_axis_that_a_run_lacks_is_said_with_those_it_has(
    call: Call, file: Callable[[str], Path]
) -> None:
    code, _, err = call(
        file('{"step":0,"loss":1,"time/total":2}\n'), "loss", "--x", "cost", "--plot"
    )
    assert code == 2
    assert "so does --x time" in err


def test_several_runs_stand_side_by_side(call: Call, tmp_path: Path) -> None:
    for name, values in (("a", (0.1, 0.2, 0.6)), ("b", (0.1, 0.5, 0.3))):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": i, "env/all/reward/total": v}) for i, v in enumerate(values)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    out = call(tmp_path / "a", tmp_path / "b", "reward")[1]
    found = [line.split() for line in out.splitlines()]
    assert found[1] == ["step", "a", "b", "Δ"]
    assert found[2:5] == [
        ["0", "0.1", "0.1", "+0"],
        ["1", "0.2", "*0.5", "+0.3"],
        ["2", "*0.6", "0.3", "-0.3"],
    ]
    assert found[5] == ["best", "0.6", "@", "2", "0.5", "@", "1", "-0.1"]
    summary = call(tmp_path / "a", tmp_path / "b", "reward", "--summary")[1].splitlines()
    assert "*0.6" in summary[1]
    assert "-0.3" in summary[2]
    plot = call(tmp_path / "a", tmp_path / "b", "reward", "--plot")[1]
    assert "● a 0.6  o b 0.3" in plot
    assert {row["run"] for row in rows(call(tmp_path / "a", tmp_path / "b", "--json")[1])} == {  # type: ignore[comparison-overlap]
        "a",
        "b",
    }


def test_where_the_settings_of_runs_differ(call: Call, tmp_path: Path) -> None:
    for name, rate in (("a", 1e-4), ("b", 3e-4)):
        run = make_run(tmp_path / name, steps=2)
        (run / "config.json").write_text(json.dumps({"learning_rate": rate, "batch_size": 8}))
    out = call(tmp_path / "a", tmp_path / "b", "--diff-config")[1]
    assert [line.split() for line in out.splitlines()] == [
        ["setting", "a", "b"],
        ["learning_rate", "0.0001", "0.0003"],
    ]
    document = json.loads(call(tmp_path / "a", tmp_path / "b", "--diff-config", "--json")[1])
    assert document == [{"setting": "learning_rate", "values": {"a": 0.0001, "b": 0.0003}}]
    assert call(tmp_path / "a", "--diff-config")[0] == 2


def test_names_people_say(call: Call, tmp_path: Path) -> None:
    rl = make_run(tmp_path / "rl", steps=3)
    row = rows(call(rl, "reward", "kl", "entropy", "lr", "correct", "cost", "--json")[1])[0]
    assert set(row) == {
        "step",
        "env/all/reward/total",
        "optim/kl_sample_train_v2",
        "optim/entropy",
        "optim/lr",
        "env/all/correct",
        "cost/cumulative_usd",
    }
    words = ("kl_sample_train_v1", "ac_tokens_per_turn", "reward/total", "tokens/s", "*frac_mixed")
    row = rows(call(rl, *words, "--json")[1])[0]
    assert len(row) == 6
    tokens = row["tokens/s"]
    whole = rows(call(rl, "--json")[1])[0]
    used = whole["env/all/total_ac_tokens"] + whole["env/all/total_ob_tokens"]
    assert tokens == pytest.approx(used / whole["time/total"])
    sl = make_run(tmp_path / "sl", kind="sl", steps=3)
    assert set(rows(call(sl, "nll", "--json")[1])[0]) == {"step", "train_mean_nll"}


def test_the_table_can_stand_beside_time_and_cost(call: Call, tmp_path: Path) -> None:
    rows = [{"step": i, "time/total": 61.0, "cost/step_usd": 0.25, "loss": i} for i in range(60)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = call(tmp_path, "loss", "--x", "time", "--last", "2")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["step", "time", "loss"],
        ["58", "0:59:59", "58"],
        ["59", "1:01:00", "59"],
    ]
    assert "$15.00" in call(tmp_path, "loss", "--x", "cost")[1].splitlines()[-1]
    code, _, err = call(tmp_path, "loss", "--x", "tokens")
    assert code == 2
    assert "don't tell its tokens" in err


@pytest.mark.parametrize(
    "how",
    [
        ("--x", "time", "--json"),
        ("--x", "time", "--summary"),
        ("--log",),
        ("--smooth", "0.9", "--csv"),
        ("--follow", "--plot"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    call: Call, tmp_path: Path, how: tuple[str, ...]
) -> None:
    code, out, err = call(make_run(tmp_path / "run", steps=3), *how)
    assert (code, out) == (2, "")
    assert how[0] in err


def test_steps_that_were_written_again_are_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(losses(1, 2, 3, 4) + losses(5, 6))
    for how in ((), ("--json",), ("--csv",), ("--plot",)):
        code, _, err = call(tmp_path, *how)
        assert code == 0
        assert "2 steps overwritten, from step 0 on" in err
    assert "2 steps overwritten" in call(tmp_path, "--summary")[1]


def test_a_check_is_an_exit_code(call: Call, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=300)  # KL v2 is 0.0112 at step 240
    assert call(run, "--check", "kl < 0.05")[0] == 0
    code, out, err = call(run, "--check", "kl < 0.01")
    assert (code, out) == (3, "")
    assert "at step 240 (kl 0.0112)" in err
    assert call(run, "--check", "not nan(reward)")[0] == 3
    assert call(run, "--check", "tokens/s > 1")[0] == 0
    assert call(run, "--check", "entrpy > 1")[0] == 2


def test_pictures_of_a_plot(call: Call, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30)
    svg, html = tmp_path / "p.svg", tmp_path / "p.html"
    code, out, _ = call(run, "reward", "--svg", svg, "--html", html)
    assert (code, out) == (0, "")
    assert "<title>tinker metrics run</title>" in svg.read_text()
    assert "reward" in html.read_text()
    assert call(run, "--svg", tmp_path / "no" / "p.svg")[0] == 1


def test_escape_codes_reach_no_file(call: Call, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=30)
    for how in ("--plot", "--summary", "--keys", "--json", "--csv"):
        assert "\x1b" not in call(run, how)[1]


def test_following_begins_before_the_file_is_there(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()

    def write() -> None:
        time.sleep(0.5)
        make_run(run, steps=3, state="running")
        time.sleep(0.6)
        make_run(run, steps=4, state="finished")

    writer = threading.Thread(target=write)
    writer.start()
    code, out, _ = call(run, "reward", "--follow", "--json")
    writer.join()
    assert code == 0
    steps = [row["step"] for row in rows(out)]
    assert sorted(set(steps)) == [0, 1, 2, 3]
    assert steps[-1] == 3


def test_several_runs_are_followed_side_by_side(call: Call, tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", steps=3, state="finished")
    other = make_run(tmp_path / "second", kind="sl", steps=2, state="running")
    ending = threading.Timer(
        0.6, make_run, (other,), {"kind": "sl", "steps": 4, "state": "finished"}
    )
    ending.start()
    code, out, err = call(one, other, "reward", "nll", "--follow", "--json")
    ending.join()
    assert code == 0
    told = [(row["run"], row["step"], len(row)) for row in rows(out)]
    assert told[:5] == [("one", i, 3) for i in range(3)] + [("second", i, 3) for i in range(2)]
    assert {("second", 2, 3), ("second", 3, 3)} <= set(told)
    assert "one: no metric 'nll'" in err
    assert "second: no metric 'reward'" in err
    text = call(one, other, "--follow", "--last", "1")[1].splitlines()
    assert text[0].startswith("one     step 2  ")
    assert text[1].startswith("second  step 3  ")


def test_a_pipe_is_read_as_dev_stdin(tmp_path: Path) -> None:
    text = losses(*range(300))
    for how in (["--json", "--last", "2"], ["--follow", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "tinker_cli", "metrics", "/dev/stdin", "loss", *how],
            input=text.encode(),
            capture_output=True,
            check=True,
            timeout=60,
        )
        steps = [row["step"] for row in rows(done.stdout.decode())]
        assert steps == ([298, 299] if "--last" in how else list(range(300)))


def test_a_reader_that_leaves_early_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(losses(*range(30_000)))
    for how in ("--json", "--csv"):
        command = f"{sys.executable} -m tinker_cli metrics {tmp_path} {how} | head -n 2"
        done = subprocess.run(
            command, shell=True, capture_output=True, check=True, timeout=60, env={**os.environ}
        )
        assert len(done.stdout.splitlines()) == 2
        assert done.stderr == b""


def test_json_of_what_is_not_finite_is_null(call: Call, file: Callable[[str], Path]) -> None:
    out = call(file(losses("NaN", "Infinity", 1)), "--json")[1]
    assert [row["loss"] for row in rows(out)] == [None, None, 1.0]
    assert not any(math.isnan(v) for row in rows(out) for v in row.values() if v is not None)
