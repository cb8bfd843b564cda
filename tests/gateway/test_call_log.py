"""Every call stands in the journal before it is sent, and in the audit log once, whatever crashes between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.testing import inject, no_leaks
from intercom.gateway import call_log
from intercom.gateway.call_journal import Invocation, Journal, JournalError
from intercom.gateway.call_log import ERROR, RECORDER
from intercom.gateway.messages import InvocationStatus
from intercom.model.errors import DatabaseError, InvalidArguments
from intercom.store.database import COMPANIONS, companion
from intercom.store.store_and_reader import Store, StoreUnavailable
from tests.gateway.recording import calls_counted, done, log_in, new, recorded

ROOT = Path(__file__).parents[2]
#: Put together, so that no tool takes it for a real one.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

pytestmark = pytest.mark.real_time


def statuses(directory: Path) -> dict[str, InvocationStatus | None]:
    return {each.id: each.status for each in recorded(directory)}


def contents(directory: Path) -> bytes:
    """Return the bytes of all files of a directory."""
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


async def test_a_call_is_recorded_as_it_ended(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    system, log = log_in(tmp_path, now=lambda: at)
    async with no_leaks(), system:
        await log.ready()
        call = new(log, "name", {"path": "a.txt"}, request_id="r1")
        log.begin(call)
        assert log.running == (call,)
        ended = log.finish(done(call, redaction_applied=True))
        assert log.running == ()
        await log.settle()
        assert log.waiting == 0
    log.close()
    assert recorded(tmp_path) == (ended,)
    assert ended == done(call, redaction_applied=True, sent=True)
    assert calls_counted(tmp_path) == (1, 3)


async def test_only_sent_calls_are_counted(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        for status in InvocationStatus:
            call = new(log)
            log.begin(call)
            log.finish(done(call, status))
        log.refuse(done(new(log), InvocationStatus.PERMISSION_DENIED))
        log.refuse(done(new(log), cached=True))
        # A repetition of a call that a killed server has sent: the repetition itself is not sent.
        log.refuse(done(new(log), InvocationStatus.INTERRUPTED))
    log.close()
    assert len(recorded(tmp_path)) == len(InvocationStatus) + 3
    sent = {each.status for each in recorded(tmp_path) if each.sent}
    assert sent == {
        InvocationStatus.SUCCESS,
        InvocationStatus.ERROR,
        InvocationStatus.TIMEOUT,
        InvocationStatus.CANCELLED,
        InvocationStatus.INTERRUPTED,
    }
    assert calls_counted(tmp_path) == (5, 15)


async def test_a_second_end_is_ignored(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        call = new(log)
        log.begin(call)
        log.finish(done(call))
        log.finish(done(call, InvocationStatus.CANCELLED))
        log.finish(done(new(log)))
    log.close()
    assert statuses(tmp_path) == {call.id: InvocationStatus.SUCCESS}


async def test_errors_are_recorded_without_secrets(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    texts = [
        f"no access with {SECRET}\nline 2\x1b[31m",
        # Cut in the middle of the secret.
        "x " * ((ERROR - 10) // 2) + SECRET,
        "\ud800 half a pair",
        "A" * 100_000,
    ]
    async with system:
        await log.ready()
        for text in texts:
            call = new(log)
            log.begin(call)
            log.finish(done(call, InvocationStatus.ERROR, error_message=text))
    log.close()
    shown = [each.error_message or "" for each in recorded(tmp_path)]
    assert "masked" in shown[0]
    assert shown[0].endswith(r"line 2\x1b[31m")
    assert shown[1].endswith("x x (530 characters)")
    assert shown[3] == "(100000 characters)"
    written = (tmp_path / "state" / "gateway-calls.jsonl").read_text() + "".join(shown)
    assert SECRET[:12] not in written
    assert "\x1b" not in written


async def test_a_call_ends_even_if_its_error_cannot_be_masked(tmp_path: Path) -> None:
    def broken(_text: str) -> str:
        raise RuntimeError("of a test")

    system, log = log_in(tmp_path, mask=broken)
    async with system:
        await log.ready()
        call = new(log)
        log.begin(call)
        ended = log.finish(done(call, InvocationStatus.ERROR, error_message=SECRET))
    log.close()
    assert recorded(tmp_path) == (ended,)
    assert SECRET.encode() not in contents(tmp_path)


async def test_names_with_anything_in_them_are_recorded(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    odd = "a\ud800\x00\n\u202e" + "x" * 10_000
    async with system:
        await log.ready()
        call = new(log, odd, agent_id=odd, agent_role=odd, method=odd)
        log.begin(call)
        ended = log.finish(done(call))
    log.close()
    assert recorded(tmp_path) == (ended,)


async def test_arguments_are_not_recorded(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        with pytest.raises(InvalidArguments):
            new(log, arguments=object())  # type: ignore[arg-type]
        for arguments in ({"a": 1, "b": SECRET}, {"b": SECRET, "a": 1}, {"a": 1}):
            call = new(log, arguments=arguments)  # type: ignore[arg-type]
            log.begin(call)
            log.finish(done(call))
    log.close()
    one, same, other = (each.args_hmac for each in recorded(tmp_path))
    assert one == same != other
    assert SECRET.encode() not in contents(tmp_path)


async def test_calls_in_a_group_are_recorded_in_the_order_of_their_ends(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    calls: list[Invocation] = []
    async with system:
        await log.ready()
        for _ in range(call_log.GROUP * 3 + 7):
            calls.append(new(log))
            log.begin(calls[-1])
        for call in reversed(calls):
            log.finish(done(call))
    log.close()
    assert [each.id for each in recorded(tmp_path)] == [each.id for each in reversed(calls)]


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_of_the_recorder_or_the_writer_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(call_log, "COLLECT_SECONDS", 0.0)
    system, log = log_in(tmp_path, full=4_000)
    ids: list[str] = []
    chance = random.Random(seed)
    crashes = dict(zip(chance.sample(range(40), 3), ("store", RECORDER, RECORDER), strict=True))
    async with system:
        await log.ready()
        for number in range(40):
            for _ in range(chance.randrange(1, 9)):
                call = new(log)
                log.begin(call)
                log.finish(done(call))
                ids.append(call.id)
            for _ in range(chance.randrange(12)):
                # The recorder is anywhere on its way through a group.
                await trio.lowlevel.checkpoint()
            if (crashes.get(number)) == "store":
                inject(system, "store", RuntimeError("of a test"), when="next message")
            elif number in crashes:
                # It may be between two lives, because the store has crashed.
                while all(each.name != RECORDER for each in system.living()):
                    await trio.lowlevel.checkpoint()
                inject(system, RECORDER, RuntimeError("of a test"), when="now")
        await log.settle()
    log.close()
    assert [each.id for each in recorded(tmp_path)] == ids
    assert calls_counted(tmp_path) == (len(ids), 3 * len(ids))


@pytest.mark.parametrize("checkpoints", range(12))
async def test_a_crash_while_the_journal_is_read_is_survived(tmp_path: Path, checkpoints: int) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        cut = new(log)
        log.begin(cut)
    log.close()
    system, log = log_in(tmp_path)
    async with system:
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        inject(system, RECORDER, RuntimeError("of a test"), when="now")
        await log.settle()
    log.close()
    assert statuses(tmp_path) == {cut.id: InvocationStatus.INTERRUPTED}


class LosesAnswers(Store):
    """A store that commits, and whose answer does not come, the first times."""

    async def transact(self, work, **options):  # type: ignore[no-untyped-def]
        answer = await super().transact(work, **options)
        if isinstance(answer, int) and lost.pop():
            raise StoreUnavailable("the answer was lost")
        return answer


lost: list[bool] = []


async def test_a_group_whose_answer_was_lost_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_log, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(sys.modules[__name__], "lost", [False, False, True, True])
    told: list[str] = []
    system, log = log_in(tmp_path, complain=told.append)
    log._store = LosesAnswers(system.named("store"))
    async with system:
        await log.ready()
        first = new(log)
        log.begin(first)
        log.finish(done(first))
        await log.settle()
        second = new(log)
        log.begin(second)
        log.finish(done(second))
        await log.settle()
    log.close()
    assert [each.id for each in recorded(tmp_path)] == [first.id, second.id]
    assert calls_counted(tmp_path) == (2, 6)
    assert len(told) == 2
    assert "will be added: the answer was lost" in told[0]


class Refuses(Store):
    """A store that refuses groups with one call, as SQLite refuses what it cannot store."""

    async def transact(self, work, **options):  # type: ignore[no-untyped-def]
        group = work.args[0] if work.args else ()
        if any(each.call == "bad" for each in group):
            raise InvalidArguments("cannot be stored")
        return await super().transact(work, **options)


async def test_a_call_that_the_store_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    log._store = Refuses(system.named("store"))
    async with system:
        await log.ready()
        for name in ("one", "bad", "two"):
            call = new(log, name)
            log.begin(call)
            log.finish(done(call))
        await log.settle()
    log.close()
    assert [each.call for each in recorded(tmp_path)] == ["one", "two"]
    # The journal still has it, for a server that can store it.
    system, log = log_in(tmp_path)
    async with system:
        await log.settle()
    log.close()
    assert [each.call for each in recorded(tmp_path)] == ["one", "two", "bad"]


class Fails(Store):
    """A store that cannot be written while `broken`."""

    broken = True

    async def transact(self, work, **options):  # type: ignore[no-untyped-def]
        if Fails.broken:
            raise DatabaseError("the disk is full")
        return await super().transact(work, **options)


async def test_calls_wait_while_too_many_ended_ones_wait_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_log, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(Fails, "broken", False)
    system, log = log_in(tmp_path, waiting=5)
    log._store = Fails(system.named("store"))
    begun: list[str] = []

    async def agent() -> None:
        for _ in range(10):
            await log.ready()
            call = new(log)
            log.begin(call)
            begun.append(call.id)
            log.finish(done(call))

    async with system:
        await log.ready()
        Fails.broken = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent)
            nursery.start_soon(agent)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert log.waiting == len(begun) == 5
            # One that waits can be cancelled.
            with trio.move_on_after(0.01) as scope:
                await log.ready()
            assert scope.cancelled_caught
            Fails.broken = False
    log.close()
    assert [each.id for each in recorded(tmp_path)] == begun
    assert len(begun) == 20


async def test_a_journal_that_cannot_be_opened_refuses_calls_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_log, "RETRY_SECONDS", 0.01)
    other = Journal(tmp_path / "state" / "gateway-calls.jsonl")
    other.recover()
    told: list[str] = []
    told_twice = trio.Event()

    def complain(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            told_twice.set()

    system, log = log_in(tmp_path, complain=complain)
    async with system:
        with pytest.raises(JournalError, match="another server"):
            await log.ready()
        with pytest.raises(JournalError, match="another server"):
            await log.settle()
        with pytest.raises(JournalError, match="the server is starting"):
            log.refuse(done(new(log), InvocationStatus.DISABLED))
        with pytest.raises(JournalError, match="is not open"):
            log.begin(new(log))
        other.close()
        await told_twice.wait()
        await log.ready()
        call = new(log)
        log.begin(call)
        log.finish(done(call))
    log.close()
    assert len(recorded(tmp_path)) == 1
    assert len(told) == 2
    assert "can be written again" in told[1]


async def test_a_call_ends_even_if_the_journal_cannot_be_written(tmp_path: Path) -> None:
    told: list[str] = []
    system, log = log_in(tmp_path, complain=told.append)
    async with system:
        await log.ready()
        call = new(log)
        log.begin(call)
        log._journal.close()
        log.finish(done(call))
        with pytest.raises(JournalError):
            log.begin(new(log))
        await log.settle()
    assert statuses(tmp_path) == {call.id: InvocationStatus.SUCCESS}
    assert len(told) == 1


async def test_a_directory_that_is_gone_is_reported_once(tmp_path: Path) -> None:
    told: list[str] = []
    system, log = log_in(tmp_path, complain=told.append)
    state, moved = tmp_path / "state", tmp_path / "moved"
    async with system:
        await log.ready()
        os.rename(state, moved)
        for _ in range(3):
            call = new(log)
            log.begin(call)
            log.finish(done(call))
            await log.settle()
        assert len(told) == 1
        assert "cannot be begun again" in told[0]
        os.rename(moved, state)
        call = new(log)
        log.begin(call)
        log.finish(done(call))
        await log.settle()
        assert len(told) == 2
    log.close()
    assert len(recorded(tmp_path)) == 4


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_the_next_server_says_what_was_interrupted(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        ended, cut = new(log, "ended"), new(log, "cut")
        log.begin(ended)
        log.begin(cut)
        log.finish(done(ended))
    log.close()
    system, log = log_in(tmp_path)
    async with system:
        assert log.earlier("cut") is None
        await log.settle()
        earlier = log.earlier("cut")
        assert earlier is not None
        assert (earlier.id, earlier.args_hmac, earlier.status) == (
            cut.id,
            cut.args_hmac,
            InvocationStatus.INTERRUPTED,
        )
        assert log.earlier("nobody") is None
        assert log.recovery is not None
        assert [each.id for each in log.recovery.unfinished] == [cut.id]
    log.close()
    for _ in range(2):
        assert statuses(tmp_path) == {
            ended.id: InvocationStatus.SUCCESS,
            cut.id: InvocationStatus.INTERRUPTED,
        }
        assert "whether it had its effect is not known" in str(recorded(tmp_path)[1].error_message)
        assert calls_counted(tmp_path) == (2, 3)
        # Another start adds nothing.
        system, log = log_in(tmp_path)
        async with system:
            await log.settle()
        log.close()


async def test_a_new_database_gets_only_what_no_other_has(tmp_path: Path) -> None:
    system, log = log_in(tmp_path)
    async with system:
        await log.ready()
        first, second = new(log), new(log)
        log.begin(first)
        log.begin(second)
        log.finish(done(first))
    log.close()
    for suffix in ("", *COMPANIONS):
        companion(tmp_path / "intercom.db", suffix).unlink(missing_ok=True)
    system, log = log_in(tmp_path)
    async with system:
        await log.settle()
        third = new(log)
        log.begin(third)
        log.finish(done(third))
    log.close()
    assert list(statuses(tmp_path)) == [second.id, third.id]


async def run_to_the_end(directory: Path) -> None:
    system, log = log_in(directory)
    async with system:
        await log.settle()
    log.close()


def killed_at(kill: str, number: int) -> Callable[[subprocess.Popen[bytes]], bytes]:
    """Return what reads a child's output until it has killed itself, or until so many lines, and kills it then."""

    def read(child: subprocess.Popen[bytes]) -> bytes:
        assert child.stdout is not None
        if kill != "never":
            return child.stdout.read()
        lines = [child.stdout.readline() for _ in range(number)]
        child.kill()
        return b"".join(lines) + child.stdout.read()

    return read


