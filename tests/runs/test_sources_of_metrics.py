"""Metrics from pipes and from other machines; `ssh` here is a script that counts what it sends."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from tinker_cli.errors import ServiceError
from tinker_cli.runs.sources import RemoteReader, StreamReader, cksum, is_stream, remote


def row(step: int) -> str:
    return json.dumps({"step": step, "loss": step / 3}) + "\n"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine `box` whose files are ours; what it sends is kept in the file that is returned."""
    sent = tmp_path / "sent"
    script = tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        'while [ "$1" = -o ]; do shift 2; done\n'
        '[ "$1" = box ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }\n'
        f'sh -c "$2" | tee -a {sent}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return sent


def test_the_checksum_is_that_of_cksum() -> None:
    for data in (b"", b"a", b"one line\n", bytes(range(256)) * 4):
        printed = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
        assert cksum(data) == int(printed.split()[0])


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("box:runs/a", ("box", "runs/a")),
        ("me@box:/runs/a", ("me@box", "/runs/a")),
        ("box:~/runs/a", ("box", "~/runs/a")),
        ("runs/a:b", None),
        ("plain", None),
        ("-oProxyCommand=x:y", None),
    ],
)
def test_what_names_a_file_of_another_machine(word: str, place: tuple[str, str] | None) -> None:
    assert remote(word) == place


def test_only_appended_bytes_cross_the_wire(tmp_path: Path, ssh: Path) -> None:
    run = tmp_path / "a run"
    run.mkdir()
    path = run / "metrics.jsonl"
    path.write_text("".join(row(step) for step in range(5000)))
    reader = RemoteReader("box", str(run))
    assert reader.poll()
    assert len(reader.frame) == 5000
    before = ssh.stat().st_size
    assert not reader.poll()
    with path.open("a") as stream:
        stream.write(row(5000))
    assert reader.poll()
    reader.close()
    assert reader.frame.row(5000) == {"loss": 5000 / 3}
    assert ssh.stat().st_size - before < len(row(5000)) + 120  # and two lines of answer


def test_a_file_of_another_machine_that_was_cut_or_replaced_is_read_anew(
    tmp_path: Path, ssh: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(row(step) for step in range(6)))
    reader = RemoteReader("box", str(path))
    reader.poll()
    path.write_text("".join(row(step) for step in range(3)))
    assert reader.poll()
    assert list(reader.frame.steps) == [0, 1, 2]
    path.write_text("".join(row(step) for step in range(10, 19)))  # longer, in place
    reader.poll()
    assert list(reader.frame.steps) == list(range(10, 19))
    beside = tmp_path / "new"
    beside.write_text(path.read_text() + row(20))
    beside.replace(path)
    reader.poll()
    reader.close()
    assert list(reader.frame.steps) == [*range(10, 19), 20]


def test_a_file_of_another_machine_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, ssh: Path
) -> None:
    reader = RemoteReader("box", str(tmp_path / "metrics.jsonl"))
    assert not reader.poll()
    (tmp_path / "metrics.jsonl").write_text(row(0))
    assert reader.poll()
    reader.close()


def test_a_machine_that_cannot_be_reached_is_said_with_the_words_of_ssh(ssh: Path) -> None:
    with pytest.raises(ServiceError, match="Could not resolve hostname nowhere"):
        RemoteReader("nowhere", "/runs/a").poll()


def test_a_pipe_is_read_as_it_comes_and_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_stream(pipe)

    def write() -> None:
        with pipe.open("w") as stream:
            stream.write("".join(row(step) for step in range(3)) + row(3).rstrip())

    writer = threading.Thread(target=write)
    writer.start()
    reader = StreamReader(pipe).read_all()
    writer.join()
    assert list(reader.frame.steps) == [0, 1, 2, 3]
    assert not reader.poll()
