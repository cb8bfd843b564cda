"""The test of a downstream: connections of its own in both protocol versions, what is wrong, and what to do about it.

`examine` makes the connections. `diagnose` is pure: it names a fault, and says what to do, from what a carrier or a
handshake said. The texts that it looks for are those of `stdio_carrier`, `http_exchange` and `connection`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

import trio
from attrs import evolve, field, frozen
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from intercom.gateway.budgets import duration
from intercom.gateway.carrier import CarrierDetail
from intercom.gateway.client_file_diff import Secrets
from intercom.gateway.connection import Connection, Listener
from intercom.gateway.downstream_config import DownstreamConfig, MissingVariables, Transport, host_of
from intercom.gateway.downstream_file import to_json
from intercom.gateway.downstream_lists import DownstreamLists, read_lists
from intercom.gateway.handshake import HandshakeError
from intercom.gateway.json_settings import plain
from intercom.gateway.messages import AgentPeer, CallFailed, RpcError
from intercom.model.errors import ConfigError
from intercom.model.gateway_view import HandshakeAttempt, HealthReport, HealthStatus
from intercom.model.json_types import JsonObject
from intercom.model.visible_text import one_line

#: The time limits of a test's parts (seconds). All together fit into the time that ctl waits for an answer.
EXPAND_SECONDS: Final = 5.0
FIRST_SECONDS: Final = 30.0
LIST_SECONDS: Final = 6.0
SECOND_SECONDS: Final = 8.0
#: A downstream whose handshake takes longer counts as degraded (seconds).
SLOW_SECONDS: Final = 10.0
#: How much of a program's logs a report has, in characters, and how much of its last line a sentence has.
STDERR_LENGTH: Final = 4_000
_SAID_LENGTH: Final = 200
#: The name of the first attempt if it failed: it has tried both versions.
BOTH_VERSIONS: Final = f"{LATEST_MODERN_VERSION} and older"

#: Makes a connection for the time of a block, as `Gateway.connect` does.
Connector = Callable[[DownstreamConfig, "str | None", Listener], AbstractAsyncContextManager[Connection]]


class _Silent:
    """A listener that ignores everything: nobody waits for what a tested downstream announces."""

    def notified(self, method: str, params: JsonObject, agent: AgentPeer | None) -> None:
        pass

    def junk(self, text: str) -> None:
        pass


# --- the test --------------------------------------------------------------------------------------------------------


async def examine(
    config: DownstreamConfig,
    connect: Connector,
    expand: Callable[[DownstreamConfig], DownstreamConfig],
    at: datetime,
) -> HealthReport:
    """Test a downstream. `expand` replaces references in its configuration; it runs in a thread, and may wait for a
    keychain. Takes about a minute at most, and raises nothing for faults of the downstream: they are in the report.

    First it connects as the gateway does, and reads all lists. If that works, it connects again in the handshake of
    older protocol versions. Everything that it started ends before it returns.
    """
    report = HealthReport(
        config.name, at, HealthStatus.UNHEALTHY, config.transport.value, target_of(config), diagnosis=None
    )
    try:
        with trio.fail_after(EXPAND_SECONDS):
            expanded = await trio.to_thread.run_sync(expand, config, abandon_on_cancel=True)
    except MissingVariables as missing:
        reason, _, remedy = missing.message.rpartition(": ")
        return evolve(report, fault="missing_variables", error=reason, diagnosis=remedy)
    except ConfigError as fault:
        diagnosis = f"correct the file {config.name}.json in the gateway's directory"
        return evolve(report, fault="configuration", error=fault.message, diagnosis=diagnosis)
    except trio.TooSlowError:
        error = "a secret in the keychain could not be read in time"
        diagnosis = "unlock the keychain, or store the secret in a variable of the server's environment"
        return evolve(report, fault="keychain", error=error, diagnosis=diagnosis)
    secrets = Secrets.of([to_json(expanded)])
    first = await _attempt(expanded, connect, None, FIRST_SECONDS, with_lists=True)
    report = _with_first(report, first, secrets)
    if first.failure is None and first.lists is not None:
        second = await _attempt(expanded, connect, LATEST_HANDSHAKE_VERSION, SECOND_SECONDS, with_lists=False)
        report = evolve(report, attempts=(*report.attempts, _named(second, LATEST_HANDSHAKE_VERSION, secrets)))
    return _judged(report, config, expanded, first, secrets)


@frozen
class _Attempt:
    """What one connection has shown. `failure` is a clause, and `detail` what is known of the end of its process."""

    seconds: float
    failure: str | None = None
    said: str = ""
    version: str = ""
    server: JsonObject = field(factory=dict)
    capabilities: tuple[str, ...] = ()
    lists: DownstreamLists | None = None
    list_seconds: float | None = None
    detail: CarrierDetail = field(factory=CarrierDetail)


async def _attempt(
    config: DownstreamConfig, connect: Connector, version: str | None, seconds: float, *, with_lists: bool
) -> _Attempt:
    began = trio.current_time()
    limited = evolve(config, startup_seconds=min(config.startup_seconds, seconds))
    made: _Attempt | None = None
    try:
        async with connect(limited, version, _Silent()) as connection:
            made = _Attempt(
                connection.handshake_seconds,
                version=connection.version,
                server=connection.server,
                capabilities=tuple(sorted(connection.capabilities)),
            )
            if with_lists:
                made = await _listed(connection, made)
            made = evolve(made, detail=connection.detail())
    except HandshakeError as failed:
        reason = failed.reason.removeprefix("could not be made: ")
        return _Attempt(trio.current_time() - began, reason, failed.detail, detail=failed.carrier)
    return made


async def _listed(connection: Connection, made: _Attempt) -> _Attempt:
    began = trio.current_time()
    failure, said = "", ""
    try:
        with trio.fail_after(LIST_SECONDS):
            lists = await read_lists(connection)
        return evolve(made, lists=lists, list_seconds=trio.current_time() - began)
    except trio.TooSlowError:
        failure = f"its lists were not answered within {duration(LIST_SECONDS)}"
    except RpcError as refused:
        failure, said = f"it answered the request for its lists with error {refused.code}", refused.message
    except CallFailed as lost:
        failure = lost.reason
    return evolve(made, failure=failure, said=said)


def _with_first(report: HealthReport, first: _Attempt, secrets: Secrets) -> HealthReport:
    is_connected = bool(first.version)
    name = LATEST_MODERN_VERSION if is_connected else BOTH_VERSIONS
    report = evolve(
        report,
        attempts=(_named(first, name, secrets),),
        stderr=secrets.mask(first.detail.stderr)[-STDERR_LENGTH:],
        output=tuple(secrets.mask(one_line(line)) for line in first.detail.output),
    )
    if not is_connected:
        return report
    lists = first.lists or DownstreamLists()
    words = (first.server.get("name"), first.server.get("version"))
    return evolve(
        report,
        handshake_seconds=first.seconds,
        list_seconds=first.list_seconds,
        protocol_version=first.version,
        server=one_line(" ".join(word for word in words if isinstance(word, str)))[:_SAID_LENGTH] or None,
        capabilities=tuple(one_line(each)[:_SAID_LENGTH] for each in first.capabilities),
        tools=tuple(one_line(str(tool.get("name", "")))[:_SAID_LENGTH] for tool in lists.tools),
        resources=len(lists.resources) + len(lists.templates),
        prompts=len(lists.prompts),
    )


def _named(attempt: _Attempt, version: str, secrets: Secrets) -> HandshakeAttempt:
    if not attempt.version:
        return HandshakeAttempt(version, attempt.seconds, secrets.mask(attempt.failure or "it failed"))
    other = None if attempt.version == version else f"it speaks {one_line(attempt.version)[:40]} instead"
    return HandshakeAttempt(version, attempt.seconds, other)


def _judged(
    report: HealthReport, config: DownstreamConfig, expanded: DownstreamConfig, first: _Attempt, secrets: Secrets
) -> HealthReport:
    """Return the report with its status, and with what to do."""
    if first.failure is not None:
        # Masked before any text is cut: half a secret is not recognised.
        detail = evolve(
            first.detail,
            stderr=secrets.mask(first.detail.stderr),
            output=tuple(secrets.mask(line) for line in first.detail.output),
        )
        found = diagnose(expanded, first.failure, detail, secrets.mask(first.said))
        error = f"{report.downstream} {found.error}"
        return evolve(report, fault=found.fault, error=error, diagnosis=found.advice)
    weak = _weakness(report, config)
    if weak is None:
        return evolve(report, status=HealthStatus.HEALTHY)
    error = f"{report.downstream} {weak.error}"
    return evolve(report, status=HealthStatus.DEGRADED, fault=weak.fault, error=error, diagnosis=weak.advice)


def _weakness(report: HealthReport, config: DownstreamConfig) -> Diagnosis | None:
    """Return what should be done about a downstream that works."""
    if not (report.tools or report.resources or report.prompts):
        advice = "check its arguments and variables: many servers leave out tools for which they have no access"
        return Diagnosis("offers_nothing", "works, but offers no tools, resources or prompts", advice)
    usable = [tool for tool in report.tools if config.offers(tool)]
    if report.tools and not usable:
        advice = f'write "{config.name}.*" in the capabilities of its file, or names of its tools'
        return Diagnosis("offers_nothing", "works, but its file lets agents have none of its tools", advice)
    if report.output:
        advice = "start it with an option that makes it quiet, or tell its authors: logs belong on standard error"
        return Diagnosis("noisy", "works, but writes lines to its output that are no messages", advice)
    if report.handshake_seconds is not None and report.handshake_seconds > SLOW_SECONDS:
        took = duration(report.handshake_seconds)
        advice = "install its program, instead of having npx or uvx look for it at each start"
        return Diagnosis("slow", f"works, but took {took} to start", advice)
    return None


def target_of(config: DownstreamConfig) -> str:
    """Return the program or the host of a downstream, for people. Its arguments and paths may be secrets."""
    if config.transport is not Transport.STDIO:
        return host_of(config.base_url)
    return plain((config.command or "").rpartition("/")[2]) or "<hidden>"


# --- the diagnosis ---------------------------------------------------------------------------------------------------


@frozen
class Diagnosis:
    """What is wrong: `fault` for programs, `error` as what follows a downstream's name, and what to do (`advice`)."""

    fault: str
    error: str
    advice: str


