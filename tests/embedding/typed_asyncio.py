"""What a type checker knows of Intercom in an asyncio program: `tox -e types` checks this file, and nothing runs it.

No expression here may be Any. Each wrong use is marked with its error, and a mark without an error is an error itself.
"""
# mypy: disallow-any-expr

from __future__ import annotations

import asyncio
from typing import assert_type

import intercom
from intercom.model.amendment import Comment
from intercom.model.card import Card, Notice
from intercom.model.config import Config
from intercom.model.session import Session, SessionMode
from intercom.sessions.messages import Answered
from intercom.sessions.request_kinds import ClearanceAnswer, LateVerdict
from intercom.sessions.tools.check_diff import FileWritten
from intercom.sessions.tools.ping import Ping, PingAnswer


async def asks(switchboard: intercom.Switchboard) -> None:
    agent = switchboard.agent("bumper")
    asked = await agent.check_clearance("Bump the version", content="1.2.4\n", file_path="VERSION")
    assert_type(asked, Answered[ClearanceAnswer])
    assert_type(asked.late_verdicts, tuple[LateVerdict, ...])
    written = (await agent.check_diff(asked.answer.request_id)).answer.files_written
    assert_type(written, tuple[FileWritten, ...])
    assert_type(await agent.call(Ping("starting")), Answered[PingAnswer])
    assert_type((await agent.ping("starting")).answer, PingAnswer)

    await agent.check_clearance("Bump the version", contents="1.2.4\n")  # type: ignore[call-arg]
    await agent.check_clearance(title=1)  # type: ignore[arg-type]
    await agent.switch_freq("local")  # type: ignore[arg-type]
    await agent.call("ping")  # type: ignore[call-overload, misc]
    print(asked.answer.verdict)  # type: ignore[attr-defined, misc]
    print(agent.check_clearance("Bump the version").answer)  # type: ignore[attr-defined, misc]


async def decides(switchboard: intercom.Switchboard) -> None:
    kim = switchboard.operator("kim")
    async with kim.watch() as coming:
        async for each in coming:
            assert_type(each, Card | Notice)
    assert_type(await kim.pending(), tuple[Card, ...])
    assert_type(await kim.approve("7c41", hunks=(1, 3)), Card)
    assert_type(await kim.request_changes("7c41", [Comment("a.py", "why?", 12)]), Card)
    assert_type(await kim.mode(SessionMode.LOCAL), tuple[SessionMode, SessionMode])

    await kim.approve(7)  # type: ignore[arg-type]
    await kim.approve()  # type: ignore[call-arg]
    await kim.request_changes("7c41", ["why?"])  # type: ignore[list-item]
    async for _each in kim.watch():  # type: ignore[attr-defined, misc]
        pass
    kim.approves("7c41")  # type: ignore[attr-defined]


async def main() -> None:
    async with intercom.open(Config(), workspace="/srv/project") as switchboard:
        assert_type(switchboard, intercom.Switchboard)
        await asks(switchboard)
        await decides(switchboard)
        assert_type(await switchboard.call(switchboard.service.sessions), tuple[Session, ...])

    with intercom.open(Config()):  # type: ignore[attr-defined]
        pass
    async with intercom.open({"http_port": 3000}):  # type: ignore[arg-type]
        pass
    intercom.opened(Config())  # type: ignore[attr-defined]


asyncio.run(main())
