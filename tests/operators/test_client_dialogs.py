"""Dialogs of the agent's own client: what they show, whose answer counts, and what an agent gets by its own answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.tool_call import ToolCall
from intercom.masking import Masker
from intercom.model.card import CHOICES, Card, CardKind, CardState
from intercom.model.config import Config
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, InvalidArguments
from intercom.model.json_types import JsonObject
from intercom.model.request import PromptType, RiskLevel
from intercom.model.session import SessionMode
from intercom.operators.client_dialogs import (
    BY,
    FASTEST_SECONDS,
    LONGEST,
    LOOK_SECONDS,
    Answer,
    ClientDialogs,
    form_of,
    is_shown,
    read_answer,
)
from intercom.sessions import lookups
from intercom.sessions.messages import Answered, ToolRequest
from intercom.sessions.request_kinds import CLIENT_ANSWERED, FROM_CLIENT, PERSON_ANSWERED, to_json
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.tool_table import BY_NAME
from intercom.sessions.tools.transmit import Transmit
from intercom.store.store_and_reader import StoreUnavailable
from tests.operators.stand_in_service import card
from tests.sessions.signed.keyed_server import arm
from tests.support.keys import Key
from tests.support.virtual_server import SILENT_CHAT, AgentClient, Pending, VirtualServer

CONTINUATION, CLARIFICATION = PromptType.CONTINUATION, PromptType.CLARIFICATION
#: Longer than a person needs at least.
A_WHILE = FASTEST_SECONDS * 2


def question(**more: Any) -> Card:
    return card("q-1", CardKind.PROMPT, **{"body": "Go on?", "prompt_type": CONTINUATION, **more})


# --- what is shown, and what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (question(), True),
        (question(prompt_type=CLARIFICATION), True),
        (question(prompt_type=PromptType.ERROR_RECOVERY), False),
        (question(prompt_type=PromptType.RESOURCE_WARNING), False),
        (question(body="x" * LONGEST), True),
        (question(body="x" * (LONGEST + 1)), False),
        (question(state=CardState.ANSWERED), False),
        (card("w-1", CardKind.STANDBY, body="idle"), True),
        *((card("a-1", risk=risk), False) for risk in RiskLevel),
        *((card("o-1", kind), False) for kind in CardKind if kind not in (CardKind.PROMPT, CardKind.STANDBY)),
    ],
)
def test_only_what_lets_nothing_pass_is_shown(shown: Card, expected: bool) -> None:
    assert is_shown(shown) is expected


def test_a_form_quotes_the_agent_and_masks_and_offers_what_the_card_offers() -> None:
    asked = question(
        title="Shall I go on?",
        body="Use AKIAIOSFODNN7EXAMPLE?\u202e\nNot taken: everything.\n\nThe first answer counts",
        detail="running for 3 min",
    )
    form = form_of(asked, lambda text: Masker().mask(text).text, "refine needs an instruction")
    assert str(form["message"]).split("\n") == [
        "Not taken: refine needs an instruction.",
        "",
        "Shall I go on?",
        "The agent in /home/me/project (running for 3 min) says:",
        "> Use [masked: AWS access key]?<U+202E>",
        "> Not taken: everything.",
        "> ",
        "> The first answer counts",
        "",
        "The first answer counts, here or in another channel of Intercom (request q-1).",
    ]
    schema: Any = form["requestedSchema"]
    assert schema["properties"]["decision"]["enum"] == ["continue", "refine", "stop"]
    # MCP allows a flat object of plain values only.
    assert {each["type"] for each in schema["properties"].values()} == {"string"}
    assert schema["required"] == ["decision"]
    idle: Any = form_of(card("w-1", CardKind.STANDBY, body="idle"), str)
    assert idle["requestedSchema"]["properties"]["decision"]["enum"] == ["resume", "stop"]


def accepted(**content: Any) -> JsonObject:
    return {"action": "accept", "content": content}


PROMPT, STANDBY = CardKind.PROMPT, CardKind.STANDBY


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (PROMPT, accepted(decision="continue"), Answer(Decision.CONTINUE, None)),
        (PROMPT, accepted(decision="continue", text="  "), Answer(Decision.CONTINUE, None)),
        (PROMPT, accepted(decision="refine", text=" use tabs "), Answer(Decision.REFINE, "use tabs")),
        (STANDBY, accepted(decision="resume", text="the tests", more=1), Answer(Decision.RESUME, "the tests")),
        (STANDBY, accepted(decision="stop", text=None), Answer(Decision.STOP, None)),
        (PROMPT, {"action": "decline", "content": {"decision": "continue"}}, None),
        (PROMPT, {"action": "cancel"}, None),
        (PROMPT, {}, None),
        (PROMPT, {"action": ["accept"], "content": {"decision": "stop"}}, None),
        (PROMPT, accepted(), "choose one of continue, refine, stop"),
        (PROMPT, {"action": "accept"}, "choose one of"),
        (PROMPT, {"action": "accept", "content": ["continue"]}, "choose one of"),
        (PROMPT, accepted(decision=["continue"]), "choose one of"),
        (PROMPT, accepted(decision="approve"), "choose one of"),
        (STANDBY, accepted(decision="continue"), "choose one of resume, stop"),
        (PROMPT, accepted(decision="refine"), "refine needs an instruction"),
        (PROMPT, accepted(decision="continue", text=7), "must be a string"),
        (PROMPT, accepted(decision="continue", text="\ud800"), "not valid Unicode"),
        (PROMPT, accepted(decision="continue", text="x" * 20_001), "at most 20000 characters"),
    ],
)
def test_an_answer_is_what_the_form_offers_or_nothing(kind: CardKind, said: JsonObject, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(InvalidArguments, match=expected):
            read_answer(kind, said)
    else:
        assert read_answer(kind, said) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([PROMPT, STANDBY]), JSON, JSON, JSON)
def test_no_answer_is_more_than_its_card_offers(kind: CardKind, decision: Any, text: Any, content: Any) -> None:
    for inner in ({"decision": decision, "text": text}, content):
        try:
            found = read_answer(kind, {"action": "accept", "content": inner})
        except InvalidArguments:
            continue
        assert found is not None
        assert found.decision in CHOICES[kind]


# --- whose answer counts ---------------------------------------------------------------------------------------------


@define(eq=False)
class User:
    """Sits at the agent's client: what is shown there, and what is answered. `is_gone` says that nothing answers."""

    forms: list[str] = field(factory=list)
    cancelled: int = 0
    is_gone: bool = False
    _answers: Any = field(factory=lambda: trio.open_memory_channel[Any](9))

    async def ask(self, form: JsonObject) -> JsonObject | None:
        if self.is_gone:
            return None
        self.forms.append(str(form["message"]))
        try:
            answer: JsonObject = await self._answers[1].receive()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return answer

    def answer(self, **content: Any) -> None:
        self._answers[0].send_nowait(accepted(**content))

    def close(self, action: str) -> None:
        self._answers[0].send_nowait({"action": action})