_INSTALL: Final = {
    "npx": "install Node.js, which npx comes with",
    "node": "install Node.js",
    "npm": "install Node.js, which npm comes with",
    "bunx": "install Bun, which bunx comes with",
    "uvx": "install uv, which uvx comes with",
    "uv": "install uv",
    "pipx": "install pipx",
    "docker": "install Docker",
}
_OWN_PATH: Final = (
    'or write the path that "command -v NAME" prints in your shell as "command" in its file: the server may have'
    " another PATH than your shell"
)
_BY_HAND: Final = "run its command in a terminal, with the variables of its file, and see what it says"

#: Faults that the reason itself names: what to look for, the fault's name, and the advice.
_REASONS: Final = tuple(
    (re.compile(pattern), fault, advice)
    for pattern, fault, advice in (
        ("the program .* in no directory of PATH|its program .* in no directory of PATH", "program_not_found", ""),
        ("program .*does not exist", "program_not_found", "correct command in its file"),
        ("is not executable|cannot be started", "program_not_started", "make the file executable, or correct command"),
        ("directory that cwd names", "directory_not_found", "correct cwd in its file, or make the directory"),
        ("envFile", "env_file", "correct envFile in its file, or the file that it names"),
        ("NUL character", "configuration", "correct its file, or the values of its variables"),
        ("needs sign-in", "needs_sign_in", ""),
        ("HTTP 403", "access_denied", "check the headers in its file, and what its token may do"),
        (
            "no MCP server answers|is not one of HTTP|offers no stream of events|is not followed",
            "wrong_address",
            'correct baseURL in its file: most end in /mcp; an older server has "transport": "sse", and ends in /sse',
        ),
        ("limits requests", "rate_limited", "wait a while, and test again"),
        (
            "certificate is not trusted",
            "tls",
            "check that baseURL has the name for which the certificate was made; a certificate of your own"
            " authority has to be added to the system's",
        ),
        ("does not speak TLS", "tls", "check the port in baseURL, and whether it begins with http instead of https"),
        ("name of its host", "dns", "correct the host in baseURL, or check this machine's network and DNS"),
        ("nothing listens", "not_running", "start the server, or correct the port in baseURL"),
        (
            "did not accept a connection|could not be reached",
            "unreachable",
            "check the network, a firewall or VPN, and the host in baseURL",
        ),
        ("what is not HTTP|compressed its response", "no_mcp", "check the port in baseURL: something else is there"),
        ("answered HTTP 5", "server_error", "look at the server's own log, or test again later"),
        ("is on another host", "wrong_address", "write the server's own address as baseURL, not that of a proxy"),
        (
            "no protocol version that Intercom knows",
            "unknown_version",
            "update the downstream's server, or Intercom",
        ),
        ("request for its lists|its lists were not", "lists_failed", "look at its logs below, or tell its authors"),
        (
            "a message of more than|more than .* bytes at once",
            "too_large",
            "tell its authors: no list or handshake is this large",
        ),
    )
)  # fmt: skip

