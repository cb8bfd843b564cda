"""The gateway of one server: the actor that reads its directory, the actors of the downstreams, and the calls.

The directory has a file for each downstream, and `roles.json`. It is read again when a file changes. A file with a
fault does not stop the others, and the fault is reported. A downstream whose file gets a fault keeps running as it was.
"""

from __future__ import annotations

import importlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import trio
from attrs import define, evolve, field, frozen

from actors import (
    Actor,
    AlreadyStarted,
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    Refused,
    StartChild,
    StartFailed,
    StopChild,
    System,
    ask,
)
from actors.errors import UnknownChild
from intercom.gateway import config_directory, resources_and_prompts
from intercom.gateway.assignments import AgentIdentity
from intercom.gateway.call_cards import Target
from intercom.gateway.call_log import InvocationLog
from intercom.gateway.calls import Calls, GatewayCaller
from intercom.gateway.carrier import OpenCarrier
from intercom.gateway.catalog import SEPARATOR, Visible, catalog_of
from intercom.gateway.config_directory import Settings, Signature
from intercom.gateway.connection import Connection, Listener
from intercom.gateway.downstream import DownstreamActor
from intercom.gateway.downstream_config import DownstreamConfig, Transport, expand
from intercom.gateway.downstream_tasks import DownstreamDeps, ToolsChanged, ToolsPinned
from intercom.gateway.evidence_records import Cache, EvidenceRecords
from intercom.gateway.handshake import connect
from intercom.gateway.messages import (
    DOWNSTREAMS,
    GATEWAY,
    AgentGone,
    Allow,
    Configure,
    Describe,
    Downstream,
    Offer,
    OfferChanged,
    Reload,
    ResourcesChanged,
    SetLogLevel,
    SignInChanged,
    Watch,
    downstream_name,
)
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.process_records import ProcessRecords
from intercom.gateway.resource_watchers import ResourceWatchers
from intercom.gateway.resources_and_prompts import Place
from intercom.gateway.roles import Effect
from intercom.gateway.stdio_carrier import open_process
from intercom.gateway.stored_state import StoredState
from intercom.gateway.tool_change_cards import ToolCards
from intercom.gateway.variables import Lookup, Reference, Source
from intercom.local import keychain
from intercom.model.card import Card
from intercom.model.errors import IntercomError, InvalidState, NotFound
from intercom.model.json_types import JsonObject
from intercom.store.store_and_reader import STORE_FAULTS

if TYPE_CHECKING:
    from intercom.gateway.oauth import OAuthTokens

log = logging.getLogger("intercom.gateway")

#: How often the directory is looked at for changes (seconds).
POLL_SECONDS: Final = 2.0
#: The time limit of an answer of a downstream's actor, which never waits for the downstream (seconds).
ANSWER_SECONDS: Final = 10.0
#: How long a downstream may take to end: its process is asked, terminated and killed (seconds).
STOP_SECONDS: Final = 15.0
#: What the gateway's client side can do on behalf of agents, for downstreams of older protocol versions.
CLIENT_CAPABILITIES: Final[JsonObject] = {"sampling": {}, "elicitation": {}}
#: How long until something that the store did not take is tried again (seconds).
RETRY_SECONDS: Final = 1.0
_POLL: Final = "poll"


