"""What is wrong with the gateway's files, or likely a mistake in them: for `gateway lint`, and for doctor.

`lint_findings` is pure, and knows the tools of downstreams that run. `examine_directory` only reads files, so it needs
no server: it also finds missing programs and variables, as this process would have them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from intercom.gateway.assignments import Assignments
from intercom.gateway.config_directory import ROLES_FILE, Settings, directory_fault, read_settings
from intercom.gateway.credentials import CredentialStore
from intercom.gateway.downstream_config import DownstreamConfig, Transport, references
from intercom.gateway.json_settings import plain
from intercom.gateway.roles import ANY, Effect, LintKind, Roles, lint
from intercom.gateway.variables import Malformed, Source
from intercom.gateway.variables import references as references_in
from intercom.model.errors import ConfigError
from intercom.model.gateway_view import LintFinding, LintLevel
from intercom.model.visible_text import one_line


def lint_findings(
    roles: Roles,
    assignments: Assignments,
    faults: Sequence[str],
    tools: Mapping[str, Collection[str] | None],
    sessions: Collection[str] | None = None,
    agents: Mapping[str, str] | None = None,
) -> tuple[LintFinding, ...]:
    """Return the faults of the files, then the warnings about roles and about who has them. `tools` has the tools of
    each downstream, None for one whose tools are not known now. `sessions` are the ids of all sessions, None if they
    are not known, and `agents` the session of each agent that has called lately, by the id that records have."""
    found = [LintFinding(LintLevel.FAULT, one_line(fault)) for fault in faults]
    if roles_fault(faults) is not None:
        # It grants nothing, and nothing else is known of it.
        return tuple(found)
    found += [LintFinding(LintLevel.WARNING, text) for text in _about_roles(roles, tools)]
    about = [
        *_about_assignments(roles, assignments, tools),
        *_unnamed(roles, tools),
        *_about_sessions(assignments, sessions, agents or {}),
    ]
    found += [LintFinding(LintLevel.WARNING, text) for text in about]
    return tuple(found)


def roles_fault(faults: Sequence[str]) -> str | None:
    """Return the fault because of which nothing in roles.json counts, or None."""
    return next((each for each in faults if f"/{ROLES_FILE}" in each.partition(": ")[0]), None)


def faults_first(faults: Sequence[str]) -> tuple[str, ...]:
    """Return the faults of the files, the one because of which nobody has a role before the others: it says so."""
    first = roles_fault(faults)
    if first is None:
        return tuple(faults)
    return f"{first}; until then no agent may call anything", *(each for each in faults if each != first)


def _about_roles(roles: Roles, tools: Mapping[str, Collection[str] | None]) -> Iterator[str]:
    """Yield the likely mistakes in roles. That a role has all tools of several downstreams is said once."""
    whole: dict[str, list[str]] = {}
    warnings = lint(roles, tools)
    for each in warnings:
        if each.kind is LintKind.OVER_BROAD and each.rule is not None and each.rule.verb == ANY != each.rule.tool:
            whole.setdefault(each.role or "", []).append(each.rule.tool)
    for each in warnings:
        named = whole.get(each.role or "", [])
        if each.kind is not LintKind.OVER_BROAD or each.rule is None or each.rule.tool not in named or len(named) < 2:
            yield one_line(each.text).rstrip(".")
        elif each.rule.tool == named[0]:
            yield one_line(
                f"role {_quoted(each.role or '')}: it allows every tool of {', '.join(named)}, also those that are"
                " added later: name tools instead where an agent need not have all"
            )


def _about_sessions(
    assignments: Assignments, sessions: Collection[str] | None, agents: Mapping[str, str]
) -> Iterator[str]:
    if sessions is None:
        return
    for each in assignments.assignments:
        prefix = each.session
        if prefix is None or any(id.lower().startswith(prefix) for id in sessions):
            continue
        known = next((session for agent, session in agents.items() if agent.lower().startswith(prefix)), "")
        hint = (
            f"it is the id of an agent, whose session is {known[:8]}" if known else "agent-intercom-ctl list has them"
        )
        yield f"{ROLES_FILE}: the assignment of role {_quoted(each.role)} fits no session {_quoted(prefix)}: {hint}"


def _unnamed(roles: Roles, downstreams: Collection[str]) -> Iterator[str]:
    """Say which downstreams no role lets anybody use."""
    named = {each.tool for role in roles.roles.values() for each in role.capabilities if each.effect is not Effect.DENY}
    if ANY in named or not roles.roles:
        return
    for name in downstreams:
        if name not in named:
            yield f'{one_line(name)}: no role names it, so no agent may call its tools: add "{name}.*" to a role'


def _about_assignments(roles: Roles, assignments: Assignments, downstreams: Collection[str]) -> Iterator[str]:
    used = {each.role for each in assignments.assignments} | {assignments.default_role}
    for name in roles.roles:
        if name not in used:
            yield (
                f"role {_quoted(name)}: no agent has it: write it as defaultRole, or into assignments of {ROLES_FILE}"
            )
    if assignments.default_role is None and (roles.roles or downstreams):
        rest = " that no assignment fits" if assignments.assignments else ""
        yield (
            f"{ROLES_FILE}: no defaultRole is set, so agents{rest} may call nothing: write"
            ' "defaultRole": "NAME" if they should'
        )
    if assignments.trust_client_names:
        yield (
            f"{ROLES_FILE}: trustClientNames lets each program have the role of the client whose name it says: leave it"
            " out, unless you trust every program that can connect"
        )


def examine_directory(directory: Path, environ: Mapping[str, str]) -> tuple[Settings, tuple[LintFinding, ...]]:
    """Read the directory, and return its settings and what does not work or is missing. Changes nothing, and raises
    nothing. What roles allow is for `lint_findings`.

    `environ` is the environment of a server that would be started here. The keychain is not asked.
    """
    settings = read_settings(directory)
    found = [LintFinding(LintLevel.FAULT, one_line(fault)) for fault in settings.faults]
    if directory_fault(directory) is not None:
        # Nothing else of it was read.
        return settings, tuple(found)
    if roles_fault(settings.faults) is None:
        about = _about_assignments(settings.roles, settings.assignments, settings.configs)
        found += [LintFinding(LintLevel.WARNING, text) for text in about]
    for name, config in settings.configs.items():
        if not config.enabled:
            continue
        found += [LintFinding(LintLevel.WARNING, text) for text in _unset(config, environ)]
        missing = missing_program(config, environ)
        if missing is not None:
            found.append(LintFinding(LintLevel.FAULT, f"{name}: {missing}"))
    return settings, tuple(sorted(found, key=lambda each: each.level is not LintLevel.FAULT))


def examine_sign_ins(settings: Settings, store: CredentialStore, now: float) -> tuple[LintFinding, ...]:
    """Return which downstreams a person must sign in to, as far as files can tell. `now` is seconds of the epoch."""
    found = []
    for name, config in settings.configs.items():
        # Credentials are for one address, which a reference hides here.
        if not config.enabled or not config.signs_in or "${" in (config.base_url or ""):
            continue
        try:
            if store.needs_sign_in(config, now):
                found.append(LintFinding(LintLevel.WARNING, sign_in_text(name)))
        except ConfigError as fault:
            found.append(LintFinding(LintLevel.FAULT, one_line(f"{name}: {fault.message}")))
    return tuple(found)


def sign_in_text(name: str) -> str:
    """Return what a person is told about a downstream that they must sign in to."""
    return f"{name}: needs sign-in: run agent-intercom gateway sign-in {name}"


def _unset(config: DownstreamConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Say which variables have no value. A server may have another environment, so it is no fault."""
    for reference, keys in references(config).items():
        if reference.source is Source.ENVIRONMENT and reference.name not in environ:
            yield (
                f"{config.name}: {reference.name} (for {', '.join(keys)}) is not set for a server that an agent starts,"
                f" which gets few variables: write ${{keychain:{config.name}/{reference.name}}} instead, or run"
                " agent-intercom serve where it is set"
            )


def missing_program(config: DownstreamConfig, environ: Mapping[str, str]) -> str | None:
    """Return why its program cannot be started, or None if it can be, or if a reference decides."""
    command = config.command
    if config.transport is not Transport.STDIO or command is None:
        return None
    try:
        if references_in(command):
            return None
    except Malformed:
        return None
    home = environ.get("HOME", "/")
    path = home + command[1:] if command.startswith("~/") else command
    if shutil.which(path, path=environ.get("PATH", os.defpath)) is not None:
        return None
    name = plain(os.path.basename(command)) or "its command"
    if "/" in command:
        return f"the program {name} does not exist there, or is not executable: correct command in its file"
    return f"the program {name} is in no directory of PATH: install it, or write its whole path as command"


def _quoted(name: str) -> str:
    return f'"{one_line(name)[:60]}"'