async def unheard(_elapsed: float, _message: str) -> None:
    """Take a report of progress, which goes on beside the dialog."""


@define(eq=False)
class Desk:
    """An agent whose client has dialogs, with its user before it."""

    server: VirtualServer
    agent: AgentClient
    dialogs: ClientDialogs
    user: User = field(factory=User)

    def call(self, tool: str, asked: ToolRequest[Any], seconds: float | None = None) -> Pending[Answered[Any]]:
        agent, session = self.agent, self.server.app.system.named(f"session/{self.agent.session_id}")
        call = ToolCall(agent.call(), BY_NAME[tool], agent.session_id, session, seconds, unheard, given=asked)
        call.dialog = lambda request_id: self.dialogs.attend(agent.session_id, request_id, self.user.ask)
        return self.server.begin(call.run)

    async def begin(self, tool: str, asked: ToolRequest[Any], seconds: float | None = None) -> Pending[Answered[Any]]:
        """Make a call; it waits, and its dialog is shown if there is to be one, when this returns."""
        calling = self.call(tool, asked, seconds)
        await self.server.later(A_WHILE)
        return calling

    async def only_card(self) -> Card:
        (found,) = await self.server.app.service.pending()
        return found

    async def log(self) -> list[tuple[str, str]]:
        return [(each.kind, each.who) for each in await self.server.app.service.audit(50)]


def told(answered: Answered[Any]) -> Any:
    return to_json(answered.answer)


@pytest.fixture
def desk(server: VirtualServer, agent: AgentClient) -> Desk:
    app = server.app
    mode_of = partial(lookups.mode_of, app.reader)
    return Desk(server, agent, ClientDialogs(app.service, mode_of, app.session_deps.card_router.tell, server.now))


async def test_an_answer_of_the_client_counts_and_every_channel_says_where_it_came_from(desk: Desk) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))
    asked = await desk.only_card()
    desk.user.answer(decision="refine", text="use tabs")
    assert told(await asking()) == {
        "decision": "refine",
        "instruction": "use tabs",
        "message": CLIENT_ANSWERED["refine"],
    }
    shown = await desk.server.operator.card(id=asked.id, state=CardState.ANSWERED)
    assert shown.decided is not None
    assert (shown.decided.by, shown.decided.channel) == (BY, "elicitation")
    assert shown.decided.origin is not None
    assert shown.decided.origin.channel == "elicitation"
    assert ("decided", BY) in await desk.log()
    with pytest.raises(AlreadyDecided, match="by the agent's client"):
        await desk.server.decide(asked.id, Decision.STOP)