@define(eq=False)
class Gateway:
    """The gateway of one server.

    `directory` has its configuration, `stored` is its part of the store. `show` tells every channel of a card.
    `lookup` returns values of references, `environ` is what processes get a part of. `tell` (text, level) tells people.
    `credentials` is the directory of what remote downstreams are signed in with. `processes` records local ones.
    `own_tools` and `own_prompts` are the names of the tools and prompts that agents have anyway.
    """

    directory: Path
    system: System
    log: InvocationLog
    stored: StoredState
    show: Callable[[Card], object]
    lookup: Lookup = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    tell: Callable[[str, str], object]
    now: Callable[[], datetime]
    credentials: Path | None = None
    processes: ProcessRecords | None = None
    own_tools: frozenset[str] = frozenset()
    own_prompts: frozenset[str] = frozenset()
    snapshot: OfferSnapshot = field(factory=OfferSnapshot, init=False)
    calls: Calls = field(init=False)
    cache: Cache = field(factory=Cache, init=False)
    evidence: EvidenceRecords = field(init=False)
    cards: ToolCards = field(init=False)
    watchers: ResourceWatchers = field(init=False)
    _tokens: dict[str, tuple[DownstreamConfig, OAuthTokens]] = field(factory=dict, init=False, repr=False)
    _listeners: dict[str, Callable[[], object]] = field(factory=dict, init=False)
    _log_level: str | None = field(default=None, init=False)
    _published: trio.Event = field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.evidence = EvidenceRecords(self.stored.store, self.stored.reader)
        self.calls = Calls(self.current, self.system.named, self.log, self.cache, self.evidence)
        self.watchers = ResourceWatchers(
            lambda name, found: self.system.named(downstream_name(name)).tell(Watch(found))
        )
        self.cards = ToolCards(self.stored, self.now, self.show, self._allow, self._others)

    def children(self) -> Sequence[ChildSpec]:
        """Return the gateway's actors in start order: the log's, the downstreams', and the one that reads the
        directory."""
        return (
            *self.log.children(),
            # One downstream that crashes again and again must not take the others along.
            ChildSpec(
                DOWNSTREAMS,
                partial(DynamicSupervisor, max_restarts=1000, within=60.0, backoff=Backoff(initial=0.1, max=30.0)),
                shutdown=None,
            ),
            ChildSpec(GATEWAY, partial(GatewayActor, self)),
        )

    # --- agents ------------------------------------------------------------------------------------------------------

    def has_tool(self, name: str) -> bool:
        """Whether a downstream has a tool that agents call by this name, whether or not an agent may."""
        return self.snapshot.catalog.find(name) is not None or SEPARATOR in name

    def listed(self, agent: AgentIdentity) -> tuple[JsonObject, ...]:
        """Return the tools that an agent may call, as `tools/list` shows them."""
        snapshot = self.snapshot
        return tuple(_with_ask(each) for each in snapshot.visible_to(agent) if not snapshot.is_searched(each.entry))

    def resources(self, agent: AgentIdentity) -> tuple[JsonObject, ...]:
        """Return the resources that an agent sees, as `resources/list` shows them."""
        return resources_and_prompts.resources(self.snapshot.offers, self._sees(agent, resources_and_prompts.RESOURCES))

    def templates(self, agent: AgentIdentity) -> tuple[JsonObject, ...]:
        """Return the templates of resources that an agent sees."""
        return resources_and_prompts.templates(self.snapshot.offers, self._sees(agent, resources_and_prompts.RESOURCES))

    def prompts(self, agent: AgentIdentity) -> tuple[JsonObject, ...]:
        """Return the prompts that an agent sees, as `prompts/list` shows them."""
        snapshot = self.snapshot
        return resources_and_prompts.prompts(
            snapshot.offers, self._sees(agent, resources_and_prompts.PROMPTS), snapshot.plain, self.own_prompts
        )

    def find_prompt(self, agent: AgentIdentity, name: str) -> Place | None:
        """Return whose prompt this is, if the agent sees it."""
        place = resources_and_prompts.find_prompt(self.snapshot.offers, name, self.snapshot.plain, self.own_prompts)
        return (
            place if place is not None and self._sees(agent, resources_and_prompts.PROMPTS)(place.downstream) else None
        )

    def find_resource(self, agent: AgentIdentity, address: str) -> Place | None:
        """Return whose resource this is, if the agent sees it."""
        return resources_and_prompts.find_resource(
            self.snapshot.offers, address, self._sees(agent, resources_and_prompts.RESOURCES)
        )

    def find_template(self, agent: AgentIdentity, template: str) -> Place | None:
        """Return whose template of resources this is, if the agent sees it."""
        return resources_and_prompts.find_template(
            self.snapshot.offers, template, self._sees(agent, resources_and_prompts.RESOURCES)
        )

    def _sees(self, agent: AgentIdentity, verb: str) -> Callable[[str], bool]:
        snapshot = self.snapshot
        return lambda downstream: snapshot.sees(agent, downstream, verb)

    def may_at_once(self, agent: AgentIdentity, downstream: str, verb: str) -> bool:
        """Whether an agent may do this without that a person is asked."""
        return self.snapshot.decide(agent, downstream, verb) is Effect.ALLOW

    def set_log_level(self, level: str) -> None:
        """Ask all downstreams that log for messages of this severity and above, also those that start later."""
        self._log_level = level
        for name in self.snapshot.configs:
            self.system.named(downstream_name(name)).tell(SetLogLevel(level))

    def target(self, name: str) -> Target:
        """Return what a call of the tool with this name is for; of a tool that is gone, only its name is known."""
        entry = self.snapshot.catalog.find(name)
        if entry is None:
            return Target(name.partition(SEPARATOR)[0], name, f"the tool {name[:80]}")
        return Target(entry.downstream, entry.tool, entry.name)

    async def call_tool(self, caller: GatewayCaller, name: str, params: JsonObject) -> JsonObject:
        """Call a tool by the name that agents know. Raises what `Calls.tool` raises."""
        return await self.calls.tool(caller, name, params)

    def listen(self, agent: str, changed: Callable[[], object]) -> None:
        """Call `changed` whenever what agents may see has changed, until `leave`. It must not wait."""
        self._listeners[agent] = changed

    def leave(self, agent: str) -> None:
        """Note that an agent's connection is closed."""
        self._listeners.pop(agent, None)
        self.watchers.leave(agent)
        for name, config in self.snapshot.configs.items():
            if config.sharing.value == "agent":
                self.system.named(downstream_name(name)).tell(AgentGone(agent))

    def publish(self, snapshot: OfferSnapshot) -> None:
        """Use this snapshot from now on, and tell agents if their lists may have changed."""
        before, self.snapshot = self.snapshot, snapshot
        for name, config in snapshot.configs.items():
            if before.configs.get(name) != config:
                self.cache.forget(name)
        self._published.set()
        self._published = trio.Event()
        if before.listed != snapshot.listed:
            for changed in tuple(self._listeners.values()):
                changed()

    def run_in_background(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that must not raise. It is cancelled when the gateway's actor ends."""
        self.system.named(GATEWAY).tell(_Spawn(task))

    # --- people ------------------------------------------------------------------------------------------------------

    async def describe(self) -> tuple[Downstream, ...]:
        """Return the state of all downstreams, by name. One whose actor is restarting is left out."""
        found: list[Downstream] = []
        for name in sorted(self.snapshot.configs):
            try:
                found.append(await self.describe_one(name))
            except IntercomError:
                continue
        return tuple(found)

    async def describe_one(self, name: str) -> Downstream:
        """Return the state of one downstream. Raises NotFound, and IntercomError if its actor is restarting."""
        self.require(name)
        return await ask(self.system.named(downstream_name(name)), Describe(), timeout=ANSWER_SECONDS, retry=True)

    def require(self, name: str) -> DownstreamConfig:
        """Return the configuration of a downstream. Raises NotFound with the names that there are."""
        config = self.snapshot.configs.get(name)
        if config is None:
            there = ", ".join(sorted(self.snapshot.configs)) or "none"
            near = get_close_matches(name[:80], self.snapshot.configs, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise NotFound(f"no MCP server is called {name[:80]!r}; {hint}there are: {there}")
        return config

    async def reload(self) -> OfferSnapshot:
        """Read the directory now, and return the new snapshot."""
        await ask(self.system.named(GATEWAY), Reload(), timeout=ANSWER_SECONDS, retry=True)
        return self.snapshot

    async def current(self) -> OfferSnapshot:
        """Return the snapshot of the files as they are now: a rule that was saved before a call counts for it.

        The files are only looked at, which takes microseconds, and are read again if one has changed. Raises
        InvalidState if that takes too long.
        """
        with trio.move_on_after(ANSWER_SECONDS):
            while (seen := config_directory.signature(self.directory)) != self.snapshot.signature:
                published = self._published
                self.system.named(GATEWAY).tell(_Changed(seen))
                await published.wait()
            return self.snapshot
        raise InvalidState("the gateway's files have changed and cannot be read now: try again in a moment")

    async def _allow(self, name: str, sha256: str) -> None:
        """Tell a downstream's actor that a person accepts its offer. One that is restarting recalls it."""
        self.system.named(downstream_name(name)).tell(Allow(sha256, accepted=True))

    def _others(self, name: str) -> tuple[str, ...]:
        """Return the names of the tools of all other downstreams."""
        return tuple(each.tool for each in self.snapshot.catalog.entries if each.downstream != name)

    # --- downstreams -------------------------------------------------------------------------------------------------

    def deps(self) -> DownstreamDeps:
        """Return what the actor of a downstream needs."""
        return DownstreamDeps(
            connect=self.connect,
            expand=partial(expand, lookup=self.lookup),
            recall=self.stored.recall,
            publish=self.system.named(GATEWAY).tell,
            tell=self.tell,
            now=self.now,
            random=random.random,
            log_level=lambda: self._log_level,
            forget=self.cache.forget,
        )

    def connect(
        self, config: DownstreamConfig, version: str | None, tell: Listener
    ) -> AbstractAsyncContextManager[Connection]:
        """Connect to a downstream, whose configuration is expanded, for the time of the block."""
        if config.transport is Transport.STDIO:
            opener: OpenCarrier = partial(open_process, environ=self.environ, records=self.processes)
        else:
            # Imported lazily, in a thread when the first one is configured: it takes half a second.
            from intercom.gateway.http_carrier import open_http

            opener = partial(open_http, token=self._token_source(config))
        capabilities = {**CLIENT_CAPABILITIES, **({"roots": {"listChanged": False}} if config.roots else {})}
        return connect(config, opener, version=version, capabilities=capabilities, tell=tell)

    def changed_sign_ins(self) -> tuple[str, ...]:
        """Return the downstreams that people have signed in to, or out of, since this was asked last."""
        return tuple(name for name, (_, tokens) in self._tokens.items() if tokens.notice_change())

    def _token_source(self, config: DownstreamConfig) -> OAuthTokens | None:
        """Return where a remote downstream's tokens come from: one for all its connections. None if its configuration
        has a token itself."""
        if self.credentials is None or not config.signs_in:
            return None
        from intercom.gateway.credentials import CredentialStore
        from intercom.gateway.oauth import OAuthTokens

        known = self._tokens.get(config.name)
        # What else has changed does not concern the tokens.
        if known is None or (known[0].base_url, known[0].oauth) != (config.base_url, config.oauth):
            known = self._tokens[config.name] = (config, OAuthTokens(config, CredentialStore(self.credentials)))
        return known[1]


class GatewayActor(Actor):
    """Reads the directory, starts and ends downstreams, and makes the snapshots."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused, IntercomError)

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway
        #: Of those from before a crash only the roles: they say which classes there were.
        self._settings = Settings(roles=gateway.snapshot.roles)
        #: After a crash, those from before it: agents keep their tools while the directory is read.
        self._offers: dict[str, Offer] = dict(gateway.snapshot.offers)
        #: That of the files as they were read last. The settings have none if they must be read again soon.
        self._signature: Signature = ()

    async def on_start(self) -> None:
        """Read the directory and start what it configures. Downstreams that run already keep running, and those that a
        killed server has left are ended first: they may hold locks."""
        if self._gateway.processes is not None:
            await self._gateway.processes.end_left()
        await self._read()
        self.set_timer(_POLL, POLL_SECONDS, _Poll())

    async def on_receive(self, message: object) -> object:
        match message:
            case ResourcesChanged(name, addresses):
                self._gateway.watchers.changed(name, addresses)
            case OfferChanged(name, offer):
                self._gateway.watchers.again(name)
                if name in self._settings.configs and self._offers.get(name) != offer:
                    self._offers[name] = offer
                    self._publish()
            case ToolsPinned() | ToolsChanged():
                await self._note_tools(message)
            case _Poll():
                self.set_timer(_POLL, POLL_SECONDS, _Poll())
                seen = await trio.to_thread.run_sync(config_directory.signature, self._gateway.directory)
                if seen != self._settings.signature:
                    await self._read()
                for name in self._gateway.changed_sign_ins():
                    if name in self._settings.configs:
                        self.system.named(downstream_name(name)).tell(SignInChanged())
            case _Spawn(task):
                self.spawn(task)
            case _Changed(seen):
                # Many calls may have noticed the same change.
                if seen != self._signature:
                    await self._read()
            case Reload():
                await self._read()
            case _:
                return super().on_receive(message)
        return None

    async def _note_tools(self, message: ToolsPinned | ToolsChanged) -> None:
        """Store first pins, or show a card. If the store does not answer now, this is tried again."""
        try:
            if isinstance(message, ToolsPinned):
                await self._gateway.stored.pinned(message)
            else:
                await self._gateway.cards.changed(message)
        except STORE_FAULTS as fault:
            log.warning("the tools of %s could not be noted now: %s", message.name, fault)
            self.set_timer((type(message), message.name), RETRY_SECONDS, message)

    async def _read(self) -> None:
        before = self._settings
        found = await trio.to_thread.run_sync(config_directory.read_settings, self._gateway.directory, before)
        self._settings, self._signature = found, found.signature
        # At once: what is ended or begun below may take seconds, and calls must not wait for that.
        self._publish()
        if any(config.transport is not Transport.STDIO for config in found.configs.values()):
            await trio.to_thread.run_sync(_load_http)
        for fault in found.faults:
            if fault not in before.faults:
                self._gateway.tell(f"the gateway's files have a fault: {fault}", "warning")
        for name in before.configs.keys() - found.configs.keys():
            await self._end(name)
        for name, config in found.configs.items():
            if before.configs.get(name) != config:
                await self._begin(name, config)
        self._publish()

    async def _begin(self, name: str, config: DownstreamConfig) -> None:
        actor = self.system.named(downstream_name(name))
        # Its file may have changed when a crash starts it again.
        start = partial(_start, self._gateway, name, config)
        child = ChildSpec(downstream_name(name), start, shutdown=STOP_SECONDS)
        try:
            await ask(self.system.named(DOWNSTREAMS), StartChild(child), retry=True)
        except AlreadyStarted:
            actor.tell(Configure(config))
            known = await ask(actor, Describe(), timeout=ANSWER_SECONDS, retry=True)
            self._offers[name] = known.offer
        except StartFailed as failed:
            # The store may be restarting. Without its signature the directory is read again soon.
            self._gateway.tell(f"the downstream {name} could not be started, and is tried again: {failed}", "warning")
            configs = {each: found for each, found in self._settings.configs.items() if each != name}
            self._settings = evolve(self._settings, configs=configs, signature=())

    async def _end(self, name: str) -> None:
        self._offers.pop(name, None)
        self._gateway.cards.gone(name)
        try:
            await ask(self.system.named(DOWNSTREAMS), StopChild(downstream_name(name)), retry=True)
        except UnknownChild:
            pass

    def _publish(self) -> None:
        settings = self._settings
        offered = {name: self._offers.get(name, Offer()) for name in settings.configs}
        plain = frozenset(name for name, config in settings.configs.items() if not config.prefix)
        catalog = catalog_of(
            {name: offer.tools for name, offer in offered.items()}, plain=plain, taken=self._gateway.own_tools
        )
        self._gateway.publish(
            OfferSnapshot(
                configs=settings.configs,
                roles=settings.roles,
                assignments=settings.assignments,
                offers=offered,
                catalog=catalog,
                faults=(*settings.faults, *catalog.faults),
                signature=self._signature,
            )
        )


def _load_http() -> None:
    for module in ("intercom.gateway.http_carrier", "intercom.gateway.oauth"):
        importlib.import_module(module)


def _with_ask(visible: Visible) -> JsonObject:
    """Return a tool's definition for agents; the description of one that asks a person says so."""
    shown = visible.entry.exposed
    if not visible.asks:
        return shown
    said = str(shown.get("description") or "")
    return {**shown, "description": f"{said}\n(A person is asked before each call.)".lstrip()}


def _start(gateway: Gateway, name: str, config: DownstreamConfig) -> DownstreamActor:
    return DownstreamActor(gateway.snapshot.configs.get(name, config), gateway.deps())


@frozen
class _Spawn:
    """Run this task in the background."""

    task: Callable[[], Awaitable[None]]


@frozen
class _Changed:
    """Somebody has noticed that the files changed: their signature was this one then."""

    seen: Signature


class _Poll:
    """It is time to look at the directory."""


def lookup_in(environ: Mapping[str, str]) -> Lookup:
    """Return the lookup of references in the server's environment and the user's keychain. It may wait for the
    keychain: call it in a thread."""

    def lookup(reference: Reference) -> str | None:
        if reference.source is Source.ENVIRONMENT:
            return environ.get(reference.name)
        # Imported lazily: loading keyring is slow, and few configurations need it.
        import keyring
        from keyring.errors import KeyringError

        try:
            return keyring.get_password(keychain.SERVICE, reference.name)
        except KeyringError:
            return None

    return lookup
