"""Elicitation: a question of an agent is also shown in a dialog of the agent's own client.

MCP lets a server ask a client's user (`elicitation/create`). The answer comes over the agent's connection, from the
agent's process, which can write it without asking anybody. So this is off by default, and a dialog shows only requests
whose answer lets nothing pass. Why: docs/explanation/decisions/elicitation.md.

A dialog belongs to a call that waits. It is one more channel, so the first answer counts: the session decides that, as
between all channels. When the call ends, for whichever reason, its dialog is cancelled, and decides nothing any more.
The request is not affected, and waits on in all other channels.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import trio
from attrs import define, field, frozen

from intercom.masking import Masker
from intercom.model import limits
from intercom.model.card import CHOICES, Card, CardKind, CardState, Notice
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.process import Origin
from intercom.model.request import PromptType
from intercom.model.visible_text import one_line
from intercom.operators.card_router import NOTIFIED, ModeOf
from intercom.operators.commands.command_execution import text_field
from intercom.operators.router_messages import Channel
from intercom.sessions.lookups import UNANSWERED
from intercom.sessions.operator_service import OperatorService
from intercom.store.store_and_reader import STORE_FAULTS

log = logging.getLogger("intercom.agents")

_CHANNEL: Final = Channel.ELICITATION.value
#: Who answered, as cards and the audit log have it: which person it was, if any, is not known.
BY: Final = "the agent's client"
#: A person needs longer than this to read a question and to answer it, in seconds. A client that is faster answers by
#: itself, as some do that are configured to. This finds such a configuration; a process that means to deceive waits.
FASTEST_SECONDS: Final = 0.5
#: How long it takes at most until a change of the mode is noticed, in seconds.
LOOK_SECONDS: Final = 10.0
#: How long an answer is passed on after its call has ended, in seconds.
_DECIDE_SECONDS: Final = 5.0
#: How often an answer that cannot be taken is asked for again.
_TRIES: Final = 3
#: What the user is told of an answer that may be lost. If it is not, the dialog ends with its call.
_UNRECORDED: Final = "the server could not record it just now"
#: Longer texts are read in another channel, because nobody should decide on half of one. In characters.
LONGEST: Final = 4000
#: Questions of the other types (errors, resources) wait for a person by default, however long that takes: an agent must
#: not go on after an error or past a limit by its own word.
_TYPES: Final = frozenset({PromptType.CONTINUATION, PromptType.CLARIFICATION})
#: Of how many requests it is remembered that their dialog is over, and of how many sessions that their clients answer
#: by themselves.
_REMEMBERED: Final = 10_000

#: Shows the client's user a form. Returns the answer, None if there is none.
AskUser = Callable[[JsonObject], Awaitable["JsonObject | None"]]


def is_shown(card: Card) -> bool:
    """Whether a dialog shows this request: an ordinary question or a standby that waits, and is not too long. Whatever
    lets something pass (approvals, permissions, policies, ...) is never shown."""
    if card.state is not CardState.PENDING or len(card.body or "") > LONGEST:
        return False
    return card.kind is CardKind.STANDBY or (card.kind is CardKind.PROMPT and card.prompt_type in _TYPES)


def form_of(card: Card, mask: Callable[[str], str], fault: str | None = None) -> JsonObject:
    """Return the parameters of `elicitation/create` for a request: what its dialog says, and its two fields. Secrets
    are masked. The agent's words are quoted, so that none of their lines looks like ours. `fault` says why the last
    answer could not be taken."""
    said = mask(card.body or "").strip()
    effort = f" ({card.detail})" if card.detail else ""
    lines = [
        *(() if fault is None else (f"Not taken: {fault}.", "")),
        card.title,
        f"The agent in {one_line(mask(card.workspace_root))}{effort} says:",
        *(f"> {line}" for line in said.split("\n")),
        "",
        f"The first answer counts, here or in another channel of Intercom (request {card.id[:8]}).",
    ]
    choices: list[Json] = [choice.value for choice in CHOICES[card.kind]]
    needed = "; refine needs it" if Decision.REFINE in CHOICES[card.kind] else ""
    return {
        "message": "\n".join(lines),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {"type": "string", "title": "Decision", "enum": choices},
                "text": {
                    "type": "string",
                    "title": "Instruction",
                    "description": f"What the agent is to do{needed}.",
                    "maxLength": limits.TEXT,
                },
            },
            "required": ["decision"],
        },
    }


@frozen
class Answer:
    """What a dialog was answered: the decision, and the text of the second field, if there is one."""

    decision: Decision
    text: str | None


def read_answer(kind: CardKind, said: JsonObject) -> Answer | None:
    """Return what a dialog about a request of this kind was answered; None if its user declined or closed it. Raises
    InvalidArguments for an answer that the dialog does not offer."""
    if said.get("action") != "accept":
        return None
    content = part(said, "content")
    decision = next((each for each in CHOICES[kind] if each.value == content.get("decision")), None)
    if decision is None:
        raise InvalidArguments(f"choose one of {_listed(CHOICES[kind])}")
    text = (text_field("the instruction", content.get("text")) or "").strip() or None
    if (too_long := limits.over("the instruction", text, limits.TEXT)) is not None:
        raise InvalidArguments(too_long)
    if decision is Decision.REFINE and text is None:
        raise InvalidArguments("refine needs an instruction")
    return Answer(decision, text)


def _listed(choices: Sequence[Decision]) -> str:
    return ", ".join(choice.value for choice in choices)


@define(eq=False)
class ClientDialogs:
    """Shows requests in dialogs of agents' clients, and passes their answers on.

    `mode_of` reads the mode of a session, None for an unknown one. `tell` announces a notice on every channel. What
    this remembers is gone with the server: then a user may be asked once more.
    """

    service: OperatorService
    mode_of: ModeOf
    tell: Callable[[Notice], object]
    now: Callable[[], datetime]
    masker: Masker = field(factory=Masker)
    _over: dict[str, None] = field(factory=dict, init=False)
    _automatic: dict[str, None] = field(factory=dict, init=False)

    async def attend(self, session_id: str, request_id: str, ask_user: AskUser) -> None:
        """Have a client's user asked about a request of this session while a call waits for it, and pass the answer on.
        Cancel this when the call ends. Raises nothing else: whatever fails here, the request waits on elsewhere."""
        try:
            await self._attend(session_id, request_id, ask_user)
        except (IntercomError, *UNANSWERED, *STORE_FAULTS) as refused:
            log.info("the dialog about request %s decided nothing: %s", request_id, refused)
        except Exception:
            # The call must not fail because of it.
            log.exception("the dialog about request %s failed", request_id)

    async def _attend(self, session_id: str, request_id: str, ask_user: AskUser) -> None:
        card = await self.service.card(request_id)
        if card.session_id != session_id or not is_shown(card) or card.id in self._over:
            return
        while not await self._is_there(session_id):  # noqa: ASYNC110 - the mode is a row, which nothing announces here
            # A call may wait for hours, and its person come back meanwhile.
            await trio.sleep(LOOK_SECONDS)
        fault = None
        for _ in range(_TRIES):
            if self.service.signatures.required or session_id in self._automatic:
                return
            began = trio.current_time()
            said = await ask_user(form_of(card, self._mask, fault))
            seconds = trio.current_time() - began
            if said is None:
                # Its connection may have broken: the call comes again over the next one.
                return
            try:
                answer = read_answer(card.kind, said)
            except InvalidArguments as wrong:
                fault = wrong.message
                continue
            if answer is None:
                break
            fault = _UNRECORDED
            # The call may end now, but its client has answered in time.
            with trio.move_on_after(_DECIDE_SECONDS, shield=True):
                fault = await self._take(card, answer, seconds)
            if fault is None:
                return
        if fault is not _UNRECORDED:
            _remember(self._over, card.id)

    async def _take(self, card: Card, answer: Answer, seconds: float) -> str | None:
        """Pass an answer on that came after so many seconds, or refuse it. Returns why the user has to answer again,
        None if not. Raises IntercomError if the request takes no answer any more."""
        if card.session_id in self._automatic:
            # Found while this dialog was open.
            return None
        if seconds < FASTEST_SECONDS:
            await self._refuse(card, seconds)
            return None
        id, at = str(uuid.uuid4()), self.now()
        verdict = Verdict(id, answer.decision, BY, _CHANNEL, at, answer.text, Origin(_CHANNEL))
        try:
            await self.service.decide(card.id, verdict)
        except (*UNANSWERED, *STORE_FAULTS):
            return _UNRECORDED
        # A person who takes this back wants another answer than the client's.
        _remember(self._over, card.id)
        return None

    async def _is_there(self, session_id: str) -> bool:
        """Whether the mode of a session says that its own person sits at the agent's client."""
        mode = await self.mode_of(session_id)
        return mode is not None and Channel.ELICITATION in NOTIFIED[mode]

    def _mask(self, text: str) -> str:
        return self.masker.mask(text).text

    async def _refuse(self, card: Card, seconds: float) -> None:
        """Record and announce that a client answers by itself. Its session's requests are shown there no more."""
        _remember(self._automatic, card.session_id)
        summary = (
            f"an answer of the agent's client to request {card.id[:8]} did not count: it came after"
            f" {seconds * 1000:.0f} ms, which is too fast for a person; the client of session {card.session_id[:8]} is"
            " not asked again until the server restarts"
        )
        log.warning(summary)
        self.tell(Notice(summary, "warning", self.now()))
        data = {"request_id": card.id, "session": card.session_id, "channel": _CHANNEL}
        await self.service.security_event(summary, data)


def _remember(known: dict[str, None], id: str) -> None:
    known[id] = None
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