async def test_a_standby_is_ended_from_the_client(desk: Desk) -> None:
    standing = await desk.begin("standby", Standby("idle"))
    desk.user.answer(decision="resume", text="the tests")
    assert told(await standing()) == {"status": "resumed", "instruction": "the tests", "message": FROM_CLIENT}


async def test_the_dialog_is_cancelled_when_another_channel_answers_first(desk: Desk) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))
    await desk.server.decide((await desk.only_card()).id, Decision.STOP)
    assert told(await asking()) == {"decision": "stop", "message": PERSON_ANSWERED["stop"]}
    assert (len(desk.user.forms), desk.user.cancelled) == (1, 1)


@pytest.mark.parametrize("client_first", [True, False])
async def test_two_answers_at_one_moment_are_one_decision(desk: Desk, client_first: bool) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))
    id = (await desk.only_card()).id
    if client_first:
        desk.user.answer(decision="continue")
        await trio.lowlevel.checkpoint()
    deciding = desk.server.begin(lambda: desk.server.decide(id, Decision.STOP))
    if not client_first:
        desk.user.answer(decision="continue")
    answer = told(await asking())
    decided = (await desk.server.app.service.card(id)).decided
    assert decided is not None
    assert answer["decision"] == decided.decision
    assert (decided.channel == "elicitation") is (decided.decision == "continue")
    assert [kind for kind, _ in await desk.log()].count("decided") == 1
    if decided.decision == "continue":
        with pytest.raises(AlreadyDecided):
            await deciding()
    else:
        await deciding()


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_what_the_user_does_not_answer_waits_elsewhere_and_is_not_shown_again(desk: Desk, action: str) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"), A_WHILE * 3)
    desk.user.close(action)
    await desk.server.later(A_WHILE)
    asked = await desk.only_card()
    await desk.server.later(A_WHILE * 2)
    assert told(await asking())["status"] == "pending"
    again = await desk.begin("transmit", Transmit(request_id=asked.id))
    await desk.server.decide(asked.id, Decision.CONTINUE)
    assert told(await again()) == {"decision": "continue", "message": PERSON_ANSWERED["continue"]}
    assert len(desk.user.forms) == 1


async def test_a_dialog_ends_with_its_call_and_comes_again_with_the_next(desk: Desk) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"), A_WHILE * 2)
    await desk.server.later(A_WHILE * 2)
    assert told(await asking())["status"] == "pending"
    assert desk.user.cancelled == 1
    asked = await desk.only_card()
    again = await desk.begin("transmit", Transmit(request_id=asked.id))
    desk.user.answer(decision="stop")
    assert told(await again())["decision"] == "stop"


async def test_a_client_without_an_answer_is_asked_again_over_its_next_connection(desk: Desk) -> None:
    desk.user.is_gone = True
    asking = await desk.begin("transmit", Transmit("Go on?"))
    asking.scope.cancel()
    await desk.server.later(0)
    desk.user.is_gone = False
    again = await desk.begin("transmit", Transmit(request_id=(await desk.only_card()).id))
    desk.user.answer(decision="continue")
    assert told(await again())["decision"] == "continue"


async def test_an_answer_that_cannot_be_taken_is_asked_for_again_a_few_times(desk: Desk) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))
    desk.user.answer(decision="refine")
    await desk.server.later(A_WHILE)
    assert desk.user.forms[1].startswith("Not taken: refine needs an instruction.\n")
    desk.user.answer(decision="approve")
    await desk.server.later(A_WHILE)
    desk.user.answer(decision=7)
    await desk.server.later(A_WHILE)
    assert len(desk.user.forms) == 3
    await desk.server.decide((await desk.only_card()).id, Decision.CONTINUE)
    assert told(await asking())["decision"] == "continue"


@pytest.mark.server(chat=SILENT_CHAT)
async def test_nobody_is_asked_where_nobody_sits_until_the_mode_says_so(desk: Desk) -> None:
    service, id = desk.server.app.service, desk.agent.session_id
    await service.switch_mode(id, SessionMode.REMOTE, "kim", "ctl")
    asking = await desk.begin("transmit", Transmit("Go on?"))
    assert desk.user.forms == []
    await service.switch_mode(id, SessionMode.HYBRID, "kim", "ctl")
    await desk.server.later(LOOK_SECONDS)
    await desk.server.later(A_WHILE)
    desk.user.answer(decision="continue")
    assert told(await asking())["decision"] == "continue"


# --- what an agent gets by answering itself --------------------------------------------------------------------------


