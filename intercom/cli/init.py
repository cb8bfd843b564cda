"""`agent-intercom init`: write a configuration, and tell the MCP clients where Intercom is."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tomllib
from pathlib import Path

from attrs import evolve

from intercom.cli import init_files, init_hooks
from intercom.cli.init_clients import CLIENTS, SERVER_NAME, Client, command
from intercom.cli.init_config import render
from intercom.cli.init_hooks import HOOKS, Hooks
from intercom.cli.init_http import DEFAULT_PORT, HTTP, HTTP_KEYS, STDIO_KEYS, TOKEN_VARIABLE, address, with_port
from intercom.cli.init_merge import Unmergeable, Wish, merge, present, snippet
from intercom.local import config_file, http_token
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError


def run(args: argparse.Namespace) -> int:
    """Do what the options of `agent-intercom init` ask and say on stdout what was done.

    Returns 0 when all was done, 1 when a file could not be written or merged (each is named on stderr, and none was
    left half-written), 2 when the options do not fit together.
    """
    if args.write and not args.client:
        print("--write needs to know the clients: add --client codex, say, or --client all", file=sys.stderr)
        return 2
    unknown = [name for name in args.client or () if name not in (*CLIENTS, "all")]
    if unknown:
        print(f"no client is called {unknown[0]}: choose from {', '.join(CLIENTS)}, or all", file=sys.stderr)
        return 2
    workspace = (args.workspace or Path()).expanduser().absolute().resolve()
    if not workspace.is_dir():
        print(f"{workspace} is not a directory: give --workspace an existing project", file=sys.stderr)
        return 2
    try:
        own = Path(places().config_file)
        config = args.config.expanduser().absolute() if args.config else own
        port = None if args.http is None else args.http or DEFAULT_PORT
        _write_config(config, workspace if args.workspace else None, port, force=args.force)
        opened = None if args.http is None else _open_http(config, args.http)
        token_file = None if opened is None else _token_file(opened)
    except (IntercomError, OSError) as error:
        print(init_files.said(error), file=sys.stderr)
        return 1
    named = config if config != own else None
    failed = False
    for name in _chosen(args.client):
        client = CLIENTS[name]
        wish, note = _over_stdio(client, named) if opened is None else _over_http(client, workspace, opened)
        failed |= not _connect(client, workspace, wish, note, write=args.write)
    if not args.no_hooks:
        start = command(named, shared=False)
        for name in _chosen(args.client):
            if name in HOOKS:
                failed |= not _hook(HOOKS[name], workspace, start, write=args.write)
    if token_file is not None:
        print(f"\nThe token stands in {token_file}, and in no other file. Where the client is started:\n")
        print(f'  export {TOKEN_VARIABLE}="$(cat {shlex.quote(token_file)})"')
    return 1 if failed else 0


def _chosen(named: list[str] | None) -> list[str]:
    return list(CLIENTS) if not named or "all" in named else list(dict.fromkeys(named))


# --- the configuration -----------------------------------------------------------------------------------------------


def _write_config(file: Path, default_workspace_root: Path | None, http_port: int | None, *, force: bool) -> None:
    if default_workspace_root in (Path("/"), Path.home().resolve()):
        raise ConfigError(f"{default_workspace_root} can not be a workspace: give --workspace a project")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give --config a file in it")
    text = render(default_workspace_root, http_port)
    if file.exists() or file.is_symlink():
        if not force:
            print(f"kept     {file} (--force writes it anew)")
            return
        print(f"backup   {init_files.back_up(file)}")
    init_files.replace(file, text, mode=0o600)
    print(f"wrote    {file}")


def _open_http(file: Path, port: int) -> Config:
    """See to it that the configuration opens this port; 0 is the one it has, or the default. Raises ConfigError."""
    settings = config_file.load(file)
    wanted = port or settings.http_port or DEFAULT_PORT
    if wanted != settings.http_port:
        text = file.read_text(encoding="utf-8")
        changed = with_port(text, wanted)
        if tomllib.loads(changed) != {**tomllib.loads(text), "http_port": wanted}:
            raise ConfigError(f"{file} can not be edited safely as it is laid out: set http_port = {wanted} in it")
        print(f"backup   {init_files.back_up(file)}")
        init_files.replace(file, changed, mode=file.stat().st_mode & 0o777)
        print(f"set      http_port = {wanted} in {file} (agent-intercom stop ends a server without it)")
    return evolve(settings, http_port=wanted)


def _token_file(config: Config) -> str | None:
    """Where the token stands, made if there is none yet; None where none is asked for."""
    if not config.http_token_required:
        return None
    where = places(config.ipc_name)
    http_token.token(where)
    return where.http_token_file


# --- the clients' files ----------------------------------------------------------------------------------------------


def _over_stdio(client: Client, config: Path | None) -> tuple[Wish, str]:
    entry = client.entry(command(config, shared=client.shared))
    return Wish(client.table, SERVER_NAME, entry, HTTP_KEYS), client.note


def _over_http(client: Client, workspace: Path, config: Config) -> tuple[Wish, str]:
    assert config.http_port is not None, "opened before"
    http, token = HTTP[client.name], config.http_token_required
    try:
        text = init_files.read(client.file(workspace))
    except (OSError, UnicodeDecodeError):
        # Told of when it is to be merged.
        text = ""
    before = present(client.format, text, client.table, SERVER_NAME)
    entry = http.entry(address(config.http_host, config.http_port, client.name, before), token=token)
    return Wish(client.table, SERVER_NAME, entry, STDIO_KEYS, http.inputs if token else ()), http.notes(token=token)


def _connect(client: Client, workspace: Path, wish: Wish, note: str, *, write: bool) -> bool:
    """Show or write a client's entry; False when it could not be written."""
    if not write:
        print(f"\n{client.title}: in {client.file(workspace)}\n")
        print(init_files.indented(snippet(client.format, wish)))
        print(f"  {note}")
        return True
    # A link into a dotfiles repository stays a link: its target is what changes.
    file = Path(os.path.realpath(client.file(workspace)))
    try:
        before = init_files.read(file)
        after = merge(client.format, before, wish)
        init_files.put(file, before, after, 0o644 if client.shared else 0o600, client.title, note)
    except (Unmergeable, OSError, UnicodeDecodeError) as error:
        print(f"{client.file(workspace)} {init_files.said(error)}: add this by hand:\n", file=sys.stderr)
        print(init_files.indented(snippet(client.format, wish)), file=sys.stderr)
        return False
    return True


def _hook(hooks: Hooks, workspace: Path, start: list[str], *, write: bool) -> bool:
    """Show or write a client's hooks; False when they could not be written."""
    if not write:
        print(f"\n{hooks.title}: in {hooks.file(workspace)}\n")
        print(init_files.indented(init_hooks.merge(hooks, "", start)))
        print(f"  {hooks.note}")
        return True
    # A link into a dotfiles repository stays a link: its target is what changes.
    file = Path(os.path.realpath(hooks.file(workspace)))
    try:
        before = init_files.read(file)
        init_files.put(file, before, init_hooks.merge(hooks, before, start), 0o600, hooks.title, hooks.note)
    except (Unmergeable, OSError, UnicodeDecodeError) as error:
        print(f"{file} {init_files.said(error)}: add this by hand:\n", file=sys.stderr)
        print(init_files.indented(init_hooks.merge(hooks, "", start)), file=sys.stderr)
        return False
    return True
