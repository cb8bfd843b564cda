"""One call of a command: who typed it where, which session it means, and that it is carried out once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import trio
from attrs import evolve, frozen

from actors import Name
from intercom.model.card import Card, CardKind
from intercom.model.config import Config
from intercom.model.errors import Ambiguous, InvalidState, NotFound, SlackError, Unauthorized
from intercom.model.process import Origin
from intercom.model.session import Session, SessionStatus
from intercom.operators.commands.caller_and_handler import Caller
from intercom.operators.commands.command_handlers import SHORTEST_ID
from intercom.operators.router_messages import Channel
from intercom.operators.slack.commands.slash_command_table import SLASH, Arguments, Entry, Table
from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn, Mask
from intercom.operators.slack.envelope_parser import Command
from intercom.operators.slack.slack_messages import Wake
from intercom.operators.slack.web_api import Api, Json
from intercom.sessions.chat_messages import channel_of
from intercom.sessions.operator_service import OperatorService
from intercom.store import idempotency, outbox
from intercom.store.idempotency import Begun
from intercom.store.outbox import Content, RowKind, Urgency
from intercom.store.store_and_reader import Store
from intercom.store.writer_messages import Database
from intercom.workspace.files import check_workspace

ChannelOf = Callable[[Session], str | None]

_RUNNING = frozenset({SessionStatus.CREATED, SessionStatus.ACTIVE, SessionStatus.PAUSED})

# --- which session ---------------------------------------------------------------------------------------------------


def named(sessions: Sequence[Session], prefix: str) -> Session:
    """Return the session with this id, or the only one with this id prefix. Raises NotFound and Ambiguous."""
    found = [each for each in sessions if each.id == prefix] or [
        each for each in sessions if each.id.startswith(prefix)
    ]
    if not prefix or not found:
        raise NotFound(f"no session has an id that begins with {prefix[:40]!r}; see {SLASH} sessions")
    if len(found) > 1:
        raise Ambiguous(f"{prefix!r} fits {len(found)} sessions ({listed(found)}); give more of the id")
    return found[0]


def looks_like_id(word: str) -> bool:
    """Return whether a word is almost certainly a session id."""
    return len(word) >= 8 and any(char.isdecimal() for char in word) and set(word) <= set("0123456789abcdef-")


def session_and_text(live: Sequence[Session], given: Arguments) -> tuple[Session | None, str | None]:
    """Split the arguments into the named session (None if none is named) and the remaining text (None if empty)."""
    text = given.text
    if "--session" in given.options:
        return named(live, given.options["--session"]), text or None
    first = text.split(None, 1)[0] if text else ""
    if len(first) >= SHORTEST_ID:
        try:
            return named(live, first), text[len(first) :].strip() or None
        except NotFound:
            if looks_like_id(first):
                raise
    return None, text or None


def may_control(session: Session, person: str) -> bool:
    """Return whether a person may end or resume a session: its owner may; anybody authorized may if it has none."""
    return session.owner_user_id in ("", person)


def require_control(session: Session, person: str) -> Session:
    """Return the session if the person may control it; otherwise raise Unauthorized."""
    if not may_control(session, person):
        raise Unauthorized(f"session {short(session)} belongs to {session.owner_user_id}, who alone may do that")
    return session


def only(sessions: Sequence[Session], what: str, none: str) -> Session:
    """Return the session if there is exactly one. Raises NotFound with `none`, or Ambiguous with the list: it never
    guesses."""
    if not sessions:
        raise NotFound(f"{none}; see {SLASH} sessions")
    if len(sessions) > 1:
        raise Ambiguous(f"{len(sessions)} sessions {what}; give the id of the one you mean: {listed(sessions)}")
    return sessions[0]


def to_clear(live: Sequence[Session], person: str) -> Session:
    """Return the only session that a person may end. Raises NotFound and Ambiguous, as the next four functions do."""
    own = [each for each in live if may_control(each, person)]
    return only(own, "could be ended", "there is no session of yours to end")


def to_checkpoint(live: Sequence[Session], person: str) -> Session:
    """Return the only running session that a person may control; if none runs, the only one."""
    own = [each for each in live if may_control(each, person)]
    running = [each for each in own if each.status in _RUNNING]
    return only(running or own, "are there", "there is no session of yours to take a checkpoint of")


def to_pause(live: Sequence[Session], person: str) -> Session:
    """Return the only session that a person may pause."""
    own = [each for each in live if each.status is SessionStatus.ACTIVE and may_control(each, person)]
    return only(own, "could be paused", "there is no session of yours that runs")


def to_steer(live: Sequence[Session], channel: str, channel_of: ChannelOf) -> Session:
    """Return the only session that runs in `channel`; if none runs there, the only running one."""
    running = [each for each in live if each.status in _RUNNING]
    return only([each for each in running if channel_of(each) == channel] or running, "run here", "no session runs")


def to_resume(
    live: Sequence[Session], open_cards: Sequence[Card], person: str, *, has_instruction: bool = False
) -> Session:
    """Return the paused or standby session that began to wait last, of those the person may control. With an
    instruction it must be the only one. Raises InvalidState if none waits."""
    standing_by = {card.session_id: card.created_at for card in open_cards if card.kind is CardKind.STANDBY}
    waiting = [each for each in live if (each.id in standing_by or each.is_paused) and may_control(each, person)]
    if not waiting:
        raise InvalidState(f"no session of yours is paused or stands by; see {SLASH} sessions")
    if has_instruction:
        # An instruction for another agent must not reach this one.
        return only(waiting, "wait", "")
    return max(waiting, key=lambda each: standing_by.get(each.id, each.paused_at or each.updated_at))


def listed(sessions: Sequence[Session]) -> str:
    """List up to five sessions within a sentence."""
    shown = [f"{short(each)} in {each.workspace_root}" for each in sessions[:5]]
    return ", ".join(shown) + (", ..." if len(sessions) > 5 else "")


def short(session: Session) -> str:
    """Return the first eight characters of a session id, enough to type it."""
    return session.id[:8]


def session_line(session: Session) -> str:
    """Describe a session within a sentence."""
    return f"session {short(session)} in {session.workspace_root}"


@frozen
class Workspace:
    """A workspace. `session` is the session it comes from; None for the default workspace."""

    root: Path
    session: Session | None


def workspace(
    live: Sequence[Session], chosen: Session | None, channel: str, channel_of: ChannelOf, default: Path | None
) -> Workspace:
    """Return the workspace of `chosen`, of the sessions shown in `channel`, or the default one, in this order.

    Interrupted sessions count only if the channel shows no other. Raises Ambiguous if the channel has several
    workspaces, NotFound if there is no workspace at all.
    """
    if chosen is not None:
        return Workspace(Path(chosen.workspace_root), chosen)
    here = [each for each in live if channel_of(each) == channel]
    here = [each for each in here if each.status in _RUNNING] or here
    roots = {each.workspace_root for each in here}
    if len(roots) == 1:
        return Workspace(Path(roots.pop()), max(here, key=lambda each: each.updated_at))
    if roots:
        raise Ambiguous(f"this channel has sessions in {len(roots)} workspaces; add --session ID: {listed(here)}")
    if default is not None:
        return Workspace(default, None)
    raise NotFound("no session is shown in this channel and there is no default_workspace_root; add --session ID")


# --- one call --------------------------------------------------------------------------------------------------------

#: The answers about a command that an earlier server run began.
INTERRUPTED = "interrupted by a restart of the server; run it again"
UNKNOWN = "the server restarted meanwhile; it is unknown whether this was done: check, and if it was not, do it again"
#: The answer about one of this run. Its own answer may have been lost when it was recorded.
UNDER_WAY = (
    "this was begun already: it is in progress, or its answer could not be recorded: check before you do it again"
)


class Repeated(Exception):
    """The same act was begun before. `answer` is the message for the person now; None for none."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(answer or "answered before")
        self.answer = answer


