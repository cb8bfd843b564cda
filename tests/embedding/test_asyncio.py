"""An asyncio program embeds Intercom as a Trio program does: the same calls, cancellations and errors."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from anyio.from_thread import BlockingPortal

import intercom
from intercom.asyncio_calls import THREAD
from intercom.embedding import EmbeddedOperator, Switchboard
from intercom.local.lock import DatabaseLocked
from intercom.model.amendment import Comment
from intercom.model.card import Card, CardState
from intercom.model.config import Config, DatabaseSettings
from intercom.model.errors import AlreadyDecided, ConfigError, InvalidArguments, NotFound
from intercom.model.request import Operation, OperationKind
from tests.sessions.test_amendments import DIFF, OLD, ONE_AND_THREE

pytestmark = pytest.mark.real_time

RUN = Operation(OperationKind.COMMAND, "deploy", "Run: deploy", "deploy", "deploy --now")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ix-", dir="/tmp") as directory:
        (Path(directory) / "project").mkdir()
        yield Path(directory)


def config(root: Path) -> Config:
    return Config(database=DatabaseSettings(path=root / "db"))


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Switchboard]:
    async with intercom.open(config(root), workspace=str(root / "project"), ctl=False) as switchboard:
        yield switchboard


async def first_card(kim: EmbeddedOperator) -> Card:
    async with kim.watch() as coming:
        async for item in coming:
            if isinstance(item, Card) and item.state is CardState.PENDING:
                return item
    raise AssertionError("the stream ended")


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run an asyncio program to its end; nothing of the server is left then."""
    asyncio.run(main())  # type: ignore[arg-type]
    assert THREAD not in {thread.name for thread in threading.enumerate()}


def test_an_approved_change_is_applied_and_a_rejected_one_is_not(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            asked = asyncio.create_task(agent.check_clearance("Add it", content="new\n", file_path="a.txt"))
            await kim.approve((await first_card(kim)).id)
            approved = (await asked).answer
            assert approved.status == "approved"
            await agent.check_diff(approved.request_id)
            assert (root / "project/a.txt").read_text() == "new\n"

            denied = asyncio.create_task(agent.ask_permission(RUN))
            await kim.reject((await first_card(kim)).id, "not now")
            assert ((await denied).answer.status, (await denied).answer.reason) == ("denied", "not now")

    run(main)


def test_a_program_approves_a_part_and_an_edited_text_and_requests_changes(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            file = root / "project/a.txt"
            file.write_text(OLD)
            asked = asyncio.create_task(agent.check_clearance("Shout", DIFF, "a.txt"))
            card = await first_card(kim)
            with pytest.raises(InvalidArguments, match="needs shown"):
                await kim.approve(card.id, hunks=(1, 3))
            seen = await kim.amended(card.id, hunks=(1, 3))
            assert [hunk.number for hunk in seen.hunks] == [1, 2, 3]
            approved = await kim.approve(card.id, hunks=(1, 3), shown=seen.card.proposal_hash, note="not 15")
            assert (approved.diff, approved.amended) == (seen.card.diff, True)
            assert (await asked).answer.note == "not 15"
            await agent.check_diff(card.id)
            assert file.read_text() == ONE_AND_THREE

            asked = asyncio.create_task(agent.check_clearance("More", content="one\n", file_path="a.txt"))
            card = await first_card(kim)
            await kim.approve(card.id, texts={"a.txt": "two\n"}, shown=card.proposal_hash)
            assert (await asked).answer.changes[0].edited
            await agent.check_diff(card.id)
            assert file.read_text() == "two\n"

            asked = asyncio.create_task(agent.check_clearance("Again", content="three\n", file_path="a.txt"))
            await kim.request_changes((await first_card(kim)).id, [Comment("a.txt", "why?", 1)])
            assert (await asked).answer.comments == (Comment("a.txt", "why?", 1),)

    run(main)


def test_a_cancelled_call_leaves_its_request_open_and_another_call_gets_the_answer(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            asked = asyncio.create_task(agent.check_clearance("Add it", content="new\n", file_path="a.txt"))
            card = await first_card(kim)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert [waiting.id for waiting in await kim.pending()] == [card.id]
            await kim.approve(card.id)

            again = await agent.check_clearance(request_id=card.id)
            assert again.answer.status == "approved"

    run(main)


def test_an_answer_that_a_cancelled_task_never_got_comes_with_its_next_call(root: Path) -> None:
    call_async: Any = BlockingPortal.call_async

    async def cancelled_at_the_end(self: BlockingPortal, *args: Any) -> None:
        await call_async(self, *args)
        raise asyncio.CancelledError

    async def main() -> None:
        async with opened(root) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            card = asyncio.create_task(first_card(kim))
            with mock.patch.object(BlockingPortal, "call_async", cancelled_at_the_end):
                asked = asyncio.create_task(agent.check_clearance("Add it", content="new\n", file_path="a.txt"))
                await asyncio.sleep(0)
            await kim.approve((await card).id)
            with pytest.raises(asyncio.CancelledError):
                await asked

            (late,) = (await agent.ping("here")).late_verdicts
            assert late.answer["status"] == "approved"
            assert (await agent.ping("here")).late_verdicts == ()

    run(main)


def test_refusals_come_as_they_are(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            asked = asyncio.create_task(agent.check_clearance("Add it", content="new\n", file_path="a.txt"))
            card = await first_card(kim)
            await kim.approve(card.id)
            with pytest.raises(AlreadyDecided):
                await kim.reject(card.id)
            with pytest.raises(NotFound):
                await kim.show("nothing")
            await asked

    run(main)


def test_a_server_that_cannot_start_says_why(root: Path) -> None:
    async def main() -> None:
        (root / "bad.toml").write_text("nonsense = 1\n")
        with pytest.raises(ConfigError):
            async with intercom.open(root / "bad.toml"):
                pass
        async with opened(root):
            with pytest.raises(DatabaseLocked):
                async with opened(root):
                    pass

    run(main)


def test_an_error_of_the_program_ends_the_server_and_comes_as_it_is(root: Path) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with opened(root):
                raise ZeroDivisionError

    run(main)


def test_many_agents_ask_at_once(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            kim = switchboard.operator("kim")
            asked = [
                asyncio.create_task(
                    switchboard.agent(f"bot-{number}").check_clearance("Add", content=f"{number}\n", file_path="a.txt")
                )
                for number in range(20)
            ]
            decided: set[str] = set()
            async with kim.watch() as coming:
                async for item in coming:
                    if isinstance(item, Card) and item.state is CardState.PENDING and item.id not in decided:
                        decided.add(item.id)
                        await kim.approve(item.id)
                    if len(decided) == len(asked):
                        break
            assert [answered.answer.status for answered in await asyncio.gather(*asked)] == ["approved"] * len(asked)

    run(main)


def test_the_service_is_called_in_the_server_s_event_loop(root: Path) -> None:
    async def main() -> None:
        async with opened(root) as switchboard:
            await switchboard.agent("bot").ping("here")
            (session,) = await switchboard.call(switchboard.service.sessions)
            assert session.workspace_root == str(root / "project")

    run(main)


def test_a_program_sees_what_there_is() -> None:
    assert {"open", "start", "Switchboard", "EmbeddedAgent", "EmbeddedOperator"} <= set(dir(intercom))