_PACKAGE: Final = re.compile(
    r"npm (?:ERR!|error) (?:code )?(?:E404|404)|No matching distribution|not found in the package registry"
    r"|could not determine executable to run",
    re.I,
)
_MODULE: Final = re.compile(
    r"Cannot find (?:module|package)|ModuleNotFoundError|No module named|can't open file|Error: Cannot find"
)
_DENIED: Final = re.compile(r"EACCES|permission denied|Operation not permitted", re.I)
_OFFLINE: Final = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|getaddrinfo|network is unreachable|dns error", re.I)
_PORT: Final = re.compile(r"EADDRINUSE|address already in use", re.I)
_LACKS: Final = re.compile(
    r"required|missing|not set|must be set|is unset|undefined|need|provide|KeyError|no .{0,20}found", re.I
)
_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]\b")
_USAGE: Final = re.compile(r"^\s*usage:|missing (?:required )?argument|arguments are required", re.I | re.M)
#: What Node.js and npm write around an error, which says nothing.
_NOT_A_NAME: Final = re.compile(r"ERR_|MODULE_|NODE_|UNABLE_|E[A-Z]+$")


def diagnose(config: DownstreamConfig, reason: str, detail: CarrierDetail, said: str = "") -> Diagnosis:
    """Return what a failed connection of a downstream means. `reason` is a clause for people, and `said` what the
    downstream wrote about it. The texts may have secrets: mask them."""
    for pattern, fault, advice in _REASONS:
        if pattern.search(reason):
            # The advice has the command that the reason names.
            said = reason.partition(": run 'agent-intercom ")[0]
            return Diagnosis(fault, _sentence(said), advice or _advice(fault, config))
    logged = "\n".join([detail.stderr, *detail.output, said])
    if detail.exit_status is not None or "exited with status" in reason or "was ended by" in reason:
        return _exited(reason, detail, logged)
    if "closed its" in reason:
        return Diagnosis("closed", _sentence(reason), f"it is no MCP server over standard input and output: {_BY_HAND}")
    if "within" in reason or "is silent" in reason:
        return _silent(config, reason, detail)
    if "with error" in reason:
        why = f" ({_last_line(said)})" if said.strip() else ""
        advice = "check its variables and arguments; if it needs an account, sign in with its own command first"
        return Diagnosis("handshake_refused", f"{_sentence(reason)}{why}", advice)
    return Diagnosis("no_mcp", _sentence(reason), f"what answers is no MCP server, or has a fault: {_by_hand(config)}")


