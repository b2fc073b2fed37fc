"""Files as people write them, and what becomes of their rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tinker_cli.data.conversations import parse_conversation
from tinker_cli.data.rows import Row, read_jsonl
from tinker_cli.errors import Fault, InputFaults

CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}


def _write(path: Path, *lines: str, newline: str = "\n") -> Path:
    path.write_bytes("".join(line + newline for line in lines).encode())
    return path


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", json.dumps(CHAT), "", json.dumps(CHAT), "")
    assert [row.line for row in read_jsonl(path)] == [1, 3]


def test_a_broken_line_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", json.dumps(CHAT), "", '{"messages": ', '{"messages": 3')
    with pytest.raises(InputFaults) as caught:
        read_jsonl(path)
    assert [fault.line for fault in caught.value.faults] == [3, 4]


def test_a_byte_order_mark_and_crlf_leave_no_trace(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", "\ufeff" + json.dumps(CHAT), newline="\r\n")
    assert [row.value for row in read_jsonl(path)] == [CHAT]


def test_unicode_line_separators_stay_inside_a_row(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "one\u2028two\u0085"}]}
    path = _write(tmp_path / "a.jsonl", json.dumps(row, ensure_ascii=False))
    assert [item.value for item in read_jsonl(path)] == [row]


def test_gzip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(CHAT) + "\n").encode()))
    assert [row.value for row in read_jsonl(path)] == [CHAT]


@pytest.mark.parametrize(("text", "words"), [("", "empty"), ("[1]", "object"), ("\xff", "JSON")])
def test_files_without_rows_say_so(tmp_path: Path, text: str, words: str) -> None:
    path = _write(tmp_path / "a.jsonl", text)
    with pytest.raises(InputFaults) as caught:
        read_jsonl(path)
    assert words in caught.value.faults[0].message


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        read_jsonl(tmp_path / "none.jsonl")
    assert caught.value.faults[0].message == "no such file"


def test_sharegpt_rows_become_the_same_messages() -> None:
    said = [("system", "Be brief"), ("human", "2+2?"), ("gpt", "4")]
    row = {"conversations": [{"from": who, "value": text} for who, text in said]}
    assert parse_conversation(Row("f", 1, row)) == [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
    ]


def _faults(row: dict[str, object]) -> list[str]:
    parsed = parse_conversation(Row("f", 7, row))
    faults = [item for item in parsed if isinstance(item, Fault)]
    assert all(fault.line == 7 for fault in faults)
    return [fault.message for fault in faults]


def test_an_unknown_speaker_is_an_error_with_its_row() -> None:
    assert "bot" in _faults({"conversations": [{"from": "bot", "value": "x"}]})[0]


def test_null_content_needs_a_tool_call() -> None:
    assert _faults({"messages": [{"role": "assistant", "content": None}]})
    call = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{}"}}
    row = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    parsed = parse_conversation(Row("f", 1, row))
    assert parsed[0]["content"] == ""  # type: ignore[index]


def test_broken_tool_arguments_name_the_function_and_the_call() -> None:
    call = {"id": "c9", "function": {"name": "weather", "arguments": '{"city": Oslo'}}
    row = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    message = _faults(row)[0]
    assert "weather" in message
    assert "c9" in message


def test_tool_arguments_are_the_same_as_text_and_as_an_object() -> None:
    rows = []
    for arguments in ('{"city": "Oslo"}', {"city": "Oslo"}):
        call = {"id": "c", "function": {"name": "w", "arguments": arguments}}
        row = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
        rows.append(parse_conversation(Row("f", 1, row))[0]["tool_calls"][0])  # type: ignore[index]
    assert rows[0].function == rows[1].function


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
    row = {"messages": [{"role": "user", "content": parts}]}
    assert parse_conversation(Row("f", 1, row)) == [{"role": "user", "content": "abcd"}]


def test_every_fault_of_a_row_is_reported() -> None:
    row = {"messages": [{"role": "usr", "content": "x"}, 3, {"role": "user", "content": 5}]}
    assert len(_faults(row)) == 3