@frozen
class CommandDeps:
    """The dependencies of all commands. `outbox` names an actor; `environ` is the server's environment."""

    service: OperatorService
    store: Store
    outbox: Name
    web: Api
    config: Config
    masker: Mask
    now: Callable[[], datetime]
    environ: Mapping[str, str]

    async def show(
        self, key: str, channel: str, drawn: Drawn, beside: FileDrawn | None, asked: str, *where: str
    ) -> None:
        """Show `drawn` in the channel under `key`, with a line that names the call and its sender, and the file in its
        thread."""
        masked = self.masker.mask(" · ".join((asked, *where))).text
        content = evolve(drawn, blocks=(*drawn.blocks, blocks.context(blocks.plain(masked, 300)))).content()
        file = None if beside is None else beside.content()
        await self.store.transact(partial(_put, key=key, channel=channel, content=content, file=file, at=self.now()))
        self.outbox.tell(Wake())

    async def check_new(self, act_id: str) -> None:
        """Raise Repeated if the call is recorded. It runs before any look-up, because the first run may have changed
        the result of the look-up."""
        _refuse_repeated(await self.store.transact(partial(idempotency.known, act_id=act_id)))

    async def finish(self, act_id: str, told: str | None) -> None:
        """Record what the person was told of a finished call."""
        await self.store.transact(partial(idempotency.finish, act_id=act_id, answer={"told": told}, at=self.now()))


