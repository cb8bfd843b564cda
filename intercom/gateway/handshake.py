"""The handshake with a downstream, in either protocol version.

It begins with `server/discover` of 2026-07-28. A downstream that answers with an error gets `initialize` on the same
carrier. One that does not answer gets it there too, because it may only be slow to start; its first good answer counts.
One that ends, or stays silent, is started again for `initialize` alone.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeAlias

import trio
from attrs import frozen
from mcp_types.jsonrpc import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from intercom.gateway.budgets import duration
from intercom.gateway.carrier import CarrierDetail, CarrierLost, OpenCarrier
from intercom.gateway.connection import DISCOVER, INITIALIZE, Connection, Listener
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.messages import CallFailed, RpcError
from intercom.model.json_types import JsonObject
from intercom.workspace.command_runner import plain

#: How long a downstream may be silent at `server/discover` before it gets `initialize`, too (seconds).
PROBE_SECONDS: Final = 3.0
#: The part of the time for the handshake after which a downstream that is still silent is started again.
_RESTART_AFTER: Final = 0.5
#: How long the text about a failed handshake may be, and the downstream's own message in it, in characters.
_DETAIL_LENGTH: Final = 4000
_SAID_LENGTH: Final = 500


class HandshakeError(Exception):
    """A connection could not be made. `reason` continues "the connection ...", as in "could not be made: the process
    exited with status 1"; it contains nothing that a downstream wrote. `detail` may: it says more, for people."""

    def __init__(self, reason: str, detail: str = "", carrier: CarrierDetail | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.carrier = carrier or CarrierDetail()


class _Failed(Exception):
    """An attempt to connect failed. `said` is what the downstream wrote about it. `may_be_other` says that the other
    protocol version may succeed on a new carrier."""

    def __init__(self, reason: str, said: str = "", *, may_be_other: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.said = said
        self.may_be_other = may_be_other


@asynccontextmanager
async def connect(
    config: DownstreamConfig,
    open_carrier: OpenCarrier,
    *,
    version: str | None = None,
    capabilities: JsonObject | None = None,
    tell: Listener,
) -> AsyncIterator[Connection]:
    """Connect to a downstream for the time of the block. Everything that was started ends with the block.

    `config` must be expanded. `version` is the protocol version that was in use the last time; it saves a failed
    attempt. `capabilities` are declared in the handshake of older protocol versions, for all agents. The handshake may
    take `config.startup_seconds`. A lost connection does not end the block: see `wait_lost`.

    Raises HandshakeError. What the block raises leaves it unchanged.
    """
    began = trio.current_time()
    limit = _Limit(began, config.startup_seconds)
    is_modern = version not in HANDSHAKE_PROTOCOL_VERSIONS
    async with AsyncExitStack() as stack:
        connection = None
        for attempt in (1, 2):
            try:
                connection = await stack.enter_async_context(_opened(config, open_carrier, tell, limit))
                if is_modern:
                    await _negotiate(connection, capabilities or {}, limit, may_restart=attempt == 1)
                else:
                    await _initialize(connection, capabilities or {}, limit)
                break
            except (_Failed, CarrierLost, CallFailed) as error:
                failed = error if isinstance(error, _Failed) else _Failed(error.reason)
            # The end of a process may say more: its exit status, and the last lines that it wrote.
            await stack.aclose()
            if attempt == 2 or not failed.may_be_other:
                raise _handshake_error(failed, connection)
            is_modern = not is_modern
        assert connection is not None
        connection.handshake_seconds = trio.current_time() - began
        yield connection


@frozen
class _Limit:
    """The time limit of the handshake: `seconds` from the time `began`."""

    began: float
    seconds: float

    @property
    def deadline(self) -> float:
        return self.began + self.seconds

    def over(self) -> _Failed:
        return _Failed(f"the handshake was not answered within {duration(self.seconds)}")


@asynccontextmanager
async def _opened(
    config: DownstreamConfig, open_carrier: OpenCarrier, tell: Listener, limit: _Limit
) -> AsyncIterator[Connection]:
    """Open a carrier with a connection on it. Raises CarrierLost, or _Failed if that takes too long."""
    failure: Exception | None = None
    is_open = False
    with trio.CancelScope(deadline=limit.deadline) as opening:
        async with open_carrier(config) as carrier:
            opening.deadline, is_open = math.inf, True
            connection = Connection(carrier, tell)
            async with trio.open_nursery() as nursery:
                connection.start(nursery)
                # A nursery would wrap what the block raises, and callers catch it by its type.
                try:
                    yield connection
                except Exception as error:
                    failure = error
                finally:
                    connection.close()
                    nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not is_open:
        raise limit.over()


_Outcome: TypeAlias = "JsonObject | RpcError | CallFailed"


async def _negotiate(connection: Connection, capabilities: JsonObject, limit: _Limit, *, may_restart: bool) -> None:
    """Find out which protocol version the downstream speaks, and do its handshake. Raises _Failed and CallFailed."""
    answers_in, answers = trio.open_memory_channel[tuple[str, _Outcome]](2)

    async def attempt(method: str) -> None:
        request = connection.discover() if method == DISCOVER else connection.initialize(capabilities)
        answers_in.send_nowait((method, await _outcome_of(request)))

    restart_at = limit.began + limit.seconds * _RESTART_AFTER if may_restart else limit.deadline
    until = min(trio.current_time() + PROBE_SECONDS, restart_at)
    outcomes: dict[str, _Outcome] = {}
    is_initializing = False
    verdict: tuple[str, JsonObject] | _Failed | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt, DISCOVER)
        while verdict is None:
            is_silent = True
            with trio.move_on_at(until):
                method, outcome = await answers.receive()
                outcomes[method] = outcome
                is_silent = False
            if connection.is_lost:
                verdict = _Failed(connection.lost_reason, may_be_other=may_restart)
            elif not is_silent:
                verdict = _verdict(outcomes)
            elif until >= limit.deadline:
                verdict = limit.over()
            elif is_initializing:
                verdict = _Failed("the downstream is silent", may_be_other=True)
            if verdict is None:
                until = limit.deadline if outcomes else restart_at
                if not is_initializing:
                    is_initializing = True
                    nursery.start_soon(attempt, INITIALIZE)
        nursery.cancel_scope.cancel()
    if isinstance(verdict, _Failed):
        raise verdict
    await connection.adopt(*verdict)


async def _initialize(connection: Connection, capabilities: JsonObject, limit: _Limit) -> None:
    """Do the handshake of older versions. Raises _Failed and CallFailed."""
    outcome: _Outcome | None = None
    with trio.move_on_at(limit.deadline):
        outcome = await _outcome_of(connection.initialize(capabilities))
    if outcome is None:
        raise limit.over()
    version = _version_in(INITIALIZE, outcome)
    if version is None or not isinstance(outcome, dict):
        is_newer = isinstance(outcome, RpcError) and outcome.code == UNSUPPORTED_PROTOCOL_VERSION
        raise _failure(outcome, may_be_other=is_newer)
    await connection.adopt(version, outcome)


async def _outcome_of(request: Awaitable[JsonObject]) -> _Outcome:
    try:
        return await request
    except (RpcError, CallFailed) as error:
        return error


def _verdict(outcomes: Mapping[str, _Outcome]) -> tuple[str, JsonObject] | _Failed | None:
    """Return the agreed version with the result that has it, the failure of both attempts, or None to wait."""
    for method, outcome in outcomes.items():
        version = _version_in(method, outcome)
        if version is not None and isinstance(outcome, dict):
            return version, outcome
    if len(outcomes) < 2:
        return None
    return _failure(outcomes[INITIALIZE])


def _version_in(method: str, outcome: _Outcome) -> str | None:
    """Return the version of a successful answer that both sides speak."""
    if not isinstance(outcome, dict):
        return None
    if method == INITIALIZE:
        version = outcome.get("protocolVersion")
        return version if isinstance(version, str) and version in HANDSHAKE_PROTOCOL_VERSIONS else None
    versions = outcome.get("supportedVersions")
    return LATEST_MODERN_VERSION if isinstance(versions, list) and LATEST_MODERN_VERSION in versions else None


def _failure(outcome: _Outcome, *, may_be_other: bool = False) -> _Failed:
    if isinstance(outcome, CallFailed):
        return _Failed(outcome.reason, may_be_other=may_be_other)
    if isinstance(outcome, RpcError):
        reason = f"the downstream answered the handshake with error {outcome.code}"
        return _Failed(reason, outcome.message, may_be_other=may_be_other)
    said = outcome.get("protocolVersion")
    reason = "the downstream speaks no protocol version that Intercom knows"
    return _Failed(reason, f"version {said}" if isinstance(said, str) else "", may_be_other=may_be_other)


def _handshake_error(failed: _Failed, connection: Connection | None) -> HandshakeError:
    carrier = CarrierDetail() if connection is None else connection.detail()
    said = (plain(failed.said.encode("utf-8", "replace"))[:_SAID_LENGTH], *carrier.output, carrier.stderr)
    detail = "\n".join(text for text in said if text.strip())
    return HandshakeError(f"could not be made: {failed.reason}", detail[-_DETAIL_LENGTH:], carrier)
