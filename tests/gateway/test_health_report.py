"""A test of a downstream says what is wrong and what to do, from real processes and servers that have that fault."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway import health_report
from intercom.gateway.carrier import CarrierDetail
from intercom.gateway.connection import Connection, Listener
from intercom.gateway.downstream_config import DownstreamConfig, Transport, expand
from intercom.gateway.handshake import connect
from intercom.gateway.health_report import diagnose, examine
from intercom.gateway.http_carrier import open_http
from intercom.gateway.stdio_carrier import open_process
from intercom.gateway.variables import Reference
from intercom.model.gateway_view import HealthReport, HealthStatus
from tests.gateway.http_servers import Request, scripted
from tests.gateway.programs import environ, is_alive, program

pytestmark = pytest.mark.real_time

AT = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
#: Put together, so that no tool takes it for a real one.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

#: A downstream that works. `{}` is the list of its tools.
WORKS = """
for message in calls():
    if message["method"] == "tools/list":
        put(id=message["id"], result={"tools": [{"name": "search", "inputSchema": {"type": "object"}}]})
"""
MODERN = """
for message in messages():
    if message["method"] == "server/discover":
        put(id=message["id"], result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "7"}}})
    elif message["method"] == "initialize":
        put(id=message["id"], error={"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}})
    elif message["method"] == "tools/list":
        put(id=message["id"], result={"resultType": "complete", "tools": [{"name": "x", "inputSchema": {}}]})
"""


@asynccontextmanager
async def connecting(config: DownstreamConfig, version: str | None, tell: Listener) -> AsyncIterator[Connection]:
    opener: Any = partial(open_process, environ=environ()) if config.transport is Transport.STDIO else open_http
    async with connect(config, opener, version=version, capabilities={}, tell=tell) as connection:
        yield connection


async def report_of(config: DownstreamConfig, values: Mapping[str, str] | None = None) -> HealthReport:
    def lookup(reference: Reference) -> str | None:
        return (values or {}).get(reference.name)

    return await examine(config, connecting, partial(expand, lookup=lookup), AT)


async def test_a_downstream_that_works_is_healthy_with_timings_in_both_versions() -> None:
    report = await report_of(program(WORKS))
    assert (report.status, report.fault, report.error, report.diagnosis) == (HealthStatus.HEALTHY, None, None, None)
    assert [each.version for each in report.attempts] == ["2026-07-28", "2025-11-25"]
    assert [each.fault for each in report.attempts] == ["it speaks 2025-11-25 instead", None]
    assert all(each.seconds > 0 for each in report.attempts)
    assert report.protocol_version == "2025-11-25"
    assert (report.tools, report.capabilities) == (("search",), ("tools",))
    assert report.list_seconds is not None
    assert report.at == AT


async def test_a_downstream_of_the_newest_version_is_healthy_and_says_so() -> None:
    report = await report_of(program(MODERN))
    assert report.status is HealthStatus.HEALTHY
    assert [each.fault for each in report.attempts] == [None, "it speaks 2026-07-28 instead"]
    assert (report.protocol_version, report.server) == ("2026-07-28", "new 7")


def stdio(command: str, *args: str, **more: Any) -> DownstreamConfig:
    return DownstreamConfig("files", Transport.STDIO, ("files.*",), "1.0.0", command=command, args=args, **more)


def exits(text: str, status: int = 1) -> DownstreamConfig:
    return program(f"print({text!r}, file=sys.stderr); sys.exit({status})")


@pytest.mark.parametrize(
    ("config", "fault", "error", "advice"),
    [
        (stdio("npx-none", "-y", "x"), "program_not_found", "npx-none is in no directory of PATH", "install npx-none"),
        (stdio("/nowhere/uvx"), "program_not_found", "does not exist", "correct command"),
        (stdio("/etc/passwd"), "program_not_started", "permission denied", "make the file executable"),
        (stdio(sys.executable, cwd="/nowhere"), "directory_not_found", "does not exist", "correct cwd"),
        (stdio(sys.executable, env_file="/nowhere"), "env_file", "envFile", "correct envFile"),
        (exits("Fatal error: it broke", 3), "exits", 'exited with status 3: "Fatal error: it broke"', "terminal"),
        (exits("ValueError: SLACK_BOT_TOKEN is required"), "needs_variables", "SLACK_BOT_TOKEN", '"env": {"SLACK_BOT'),
        (exits("Error: Cannot find module '/x/index.js'"), "not_installed", "Cannot find module", "install"),
        (exits("npm error code E404\nnpm error 404 Not Found"), "package_not_found", "404", "package's name"),
        (exits("usage: server [-h] --db DB"), "wrong_arguments", "usage: server", "correct args"),
        (exits("OSError: [Errno 98] Address already in use"), "port_in_use", "already in use", "another process"),
        (exits("getaddrinfo ENOTFOUND registry.npmjs.org"), "offline", "ENOTFOUND", "network"),
        (exits("PermissionError: EACCES: /data"), "permission", "EACCES", "let it read and write"),
        (program("os.kill(os.getpid(), 9)"), "killed", "was ended by SIGKILL", "memory"),
        (program("os.close(1); time.sleep(60)"), "closed", "closed its output", "no MCP server"),
        (program("time.sleep(60)", startup_seconds=0.5), "silent", "not answered within 0.5 s", "--stdio"),
        (
            program("print('Welcome to the shell', flush=True); time.sleep(60)", startup_seconds=0.5),
            "no_mcp",
            "Welcome to the shell",
            "speaks no MCP",
        ),
        (
            program(
                "for m in messages(): put(id=m['id'], error={'code': -32000, 'message': 'no licence'})",
                startup_seconds=5,
            ),
            "handshake_refused",
            "error -32000 (no licence)",
            "variables",
        ),
        (
            program("for m in messages(): put(id=m['id'], result={'protocolVersion': '1999'})", startup_seconds=5),
            "unknown_version",
            "no protocol version",
            "update",
        ),
    ],
)  # fmt: skip
async def test_each_fault_is_named_with_what_to_do(
    config: DownstreamConfig, fault: str, error: str, advice: str
) -> None:
    report = await report_of(config)
    assert report.status is HealthStatus.UNHEALTHY
    assert report.fault == fault, report
    assert error in str(report.error)
    assert advice in str(report.diagnosis)
    assert report.protocol_version is None
    assert [each.version for each in report.attempts] == [health_report.BOTH_VERSIONS]
    assert not str(report.error).endswith(".")
    assert not str(report.diagnosis).endswith(".")


async def test_one_whose_lists_cannot_be_read_is_unhealthy() -> None:
    report = await report_of(program("for m in calls(): put(id=m['id'], error={'code': -32603, 'message': 'broken'})"))
    assert (report.status, report.fault) == (HealthStatus.UNHEALTHY, "lists_failed")
    assert "error -32603" in str(report.error)
    assert report.protocol_version == "2025-11-25", "the handshake succeeded"


@pytest.mark.parametrize(
    ("code", "more", "fault"),
    [
        ("for m in calls(): put(id=m['id'], result={'tools': []})", {}, "offers_nothing"),
        (WORKS, {"disabled_tools": ("*",)}, "offers_nothing"),
        (f"print('npm WARN deprecated', flush=True)\n{WORKS}", {}, "noisy"),
    ],
)
async def test_one_that_works_badly_is_degraded(code: str, more: dict[str, Any], fault: str) -> None:
    report = await report_of(program(code, **more))
    assert (report.status, report.fault) == (HealthStatus.DEGRADED, fault)
    assert report.diagnosis


async def test_a_variable_without_a_value_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    config = evolve(program(f"open({str(marker)!r}, 'w')"), env={"TOKEN": "${GITHUB_TOKEN}"})
    report = await report_of(config)
    assert (report.status, report.fault) == (HealthStatus.UNHEALTHY, "missing_variables")
    assert "GITHUB_TOKEN (for env.TOKEN)" in str(report.error)
    assert "run agent-intercom serve where they are set" in str(report.diagnosis)
    assert report.attempts == ()
    assert not await trio.Path(marker).exists()


async def test_no_secret_of_its_configuration_or_by_its_form_is_in_a_report() -> None:
    code = f"""
print('key was correct horse battery staple', file=sys.stderr)
print('also {SECRET[:20]}' + '{SECRET[20:]}', file=sys.stderr)
print('and on stdout correct horse battery staple', flush=True)
sys.exit('token correct horse battery staple and {SECRET} are not valid')
"""
    config = evolve(program(code), env={"API_KEY": "${KEY}"})
    report = await report_of(config, {"KEY": "correct horse battery staple"})
    assert report.fault == "exits"
    assert "masked" in report.stderr
    assert "correct horse" not in repr(report)
    assert SECRET not in repr(report)


async def test_nothing_that_it_started_is_left_if_it_is_cancelled() -> None:
    """Given a silent downstream, when the test is cancelled, then its process has ended."""
    pids: list[int | None] = []

    @asynccontextmanager
    async def watched(config: DownstreamConfig, version: str | None, tell: Listener) -> AsyncIterator[Connection]:
        @asynccontextmanager
        async def opener(config: DownstreamConfig) -> AsyncIterator[Any]:
            async with open_process(config, environ()) as carrier:
                pids.append(carrier.detail().pid)
                scope.cancel()
                yield carrier

        async with connect(config, opener, version=version, capabilities={}, tell=tell) as connection:
            yield connection

    with trio.CancelScope() as scope:
        await examine(program("time.sleep(60)"), watched, lambda config: config, AT)
    assert scope.cancelled_caught
    [pid] = pids
    assert pid is not None
    assert not is_alive(pid)


# --- over HTTP -------------------------------------------------------------------------------------------------------


def remote(url: str, **more: Any) -> DownstreamConfig:
    more.setdefault("startup_seconds", 5)
    return DownstreamConfig("remote", Transport.HTTP, ("remote.*",), "1.0.0", base_url=url, **more)


def answer(status: int, body: str = "", kind: str = "text/html") -> Any:
    async def handle(request: Request) -> bool:
        head = (
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        await request.stream.send_all(head.encode() + body.encode())
        return False

    return handle


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (401, "", "needs_sign_in"),
        (403, "", "access_denied"),
        (404, "", "wrong_address"),
        (405, "", "wrong_address"),
        (429, "", "rate_limited"),
        (503, "", "server_error"),
        (200, "<html>Welcome</html>", "no_mcp"),
    ],
)
async def test_each_answer_of_a_wrong_server_is_named(status: int, body: str, fault: str) -> None:
    async with scripted(answer(status, body)) as server:
        report = await report_of(remote(server.url))
    assert (report.status, report.fault) == (HealthStatus.UNHEALTHY, fault), report
    assert report.diagnosis
    assert report.target.startswith("http://127.0.0.1:")


async def test_a_refused_token_is_told_apart_from_a_missing_one() -> None:
    async with scripted(answer(401)) as server:
        without = await report_of(remote(server.url))
        refused = await report_of(remote(server.url, headers={"Authorization": f"Bearer {SECRET}"}))
    assert str(without.diagnosis).startswith("run agent-intercom gateway sign-in remote;")
    assert "not accepted" in str(refused.diagnosis)
    assert SECRET not in repr(refused)


async def test_a_port_where_nothing_listens_and_one_that_speaks_no_http_are_named() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"

    async def hello(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example.org ESMTP\r\n")
        await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, hello, [listener])
        mail = await report_of(remote(url))
        tls = await report_of(remote(url.replace("http:", "https:")))
        nursery.cancel_scope.cancel()
    assert mail.fault == "no_mcp", mail
    assert tls.fault == "tls", tls
    assert (await report_of(remote(url))).fault == "not_running"


# --- the diagnosis alone ---------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=200) | st.sampled_from(["usage: x", "npm error 404", f"API_KEY missing {SECRET}", "\x1b[2J"])


@given(reason=TEXTS, stderr=TEXTS, output=st.lists(TEXTS, max_size=3), said=TEXTS, status=st.none() | st.integers())
def test_whatever_a_downstream_says_there_is_one_line_of_each(
    reason: str, stderr: str, output: list[str], said: str, status: int | None
) -> None:
    detail = CarrierDetail(1, status, stderr, tuple(output))
    found = diagnose(stdio("npx"), reason, detail, said)
    assert found.fault
    assert found.advice
    # What it wrote cannot look like another line, or control a terminal.
    written = found.error.replace(reason, "")
    assert "\n" not in written
    assert "\x1b" not in written


def test_a_log_of_a_megabyte_is_searched_in_a_moment() -> None:
    for part in ("A_", "required ", "usage: \n", "no " * 7, "x"):
        detail = CarrierDetail(1, 1, part * (1_000_000 // len(part)))
        with Within(2.0):
            diagnose(stdio("npx"), "the process exited with status 1", detail)


class Within:
    """A block that takes at most this many seconds of the processor."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.began = sum(os.times()[:2])

    def __exit__(self, *_: object) -> None:
        assert sum(os.times()[:2]) - self.began < self.seconds
