"""The journal knows every call that had begun, whatever ends the server that wrote it."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.call_journal import (
    FULL,
    Invocation,
    Journal,
    JournalError,
    Recovery,
    arguments_hmac,
    arguments_key,
)
from intercom.gateway.messages import InvocationStatus
from intercom.model.errors import InvalidArguments

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def running(id: str, call: str | None = None, **changes: object) -> Invocation:
    made = Invocation(id, AT, "s1", "claude 1", "reader", "github", "search", "ab" * 32, call)
    return evolve(made, **changes)


def ended(id: str, call: str | None = None, status: InvocationStatus = InvocationStatus.SUCCESS) -> Invocation:
    return running(id, call, seconds=0.25, status=status, sent=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gateway-calls.jsonl"


@contextmanager
def journal(file: Path, full: int = FULL, kept: int = 4) -> Iterator[tuple[Journal, Recovery]]:
    made = Journal(file, full=full, kept=kept)
    found = made.recover()
    try:
        yield made, found
    finally:
        made.close()


def recovered(file: Path) -> Recovery:
    with journal(file) as (_, found):
        return found


def test_a_new_journal_is_empty_and_private(file: Path) -> None:
    assert recovered(file) == Recovery()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_each_line_is_a_record_with_its_event(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a", "n1"))
        made.finish(ended("a", "n1"))
        made.confirm(["a"], 7)
    begun, finished, recorded = map(json.loads, file.read_text().splitlines())
    assert begun == {"event": "begun", **running("a", "n1", sent=True).record()}
    assert finished == {"event": "finished", **ended("a", "n1").record()}
    assert finished["args_hmac"] == "ab" * 32
    assert finished["status"] == "success"
    assert recorded == {"event": "recorded", "through": 7, "ids": ["a"]}


def test_recovery_tells_the_calls_apart(file: Path) -> None:
    with journal(file) as (made, _):
        for id in "abc":
            made.begin(running(id, f"name {id}"))
        made.finish(ended("a", "name a"))
        made.finish(ended("b", "name b", InvocationStatus.ERROR))
        made.finish(running("d", "name d", status=InvocationStatus.PERMISSION_DENIED))
        made.confirm(["a"], 41)
    found = recovered(file)
    assert found.unfinished == (running("c", "name c", sent=True),)
    assert [each.id for each in found.unconfirmed] == ["b", "d"]
    assert found.through == 41
    # A refused call was not sent: a repetition of it is a first time.
    assert {name: each.status for name, each in found.recent.items()} == {
        "name a": InvocationStatus.SUCCESS,
        "name b": InvocationStatus.ERROR,
        "name c": InvocationStatus.INTERRUPTED,
    }


@pytest.mark.parametrize("is_first", [False, True])
def test_a_call_that_began_and_was_refused_was_not_sent(file: Path, is_first: bool) -> None:
    refused = running("a", "name a", seconds=0.1, status=InvocationStatus.RATE_LIMITED)
    with journal(file) as (made, _):
        if is_first:
            # A new file may have the end before the beginning.
            made.finish(refused)
        made.begin(running("a", "name a"))
        if not is_first:
            made.finish(refused)
        made.begin(running("b", "name b"))
    assert recovered(file).recent.keys() == {"name b"}


def test_the_latest_call_of_a_name_counts(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a", "same"))
        made.begin(running("b", "same"))
        made.finish(ended("a", "same"))
        made.finish(ended("b", "same"))
    assert recovered(file).recent["same"].id == "b"


def test_an_end_counts_also_if_it_precedes_its_beginning(file: Path) -> None:
    with journal(file) as (made, _):
        made.finish(ended("a", "name"))
        made.begin(running("a", "name"))
    found = recovered(file)
    assert (found.unfinished, [each.id for each in found.unconfirmed]) == ((), ["a"])
    assert found.recent["name"].status is InvocationStatus.SUCCESS


def test_a_journal_cut_anywhere_loses_only_its_last_line(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
        made.begin(running("b"))
        made.finish(ended("a"))
    content = file.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    expected = [((), ()), (("a",), ()), (("a", "b"), ()), (("b",), ("a",))]
    for length in range(len(content) + 1):
        file.write_bytes(content[:length])
        found = recovered(file)
        whole = sum(end <= length for end in ends)
        names = tuple(each.id for each in found.unfinished), tuple(each.id for each in found.unconfirmed)
        assert names == expected[whole], length
        assert found.is_torn == (length not in (0, *ends))
        assert found.unreadable == 0


def test_after_a_torn_line_the_next_one_is_whole(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
    file.write_bytes(file.read_bytes() + b'{"event":"begun","id":')
    with journal(file) as (made, found):
        assert found.is_torn
        made.begin(running("b"))
    found = recovered(file)
    assert [each.id for each in found.unfinished] == ["a", "b"]
    assert (found.is_torn, found.unreadable) == (False, 1)


@given(
    st.lists(st.binary(max_size=80) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists)),
)
def test_foreign_lines_are_counted_and_do_no_harm(lines: list[object]) -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "state", "calls.jsonl")
        with journal(file) as (made, _):
            made.begin(running("a"))
        junk = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        file.write_bytes(file.read_bytes() + b"".join(line + b"\n" for line in junk))
        with journal(file) as (made, found):
            made.begin(running("b"))
        assert [each.id for each in found.unfinished] == ["a"]
        assert found.unreadable == sum(bool(part) for line in junk for part in line.split(b"\n"))
        assert [each.id for each in recovered(file).unfinished] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("id", 7), ("at", "yesterday"), ("at", "2026-03-01T12:00:00"), ("cost", -1), ("cost", 10**40), ("cost", "1")],
        *[("status", "great"), ("status", 3), ("seconds", float("nan")), ("seconds", -1), ("seconds", "x")],
        *[("call", []), ("sent", 1), ("cached", None), ("run_id", None), ("error_message", {}), ("event", "finished")],
    ],
)
def test_a_line_with_a_wrong_field_is_not_taken(file: Path, name: str, value: object) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
    line = json.loads(file.read_bytes())
    file.write_text(json.dumps({**line, name: value}) + "\n")
    assert recovered(file) == Recovery(unreadable=1)


def test_deep_nesting_in_a_line_does_no_harm(file: Path) -> None:
    recovered(file)
    file.write_text("[" * 100_000 + "\n")
    assert recovered(file).unreadable == 1


texts = st.text(st.characters(codec=None), max_size=40)


@given(
    st.builds(
        Invocation,
        id=texts,
        at=st.datetimes(timezones=st.just(UTC)),
        run_id=texts,
        agent_id=texts,
        agent_role=texts,
        tool=texts,
        method=texts,
        args_hmac=texts,
        call=st.none() | texts,
        request_id=st.none() | texts,
        sent=st.booleans(),
        cached=st.booleans(),
        cost=st.integers(0, 10**15),
        redaction_applied=st.booleans(),
        seconds=st.none() | st.floats(0, 1e9),
        status=st.none() | st.sampled_from(InvocationStatus),
        error_message=st.none() | texts,
    )
)
def test_a_record_is_read_as_it_was_written(invocation: Invocation) -> None:
    assert Invocation.of(json.loads(json.dumps(invocation.record()))) == invocation


def test_a_full_file_is_put_aside_and_no_unrecorded_call_with_it(file: Path) -> None:
    with journal(file, full=2_000, kept=2) as (made, _):
        made.begin(running("long"))
        made.begin(running("ended"))
        made.finish(ended("ended"))
        for number in range(100):
            made.begin(running(f"{number}", f"name {number}"))
            made.finish(ended(f"{number}", f"name {number}"))
            made.confirm([f"{number}"], number + 1)
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == [file.name + end for end in ("", ".1", ".2", ".lock")]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in file.parent.iterdir())
    found = recovered(file)
    assert [each.id for each in found.unfinished] == ["long"]
    assert [each.id for each in found.unconfirmed] == ["ended"]
    assert found.through == 100


def test_a_kill_between_the_renames_of_a_full_file_loses_nothing(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
        made.confirm([], 5)
    file.rename(file.with_name(file.name + ".1"))
    found = recovered(file)
    assert [each.id for each in found.unfinished] == ["a"]
    assert found.through == 5


def test_a_file_that_was_removed_is_begun_again_with_all_calls_that_run(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
        file.unlink()
        made.begin(running("b"))
        made.confirm([], 3)
        made.begin(running("c"))
    assert [each.id for each in recovered(file).unfinished] == ["a", "b", "c"]


def test_recovered_calls_stay_in_the_journal_until_they_are_confirmed(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
    with journal(file, full=1) as (made, _):
        made.confirm([], 0)
        made.confirm([], 0)
    with journal(file, full=1) as (made, found):
        assert [each.id for each in found.unfinished] == ["a"]
        made.confirm(["a"], 1)
    assert recovered(file).unfinished == ()


def test_only_one_process_writes_the_journal(file: Path) -> None:
    with journal(file), pytest.raises(JournalError, match="another server writes the journal"):
        Journal(file).recover()
    recovered(file)


def test_a_journal_that_is_not_open_refuses_calls(file: Path) -> None:
    with journal(file) as (made, _):
        pass
    with pytest.raises(JournalError, match="is not open"):
        made.begin(running("a"))


@pytest.mark.parametrize("spoil", ["mode", "link", "directory", "fifo", "open state directory"])
def test_a_file_that_others_could_write_is_not_used(file: Path, spoil: str) -> None:
    recovered(file)
    if spoil == "mode":
        file.chmod(0o644)
    elif spoil == "open state directory":
        file.parent.chmod(0o755)
    else:
        file.unlink()
        if spoil == "link":
            file.symlink_to(file.parent / "other")
        elif spoil == "fifo":
            os.mkfifo(file, 0o600)
        else:
            file.mkdir()
    with pytest.raises(JournalError, match=r"chmod|cannot be used|move it aside"):
        recovered(file)


@contextmanager
def disk_with(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_refuses_the_call_and_spoils_no_other(file: Path) -> None:
    with journal(file) as (made, _):
        made.begin(running("a"))
        size = file.stat().st_size
        with disk_with(size + 100):
            with pytest.raises(JournalError, match="the disk is full"):
                made.begin(running("b"))
            with pytest.raises(JournalError, match="cannot be written"):
                made.finish(ended("a"))
        made.begin(running("c"))
        made.confirm([], 0)
    found = recovered(file)
    assert [each.id for each in found.unfinished] == ["a", "c"]
    assert found.unreadable == 1


def test_a_failed_change_of_files_goes_on_in_the_old_one(file: Path) -> None:
    in_the_way = file.with_name(f".{file.name}.new")
    with journal(file, full=1_000) as (made, _):
        for id in "abcd":
            made.begin(running(id))
        in_the_way.mkdir()
        with pytest.raises(JournalError, match="cannot be begun again"):
            made.confirm(["a"], 2)
        made.begin(running("e"))
        in_the_way.rmdir()
        made.confirm(["b"], 3)
    assert file.with_name(f"{file.name}.1").exists()
    found = recovered(file)
    assert [each.id for each in found.unfinished] == list("cde")
    assert found.through == 3


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "arguments.key"
    key = arguments_key(file)
    assert len(key) == 32
    assert arguments_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"abc", b"zz" * 32, b"ab" * 31, b"\xff" * 64])
def test_a_key_file_without_a_key_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "state" / "arguments.key"
    arguments_key(file)
    file.write_bytes(content)
    with pytest.raises(JournalError, match="does not hold a key: remove it"):
        arguments_key(file)
    assert file.read_bytes() == content


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "state" / "arguments.key"
    arguments_key(file)
    file.chmod(0o640)
    with pytest.raises(JournalError, match="chmod go-rwx"):
        arguments_key(file)


def test_equal_arguments_have_equal_hmacs_and_others_do_not() -> None:
    one = arguments_hmac(b"k" * 32, {"b": [1, "é"], "a": None})
    assert one == arguments_hmac(b"k" * 32, {"a": None, "b": [1, "é"]})
    # Computed by: printf '{"a":null,"b":[1,"\\u00e9"]}' | openssl dgst -sha256 -hmac kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk
    assert one == "f9a4e18c3fc0a20411360131ad466799eaecd9204017d9739e4a5113843f5aec"
    others = [{"a": None, "b": [1, "e"]}, {"a": None, "b": [1.0, "é"]}, {"a": None}, None, {}, [], ""]
    assert len({one, *(arguments_hmac(b"k" * 32, each) for each in others)}) == len(others) + 1
    assert one != arguments_hmac(b"l" * 32, {"a": None, "b": [1, "é"]})
    assert len(arguments_hmac(b"k" * 32, {"half a pair": "\ud800"})) == 64


def test_arguments_that_are_not_json_are_refused() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for bad in (deep, {"a": object()}, {1, 2}):
        with pytest.raises(InvalidArguments, match="nothing was sent"):
            arguments_hmac(b"k" * 32, bad)
