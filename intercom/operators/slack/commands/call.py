"""One call of a command: its sender, its arguments, and the services that handlers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import trio
from attrs import frozen

from actors import Name, ask
from intercom.model.config import Config
from intercom.model.errors import SlackError
from intercom.model.outbox import RowKind, Urgency
from intercom.model.session import Session
from intercom.operators.desk import Desk
from intercom.operators.slack.commands import choice
from intercom.operators.slack.commands.choice import Workspace
from intercom.operators.slack.commands.table import SLASH, Entry, Table
from intercom.operators.slack.commands.typed import Arguments
from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw.drawn import Drawn, FileDrawn
from intercom.operators.slack.draw.masks import Mask
from intercom.operators.slack.envelopes import Command
from intercom.operators.slack.means import NotRecorded
from intercom.operators.slack.messages import Wake
from intercom.sessions.chat import channel_of
from intercom.store import outbox
from intercom.store.messages import Database, Transact
from intercom.workspace.paths import check_workspace

T = TypeVar("T")

#: How long the store may take to record something, in seconds.
STORE_SECONDS = 30.0


class Responder(Protocol):
    """Posts to a `response_url`; implemented by `intercom.operators.slack.web.WebApi`."""

    async def respond(self, response_url: str, body: dict[str, Any]) -> None: ...


@frozen
class Surroundings:
    """The dependencies of all commands. `store` and `outbox` name actors; `environ` is the server's environment."""

    desk: Desk
    store: Name
    outbox: Name
    web: Responder
    config: Config
    masker: Mask
    now: Callable[[], datetime]
    environ: Mapping[str, str]

    async def transact(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the store. Raises NotRecorded if the store cannot do it."""
        try:
            return await ask(self.store, Transact(work), timeout=STORE_SECONDS, retry=True)
        except Exception as fault:
            raise NotRecorded(f"the store did not record it: {type(fault).__name__}") from fault

    async def show(
        self, key: str, channel: str, drawn: Drawn, beside: FileDrawn | None, asked: str, *where: str
    ) -> None:
        """Show `drawn` in the channel under `key`, with a line that names the call and its sender, and the file in its
        thread."""
        masked = self.masker.mask(" · ".join((asked, *where))).text
        line = blocks.context(blocks.plain(masked, 300))
        content = Drawn(drawn.text, (*drawn.blocks, line)).content()
        file = None if beside is None else beside.content()
        await self.transact(partial(_put, key=key, channel=channel, content=content, file=file, at=self.now()))
        self.outbox.tell(Wake())


@frozen
class Call:
    """One call of a command. `arguments` fit the entry. A handler calls `recorded` once the call is persisted. It calls
    `accept` to acknowledge the call before it is done."""

    house: Surroundings
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

    async def workspace(self) -> Workspace:
        """Return the workspace of this call. Raises the errors of `choice.workspace` and `check_workspace`."""
        live = await self.house.desk.sessions()
        name = self.arguments.options.get("--session")
        chosen = None if name is None else choice.named(await self.house.desk.sessions(everything=True), name)
        found = choice.workspace(
            live,
            chosen,
            self.command.channel,
            partial(channel_of, self.house.config),
            self.house.config.default_workspace_root,
        )
        return Workspace(await trio.to_thread.run_sync(check_workspace, found.root), found.session)

    async def channel(self) -> str:
        """Return the channel for the result: the channel of the call if Intercom uses it, otherwise the default
        channel. Raises SlackError if there is none."""
        slack = self.house.config.slack
        ours = {slack.channel_id, *slack.workspace_channels.values()}
        ours |= {each.channel_id for each in await self.house.desk.sessions()}
        if self.command.channel in ours:
            return self.command.channel
        # In another channel the app may be no member, and strangers may read along.
        if slack.channel_id is None:
            raise SlackError("this channel is not one of intercom's; type the command in one that is")
        return slack.channel_id

    async def show(self, drawn: Drawn, beside: FileDrawn | None, workspace: Workspace) -> Drawn | None:
        """Show the result in its channel. If that is another channel than the call's, return a pointer to it."""
        channel = await self.channel()
        await self.house.show(self.key, channel, drawn, beside, self.asked, f"in {workspace.root}")
        return None if channel == self.command.channel else elsewhere(channel)


def elsewhere(channel: str) -> Drawn:
    """Return a message that says in which other channel the answer is."""
    text = f"the answer is in <#{channel}>"
    return Drawn(text, (blocks.section(blocks.mrkdwn(text)),))


def session_line(session: Session) -> str:
    """Describe a session within a sentence."""
    return f"session {choice.short(session)} in {session.workspace_root}"


def _put(
    db: Database, key: str, channel: str, content: dict[str, Any], file: dict[str, Any] | None, at: datetime
) -> None:
    outbox.put(db, key, content, at, channel=channel, urgency=Urgency.ALERT)
    if file is not None:
        outbox.put(db, f"{key}/file", file, at, channel=channel, urgency=Urgency.ALERT, thread=key, kind=RowKind.FILE)