@frozen
class CommandCall:
    """One call of a command. `arguments` fit the entry. `recorded` is called once the call is persisted. A handler
    calls `accept` to acknowledge the call before it is done."""

    deps: CommandDeps
    command: Command
    table: Table
    entry: Entry
    arguments: Arguments
    recorded: Callable[[], None]
    accept: Callable[[], None]

    @property
    def person(self) -> str:
        """The user id of the sender."""
        return self.command.person.id

    @property
    def caller(self) -> Caller:
        """The sender, for the handler of an operator command. The act is that of the slash command."""
        act = self.command.act_id
        return Caller(
            str(self.command.person),
            Channel.SLACK,
            Origin(Channel.SLACK.value),
            act=act,
            verdict_id=act,
            owner=self.person,
            at=self.deps.now(),
        )

    @property
    def key(self) -> str:
        """The key of the row that shows the result of this call."""
        return f"command/{self.command.act_id}"

    @property
    def line(self) -> str:
        """The typed command on one line."""
        return " ".join(f"{SLASH} {self.entry.name} {self.arguments.typed}".split())

    @property
    def asked(self) -> str:
        """The sender and the typed command."""
        return f"{self.command.person.name or self.command.person.id}: {self.line}"

    @property
    def first_word(self) -> str | None:
        return self.arguments.words[0] if self.arguments.words else None

    async def own_session(self, default: Callable[[Sequence[Session], str], Session]) -> Session:
        """Return the session that the first word names, otherwise the default of the live ones. Raises Unauthorized if
        the person may not control it."""
        live = await self.deps.service.sessions()
        found = default(live, self.person) if self.first_word is None else named(live, self.first_word)
        return require_control(found, self.person)

    async def workspace(self) -> Workspace:
        """Return the workspace of this call. Raises the errors of `workspace` and `check_workspace`."""
        service, config = self.deps.service, self.deps.config
        name = self.arguments.options.get("--session")
        chosen = None if name is None else named(await service.sessions(everything=True), name)
        shown_in = partial(channel_of, config)
        live = await service.sessions()
        found = workspace(live, chosen, self.command.channel, shown_in, config.default_workspace_root)
        return Workspace(await trio.to_thread.run_sync(check_workspace, found.root), found.session)

    async def channel(self) -> str:
        """Return the channel for the result: the channel of the call if Intercom uses it, otherwise the default
        channel. Raises SlackError if there is none."""
        slack = self.deps.config.slack
        ours = {slack.channel_id, *slack.workspace_channels.values()}
        ours |= {each.channel_id for each in await self.deps.service.sessions()}
        if self.command.channel in ours:
            return self.command.channel
        # In another channel the app may be no member, and strangers may read along.
        if slack.channel_id is None:
            raise SlackError("this channel is not one of intercom's; type the command in one that is")
        return slack.channel_id

    async def show(self, drawn: Drawn, beside: FileDrawn | None, where: str) -> Drawn | None:
        """Show the result in its channel. If that is another channel than the call's, return a pointer to it."""
        channel = await self.channel()
        await self.deps.show(self.key, channel, drawn, beside, self.asked, where)
        return self.pointer_to(channel)

    def pointer_to(self, channel: str) -> Drawn | None:
        """Return a message that says where the answer is; None if that is the channel of the call."""
        if channel == self.command.channel:
            return None
        text = f"the answer is in <#{channel}>"
        return Drawn(text, (blocks.section(blocks.mrkdwn(text)),))

    async def begin(self, note: Json, session_id: str | None) -> None:
        """Record the call. Raises Repeated if it is recorded already, and `STORE_FAULTS`."""
        work = partial(
            idempotency.begin,
            act_id=self.command.act_id,
            note=note,
            at=self.deps.now(),
            who=str(self.command.person),
            session_id=session_id,
        )
        begun = await self.deps.store.transact(work)
        self.recorded()
        _refuse_repeated(begun)

    async def once(self, act: Callable[[], Awaitable[str]], session_id: str | None) -> str:
        """Run `act` once for this act of a person and return its answer; a repetition gets the first answer. An error
        of `act` is an answer, too. Raises Repeated and `STORE_FAULTS` as `begin` does, and the error of `act`."""
        await self.begin({"line": self.line}, session_id)
        try:
            told = await act()
        except Exception as refusal:
            await self.deps.finish(self.command.act_id, str(refusal))
            raise
        await self.deps.finish(self.command.act_id, told)
        return told


def _refuse_repeated(begun: Begun | None) -> None:
    if begun is not None:
        raise Repeated(UNDER_WAY if begun.answer is None else begun.answer.get("told"))


def _put(db: Database, key: str, channel: str, content: Content, file: Content | None, at: datetime) -> None:
    put = partial(outbox.put, db, at=at, channel=channel, urgency=Urgency.ALERT)
    put(key=key, content=content)
    if file is not None:
        put(key=f"{key}/file", content=file, thread=key, kind=RowKind.FILE)
