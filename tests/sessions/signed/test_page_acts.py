"""Every act that must be signed is signed by a passkey on the page, and by nothing that only looks like its assertion.

A row of the table of commands that must be signed has its act here, or the first test fails.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from intercom.model import clock as clocks
from intercom.model import signing
from intercom.model.amendment import Comment, told_of_comments
from intercom.model.decision import Signature
from intercom.model.errors import IntercomError, SignatureRefused
from intercom.model.json_types import JsonObject
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_execution import CommandRequest, carry_out, read_fields
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.router_messages import Channel
from intercom.sessions.tools.transmit import Transmit
from tests.operators.stand_in_gateway import StandInGateway
from tests.sessions.signed.test_passkeys import add_phone, faults
from tests.sessions.test_amendments import DIFF, OLD, proposed
from tests.sessions.test_policy_trust import POLICY, waiting, write
from tests.support.keys import Key
from tests.support.passkeys import Authenticator
from tests.support.virtual_server import AgentClient, VirtualServer

PRESENT, VERIFIED = 0x01, 0x04
#: What some commands need besides an id.
NEEDED = {"mode": "local", "decision": "dismiss", "tool": "search", "text": "x", "comments": "[]"}


@frozen
class Page:
    """What the page sends to this server, and what its passkey signs for it."""

    server: VirtualServer
    agent: AgentClient
    phone: Authenticator
    gateway: StandInGateway
    started: list[str]

    async def send(self, command: str, channel: Channel = Channel.WEB, **fields: Any) -> Any:
        return await carry_out(self.server.app.service, read_fields(command, fields), "kim", None, channel)

    async def request(self, command: str) -> JsonObject:
        """A proposal that is not decided yet, as `show` returns it."""
        id = await proposed(self.agent)
        return {**await self.send("show", id=id), "for": command}

    def said(self, act: str, key_id: str | None = None) -> JsonObject:
        at = clocks.to_text(self.server.now())
        return {"at": at, "decision_id": act, "key_id": key_id or self.phone.public.id, "method": signing.PASSKEY}

    async def entries(self) -> list[tuple[int, str]]:
        """What is on record as done, by whomever. That something was refused is on record too."""
        await self.server.later(0)
        return [(each.id, each.kind) for each in await self.server.app.service.audit(200) if each.kind != "security"]


@frozen
class Act:
    """A request of the page, and what its passkey signs of it, without the signature's value."""

    command: str
    fields: JsonObject
    said: JsonObject

    def signature(self, page: Page) -> Signature:
        return Signature(**{**self.said, **page.said(self.id), "value": ""})  # type: ignore[arg-type]

    @property
    def id(self) -> str:
        return f"act-{self.command}"

    def sent(self, signature: Signature | None, command: str = "", **changes: Any) -> CommandRequest:
        data = {"verdict_id": self.id, **self.fields, **changes}
        return evolve(read_fields(command or self.command, data), signature=signature)


def about_command(command: str, **fields: Any) -> Act:
    said: JsonObject = {"request_id": "", "subject": signing.command_subject(command, fields), "risk": None}
    return Act(command, fields, {**said, "decision": command, "text": None})


def about_card(command: str, says: str, card: JsonObject, told: str | None = None, /, **fields: Any) -> Act:
    said: JsonObject = {"request_id": card["request_id"], "subject": signing.card_subject(card), "text": told}
    return Act(command, {"id": card["request_id"], **fields}, {**said, "risk": card["risk_level"], "decision": says})


# --- the acts --------------------------------------------------------------------------------------------------------

Make = Callable[[Page, Path], Awaitable[Act]]
ACTS: dict[str, Make] = {}


def act(name: str) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        ACTS[name] = make
        return make

    return keep


@act("approve")
async def _approve(page: Page, root: Path) -> Act:
    return about_card("approve", "approve", await page.request("approve"))


@act("approve a part")
async def _approve_part(page: Page, root: Path) -> Act:
    whole = await page.request("approve")
    part = await page.send("amend", id=whole["request_id"], hunks="1,3", shown=whole["proposal_hash"])
    shown = part["card"]["proposal_hash"]
    return about_card("approve", "approve", part["card"], part["text"], hunks="1,3", shown=shown)