async def test_an_answer_that_is_too_fast_for_a_person_does_not_count_and_people_are_told(desk: Desk) -> None:
    desk.user.answer(decision="continue")
    asking = await desk.begin("transmit", Transmit("Go on?"))
    asked = await desk.only_card()
    told_of = await desk.server.operator.notice("did not count")
    assert f"request {asked.id[:8]}" in told_of.text
    assert ("security", "intercom") in await desk.log()
    # Its other requests are not shown there any more.
    desk.user.answer(decision="continue")
    other = await desk.begin("standby", Standby("idle"))
    assert len(desk.user.forms) == 1
    for each in await desk.server.app.service.pending():
        await desk.server.decide(each.id, Decision.STOP)
    assert (told(await asking())["decision"], told(await other())["instruction"]) == ("stop", "stop")


async def test_a_client_that_answers_many_dialogs_by_itself_is_told_of_once(desk: Desk) -> None:
    asking = [desk.call("transmit", Transmit(f"Shall I do {number}?")) for number in range(5)]
    # All are open before the first is answered, and the last answer comes later.
    await desk.server.later(FASTEST_SECONDS / 2)
    for _ in asking[1:]:
        desk.user.answer(decision="continue")
    await desk.server.later(A_WHILE)
    desk.user.answer(decision="continue")
    await desk.server.later(A_WHILE)
    assert len(desk.user.forms) == 5
    assert [kind for kind, _ in await desk.log()].count("security") == 1
    assert len(await desk.server.app.service.pending()) == 5
    for each in asking:
        each.scope.cancel()


async def test_what_a_person_takes_back_is_not_asked_there_again(desk: Desk) -> None:
    """Otherwise the agent could give the same answer again."""
    steering = desk.server.app.service.steering
    asking = await desk.begin("transmit", Transmit("Go on?"))
    asked = await desk.only_card()
    await steering.pause(desk.agent.session_id, "kim", "ctl")
    desk.user.answer(decision="continue")
    await desk.server.later(A_WHILE)
    await steering.take_back(asked.id, "lee", "ctl")
    asking.scope.cancel()
    await steering.unpause(desk.agent.session_id, "kim", "ctl")
    again = await desk.begin("transmit", Transmit(request_id=asked.id))
    assert len(desk.user.forms) == 1
    await desk.server.decide(asked.id, Decision.STOP)
    assert told(await again())["decision"] == "stop"


async def test_an_answer_that_the_store_cannot_take_is_asked_for_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))

    async def refuse(*_asked: Any) -> None:
        raise StoreUnavailable("the database is locked")

    with monkeypatch.context() as faulty:
        faulty.setattr(type(desk.server.app.service), "decide", refuse)
        desk.user.answer(decision="continue")
        await desk.server.later(A_WHILE)
    assert desk.user.forms[1].startswith("Not taken: the server could not record it just now.\n")
    desk.user.answer(decision="stop")
    assert told(await asking())["decision"] == "stop"


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        *(("check_clearance", CheckClearance("change", "a\n", "a.txt", risk_level=risk)) for risk in RiskLevel),
        ("transmit", Transmit("Go on?", PromptType.ERROR_RECOVERY)),
        ("transmit", Transmit("Go on?", PromptType.RESOURCE_WARNING)),
    ],
)
async def test_a_client_is_not_asked_whether_its_agent_may(desk: Desk, tool: str, asked: ToolRequest[Any]) -> None:
    calling = await desk.begin(tool, asked)
    assert desk.user.forms == []
    assert (await desk.only_card()).state is CardState.PENDING
    calling.scope.cancel()


async def test_a_request_of_another_session_is_not_shown(desk: Desk, root: Path) -> None:
    asking = await desk.begin("transmit", Transmit("Go on?"))
    asked = await desk.only_card()
    other, user = await desk.server.arrive(root, "other"), User()
    await desk.dialogs.attend(other.session_id, asked.id, user.ask)
    assert user.forms == []
    asking.scope.cancel()


async def test_with_a_key_nobody_is_asked_and_an_open_dialog_decides_nothing(desk: Desk) -> None:
    open_before = await desk.begin("transmit", Transmit("Go on?"))
    asked = await desk.only_card()
    key = Key()
    await arm(desk.server, key)
    desk.user.answer(decision="continue")
    await desk.server.later(A_WHILE)
    assert (await desk.server.app.service.card(asked.id)).decided is None
    await desk.server.operator.notice("refused to continue")
    after = await desk.begin("standby", Standby("idle"))
    assert len(desk.user.forms) == 1
    for each in (open_before, after):
        each.scope.cancel()


def test_it_is_off_unless_a_person_switches_it_on() -> None:
    assert not Config().elicitation.enabled
