"""Runs `agent-intercom rooms`: a server with rooms and nothing else, alone or as one of several that share a database.

It is the ordinary server under a name of its own, with a database of its own. It takes `[rooms]` and the settings about
people from the user's configuration. The ordinary server keeps Slack, the gateway, the agents' endpoints, and the port
and the proxy of the page.
"""

from __future__ import annotations

import argparse
import gc
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import trio
from attrs import evolve

from intercom._version import __version__
from intercom.app import App
from intercom.cli.serve import (
    FAILED,
    allow_files,
    complain,
    give_memory_back,
    lock_rooms,
    make_app,
    note_directories,
    report,
    start_log,
    told,
    until_signal,
)
from intercom.cli.server_settings import ServerSettings
from intercom.local import config_file, lock, server_secrets
from intercom.local.places import ROOMS_IPC_NAME, Places, places
from intercom.local.server_secrets import DATABASE_VARIABLE, SECRET_VARIABLE, is_database_url, without_password
from intercom.model.config import Config, GatewaySettings, RoomsSettings, SlackSettings
from intercom.model.setting_checks import is_loopback

#: Seconds between two looks whether the port is open.
_PAUSE = 0.05


def run(options: argparse.Namespace) -> int:
    """Run the rooms until SIGTERM or SIGINT. Returns 0, 1 if the server failed, or 2 for unusable settings."""
    allow_files()
    try:
        settings = settle(options, os.environ)
        start_log(settings, options)
        note_directories(settings)
        with lock.acquire(settings.prepare(), version=__version__) as held, lock_rooms(settings):
            return trio.run(_serve, settings, held)
    except Exception as failed:
        return report(told(failed), failed)


def settle(options: argparse.Namespace, environ: Mapping[str, str]) -> ServerSettings:
    """Return the settings for this command line. Raises ConfigError with all faults of the configuration, and for a
    database or a secret that cannot be used; IpcError for an unusable name."""
    where = places(options.ipc_name or ROOMS_IPC_NAME)
    users = Path(where.config_file)
    path = Path(options.config).absolute() if options.config is not None else users if users.exists() else None
    config = config_file.load(path)
    rooms, url = _database(evolve(config.rooms, enabled=True), options.database, environ)
    if options.public_url is not None:
        rooms = evolve(rooms, public_url=options.public_url)
    secrets = server_secrets.read(rooms, environ)
    return ServerSettings(
        _alone(config, rooms, options, where),
        where,
        path,
        None,
        rooms_secrets=secrets if url is None else evolve(secrets, database_url=url),
        only_rooms=True,
    )


def _database(rooms: RoomsSettings, given: str | None, environ: Mapping[str, str]) -> tuple[RoomsSettings, str | None]:
    """Return the settings of the database, and its URL if the command line has it. The command line has precedence
    over the configuration, and that over DATABASE_URL."""
    if given and is_database_url(given):
        return evolve(rooms, database=None, database_url_env=None), given
    if given:
        return evolve(rooms, database=Path(given).expanduser().absolute(), database_url_env=None), None
    is_named = rooms.database is not None or rooms.database_url_env is not None
    if not is_named and environ.get(DATABASE_VARIABLE, "").strip():
        rooms = evolve(rooms, database_url_env=DATABASE_VARIABLE)
    return rooms, None


def _alone(config: Config, rooms: RoomsSettings, options: argparse.Namespace, where: Places) -> Config:
    """Return the configuration of a server that shares no file, port or connection with the ordinary one."""
    public = () if rooms.public_url is None else (urlsplit(rooms.public_url).netloc,)
    return evolve(
        config,
        ipc_name=where.ipc_name,
        http_host=options.host,
        http_port=options.port,
        http_token_required=True,
        http_allowed_hosts=(*config.http_allowed_hosts, *public),
        database=evolve(config.database, path=Path(where.state_dir) / "data" / where.ipc_name / "server.db"),
        # Two servers on one Slack app would each miss some of what people do.
        slack=SlackSettings(),
        # No agent that could call its tools connects here.
        gateway=GatewaySettings(),
        # Programs and the proxy find the ordinary server at that port, and show it their secrets.
        web=evolve(config.web, port=options.web_port, public_url=None, members={}),
        logging=evolve(config.logging, file=None),
        rooms=rooms,
    )


async def _serve(settings: ServerSettings, held: lock.DatabaseLock) -> int:
    app = make_app(settings, frozenset({"ctl"}))
    app.renew_lock = held.renew
    async with app.system:
        gc.freeze()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_signal, app)
            nursery.start_soon(give_memory_back)
            nursery.start_soon(_announce, app)
    if app.failure is None:
        return 0
    complain(app.failure)
    return FAILED


async def _announce(app: App) -> None:
    """Say where the rooms are, once the port is open. End the server if it cannot be opened."""
    http = app.http
    assert http is not None, "the command always has a port"
    while http.port is None:
        if http.fault is not None:
            host, port = app.config.http_host, app.config.http_port
            app.failure = f"port {port} on {host} cannot be opened: the log says why; --port and --host choose another"
            app.system.request_stop()
            return
        await trio.sleep(_PAUSE)
    base = http.base
    assert base is not None, "the port is open"
    assert app.service.rooms is not None, "the command always has rooms"
    address = (await app.service.rooms.address()).url or base
    has_secret = app.secrets.secret is not None
    print("\n".join(greeting(app.config, address, base, http.port, stored_in(app), has_secret)), flush=True)


def stored_in(app: App) -> str:
    """Return where the rooms are stored, without a password."""
    url = app.secrets.database_url
    return str(app.rooms_database) if url is None else without_password(url)


def greeting(config: Config, address: str, base: str, port: int, stored: str, has_secret: bool) -> list[str]:
    """Return what is printed at the start: where the server listens, and the commands that come next. `address` is the
    one that teams use, and `base` the one on this machine."""
    ctl = "agent-intercom-ctl" + ("" if config.ipc_name == ROOMS_IPC_NAME else f" --ipc-name {config.ipc_name}")
    shown = f'-H "Authorization: Bearer ${SECRET_VARIABLE}" ' if has_secret else ""
    room = shlex.quote('{"title": "First room", "description": "", "creator_team_name": "Alex"}')
    lines = [
        f"rooms are open on {config.http_host}, port {port}, and stored in {stored}",
        f"  agents read     {address.rstrip('/')}/agents.md",
        *([f"  people watch    agent-intercom-ctl --ipc-name {config.ipc_name} web"] if config.web.enabled else []),
        f"  in a terminal   {ctl} rooms list",
        f"  make a room     curl -s {shown}--json {room} {base}/api/sessions",
    ]
    if not has_secret and not is_loopback(config.http_host):
        lines.append(
            f"everybody who reaches port {port} can create and join sessions: set {SECRET_VARIABLE} to require a secret"
        )
    return lines