@act("approve an edit")
async def _approve_edit(page: Page, root: Path) -> Act:
    whole = await page.request("approve")
    edit = json.dumps({"a.txt": "mine\n"})
    made = await page.send("amend", id=whole["request_id"], edit=edit, shown=whole["proposal_hash"])
    shown = made["card"]["proposal_hash"]
    return about_card("approve", "approve", made["card"], made["text"], edit=edit, shown=shown)


@act("reject")
async def _reject(page: Page, root: Path) -> Act:
    return about_card("reject", "reject", await page.request("reject"), "no", reason="no")


@act("changes")
async def _changes(page: Page, root: Path) -> Act:
    comments = json.dumps([{"path": "a.txt", "line": 2, "text": "why?"}])
    told = told_of_comments((Comment("a.txt", "why?", 2),), "and so")
    return about_card("changes", "reject", await page.request("changes"), told, comments=comments, text="and so")


@act("answer")
async def _answer(page: Page, root: Path) -> Act:
    id = (await page.agent.ask(Transmit("What now?"))).request_id
    return about_card("answer", "refine", await page.send("show", id=id), "so", decision="refine", text="so")


@act("answer a restore")
async def _proceed(page: Page, root: Path) -> Act:
    taken = await page.send("checkpoint", session=page.agent.session_id)
    (root / "a.txt").write_text("changed\n")
    asked = await page.send("restore", id=taken["checkpoint_id"], files="back")
    return about_card("answer", "cancel", await page.send("show", id=asked["restore_id"]), decision="cancel")


async def _policy(page: Page, root: Path) -> JsonObject:
    write(root, POLICY)
    card = await waiting(page.server, root)
    return dict(await page.send("show", id=card.id))


@act("policy-accept")
async def _accept(page: Page, root: Path) -> Act:
    card = await _policy(page, root)
    return about_card("policy-accept", "accept", card, sha256=card["detail"])


@act("policy-reject")
async def _reject_policy(page: Page, root: Path) -> Act:
    return about_card("policy-reject", "reject", await _policy(page, root), "no", reason="no")


@act("mode")
async def _mode(page: Page, root: Path) -> Act:
    return about_command("mode", mode="local", session=page.agent.session_id)


@act("nudge")
async def _nudge(page: Page, root: Path) -> Act:
    id = page.agent.session_id
    return about_command("nudge", id=id, session=id, text="go on")


@act("unpause")
async def _unpause(page: Page, root: Path) -> Act:
    await page.send("pause", session=page.agent.session_id)
    return about_command("unpause", session=page.agent.session_id)


@act("steer")
async def _steer(page: Page, root: Path) -> Act:
    return about_command("steer", session=page.agent.session_id, text="go on")


@act("task")
async def _task(page: Page, root: Path) -> Act:
    return about_command("task", session=page.agent.session_id, text="clean up")


async def _decided(page: Page, act: Act) -> None:
    await carry_out(page.server.app.service, act.sent(page.phone.sign(act.signature(page))), "kim", None, Channel.WEB)


@act("take-back")
async def _take_back(page: Page, root: Path) -> Act:
    approved = await _approve(page, root)
    await _decided(page, approved)
    return about_command("take-back", id=approved.fields["id"])


@act("take-back a task")
async def _take_back_task(page: Page, root: Path) -> Act:
    await _decided(page, await _task(page, root))
    (task,) = (await page.send("tasks"))["words"]
    return about_command("take-back", id=task["request_id"])


@act("start")
async def _start(page: Page, root: Path) -> Act:
    return about_command("start", text="do it", workspace=str(root), label="mine")


@act("grant")
async def _grant(page: Page, root: Path) -> Act:
    shown = await page.send("grant-preview", id=(await page.request("grant"))["request_id"])
    fields = {"id": shown["request_id"], "session": shown["session_id"], "scope": shown["scope"]}
    return about_command("grant", **fields, duration=f"{shown['seconds']}s", uses=str(shown["uses"]))


@act("gateway-call")
async def _call(page: Page, root: Path) -> Act:
    return about_command("gateway-call", id="github", tool="search", text="{}")


@act("gateway-enable")
async def _enable(page: Page, root: Path) -> Act:
    return about_command("gateway-enable", id="github")


SIGNED_ROWS = {name: row for name, row in COMMANDS.items() if row.access in (Access.SIGNED, Access.SIGNED_CARD)}