def _advice(fault: str, config: DownstreamConfig) -> str:
    if fault == "program_not_found":
        name = target_of(config)
        return f"{_INSTALL.get(name, f'install {name}')}, {_OWN_PATH.replace('NAME', name)}"
    if not config.signs_in:
        return "its token is not accepted: put a new one where the headers in its file refer to"
    token = "if its server gives you tokens, write one into the headers of its file, as ${NAME} or ${keychain:NAME}"
    return f"run agent-intercom gateway sign-in {config.name}; or, {token}"


def _exited(reason: str, detail: CarrierDetail, logged: str) -> Diagnosis:
    """Its process ended by itself: its last words usually say why."""
    last = _last_line(logged)
    error = _sentence(reason) + (f': "{last}"' if last else ", without a word")
    if _PACKAGE.search(logged):
        return Diagnosis("package_not_found", error, "correct the package's name in args: no registry has this one")
    if _MODULE.search(logged):
        return Diagnosis("not_installed", error, "install its program again, or correct the path in args")
    if _PORT.search(logged):
        return Diagnosis(
            "port_in_use", error, "another process has its port: end that, or write another port in its file"
        )
    names = dict.fromkeys(
        name
        for line in logged.splitlines()
        if _LACKS.search(line)
        for name in _NAME.findall(line)
        if not _NOT_A_NAME.match(name)
    )
    if names:
        wanted = ", ".join(list(names)[:5])
        env = ", ".join(f'"{name}": "${{{name}}}"' for name in list(names)[:2])
        advice = f'it wants {wanted}: write "env": {{{env}}} in its file, and set them in the server\'s environment'
        return Diagnosis("needs_variables", error, advice)
    if _USAGE.search(logged):
        return Diagnosis("wrong_arguments", error, "correct args in its file: the program does not take these")
    if _OFFLINE.search(logged):
        return Diagnosis("offline", error, "it needs the network, which did not answer: check it, and test again")
    if _DENIED.search(logged):
        return Diagnosis("permission", error, "let it read and write what it names, or correct args and cwd")
    if "was ended by" in reason:
        return Diagnosis("killed", error, "something ended it: check the memory of this machine, and the system's log")
    return Diagnosis("exits", error, _BY_HAND)


