"""Answers the gateway's commands that only show something when no server runs: from its files, and from the database.

The server leaves with the last agent, and a person looks at what agents did, and changes roles, mostly afterwards. The
answers have the form of a server's. What only a server knows is missing: whether a downstream can be reached, and which
tools it offers now. The tools are those that were allowed when a server ran.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import frozen

from intercom.gateway import call_log_reader
from intercom.gateway.catalog import Catalog, named_tool
from intercom.gateway.config_directory import Settings, read_settings
from intercom.gateway.config_directory_check import faults_first, lint_findings, missing_program
from intercom.gateway.health_report import target_of
from intercom.gateway.role_view import explain_role
from intercom.local import config_file, daemon
from intercom.local.places import Places
from intercom.model.errors import IntercomError, NotFound
from intercom.model.gateway_view import (
    CallTail,
    DownstreamList,
    DownstreamStatus,
    DownstreamView,
    LintFinding,
    RoleExplanation,
)
from intercom.model.json_types import Json, JsonObject
from intercom.operators.commands.command_table import LISTED
from intercom.operators.commands.json_forms import plain
from intercom.store import gateway as stored
from intercom.store.store_and_reader import Reader

if TYPE_CHECKING:
    from intercom.store.writer_messages import Database

#: The reason of each downstream's state.
NO_SERVER: Final = "no server runs"

T = TypeVar("T")


@frozen
class _Files:
    """What there is without a server: the gateway's settings, and the database, None if there is none yet."""

    settings: Settings
    database: Path | None
    is_on: bool = True

    def read(self, work: Callable[[Database], T], otherwise: T) -> T:
        """Read from the database, or return `otherwise` if there is none. Raises IntercomError."""
        if self.database is None:
            return otherwise
        reader = Reader(self.database)
        try:
            return reader.read_sync(work)
        except IntercomError:
            raise
        except Exception as fault:
            raise IntercomError(
                f"the database {self.database} cannot be read ({fault}): start the server once, which brings it up to"
                " date",
                code="db",
            ) from None
        finally:
            reader.close()

    def allowed_tools(self) -> Mapping[str, tuple[str, ...]]:
        """Return the tools of each downstream that were allowed; those of one that never ran are left out."""
        nothing: Mapping[str, tuple[str, ...]] = {}
        found = self.read(partial(_allowed, names=tuple(self.settings.configs)), nothing)
        return {name: tools for name, tools in found.items() if tools}


def answer(where: Places, config: str | None, command: str, fields: JsonObject) -> tuple[JsonObject, str] | None:
    """Return the answer to a command, as a server's, and a sentence that says where it comes from. None if only a
    server can answer. Raises IntercomError, also for what a server would refuse."""
    answers: Mapping[str, Callable[[_Files, JsonObject], Json]] = {
        "gateway-list": lambda files, _fields: plain(_list(files)),
        "gateway-explain": lambda files, given: plain(_explain(files, given)),
        "gateway-lint": lambda files, _fields: {"findings": plain(_lint(files))},
        "gateway-tail": lambda files, given: plain(_tail(files, given)),
    }
    if command not in answers:
        return None
    files = _files(where, config)
    data = answers[command](files, fields)
    assert isinstance(data, dict)
    what = "these are the recorded calls" if command == "gateway-tail" else "this is what the files say"
    off = "" if files.is_on else "; the gateway is off (enabled under [gateway] in the configuration)"
    return data, f"{NO_SERVER}: {what}{off}; an agent that starts, or agent-intercom serve, starts one"


def _files(where: Places, config: str | None) -> _Files:
    settled = config_file.load(None if config is None else Path(config))
    directory = settled.gateway.directory or Path(where.gateway_directory)
    database = config_file.database_path(settled, where)
    return _Files(read_settings(directory), database if database.is_file() else None, settled.gateway.enabled)


def _list(files: _Files) -> DownstreamList:
    now, environ = datetime.now(UTC), daemon.for_server(os.environ)
    disabled: Mapping[str, str] = files.read(partial(_disabled, names=tuple(files.settings.configs)), {})
    tools = files.allowed_tools()
    views = []
    for name, config in sorted(files.settings.configs.items()):
        missing, by = missing_program(config, environ), disabled.get(name)
        reason = f"{by} has disabled it" if by else NO_SERVER if config.enabled else "its file disables it"
        views.append(
            DownstreamView(
                name=name,
                transport=config.transport.value,
                target=target_of(config),
                status=DownstreamStatus.OFFLINE,
                reason=f"{NO_SERVER}, and {missing}" if missing and reason == NO_SERVER else reason,
                since=now,
                is_enabled=config.enabled and by is None,
                disabled_by=by,
                description=config.description,
                tools=len(tools.get(name, ())),
            )
        )
    return DownstreamList(tuple(views), faults_first(files.settings.faults), is_live=False)


def _explain(files: _Files, fields: JsonObject) -> RoleExplanation:
    settings, role = files.settings, str(fields.get("role"))
    name, tool = (None if fields.get(key) is None else str(fields[key]) for key in ("id", "tool"))
    name, tool = named_tool(Catalog(), settings.configs, name, tool)
    if name is not None and tool is None and name not in settings.configs:
        there = ", ".join(sorted(settings.configs)) or "none"
        raise NotFound(f"no MCP server is called {name[:80]!r}; there are: {there}")
    known = files.allowed_tools() if tool is None else {}
    tools = [(each, verb) for each, verbs in sorted(known.items()) for verb in verbs if name in (None, each)]
    return explain_role(settings.roles, settings.faults, role, tools, name, tool)


def _lint(files: _Files) -> Sequence[LintFinding]:
    settings, known = files.settings, files.allowed_tools()
    tools = {name: known.get(name) for name in settings.configs}
    nobody: tuple[tuple[str, ...], Mapping[str, str]] = ((), {})
    ids, agents = files.read(call_log_reader.sessions_and_agents, nobody)
    return lint_findings(
        settings.roles, settings.assignments, settings.faults, tools, ids if files.database else None, agents
    )


def _tail(files: _Files, fields: JsonObject) -> CallTail:
    limit, name = fields.get("limit"), fields.get("id")
    work = partial(
        call_log_reader.tail,
        name=None if name is None else str(name),
        limit=limit if isinstance(limit, int) else LISTED,
    )
    found = files.read(work, CallTail((), 0))
    if name is not None and not found.calls and name not in files.settings.configs:
        there = ", ".join(sorted(files.settings.configs)) or "none"
        raise NotFound(f"no MCP server is called {str(name)[:80]!r}; there are: {there}")
    return found


def _allowed(db: Database, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(each.tool for each in stored.pins_of(db, name)) for name in names}


def _disabled(db: Database, names: Sequence[str]) -> Mapping[str, str]:
    found = {name: stored.disabled_by(db, name) for name in names}
    return {name: by for name, by in found.items() if by is not None}
