"""`agent-intercom init`: write a configuration, and tell the MCP clients where Intercom is."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from intercom.cli import init_hooks
from intercom.cli.init_clients import CLIENTS, SERVER_NAME, Client, command
from intercom.cli.init_config import render
from intercom.cli.init_hooks import HOOKS, Hooks
from intercom.cli.init_merge import Unmergeable, merge, snippet
from intercom.local.places import places
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
        _write_config(config, workspace if args.workspace else None, force=args.force)
    except (IntercomError, OSError) as error:
        print(_said(error), file=sys.stderr)
        return 1
    failed = False
    for name in _chosen(args.client):
        client = CLIENTS[name]
        entry = client.entry(command(config if config != own else None, shared=client.shared))
        if not args.write:
            _show(client, workspace, snippet(client.format, client.table, SERVER_NAME, entry))
            continue
        try:
            _merge_into(client, workspace, entry)
        except (Unmergeable, OSError, UnicodeDecodeError) as error:
            failed = True
            print(f"{client.file(workspace)} {_said(error)}: add this by hand:\n", file=sys.stderr)
            print(_indented(snippet(client.format, client.table, SERVER_NAME, entry)), file=sys.stderr)
    if not args.no_hooks:
        start = command(config if config != own else None, shared=False)
        for name in _chosen(args.client):
            if name in HOOKS:
                failed |= not _hook(HOOKS[name], workspace, start, write=args.write)
    return 1 if failed else 0


def _hook(hooks: Hooks, workspace: Path, start: list[str], *, write: bool) -> bool:
    """Show or write a client's hooks; False when they could not be written."""
    if not write:
        print(f"\n{hooks.title}: in {hooks.file(workspace)}\n")
        print(_indented(init_hooks.merge(hooks, "", start)))
        print(f"  {hooks.note}")
        return True
    # A link into a dotfiles repository stays a link: its target is what changes.
    file = Path(os.path.realpath(hooks.file(workspace)))
    try:
        before = file.read_bytes().decode("utf-8") if file.exists() else ""
        _put(file, before, init_hooks.merge(hooks, before, start), 0o600, hooks.title, hooks.note)
    except (Unmergeable, OSError, UnicodeDecodeError) as error:
        print(f"{file} {_said(error)}: add this by hand:\n", file=sys.stderr)
        print(_indented(init_hooks.merge(hooks, "", start)), file=sys.stderr)
        return False
    return True


def _chosen(named: list[str] | None) -> list[str]:
    return list(CLIENTS) if not named or "all" in named else list(dict.fromkeys(named))


def _write_config(file: Path, default_workspace_root: Path | None, *, force: bool) -> None:
    if default_workspace_root in (Path("/"), Path.home().resolve()):
        raise ConfigError(f"{default_workspace_root} can not be a workspace: give --workspace a project")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give --config a file in it")
    text = render(default_workspace_root)
    if file.exists() or file.is_symlink():
        if not force:
            print(f"kept     {file} (--force writes it anew)")
            return
        print(f"backup   {_back_up(file)}")
    _replace(file, text, mode=0o600)
    print(f"wrote    {file}")


def _show(client: Client, workspace: Path, text: str) -> None:
    print(f"\n{client.title}: in {client.file(workspace)}\n")
    print(_indented(text))
    print(f"  {client.note}")


def _merge_into(client: Client, workspace: Path, entry: dict[str, object]) -> None:
    # A link into a dotfiles repository stays a link: its target is what changes.
    file = Path(os.path.realpath(client.file(workspace)))
    before = file.read_bytes().decode("utf-8") if file.exists() else ""
    after = merge(client.format, before, client.table, SERVER_NAME, entry)
    _put(file, before, after, 0o644 if client.shared else 0o600, client.title, client.note)


def _put(file: Path, before: str, after: str, mode: int, title: str, note: str) -> None:
    """Write a client's file, if it changes: with a backup of the one that is there, whose mode it keeps."""
    if after == before:
        print(f"has it   {file}")
        return
    if file.exists():
        mode = file.stat().st_mode & 0o777
        print(f"backup   {_back_up(file)}")
    _replace(file, after, mode=mode)
    print(f"merged   {file}  ({title})\n         {note}")


def _back_up(file: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    backup = file.with_name(f"{file.name}.{stamp}.bak")
    shutil.copy2(file, backup)
    return backup


def _replace(file: Path, text: str, *, mode: int) -> None:
    """All of `text` or nothing: whoever reads the file meanwhile, or after a crash, finds the old one or the new."""
    target = Path(os.path.realpath(file))
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _said(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