def _silent(config: DownstreamConfig, reason: str, detail: CarrierDetail) -> Diagnosis:
    error = _sentence(reason)
    if config.transport is not Transport.STDIO:
        advice = "what listens there does not answer MCP: check baseURL and transport in its file"
        return Diagnosis("silent", error, advice)
    if detail.output:
        last = _last_line("\n".join(detail.output))
        return Diagnosis(
            "no_mcp",
            f'{error}; what it wrote is no message: "{last}"',
            "it speaks no MCP on its output: many programs need an argument such as mcp, serve or --stdio",
        )
    advice = (
        "its first start may have to download it: run its command once in a terminal. A program that waits for a"
        " question, or listens on a port, is silent too: it may need an argument such as --stdio"
    )
    return Diagnosis("silent", error, advice)


def _by_hand(config: DownstreamConfig) -> str:
    return _BY_HAND if config.transport is Transport.STDIO else "check baseURL and transport in its file"


def _sentence(reason: str) -> str:
    """Return a reason as what follows a downstream's name."""
    first = reason.split(" ", 1)[0]
    return reason if first in ("did", "was", "could", "has", "needs", "cannot") else f"cannot be used: {reason}"


def _last_line(text: str) -> str:
    """Return the last line with words. What follows an error of Node.js is where it happened, which helps nobody."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"[A-Za-z]{3}", line)]
    telling = [line for line in lines if re.search(r"error|exception|fail|required|missing|not ", line, re.I)]
    telling = [line for line in telling if not line.startswith(("at ", "File ", "npm error A complete log"))]
    found = (telling or lines or [""])[-1]
    return one_line(found)[:_SAID_LENGTH]