def test_every_command_that_must_be_signed_has_its_act_here() -> None:
    # What resume does is signed as two acts.
    assert {name.split()[0] for name in ACTS} == set(SIGNED_ROWS) - {"resume"}
    for row in SIGNED_ROWS.values():
        if row.access is Access.SIGNED:
            left = {each.wire for each in row.arguments if each.wire} - {*signing.EFFECT_FIELDS}
            assert not left, f"the signature of {row.name} does not cover {left}"


# --- what is not its assertion ---------------------------------------------------------------------------------------

Forge = Callable[[Page, Act], CommandRequest]


def _signed(**how: Any) -> Forge:
    return lambda page, act: act.sent(page.phone.sign(act.signature(page), **how))


def _saying(**changes: Any) -> Forge:
    """The assertion is for what it says, and this is something else."""
    return lambda page, act: act.sent(page.phone.sign(evolve(act.signature(page), **changes)))


def _altered(**changes: Any) -> Forge:
    """What the signature says was changed after it was signed."""
    return lambda page, act: act.sent(evolve(page.phone.sign(act.signature(page)), **changes))


def _of_another_passkey(page: Page, act: Act) -> CommandRequest:
    other = Authenticator()
    return act.sent(other.sign(evolve(act.signature(page), key_id=other.public.id)))


def _by_another_passkey(page: Page, act: Act) -> CommandRequest:
    """The stolen session of a person, and an authenticator of somebody else."""
    return act.sent(Authenticator(credential=page.phone.credential).sign(act.signature(page)))


def _old(page: Page, act: Act) -> CommandRequest:
    at = clocks.to_text(page.server.now() - timedelta(minutes=11))
    return act.sent(page.phone.sign(evolve(act.signature(page), at=at)))


def _another_id(page: Page, act: Act) -> CommandRequest:
    """The same assertion for one more act."""
    return act.sent(page.phone.sign(act.signature(page)), verdict_id="act-again")


FORGERIES: dict[str, Forge] = {
    "no signature": lambda page, act: act.sent(None),
    "person not verified": _signed(flags=PRESENT),
    "person not present": _signed(flags=VERIFIED),
    "of another page": _signed(origin="http://localhost:9999"),
    "of another site": _signed(party="example.org", origin="http://example.org"),
    "in a frame": _signed(crossOrigin=True),
    "of making a passkey": _signed(type="webauthn.create"),
    "another challenge": _signed(challenge="AAAA"),
    "another subject": _saying(subject="00" * 32),
    "another request": _saying(request_id="r-other"),
    "another decision": _saying(decision="dismiss"),
    "another text": _saying(text="and delete the rest"),
    "another risk": _saying(risk="none"),
    "the id of another act": _saying(decision_id="act-other"),
    "of the terminal": _saying(method=signing.PIN),
    "time changed": _altered(at="2026-01-01T00:00:01.000000+00:00"),
    "id changed": lambda page, act: act.sent(
        evolve(page.phone.sign(act.signature(page)), decision_id="act-again"), verdict_id="act-again"
    ),
    "used for one more act": _another_id,
    "of a passkey that nobody enrolled": _of_another_passkey,
    "of another authenticator": _by_another_passkey,
    "of eleven minutes ago": _old,
}


@pytest.fixture
async def page(server: VirtualServer, agent: AgentClient, key: Key, root: Path) -> Page:
    (root / "a.txt").write_text(OLD)
    service, gateway, started = server.app.service, StandInGateway(), list[str]()

    class Spawner:
        async def start(self, prompt: str, **more: Any) -> Any:
            started.append(prompt)
            return (await service.sessions())[0]

    service.gateway = gateway
    service.agent_processes = Spawner()  # type: ignore[assignment]
    return Page(server, agent, await add_phone(server, key), gateway, started)


