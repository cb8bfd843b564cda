"""The two pages as they come over the wire."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.agents.http.rig import ERAS, INITIALIZE, Place, Reply, call, head, place, rpc

pytestmark = pytest.mark.real_time


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a short name: sockets live below it."""
    made = Path(tempfile.mkdtemp(prefix="http-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


async def get(at: Place, path: str, method: str = "GET", **headers: str | None) -> Reply:
    told = {"Host": f"127.0.0.1:{at.port}", "Connection": "close", **headers}
    return await at.raw(head(method, path, told))


async def figures(at: Place) -> dict[str, float]:
    page = await get(at, "/metrics", **at.headers)
    assert page.status == 200, page
    families = text_string_to_metric_families(page.body.decode())
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


async def test_anybody_may_ask_whether_the_server_is_well(root: Path) -> None:
    async with place(root) as at:
        page = await get(at, "/healthz")
        assert page.status == 200
        assert page.headers["content-type"].startswith("application/json")
        said = json.loads(page.body)
        assert (said["status"], said["life"], said["store"]) == ("ok", at.app.life, "ok")
        assert at.token is not None
        assert at.token not in page.body.decode()
        assert (await get(at, "/healthz", Host="evil.example")).status == 421
        assert (await get(at, "/healthz", method="DELETE")).status == 405


async def test_the_figures_want_the_token(root: Path) -> None:
    async with place(root) as at:
        assert (await get(at, "/metrics")).status == 401
        assert (await get(at, "/metrics", Authorization="Bearer wrong")).status == 401
        page = await get(at, "/metrics", **at.headers)
        assert (page.status, page.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    async with place(root, http_token_required=False) as at:
        assert (await get(at, "/metrics")).status == 200


async def test_what_is_refused_over_http_is_counted_by_its_status(root: Path) -> None:
    async with place(root, http_max_request_bytes=65536) as at:
        known = {**at.headers, "Content-Type": "application/json"}
        asked = {
            401: [get(at, "/mcp"), get(at, "/metrics", Authorization="Bearer wrong")],
            403: [get(at, "/mcp", **known, Origin="http://evil.example")],
            404: [get(at, "/elsewhere", **known), get(at, "/mcp", **known, **{"Mcp-Session-Id": "gone"})],
            405: [get(at, "/metrics", "DELETE", **known)],
            413: [at.post(bytes(70000))],
            415: [get(at, "/mcp", "POST", **{**known, "Content-Type": "text/plain"}, **{"Content-Length": "0"})],
            421: [get(at, "/healthz", Host="evil.example")],
        }
        for status, requests in asked.items():
            for request in requests:
                assert (await request).status == status
        assert (await get(at, "/healthz")).status == 200
        page = await get(at, "/metrics", **at.headers)
        families = text_string_to_metric_families(page.body.decode())
        counted = {
            sample.labels["status"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == "intercom_http_errors_total"
        }
        assert counted == {str(status): len(requests) for status, requests in asked.items()}


@pytest.mark.parametrize("mode", ERAS)
async def test_who_is_in_over_http_is_counted(root: Path, mode: str) -> None:
    async with place(root) as at:
        before = await figures(at)
        assert (before["intercom_http_up"], before["intercom_http_sessions"], before["intercom_http_agents"]) == (
            1,
            0,
            0,
        )
        async with at.client("agent=one", mode) as client, trio.open_nursery() as nursery:
            await call(client, "ping")
            nursery.start_soon(client.call_tool, "standby", {})
            await at.card()
            found = await figures(at)
            nursery.cancel_scope.cancel()
        in_by = "intercom_http_sessions" if mode == "legacy" else "intercom_http_agents"
        assert found[in_by] == 1
        assert found["intercom_http_requests"] == 1
        assert found["intercom_http_connections"] >= 2
        assert found["intercom_agents_connected"] == 1


async def test_many_sessions_are_one_more_figure_and_no_more_lines(root: Path) -> None:
    async with place(root) as at:
        empty = await get(at, "/metrics", **at.headers)
        for number in range(5):
            opened = await at.post(rpc("initialize", INITIALIZE), path=f"/mcp?agent=a{number}")
            assert opened.status == 200
        assert (await figures(at))["intercom_http_sessions"] == 5
        full = await get(at, "/metrics", **at.headers)
        assert len(full.body.splitlines()) <= len(empty.body.splitlines()) + 5
