"""Whatever is written to the local socket: one reply line each, a code that is documented, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import ERROR_CODES
from intercom.operators.commands.command_table import COMMANDS
from tests.fuzz.harm import OURS, shows_no_insides
from tests.fuzz.rig import Ctl, Gone, Late, Rig, sound
from tests.fuzz.values import examples, garbage, numbers, texts

FIELDS = ("id", "reason", "instruction", "mode", "session", "decision", "text", "verdict_id", "limit", "everything")


def asks(on: Rig) -> str:
    """Let something of every kind wait, so that there is something to answer wrongly; the session it waits in."""
    agent = on.agent()
    for number in range(3):
        agent.does("check_clearance", title=f"t{number}", diff="x\n", file_path=f"f{number}")
        agent.does("transmit", prompt_text=f"p{number}")
    agent.does("standby")
    return str(agent.does("ping")["session_id"])


def is_fair_reply(reply: dict[str, Any]) -> None:
    assert reply["ok"] in (True, False), reply
    if reply["ok"]:
        assert "data" in reply
        return
    assert reply["error_code"] in ERROR_CODES, reply
    assert reply["error_code"] not in OURS, reply
    assert reply["error"], reply
    assert len(json.dumps(reply)) < 4000, reply
    shows_no_insides(reply)


def send(on: Rig, link: Ctl, line: bytes) -> Ctl:
    """Send a line and judge the reply; the connection to go on with, another where the server had enough of that."""
    try:
        link.wire.say(line.replace(b"\n", b" ") + b"\n")
        if line.strip():
            is_fair_reply(json.loads(link.wire.line()))
        link.wire.line(0.0)
    except Late:
        return link
    except Gone:
        on.done_with(link)
    return on.ctl()


known = st.sampled_from(sorted(COMMANDS))
ids = st.sampled_from(["", "0", "a", "f", "%", "_", "*", "?", "' or 1=1 --", "0" * 200, "../"]) | texts
fields = {
    **dict.fromkeys(FIELDS, texts | garbage),
    "id": ids | garbage,
    "session": ids | garbage,
    "decision": st.sampled_from(["continue", "stop", "refine", "dismiss", "resume", "approve"]) | garbage,
    "mode": st.sampled_from(["remote", "local", "hybrid"]) | texts,
    "limit": numbers,
    "everything": st.booleans() | garbage,
    "verdict_id": st.from_regex(r"[A-Za-z0-9_-]{8,64}", fullmatch=True) | garbage,
}


def test_every_verb_with_any_fields_is_answered_fairly(on: Rig) -> None:
    asks(on)
    link = on.ctl()

    @examples(120)
    @given(known, st.fixed_dictionaries({}, optional=fields), st.dictionaries(texts, garbage, max_size=2))
    def check(verb: str, given: dict[str, Any], more: dict[str, Any]) -> None:
        nonlocal link
        said = {**more, **given, "command": verb, "auth_token": link.token}
        link = send(on, link, json.dumps(said).encode())

    check()
    sound(on)


def test_everything_that_waits_can_be_answered_in_any_words(on: Rig) -> None:
    session, ctl = asks(on), on.ctl()

    @examples(10)
    @given(texts)
    def check(words: str) -> None:
        for waiting in ctl.do("pending", session=session):
            id = waiting["request_id"]
            if waiting["kind"] == "approval":
                is_fair_reply(ctl.ask("reject", id=id, reason=words))
            else:
                is_fair_reply(ctl.ask("answer", id=id, decision="refine", text=words))
        on.first.does("ping")

    check()


lines = (
    st.binary(max_size=300)
    | garbage.map(lambda said: json.dumps(said).encode())
    | st.builds(
        lambda said: json.dumps(said).encode(),
        st.dictionaries(st.sampled_from(["command", "auth_token", *FIELDS]), garbage),
    )
)


def test_any_line_is_answered_fairly(on: Rig) -> None:
    link = on.ctl()

    @examples(100)
    @given(lines)
    def check(line: bytes) -> None:
        nonlocal link
        link = send(on, link, line)

    check()
    sound(on)


def test_no_token_but_the_right_one_gets_an_answer(on: Rig) -> None:
    @examples(25)
    @given(known | st.just("watch"), garbage)
    def check(verb: str, token: Any) -> None:
        link = on.ctl()
        link.wire.say(json.dumps({"command": verb, "auth_token": token}).encode() + b"\n")
        reply = json.loads(link.wire.line())
        assert reply["error_code"] in ("unauthorized", "invalid_arguments")
        on.done_with(link)

    check()


def test_a_line_that_never_ends_is_cut_off(on: Rig) -> None:
    link = on.ctl()
    with contextlib.suppress(Gone):
        for _ in range(64):
            link.wire.say(b"x" * 65536)
    assert json.loads(link.wire.line())["error_code"] == "ipc"
    with pytest.raises(Gone):
        link.wire.line()
    on.first.does("ping")


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 2000, b"9" * 9000, b'{"command":1e999}', b"\x00", b"NaN"])
def test_json_that_breaks_parsers_is_refused(on: Rig, line: bytes) -> None:
    link = on.ctl()
    send(on, link, line)
    on.first.does("ping")