KILLS = [
    *[("line", number) for number in (1, 2, 17, 170)],
    *[("store.before_commit", number) for number in (3, 6)],
    *[("store.after_commit", number) for number in (3, 6)],
    *[("never", number) for number in (1, 50, 333, 1000)],
]


def test_no_call_is_lost_by_a_kill(tmp_path: Path) -> None:
    """One server after another is killed, over the same files, in the middle of whatever it does."""
    begun: set[str] = set()
    ended: set[str] = set()
    for kill, number in KILLS:
        command = [sys.executable, "-m", "tests.gateway.invocations_child", str(tmp_path), kill, str(number)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            output = killed_at(kill, number)(child)
            errors = child.stderr.read() if child.stderr is not None else b""
        assert child.returncode == -signal.SIGKILL, errors.decode()
        for line in output.decode().splitlines():
            event, id = line.split()
            (begun if event == "begun" else ended).add(id)
    assert len(begun) > 500
    trio.run(run_to_the_end, tmp_path)
    found = recorded(tmp_path)
    counts = Counter(each.id for each in found)
    assert set(counts.values()) == {1}
    assert begun <= set(counts)
    by_id = {each.id: each.status for each in found}
    # Between the journal's line and the word of the child there is a moment.
    assert {by_id[id] for id in ended} == {InvocationStatus.SUCCESS}
    assert InvocationStatus.INTERRUPTED in by_id.values()
    assert len(set(counts) - begun) <= len(KILLS) * 8
    assert calls_counted(tmp_path) == (
        len(found),
        3 * sum(each.status is InvocationStatus.SUCCESS for each in found),
    )