@pytest.mark.parametrize("name", ACTS)
async def test_an_act_of_the_page_is_signed_by_its_assertion_alone_and_once(page: Page, root: Path, name: str) -> None:
    act = await ACTS[name](page, root)
    service, before = page.server.app.service, (await page.entries(), [*page.gateway.acts], [*page.started])

    async def is_refused(request: CommandRequest, how: str, channel: Channel = Channel.WEB) -> None:
        with pytest.raises(IntercomError) as refused:
            await carry_out(service, request, "kim", None, channel)
        assert isinstance(refused.value, SignatureRefused), (how, refused.value)
        assert (await page.entries(), page.gateway.acts, page.started) == before, how

    signed = page.phone.sign(act.signature(page))
    for how, forge in FORGERIES.items():
        await is_refused(forge(page, act), how)
    await is_refused(act.sent(signed), "on the socket of ctl", Channel.CTL)
    for other, row in SIGNED_ROWS.items():
        # What was signed for one act of a request, sent as each other one: an approval's for a rejection.
        # A rejection is one by any word.
        if other in (act.command, "resume") or row.decision == act.said["decision"] == "reject":
            continue
        request = act.sent(signed, other, **{**NEEDED, **act.fields})
        with pytest.raises(IntercomError):
            await carry_out(service, request, "kim", None, Channel.WEB)
        assert (await page.entries(), page.gateway.acts, page.started) == before, row.name
    # Each field that says what is done is covered, by the signature itself or by what was shown.
    for field in set(act.fields) - {"shown", "sha256"}:
        with pytest.raises(IntercomError):
            await carry_out(service, act.sent(signed, **{field: "other"}), "kim", None, Channel.WEB)
        assert (await page.entries(), page.gateway.acts, page.started) == before, field

    done = await carry_out(service, act.sent(signed), "kim", None, Channel.WEB)
    after = await page.entries(), [*page.gateway.acts], [*page.started]
    assert after != before
    # Sent again it is the same act, of which nothing happens.
    assert await carry_out(service, act.sent(signed), "kim", None, Channel.WEB) == done
    await is_not_repeated(page, act.sent(signed, verdict_id="act-again"))
    assert (await page.entries(), page.gateway.acts, page.started) == after
    assert faults(page.server) == []
    if name not in UNRECORDED:
        assert_verify_finds(page, *PLACES.get(name, IN_LOG))


#: Acts that are done at once: neither the log nor another record has their signature here.
UNRECORDED = {"mode", "unpause", "start", "gateway-call", "gateway-enable", "take-back a task"}
#: Where the signature of the newest act is: the row's table, the column, and the place in its JSON.
IN_LOG = ("audit", "data", "$.signature")
PLACES = {
    **dict.fromkeys(("nudge", "steer", "task"), ("instruction", "signature", "$.signature")),
    **dict.fromkeys(("approve", "approve a part", "approve an edit"), ("approval_request", "signature", "$")),
}


def assert_verify_finds(page: Page, table: str, column: str, place: str) -> None:
    """Whatever a process makes of the signature in the database, `audit verify` finds a fault of it."""
    newest = f"(select max(rowid) from {table} where json_type({column}, '{place}') = 'object')"
    with contextlib.closing(sqlite3.connect(page.server.app.database, isolation_level=None)) as db:
        for part in ("value", "decision", "method", "key_id", "subject"):
            for changed in (
                f"json_set({column}, '{place}.{part}', 'AAAA')",
                f"json_remove({column}, '{place}.{part}')",
            ):
                (kept,) = db.execute(f"select {column} from {table} where rowid = {newest}").fetchone()
                assert db.execute(f"update {table} set {column} = {changed} where rowid = {newest}").rowcount == 1
                assert faults(page.server) != [], changed
                db.execute(f"update {table} set {column} = ? where rowid = {newest}", (kept,))
    assert faults(page.server) == []


async def is_not_repeated(page: Page, request: CommandRequest) -> None:
    with pytest.raises(IntercomError):
        await carry_out(page.server.app.service, request, "kim", None, Channel.WEB)


async def test_a_card_that_was_swapped_after_it_was_shown_is_not_decided(page: Page, root: Path) -> None:
    shown = await page.request("approve")
    act = about_card("approve", "approve", shown)
    for changed in ({"diff": DIFF.replace("LINE", "EVIL")}, {"title": "Another"}, {"risk_level": "critical"}):
        swapped = about_card("approve", "approve", {**shown, **changed})
        with pytest.raises(SignatureRefused, match="what was signed is not what the request says now"):
            await _decided(page, swapped)
    await _decided(page, act)


async def test_resume_is_signed_on_the_page_as_the_acts_that_it_consists_of(page: Page) -> None:
    act = about_command("resume", session=page.agent.session_id)
    with pytest.raises(IntercomError, match="each thing is signed by itself"):
        await _decided(page, act)
