"""Which session and which workspace a command means."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from intercom.model.card import CardKind
from intercom.model.errors import Ambiguous, InvalidState, NotFound, Unauthorized
from intercom.model.session import Session, SessionStatus
from intercom.operators.slack.commands import command_call
from intercom.operators.slack.commands.command_call import Workspace
from tests.operators.stand_in_service import START, card, session

HERE, THERE = "C0HERE", "C0THERE"


def at(id: str, root: str, channel: str | None = HERE, minutes: int = 0, **more: Any) -> Session:
    return session(id, workspace_root=root, channel_id=channel, updated_at=START + timedelta(minutes=minutes), **more)


def channel_of(each: Session) -> str | None:
    return each.channel_id


def chosen(live: list[Session], named: Session | None = None, default: Path | None = None) -> Workspace:
    return command_call.workspace(live, named, HERE, channel_of, default)


def test_a_named_sessions_workspace_goes_first() -> None:
    named = at("b", "/b", THERE)
    assert chosen([at("a", "/a"), named], named, Path("/d")) == Workspace(Path("/b"), named)


def test_then_that_of_the_channels_sessions() -> None:
    older, newer = at("a", "/a", minutes=1), at("b", "/a", minutes=2)
    assert chosen([newer, older, at("c", "/c", THERE)], default=Path("/d")) == Workspace(Path("/a"), newer)


def test_then_the_default_one_and_else_it_is_said_what_to_do() -> None:
    assert chosen([at("c", "/c", THERE)], default=Path("/d")) == Workspace(Path("/d"), None)
    with pytest.raises(NotFound, match="--session ID"):
        chosen([])


def test_a_channel_with_several_workspaces_is_not_guessed_at() -> None:
    with pytest.raises(Ambiguous, match=r"sessions in 2 workspaces.*a in /a, b in /b"):
        chosen([at("a", "/a"), at("b", "/b")], default=Path("/d"))


def test_interrupted_sessions_count_where_no_other_is() -> None:
    gone = at("a", "/a", status=SessionStatus.INTERRUPTED)
    assert chosen([gone, at("b", "/b")]).root == Path("/b")
    assert chosen([gone]).root == Path("/a")


def test_a_session_is_named_by_its_id_or_the_beginning_of_it() -> None:
    sessions = [session("abc1"), session("abc12"), session("xyz")]
    assert command_call.named(sessions, "abc1").id == "abc1"
    assert command_call.named(sessions, "x").id == "xyz"
    with pytest.raises(Ambiguous):
        command_call.named(sessions, "ab")
    for unknown in ("q", ""):
        with pytest.raises(NotFound):
            command_call.named(sessions, unknown)


def test_only_the_owner_controls_a_session_that_has_one() -> None:
    assert command_call.require_control(session("s"), "U1").id == "s"
    assert command_call.require_control(session("s", owner_user_id="U1"), "U1").id == "s"
    with pytest.raises(Unauthorized, match="belongs to U1"):
        command_call.require_control(session("s", owner_user_id="U1"), "U2")


def test_what_began_to_wait_last_is_resumed() -> None:
    paused = at("p", "/p", minutes=5, status=SessionStatus.PAUSED)
    other = at("o", "/o", minutes=9, status=SessionStatus.PAUSED, owner_user_id="U2")
    waits = card("w", CardKind.STANDBY, session_id="a", created_at=START + timedelta(minutes=7))
    assert command_call.to_resume([paused, other, at("a", "/a")], [waits], "U1").id == "a"
    assert command_call.to_resume([paused, other, at("a", "/a")], [], "U1").id == "p"
    assert command_call.to_resume([paused, other], [], "U2").id == "o"
    with pytest.raises(InvalidState, match="stands by"):
        command_call.to_resume([at("a", "/a")], [card("q", CardKind.PROMPT, session_id="a")], "U1")


def test_only_what_can_be_meant_alone_is_cleared_paused_or_given_words() -> None:
    stale = at("i", "/i", minutes=9, status=SessionStatus.INTERRUPTED)
    one, two = at("a", "/a", minutes=1), at("b", "/b", minutes=2)
    assert command_call.to_clear([stale], "U1").id == "i"
    assert command_call.to_checkpoint([one, stale], "U1").id == command_call.to_pause([one, stale], "U1").id == "a"
    for choose in (command_call.to_clear, command_call.to_pause, command_call.to_checkpoint):
        with pytest.raises(Ambiguous, match="a in /a, b in /b"):
            choose([one, two], "U1")
        with pytest.raises(NotFound):
            choose([at("a", "/a", owner_user_id="U2")], "U1")
    with pytest.raises(Ambiguous):
        command_call.to_clear([one, stale], "U1")
    paused = [at(name, f"/{name}", status=SessionStatus.PAUSED) for name in "pq"]
    with pytest.raises(Ambiguous, match="2 sessions wait"):
        command_call.to_resume(paused, [], "U1", has_instruction=True)
    assert command_call.to_resume(paused[:1], [], "U1", has_instruction=True).id == "p"


@pytest.mark.parametrize(
    ("word", "is_id"), [("1a2b3c4d", True), ("1a2b", False), ("deadbeef", False), ("tests123", False)]
)
def test_a_word_that_can_only_be_an_id_is_known(word: str, is_id: bool) -> None:
    assert command_call.looks_like_id(word) is is_id
