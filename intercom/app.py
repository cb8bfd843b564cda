"""The server: one supervision tree, from the store to the transports."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict, define, field

from actors import Actor, Backoff, ChildSpec, DynamicSupervisor, Event, Supervisor, System, ask
from intercom.agents import mcp_server
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.agent_process_records import KnownProcesses
from intercom.agents.http.status import HttpStatus
from intercom.agents.shim_connection import Hello, ShimListener, ShimServerDeps
from intercom.local import own_files
from intercom.local.places import Places
from intercom.local.server_secrets import RoomsSecrets, without_password
from intercom.masking import KNOWN
from intercom.model.card import Card, Notice
from intercom.model.config import Config
from intercom.model.errors import ConfigError
from intercom.model.gateway_view import GatewayOperations
from intercom.model.metrics import Measured, Page, unmeasured
from intercom.model.server_view import HttpPort
from intercom.model.session import Session, SessionMode
from intercom.operators.card_router import CardRouter
from intercom.operators.ctl.listener import CtlListener
from intercom.operators.web.listener import IsNeeded, WebDeps, WebLinks, WebListener
from intercom.operators.web.push_sender import PushDeps, PushSender
from intercom.operators.web.push_subscriptions import PushCalls
from intercom.operators.web.sign_in import SignIns
from intercom.operators.web.tokens import ApiTokens
from intercom.sessions.checkpoints.archive import Archive
from intercom.sessions.checkpoints.checkpointer import Checkpoints
from intercom.sessions.checkpoints.restored_session import Successors
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.housekeeping import AuditWatch, ClockWatch, DatabaseWatch, Housekeeper, Noticed, boot_time
from intercom.sessions.lookups import mode_of, open_cards, with_away
from intercom.sessions.operator_service import OperatorService
from intercom.sessions.policies import PolicyRegistry
from intercom.sessions.processes.agent_process import ProcessDeps
from intercom.sessions.processes.spawner import AgentProcesses, Spawner
from intercom.sessions.registry import SessionRegistry
from intercom.sessions.server_information import MakeEntries, ServerInformation
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.signatures import Signatures
from intercom.sessions.trusted_keys import Keyring, SystemKeys
from intercom.store import sessions
from intercom.store.checkpoints import Contents
from intercom.store.database import Fault, OpenedDatabase, take_incident, transaction
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer import Writer
from intercom.workspace.policy_watcher import watcher_name

if TYPE_CHECKING:
    from intercom.agents.gateway.client_peer import Attend
    from intercom.agents.rooms.mcp import RoomTools
    from intercom.agents.rooms.room_call import RoomsDeps
    from intercom.gateway.service import Gateway
    from intercom.operators.metrics import Metrics
    from intercom.operators.slack.settings import SlackSetup
    from intercom.operators.slack.supervision import Slack
    from intercom.rooms.service import RoomService
    from intercom.store.room_database import RoomStore

log = logging.getLogger("intercom.store")

#: A part that keeps crashing restarts with growing delays. The server stops only if the part never recovers.
_BACKOFF = Backoff(initial=0.05, factor=2.0, max=5.0)
_group = partial(DynamicSupervisor, max_restarts=60, within=60.0, backoff=_BACKOFF)
_supervisor = partial(Supervisor, max_restarts=60, within=60.0, backoff=_BACKOFF)


@define
class App:
    """One server, which `async with app.system` runs.

    `sockets` names the sockets to listen on: "ctl" for operators, "shims" for agents. `require_same_settings` raises
    IntercomError for the hello of a shim that was started with other settings. `outdated` tells whether a shim needs a
    newer server. `slack` is None if Slack is not set up. `now` is the wall clock and is thread-safe. `boot_time` also
    counts while the machine sleeps; it is None if a test controls the time. Agents that people start get a part of
    `environ`.

    `hands_over` is set when another server is about to take over: those agents then keep running. `system_keys` is
    where root may list the operator keys. `is_foreign` says that an agent's client chose the server's directories or
    configuration. `http` is the status of the HTTP service, None without `http_port` in the configuration.

    `secrets` are those of the rooms, if the configuration enables rooms. With `only_rooms`, the HTTP port serves
    nothing else. `config_path` is the configuration file, None without one, and `make_entries` makes the entries with
    which clients find this server.

    `renew_lock` renews the lock of the database. `complain` reports database faults to the program that started the
    server. Both may be called in any thread. `failure` says why the server ended by itself, otherwise it is None.
    """

    config: Config
    places: Places
    database: Path
    sockets: frozenset[str] = frozenset({"ctl", "shims"})
    require_same_settings: Callable[[Hello], None] = lambda _hello: None
    outdated: Callable[[Hello], bool] = lambda _hello: False
    on_event: Callable[[Event], object] | None = None
    slack: SlackSetup | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    boot_time: Callable[[], float] | None = boot_time
    environ: Mapping[str, str] = field(factory=lambda: dict(os.environ), repr=False)
    system_keys: SystemKeys = field(factory=SystemKeys)
    is_foreign: bool = False
    secrets: RoomsSecrets = field(factory=RoomsSecrets, repr=False)
    proxy_secret: str | None = field(default=None, repr=False)
    only_rooms: bool = False
    config_path: Path | None = None
    make_entries: MakeEntries | None = field(default=None, repr=False)
    hands_over: bool = field(default=False, init=False)
    renew_lock: Callable[[], object] | None = field(default=None, repr=False)
    complain: Callable[[str], object] = field(default=lambda _text: None, repr=False)
    failure: str | None = field(default=None, init=False)
    life: str = field(factory=lambda: uuid.uuid4().hex)
    token: str = field(factory=lambda: secrets.token_hex(32))
    connected_agents: ConnectedAgents = field(factory=ConnectedAgents, init=False)
    processes: KnownProcesses = field(init=False)
    embedded_connections: dict[str, AgentConnection] = field(factory=dict, init=False)
    http: HttpStatus | None = field(default=None, init=False)
    reader: Reader = field(init=False)
    contents: Contents = field(init=False)
    system: System = field(init=False)
    session_deps: SessionDeps = field(init=False)
    policy_registry: PolicyRegistry = field(init=False)
    signatures: Signatures = field(init=False)
    service: OperatorService = field(init=False)
    shim_deps: ShimServerDeps = field(init=False)
    metrics: Metrics | None = field(default=None, init=False)
    rooms: RoomService | None = field(default=None, init=False)
    gateway: Gateway | None = field(default=None, init=False)
    _slack: Slack | None = field(default=None, init=False)
    _sign_ins: SignIns | None = field(default=None, init=False, repr=False)
    _tokens: ApiTokens | None = field(default=None, init=False, repr=False)
    _push: PushCalls | None = field(default=None, init=False, repr=False)
    _inspect_rooms: Callable[[], object] = field(default=lambda: None, init=False, repr=False)
    measured: Measured = field(default=unmeasured, init=False)
    _clocks: Noticed = field(factory=Noticed, init=False)
    _found: list[Notice] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        KNOWN.add(self.token, "Intercom token")
        KNOWN.add(self.secrets.secret or "", "rooms secret")
        KNOWN.add(self.proxy_secret or "", "proxy secret")
        KNOWN.add(self.secrets.database_password or "", "database password")
        self.reader = Reader(self.database)
        self.contents = Contents(contents_path(self.database), self.config.checkpoint.max_kept_bytes)
        if self.config.http_port is not None:
            # Metrics are read over HTTP only: without it, counting costs nothing.
            from intercom.operators.metrics import Metrics

            self.metrics = Metrics()
            self.measured = self.metrics.counted.measured
        self.system = System([ChildSpec("server", self._top, shutdown=None)], on_event=self._happened)
        store, card_router = Store(self.system.named("store")), self.system.named("card_router")
        self.processes = KnownProcesses(store, self.now)
        if self.slack is not None:
            # Imported lazily: loading slack_sdk is slow.
            from intercom.operators.slack.supervision import Slack

            self._slack = Slack(self.slack, self.config, self.system, self.now)
        self.signatures = Signatures(Keyring(self.places, self.config, self.system_keys, self.is_foreign))
        self.policy_registry = PolicyRegistry(
            self.system, store, card_router, self.reader, self.now, self.config, self.signatures
        )
        self.session_deps = SessionDeps(
            config=self.config,
            store=store,
            card_router=card_router,
            now=self.now,
            new_id=lambda: str(uuid.uuid4()),
            policy=self.policy_registry.in_force,
            watcher=lambda root: self.system.named(watcher_name(Path(root))),
            present=self.connected_agents.connected,
            chat=None if self._slack is None else self._slack.chat(),
            measured=self.measured,
            signatures=self.signatures,
        )
        slack_status = None if self._slack is None else self._slack.status
        agent_processes = AgentProcesses(
            self.system, self.session_deps, self.reader, Path(self.places.state_dir) / "sessions"
        )
        self.service = OperatorService(
            self.system, self.session_deps, self.reader, self.policy_registry, agent_processes, slack_status
        )
        if self._slack is not None:
            self.service.chat_people = tuple(sorted(self._slack.setup.authorized))
        if self.config.gateway.enabled:
            self.gateway = self._gateway(store)
            self.service.gateway = self._gateway_people(store)
        if self.config.rooms.enabled:
            self.rooms = self._rooms()
            self.service.rooms = self.rooms.people
        if self._has_page:
            self._sign_ins = SignIns(self.now)
            self._tokens = ApiTokens(store, self.reader, self.now)
            self._push = PushCalls(store, self.reader, Path(self.places.push_key_file), self.now, tell=self._announce)
            self.service.web = WebLinks(self.system.named("web"), self._tokens, self._push)
        self.service.server = self._information()
        self.shim_deps = ShimServerDeps(
            config=self.config,
            connected_agents=self.connected_agents,
            life=self.life,
            token=self.token,
            server=mcp_server.build(self.config, self.measured, self._room_tools(), self.gateway, self._attend()),
            require_same_settings=self.require_same_settings,
            outdated=self.outdated,
            processes=self.processes,
        )

        if self.config.http_port is not None:
            # Imported before the loop runs, which a slow import would block.
            importlib.import_module("intercom.agents.http.listener")
            self.http = HttpStatus(self.config.http_host)

    def _top(self) -> Actor:
        return _supervisor(self.tree())

    def tree(self) -> Sequence[ChildSpec]:
        """Return the children of the root in start order. They stop in reverse order, so the sockets close first. Each
        has a name, by which other actors find it again after a restart."""
        deps, named = self.session_deps, self.system.named
        store, card_router = deps.store, deps.card_router
        spawning, tell = self._spawning(), self._tell_operators
        anchor = Path(self.places.audit_anchor_file)
        children = [
            # The only writer of the database.
            ChildSpec("store", self._writer, shutdown=10.0),
            # Checks the database files every few seconds.
            ChildSpec("database-watch", self._database_watch),
            # Operators see cards from here on.
            ChildSpec("card_router", self._router),
            # Detects clock jumps and has all deadlines checked again.
            ChildSpec("clock-watch", partial(ClockWatch, store, card_router, self.now, self.boot_time, self._clocks)),
            # A watcher for each workspace's policy; a session supervisor (session and stall detector) for each agent.
            ChildSpec("policies", _group, shutdown=None),
            ChildSpec("sessions", _group, shutdown=None),
            # Admits agents, and restores the sessions of an earlier server run.
            ChildSpec("registry", self._registry),
            # Agent processes that people start, and the actor that starts and finds them.
            ChildSpec("agent-processes", _group, shutdown=None),
            ChildSpec("spawner", partial(Spawner, spawning)),
            # Takes and restores checkpoints, and continues what a crash interrupted.
            ChildSpec("checkpoints", self._checkpoints),
            # Keeps the head of the audit log outside the database, and reports if the two do not match.
            ChildSpec(
                "audit-watch",
                partial(AuditWatch, self.reader, store, card_router, anchor, self.now, self.complain),
                shutdown=10.0,
            ),
            ChildSpec("housekeeping", partial(Housekeeper, deps, spawning.root, self.processes.prune)),
        ]
        if self._slack is not None:
            # Nothing else depends on it.
            slack = self._slack.children(self.service, self.reader)
            children.append(ChildSpec("slack", partial(_supervisor, slack), shutdown=None))
        if self.rooms is not None:
            children += self.rooms.children()
        if self.gateway is not None:
            children += self.gateway.children()
        if "ctl" in self.sockets:
            children.append(ChildSpec("ctl", self._ctl))
        if self._sign_ins is not None and self._tokens is not None:
            # The page: its port opens when a person asks for it.
            children.append(ChildSpec("web", self._web(self._sign_ins, self._tokens)))
        if self._push is not None:
            # Messages to browsers while the page is closed. Nothing else depends on it.
            push = PushDeps(self.service, self._push, self.config.web.push_contact, self.now)
            children.append(ChildSpec("push", partial(PushSender, push)))
        # The shims' connections, and the socket that accepts them.
        children.append(ChildSpec("links", _group, shutdown=None))
        if "shims" in self.sockets:
            listener = partial(ShimListener, self.places.mcp_socket, self.shim_deps, named("links"), tell)
            children.append(ChildSpec("shims", listener))
        if self.http is not None:
            # Agents over HTTP. Nothing else depends on it.
            children.append(ChildSpec("http", self._http_listener(self.http), shutdown=10.0))
        return children

    @property
    def rooms_database(self) -> Path:
        """The rooms' SQLite file, if they are in one."""
        return self.config.rooms.database or self.database.with_name("rooms.db")

    def _rooms(self) -> RoomService:
        """Build the rooms: their store, and the service with its actors."""
        # Imported lazily: most servers have no rooms. Before the loop runs, which a slow import would block.
        from intercom.rooms.service import RoomService

        url = self.secrets.database_url
        if url is None:
            from intercom.store.room_database import SqliteRooms

            sqlite = SqliteRooms(
                self.rooms_database,
                self.system,
                measured=self.measured,
                on_fault=self._database_fault,
                now=self.now,
            )
            self._inspect_rooms = sqlite.inspect
            store: RoomStore = sqlite
        else:
            try:
                from intercom.store.postgres import PostgresRooms
            except ModuleNotFoundError as missing:
                raise ConfigError(
                    f"rooms in PostgreSQL need {missing.name}: run uv tool install --force '.[postgres]' in a clone of"
                    " the repository, or pip install '.[postgres]' where it is installed"
                ) from missing

            store = PostgresRooms(url, self.system, measured=self.measured, now=self.now)
        return RoomService(
            self.config.rooms,
            store,
            self.system,
            now=self.now,
            own_url=self._own_url,
            tell=self._tell_operators,
            show=self.system.named("card_router").tell,
            start_agent=self._start_concluder if self.config.rooms.conclusion_agent else None,
            evidence=None if self.gateway is None else self.gateway.evidence,
            has_secret=self.secrets.secret is not None,
        )

    def _gateway(self, store: Store) -> Gateway:
        """Build the gateway: its records, its part of the store, and the service with its actors."""
        # Imported lazily: most servers have none.
        from intercom.gateway.call_journal import Journal, arguments_key
        from intercom.gateway.call_log import InvocationLog
        from intercom.gateway.process_records import ProcessRecords
        from intercom.gateway.service import Gateway, lookup_in
        from intercom.gateway.stored_state import StoredState

        state = Path(self.places.state_dir)
        records = InvocationLog(
            Journal(state / "gateway-calls.jsonl"),
            arguments_key(state / "gateway-arguments.key"),
            store,
            now=self.now,
            complain=lambda text: self._tell_operators(text, "warning"),
            measured=self.measured,
        )
        return Gateway(
            directory=self.config.gateway.directory or Path(self.places.gateway_directory),
            system=self.system,
            log=records,
            stored=StoredState(store, self.reader, self.now, genuine=self.signatures.is_genuine),
            show=self.system.named("card_router").tell,
            credentials=Path(self.places.gateway_credentials),
            processes=ProcessRecords(state / "gateway-processes"),
            own_tools=mcp_server.own_tools(self.config),
            own_prompts=mcp_server.OWN_PROMPTS,
            lookup=lookup_in(self.environ),
            environ=self.environ,
            tell=self._tell_operators,
            now=self.now,
        )

    def _gateway_people(self, store: Store) -> GatewayOperations:
        from intercom.gateway.operations import GatewayPeople

        assert self.gateway is not None, "it was made just now"
        return GatewayPeople(self.gateway, store, self.reader)

    async def _start_concluder(self, task: str, act: str) -> Session:
        """Start an agent that concludes a room."""
        return await self.service.agent_processes.start(
            task, by="intercom", channel="rooms", label="conclusion", act=act
        )

    def _announce(self, line: str) -> None:
        """Tell a line to every channel."""
        self.system.named("card_router").tell(Notice(line, "warning", self.now()))

    def _information(self) -> ServerInformation:
        """Build what the server tells people about itself."""
        url = self.secrets.database_url
        rooms = str(self.rooms_database) if url is None else without_password(url)
        return ServerInformation(
            self.config,
            self.now(),
            self.database,
            self.config_path,
            rooms if self.config.rooms.enabled else None,
            self._http_port,
            self.service.rooms,
            self.only_rooms,
            self._has_page,
            self.make_entries,
        )

    def _attend(self) -> Attend | None:
        """Return what asks the users of agents' clients, if the configuration has that."""
        if not self.config.elicitation.enabled:
            return None
        # Imported lazily: most servers ask nobody there.
        from intercom.operators.client_dialogs import ClientDialogs

        return ClientDialogs(self.service, self._mode_of, self.session_deps.card_router.tell, self.now).attend

    def _http_port(self) -> HttpPort | None:
        if self.http is None:
            return None
        return HttpPort(self.http.base, self.http.fault, self.config.http_token_required)

    def _own_url(self) -> str | None:
        """Return the address at which this server listens, while it does."""
        return None if self.http is None else self.http.base

    def _registry(self) -> SessionRegistry:
        sessions, policies = self.system.named("sessions"), self.system.named("policies")
        return SessionRegistry(
            self.session_deps,
            self.connected_agents,
            sessions,
            policies,
            self.policy_registry,
            self._mode,
            self.processes.in_session,
            self._has_role,
        )

    def _has_role(self, session_id: str) -> bool:
        """Whether the gateway gives this session a role of its own."""
        return self.gateway is not None and self.gateway.snapshot.assignments.names_session(session_id)

    def _database_watch(self) -> DatabaseWatch:
        def tell(text: str) -> None:
            self._database_fault(Fault(text))

        def disturbed() -> str | None:
            self._inspect_rooms()
            return self.contents.disturbed()

        return DatabaseWatch(self.session_deps.store, self.renew_lock, disturbed, tell)

    def _writer(self) -> Writer:
        return Writer(
            self.database, on_opened=self._opened, measured=self.measured, on_fault=self._database_fault, now=self.now
        )

    def _http_listener(self, status: HttpStatus) -> Callable[[], Actor]:
        # Imported lazily: loading the web server is slow.
        from intercom.agents.http import http_sessions, listener
        from intercom.agents.http.listener import HttpDeps

        at = HttpDeps(
            server=self.shim_deps.server,
            factory=http_sessions.ConnectionFactory(
                self.system, self.config, self.connected_agents, self.shim_deps.connections
            ),
            status=status,
            pages=self.pages(),
            card_router=self.system.named("card_router"),
            now=self.now,
            processes=self.processes,
            token=partial(own_files.http_token, self.places) if self.config.http_token_required else None,
            keep_token=partial(own_files.keep_http_token, self.places),
            address_file=self.places.http_address_file,
            measured=self.measured,
            rooms=self._rooms_deps(),
            only_rooms=self.only_rooms,
        )
        return lambda: listener.HttpListener(at)

    def _rooms_deps(self) -> RoomsDeps | None:
        if self.rooms is None:
            return None
        from intercom.agents.rooms.room_call import RoomsDeps

        return RoomsDeps(self.rooms, self.config.rooms, self.secrets.secret)

    def _room_tools(self) -> RoomTools | None:
        """Return the rooms' tools for agents that connect to this server in other ways than over the rooms' paths."""
        if (deps := self._rooms_deps()) is None:
            return None
        from intercom.agents.rooms.mcp import RoomTools

        return RoomTools(deps, self.measured)

    def _ctl(self) -> CtlListener:
        return CtlListener(
            self.service,
            self.places.ctl_socket,
            self.places.token_file,
            token=self.token,
            trust_agent_processes=self.config.ctl.trust_agent_processes,
            agents=self.processes,
            now=self.now,
        )

    @property
    def _has_page(self) -> bool:
        """Whether people can open the page: its links are given over ctl's socket only."""
        return self.config.web.enabled and "ctl" in self.sockets

    def _web(self, sign_ins: SignIns, tokens: ApiTokens) -> Callable[[], Actor]:
        deps = WebDeps(
            service=self.service,
            sign_ins=sign_ins,
            tokens=tokens,
            places=self.places,
            port=self.config.web.port,
            settings=self.config.web,
            proxy_secret=self.proxy_secret,
            agents=self.processes,
            trust_agent_processes=self.config.ctl.trust_agent_processes,
            now=self.now,
            started_at=self.now(),
        )
        return lambda: WebListener(deps)

    @property
    def _mode(self) -> SessionMode:
        """The default notification mode of a session."""
        return SessionMode.LOCAL if self.slack is None else SessionMode.HYBRID

    def _over_http(self, session_id: str) -> dict[str, str]:
        """Return the environment variables with which an agent process finds the HTTP transport; empty without HTTP."""
        if self.http is None or self.http.url is None:
            return {}
        token = {} if self.http.token is None else {"INTERCOM_HTTP_TOKEN": self.http.token}
        return {"INTERCOM_MCP_URL": f"{self.http.url}?session_id={session_id}", **token}

    def _spawning(self) -> ProcessDeps:
        return ProcessDeps(
            session_deps=self.session_deps,
            root=self.service.agent_processes.root,
            environ=self.environ,
            supervisor=self.system.named("agent-processes"),
            registry=self.system.named("registry"),
            default_mode=self._mode,
            came=self.processes.started,
            left=self.processes.left,
            http=self._over_http,
            stays=lambda: self.hands_over,
        )

    def _checkpoints(self) -> Checkpoints:
        archive = Archive(self.session_deps, self.reader, self.contents)
        start = self._start_restored if self.config.host_cli is not None else None
        return Checkpoints(archive, Successors(self.system, archive, start))

    async def _start_restored(self, session: Session, prompt: str) -> Session:
        """Start an agent for a restored session."""
        return await self.service.agent_processes.start(
            prompt, by="intercom", channel="restore", workspace=session.workspace_root, session_id=session.id
        )

    def _router(self) -> CardRouter:
        found, self._found = self._found, []
        return CardRouter(self._open_cards, self._mode_of, found=found)

    async def _open_cards(self) -> Sequence[Card]:
        return (
            *await with_away(self.system, await self.reader.read(open_cards)),
            *self.policy_registry.cards(),
            *(() if self.rooms is None else self.rooms.cards.known()),
            *(() if self.gateway is None else self.gateway.cards.cards()),
        )

    async def _mode_of(self, session_id: str) -> SessionMode | None:
        """Return a session's mode. Without chat, `remote` (set by a server with Slack) counts as `local`."""
        mode = await mode_of(self.reader, session_id)
        return SessionMode.LOCAL if mode is SessionMode.REMOTE and self.session_deps.chat is None else mode

    def found(self, text: str) -> None:
        """Queue a warning for the operators, before the server runs."""
        self._found.append(Notice(text, "warning", self.now()))

    def _opened(self, opened: OpenedDatabase) -> None:
        """Process what the store found when it opened. Runs in the store's thread, before anything else starts."""
        self.processes.load(opened.db)
        faults, unsigned = self.signatures.keyring.load(opened.db, self.now())
        for text in faults:
            self._tell_operators(text, "error")
        if unsigned is not None:
            self._tell_operators(unsigned.sentence(), "warning")
        if self.signatures.keyring.has_new_settings:
            try:
                with transaction(opened.db):
                    signed = self.signatures.keyring.note_settings(opened.db, self.now())
                if signed is not None and unsigned is None:
                    self._tell_operators(self.signatures.keyring.new_settings(signed), "success")
            except sqlite3.Error as fault:
                # The server starts with a full disk too.
                log.warning("the signed settings could not be recorded: %s", fault)
        if self.session_deps.chat is not None:
            try:
                with transaction(opened.db):
                    sessions.include_chat(opened.db, self.now())
            except sqlite3.Error as fault:
                log.warning("sessions from before slack was set up are not shown there: %s", fault)
        if opened.moved_aside is not None:
            text = (
                f"the database was damaged; it was moved to {opened.moved_aside} and a new one was created:"
                " earlier requests have to be asked again"
            )
            self._tell_operators(text, "error")
        if (incident := take_incident(self.database)) is not None:
            # The previous server could not report it to every operator.
            self._tell_operators(incident, "error")

    def _database_fault(self, fault: Fault) -> None:
        """Report a database fault, and stop the server if it is fatal. Runs in the store's thread or in the loop."""
        log.log(logging.getLevelNamesMapping()[fault.level.upper()], "%s", fault.text)
        self._tell_operators(fault.text, fault.level)
        if fault.level == "error":
            self.complain(fault.text)
        if fault.fatal:
            self.failure = fault.text
            self.system.request_stop()

    def _tell_operators(self, text: str, level: str) -> None:
        notice = Notice(text, level, self.now())
        if self.system.ref("card_router") is None:
            # The server is starting: the card router does not exist yet.
            self._found.append(notice)
        else:
            self.system.named("card_router").tell(notice)

    def pages(self) -> Sequence[Page]:
        """Return the HTTP pages besides MCP; none without HTTP."""
        if self.metrics is None:
            return ()
        from intercom.operators.metrics import figures, pages

        def own() -> Mapping[tuple[str, str], float]:
            status = self.http
            assert status is not None, "these pages are served over HTTP"
            return figures(up=status.port is not None, **asdict(status.counts()))

        return pages(
            self.metrics, self.service, life=self.life, agents=lambda: len(self.connected_agents.here), own=own
        )

    def _happened(self, event: Event) -> None:
        if self.metrics is not None:
            self.metrics.counted.happened(event)
        if self.on_event is not None:
            self.on_event(event)

    def is_idle(self) -> bool:
        """Whether nothing is connected, and no agent that people started runs."""
        return not self.processes.connected and not self.connected_agents.here

    async def is_page_needed(self) -> bool:
        """Whether somebody is signed in to the page, or reaches it without a link. Raises one of UNANSWERED."""
        return self._sign_ins is not None and await ask(self.system.named("web"), IsNeeded())


def contents_path(database: Path) -> Path:
    """Return the path of the checkpoints' file contents, beside the database that names them."""
    return database.with_name(f"{database.stem}-contents{database.suffix}")
