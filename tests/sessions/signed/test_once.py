"""A command that a person signed counts once: sent again it is answered as before, and nothing is done again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.model.config import Config, SteeringSettings
from intercom.model.decision import SignedCommand
from intercom.model.errors import IntercomError, SignatureRefused
from intercom.model.session import Session, SessionMode
from intercom.operators.commands.command_execution import carry_out
from intercom.operators.ctl.connection import CtlRequest
from intercom.sessions.tools.switch_freq import SwitchFreq
from tests.sessions.signed.keyed_server import sql
from tests.sessions.test_steering import heard, kinds
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer

#: Each command with the kind of the audit entry of its effect.
COMMANDS = {"unpause": "session_resumed", "mode": "mode", "take-back": "steer_taken_back", "nudge": "nudge"}


async def send(server: VirtualServer, signed: SignedCommand, act: str | None = None) -> Any:
    """Send it as ctl does, which keeps the act's id when it sends the command again."""
    said = signed.signature
    request = CtlRequest(said.decision, signed.fields, act or said.decision_id, said)
    return await carry_out(server.app.service, request, "kim", None)


async def prepared(server: VirtualServer, agent: AgentClient, command: str, key: Key) -> Mapping[str, str]:
    """Bring it about that the command has an effect. Returns its fields."""
    service, session = server.app.service, agent.session_id
    match command:
        case "unpause":
            await service.steering.pause(session, "kim", "ctl")
            return {"session": session}
        case "mode":
            await service.switch_mode(session, SessionMode.LOCAL, "kim", "ctl")
            return {"session": session, "mode": "hybrid"}
        case "take-back":
            signed = key.command("steer", server.now(), "act-words", session=session, text="words")
            word = await service.steering.steer(session, "words", "kim", "ctl", "ctl/act-words", signed)
            return {"id": word.id}
        case _:
            return {"id": session, "session": session, "text": "go on"}


async def undone(server: VirtualServer, agent: AgentClient, command: str, key: Key) -> None:
    """Change back by another act what the command did."""
    if command == "nudge":
        assert await heard(agent) == ["go on"]
    elif command != "take-back":
        await prepared(server, agent, command, key)


async def state(server: VirtualServer) -> Session:
    [session] = await server.app.service.sessions()
    return session


@pytest.mark.parametrize("lost", ["the answer", "the record of the answer"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_sent_again_it_is_answered_as_before(
    server: VirtualServer, agent: AgentClient, key: Key, command: str, lost: str
) -> None:
    fields = await prepared(server, agent, command, key)
    signed = key.command(command, server.now(), **fields)
    before = (await kinds(server)).count(COMMANDS[command])
    first = await send(server, signed)
    assert (await kinds(server)).count(COMMANDS[command]) == before + 1
    await undone(server, agent, command, key)
    after, done = await state(server), (await kinds(server)).count(COMMANDS[command])
    if lost == "the record of the answer":
        # The server was killed between the effect and the record of the answer.
        sql(server, "delete from answered_call where tool = 'signed'")
    again = await send(server, signed)
    assert again == first or (lost != "the answer" and command == "unpause")
    assert (await state(server)).mode is after.mode
    assert (await state(server)).is_paused is after.is_paused
    assert (await kinds(server)).count(COMMANDS[command]) == done


@pytest.mark.parametrize("command", COMMANDS)
async def test_under_another_id_it_is_refused(
    server: VirtualServer, agent: AgentClient, key: Key, command: str
) -> None:
    signed = key.command(command, server.now(), **await prepared(server, agent, command, key))
    await send(server, signed)
    with pytest.raises(SignatureRefused, match="not for this"):
        await send(server, signed, act="act-0002")


async def test_what_was_refused_stays_refused(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    """Otherwise an agent that saw the command could keep it until the person pauses the session."""
    signed = key.command("unpause", server.now(), session=agent.session_id)
    for _ in range(2):
        with pytest.raises(IntercomError, match="the session is not paused") as refused:
            await send(server, signed)
        assert refused.value.error_code == "invalid_state"
        if not (await state(server)).is_paused:
            await prepared(server, agent, "unpause", key)
    assert (await state(server)).is_paused


@pytest.mark.parametrize("command", COMMANDS)
async def test_of_two_at_once_one_acts_and_both_are_answered(
    server: VirtualServer, key: Key, root: Path, command: str
) -> None:
    told = list[Any]()
    agent = await server.arrive(root)
    signed = key.command(command, server.now(), **await prepared(server, agent, command, key))
    before = (await kinds(server)).count(COMMANDS[command])

    async def one() -> None:
        told.append(await send(server, signed))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(one)
    assert told[0] == told[1]
    assert (await kinds(server)).count(COMMANDS[command]) == before + 1


@pytest.mark.server(Config(steering=SteeringSettings(max_queued=1)))
async def test_a_message_that_was_refused_is_not_queued_when_there_is_room(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    session = agent.session_id
    await send(server, key.command("steer", server.now(), "act-0001", session=session, text="one"))
    second = key.command("steer", server.now(), "act-0002", session=session, text="two")
    for expected in ["one"], []:
        with pytest.raises(IntercomError) as refused:
            await send(server, second)
        assert refused.value.error_code == "steer_queue_full"
        assert await heard(agent) == expected


@pytest.mark.parametrize("passing", ["busy", "unavailable"])
async def test_a_passing_failure_is_not_the_answer_of_an_act(server: VirtualServer, passing: str) -> None:
    left = [IntercomError("try again", code=passing)]

    async def work() -> dict[str, Any]:
        if left:
            raise left.pop()
        return {"done": True}

    with pytest.raises(IntercomError, match="try again"):
        await server.app.service.once("ctl/act-0001", work)
    assert await server.app.service.once("ctl/act-0001", work) == {"done": True}


async def test_the_name_of_an_agents_call_is_no_name_of_an_act(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    """Otherwise the agent's answer was the person's, and the person's command did nothing."""
    fields = await prepared(server, agent, "mode", key)
    for name in ("ctl/act-0001", "service/ctl/act-0001", "mode/ctl/act-0001", "ctl/act-0001/signed"):
        await agent.ask(SwitchFreq(SessionMode.LOCAL, call=name))
    await send(server, key.command("mode", server.now(), **fields))
    assert (await state(server)).mode is SessionMode.HYBRID
