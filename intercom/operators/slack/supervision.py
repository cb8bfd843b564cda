"""Slack's part of the supervision tree, from top to bottom."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from attrs import field, frozen

from actors import Actor, ChildSpec, Request, System, ask
from intercom.masking import KNOWN, Masker
from intercom.model.chat_status import ChatStatus
from intercom.model.config import Config
from intercom.operators.slack.button_actions import ActionDeps, People, SlackAuthorization
from intercom.operators.slack.commands import runner
from intercom.operators.slack.commands.command_call import CommandDeps
from intercom.operators.slack.commands.runner import CommandRunner
from intercom.operators.slack.ephemeral_sender import EphemeralSender
from intercom.operators.slack.interaction_handler import Interactions
from intercom.operators.slack.outbox_writer import Drawing, OutboxWriter
from intercom.operators.slack.sender import Sender
from intercom.operators.slack.settings import SlackSetup, web_api
from intercom.operators.slack.slack_messages import Health, OutboxHealth, Wake
from intercom.operators.slack.socket_mode import Patience, SlackConnection
from intercom.operators.slack.web_api import WebApi
from intercom.sessions.chat_messages import ChatOutbox, channel_of
from intercom.sessions.lookups import UNANSWERED
from intercom.sessions.operator_service import OperatorService
from intercom.store.store_and_reader import Reader, Store

T = TypeVar("T")

#: How long an actor may take to report its status, in seconds.
_STATUS_SECONDS = 2.0


class OpenWeb(Actor):
    """Holds the connection that all calls to the Web API share; registered as `slack/web`."""

    def __init__(self, web: WebApi) -> None:
        super().__init__()
        self._web = web

    async def on_start(self) -> None:
        await self._web.__aenter__()

    async def on_stop(self) -> None:
        await self._web.__aexit__(None, None, None)

    async def on_failure(self, *_crash: object) -> None:
        await self.on_stop()


@frozen
class Slack:
    """The Slack channel of one server, built but not running yet."""

    setup: SlackSetup
    config: Config
    system: System
    now: Callable[[], datetime]
    mask: Masker = field(factory=Masker)
    web: WebApi = field(init=False)
    drawing: Drawing = field(init=False)

    def __attrs_post_init__(self) -> None:
        for token in (self.setup.tokens.app, self.setup.tokens.bot):
            KNOWN.add(token, "Slack token")
        object.__setattr__(self, "web", web_api(self.setup))
        object.__setattr__(self, "drawing", Drawing(self.mask))

    def chat(self) -> ChatOutbox:
        """Return the functions of this channel that sessions use."""
        outbox = self.system.named("slack/outbox")
        return ChatOutbox(
            channel_for=lambda session: channel_of(self.config, session),
            draw_notice=self.drawing.notice,
            draw_root=self.drawing.root,
            wake=lambda: outbox.tell(Wake()),
        )

    async def status(self) -> ChatStatus:
        """Return the channel's status for people at a terminal; a part that does not answer is None."""
        connection = await self._asked("slack/connection", Health())
        outbox = await self._asked("slack/outbox", OutboxHealth())
        return ChatStatus(self.setup.channel_id, connection, outbox)

    async def _asked(self, name: str, question: Request[T]) -> T | None:
        try:
            return await ask(self.system.named(name), question, timeout=_STATUS_SECONDS)
        except UNANSWERED:
            return None

    def children(self, service: OperatorService, reader: Reader) -> Sequence[ChildSpec]:
        """Return the actors in start order. None needs another to be up: each finds the others by name."""
        named, web, config, now = self.system.named, self.web, self.config, self.now
        store, outbox = Store(named("store")), named("slack/outbox")
        deps = ActionDeps(
            service=service,
            store=store,
            outbox=outbox,
            outbox_writer=named("slack/outbox_writer"),
            ephemeral=named("slack/ephemeral"),
            web=web,
            people=People(web),
            mask=self.mask,
            now=now,
        )
        authorization = SlackAuthorization(service, self.setup.authorized, self.setup.tokens.team_id)
        command_deps = CommandDeps(
            service=service,
            store=store,
            outbox=outbox,
            web=web,
            config=config,
            masker=self.mask,
            now=now,
            environ=os.environ,
        )
        interactions = Interactions(deps, authorization, partial(runner.carry_out, named("slack/commands")))
        patience = Patience(backoff_max=config.slack.reconnect_backoff_max_seconds)
        return (
            ChildSpec("slack/web", lambda: OpenWeb(web)),
            # The actors that decide what Slack shows, and that send it.
            ChildSpec("slack/outbox", lambda: Sender(store, web, now)),
            ChildSpec(
                "slack/outbox_writer",
                lambda: OutboxWriter(
                    config=config,
                    service=service,
                    reader=reader,
                    store=store,
                    outbox=outbox,
                    web=web,
                    drawing=self.drawing,
                    now=now,
                ),
            ),
            # The actors for people's actions: commands, ephemeral messages, and the socket.
            ChildSpec("slack/commands", lambda: CommandRunner(command_deps), shutdown=10.0),
            ChildSpec("slack/ephemeral", lambda: EphemeralSender(web)),
            ChildSpec(
                "slack/connection", lambda: SlackConnection(web, interactions.handle, patience=patience), shutdown=10.0
            ),
        )
