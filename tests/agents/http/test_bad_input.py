"""What nobody should send: each is answered clearly, harms nobody else, and is told without a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.http import access_rules, listener
from intercom.local import own_files
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IpcError
from intercom.web_server import acceptor
from intercom.web_server import http_request as any_request
from intercom.web_server.http_request import Refusal
from tests.agents.http.rig import INITIALIZE, Place, call, head, modern, place, rpc, until
from tests.agents.http.test_cancelled import classic_client


@pytest.mark.real_time
async def test_the_guard_refuses_before_anything_is_read(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    cases: list[tuple[dict[str, str | None], int, str]] = [
        ({"Authorization": None}, 401, "unauthorized"),
        ({"Authorization": "Bearer wrong"}, 401, "unauthorized"),
        ({"Authorization": "Basic YTpi"}, 401, "unauthorized"),
        ({"Authorization": "Bearer \xe9\xff"}, 401, "unauthorized"),
        ({"Host": "evil.example"}, 421, "host_refused"),
        ({"Host": "127.0.0.1.evil.example:80"}, 421, "host_refused"),
        ({"Host": "localhost:1"}, 421, "host_refused"),
        ({"Origin": "http://evil.example"}, 403, "origin_refused"),
        ({"Origin": "null"}, 403, "origin_refused"),
    ]
    async with place(root) as at:
        for headers, status, code in cases:
            for path in ("/mcp", "/sse", "/message?session_id=1", "/nothing"):
                reply = await at.post(rpc("initialize", INITIALIZE), path=path, headers=headers)  # type: ignore[arg-type]
                assert (reply.status, reply.error["data"]["error_code"]) == (status, code), (headers, path)
        assert (await at.post(b"", headers={"Authorization": "x"})).headers["www-authenticate"].startswith("Bearer")
        for name in (f"localhost:{at.port}", f"127.0.0.1:{at.port}", f"[::1]:{at.port}"):
            own = {"Host": name, "Origin": f"http://{name}"}
            assert (await at.post(rpc("initialize", INITIALIZE), headers=own)).status == 200
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.real_time
async def test_a_flood_of_refused_requests_does_not_fill_the_log(
    at: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def logged() -> list[str]:
        return [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]

    for _ in range(20):
        assert (await at.post(b"{}", headers={"Authorization": None})).status == 401
    assert (await at.post(b"{}", headers={"Host": "evil.example"})).status == 421
    assert logged() == [f"a request to /mcp was refused: {code}" for code in ("unauthorized", "host_refused")]
    monkeypatch.setattr(listener, "LOGGED_SECONDS", 0.0)
    assert (await at.post(b"{}", headers={"Authorization": None})).status == 401
    assert logged()[2:] == ["a request to /mcp was refused: unauthorized; 19 more before it"]


@pytest.mark.real_time
async def test_a_header_that_says_two_things_is_refused(at: Place) -> None:
    for one in ("Mcp-Protocol-Version", "Mcp-Method", "Content-Type"):
        told = {one: "application/json", one.lower(): "2025-11-25"}
        reply = await at.post(rpc("initialize", INITIALIZE), headers=told)
        assert (reply.status, reply.error["data"]["error_code"]) == (400, "invalid_arguments"), one


@pytest.mark.real_time
async def test_what_is_no_request_of_ours_gets_an_error_in_json(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    tool, told = modern("ping", {})
    cases: list[tuple[Any, dict[str, Any], int]] = [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"\xff\xfe", {}, 400),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, {}, 400),
        (rpc("tools/list"), {}, 400),
        (rpc("initialize", INITIALIZE), {"headers": {"Content-Type": "text/plain"}}, 415),
        (rpc("initialize", INITIALIZE), {"headers": {"Accept": "text/html"}}, 406),
        (rpc("initialize", INITIALIZE), {"headers": {"Mcp-Session-Id": "unknown"}}, 404),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?agent=a%20b"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?agent=a&agent=b"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?agent=" + "a" * 201}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?session_id=../x"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?channel_id=x"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?workspace=relative"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/mcp?%ff=%ff"}, 400),
        (rpc("initialize", INITIALIZE), {"path": "/nothing"}, 404),
        (rpc("initialize", INITIALIZE), {"path": "/mcp/../mcp"}, 404),
        (b"", {"method": "PUT"}, 405),
        (b"", {"method": "GET", "path": "/message"}, 405),
        (b"", {"method": "POST", "path": "/sse"}, 405),
        (rpc("ping"), {"path": "/message"}, 400),
        (rpc("ping"), {"path": "/message?session_id=zz"}, 400),
        (rpc("ping"), {"path": "/message?session_id=" + "0" * 32}, 404),
        (b"nonsense", {"path": "/message?session_id=" + "0" * 32}, 400),
        (tool, {"headers": {**told, "mcp-protocol-version": "1999-01-01"}}, 400),
        (tool, {"headers": {**told, "mcp-name": "standby"}}, 400),
        ({**tool, "id": None}, {"headers": told}, 400),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', {"headers": told}, 400),
        (b"[[[[", {"headers": told}, 400),
    ]
    async with place(root) as at:
        for sent, more, status in cases:
            reply = await at.post(sent, **more)
            assert reply.status == status, (sent[:80] if isinstance(sent, bytes) else sent, more, reply)
            if reply.body:
                assert reply.error["message"], reply
            assert b"Traceback" not in reply.body
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]
    assert not [record for record in caplog.records if record.exc_info and record.name.startswith("intercom")]


@pytest.mark.real_time
async def test_what_a_tool_is_given_over_http_is_looked_at_as_ever(at: Place) -> None:
    async with at.client("agent=one") as client:
        outside = await call(client, "check_clearance", title="t", diff="a\n", file_path="../../etc/passwd")
        assert outside["error_code"] == "path_violation"
        assert (await call(client, "check_diff", request_id="x" * 200))["error_code"] == "request_not_found"
        assert (await call(client, "check_diff", request_id="x" * 5000))["error_code"] == "invalid_arguments"
        assert (await call(client, "nothing"))["error_code"] == "unknown_tool"


@pytest.mark.real_time
async def test_what_a_shim_says_of_a_call_counts_from_a_shim_only(at: Place) -> None:
    # Another's recorded answer is not to be had by its name: each of these calls is one of its own.
    said = [("one", "hello"), ("one", "hello"), ("two", "and mine")]
    for agent, message in said:
        tool, told = modern("broadcast", {"message": message})
        tool["params"]["_meta"]["intercom/call"] = "stolen"
        reply = await at.post(tool, path=f"/mcp?agent={agent}", headers=told)
        assert reply.status == 200
        result = json.loads(reply.body)["result"]
        assert (result.get("isError", False), result["structuredContent"]) == (False, {"posted": False})
    kept = [entry.summary for entry in await at.board.service.audit(50) if entry.kind == "broadcast"]
    assert kept == [message for _, message in said]


@pytest.mark.real_time
async def test_a_request_that_is_too_large_hears_so_however_it_comes(root: Path) -> None:
    async with place(root, http_max_request_bytes=65536) as at, classic_client(at) as client:
        large = json.dumps(rpc("initialize", {"x": "y" * 200_000})).encode()
        started = {"Host": f"127.0.0.1:{at.port}", "Transfer-Encoding": "chunked", "Content-Type": "application/json"}
        chunks = b"".join(b"4000\r\n" + b"x" * 0x4000 + b"\r\n" for _ in range(8)) + b"0\r\n\r\n"
        for path in ("/mcp", client.path):
            in_parts = head("POST", path, {**started, **at.headers, "Accept": "*/*"}) + chunks
            for reply in (await at.post(large, path=path), await at.raw(in_parts)):
                assert (reply.status, reply.error["data"]["error_code"]) == (413, "request_too_large"), path
        # One that is as large as allowed is read.
        assert (await at.post(json.dumps(rpc("initialize", INITIALIZE)).encode().ljust(65536))).status == 200
        asked = rpc("tools/call", {"name": "ping", "arguments": {}}, 8)
        assert (await at.post(json.dumps(asked).encode().ljust(65536), path=client.path)).status == 202
        assert (await client.answer())["id"] == 8


@pytest.mark.real_time
async def test_one_that_does_not_come_hears_so_at_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with place(root, http_max_request_bytes=65536) as at:
        asked: dict[str, str | None] = {"Host": f"127.0.0.1:{at.port}", "Content-Length": "70000", **at.headers}
        with trio.fail_after(any_request.PART_SECONDS / 2):
            async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
                await stream.send_all(head("POST", "/mcp", asked) + b"{")
                data = b""
                while more := await stream.receive_some(65536):
                    data += more
        assert data.startswith(b"HTTP/1.1 413 ")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.real_time
async def test_a_head_that_does_not_end_is_cut_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "FIRST_SECONDS", 3.0)
    async with place(root) as at:
        endless = head("POST", "/mcp", {"Host": "localhost", "X-Long": "y" * 100_000})
        assert (await at.raw(endless)).status == 431
        assert (await at.raw(b"\0\1\2 nonsense\r\n\r\n")).status == 400
        assert (await at.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status == 505
        upgrade = {"Host": f"127.0.0.1:{at.port}", "Upgrade": "websocket", "Connection": "Upgrade"}
        keys = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
        # An upgrade to WebSocket is ignored, so this is a GET outside a session.
        assert (await at.raw(head("GET", "/mcp", {**upgrade, **keys, **at.headers}))).status == 400
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]


class Parts:
    """A client that sends its request part by part, so many seconds apart."""

    def __init__(self, pause: float, count: int, size: int = 10) -> None:
        self._pause, self._left, self._size = pause, count, size

    async def __call__(self) -> Any:
        await trio.sleep(self._pause)
        self._left -= 1
        return {"type": "http.request", "body": b"x" * self._size, "more_body": self._left > 0}


@pytest.mark.parametrize(
    ("pause", "count", "size", "status", "after"),
    [
        (10, 5, 10, None, 50),
        (30, 2, 10, 408, any_request.PART_SECONDS),
        (19, 100, 10, 408, any_request.WHOLE_SECONDS),
        (0, 3, 2000, 413, 0),
        (6, 1000, 600, 413, 12),
    ],
)
async def test_a_slow_request_is_waited_for_so_long_and_no_longer(
    pause: float, count: int, size: int, status: int | None, after: float
) -> None:
    scope: dict[str, Any] = {"headers": []}
    if status is None:
        assert (await any_request.read_body(scope, Parts(pause, count, size), 1000)).data == b"x" * 50
    else:
        with pytest.raises(Refusal) as refused:
            await any_request.read_body(scope, Parts(pause, count, size), 1000)
        assert refused.value.status == status
    assert trio.current_time() == pytest.approx(after, abs=3)


@given(st.binary(max_size=200), st.lists(st.tuples(st.sampled_from([b"x-intercom-agent", b"host"]), st.binary())))
def test_whatever_a_url_says_it_is_understood_or_refused(query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    with contextlib.suppress(Refusal):
        found = access_rules.read_identity(query, headers)
        assert found.agent is None or len(found.agent) <= 200


TOKEN = b"the token"


def nearly() -> st.SearchStrategy[bytes]:
    """What an Authorization header may say that does not show the token."""
    known = [b"", b"Bearer", b"Bearer ", b"Bearer the", b"Bearer the toke", b"Bearer the tokenx", b"Bearer xthe token"]
    known += [b"Bearer THE TOKEN", b"Bearer Bearer the token", b"Bearer \0the token", b"Bearer the token, the token"]
    known += [TOKEN, b"Bearerthe token", b"Basic  the token", b"Bearer: the token", b" Bearer the token"]
    other = st.binary(max_size=60).filter(lambda text: TOKEN not in text)
    return st.sampled_from(known) | other | other.map(lambda text: b"Bearer " + text)


@given(st.lists(nearly(), max_size=3))
def test_without_the_token_nobody_is_let_in(shown: list[bytes]) -> None:
    rules = access_rules.rules(Config(http_port=1), 80, TOKEN.decode())
    headers = [(b"host", b"localhost"), *((b"authorization", value) for value in shown)]
    refused = rules.refuse(headers)
    assert refused.code == "unauthorized"
    for right in (b"Bearer the token", b"bearer  the token "):
        assert rules.refuse([*headers, (b"authorization", right)]) is None


@given(st.lists(st.tuples(st.sampled_from([b"host", b"origin"]), st.binary(max_size=60)), max_size=5))
def test_nor_by_another_name_or_for_a_page_of_another(headers: list[tuple[bytes, bytes]]) -> None:
    rules = access_rules.rules(Config(http_port=1), 80, TOKEN.decode())
    right = (b"authorization", b"Bearer the token")
    unknown = rules.refuse([right, *headers])
    assert unknown.code == "host_refused"
    known = rules.refuse([*headers, (b"host", b"localhost"), right])
    assert (known and known.code) == ("origin_refused" if b"origin" in dict(headers) else None)


def test_names_that_were_allowed_are_known_with_any_port_or_with_theirs() -> None:
    config = Config(
        http_port=1,
        http_host="0.0.0.0",
        http_allowed_hosts=("Box.example", "other.example:8443"),
        http_allowed_origins=("https://box.example",),
    )
    rules = access_rules.rules(config, 80, None)
    known = {b"box.example", b"BOX.example:443", b"other.example:8443", b"127.0.0.1:80", b"localhost"}
    strange = {b"other.example", b"other.example:1", b"xbox.example", b"box.example:", b"", b"127.0.0.1:81"}
    assert all(rules.refuse([(b"host", host)]) is None for host in known)
    assert all(rules.refuse([(b"host", host)]) is not None for host in strange)
    assert rules.refuse([(b"host", b"localhost"), (b"origin", b"https://box.example")]) is None
    assert rules.refuse([(b"host", b"localhost"), (b"origin", b"https://box.example:444")]) is not None


def test_the_token_is_made_once_and_belongs_to_its_user_alone(root: Path) -> None:
    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
    made = own_files.http_token(where)
    assert len(made) >= 32
    assert own_files.http_token(where) == made
    file = Path(where.http_token_file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == ["http.token"]
    file.chmod(0o644)
    with pytest.raises(IpcError, match="open to other users"):
        own_files.http_token(where)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(IpcError, match="does not hold a token"):
        own_files.http_token(where)
    file.unlink()
    file.symlink_to(root / "elsewhere")
    with pytest.raises(IpcError):
        own_files.http_token(where)


def test_a_secret_of_root_is_not_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "http.token"
    file.write_text("t" * 64)
    file.chmod(0o600)
    of_root = os.stat_result((stat.S_IFREG | 0o600, 1, 1, 1, 0, 0, 64, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fstat", lambda _: of_root)
    assert own_files.read_own(file) == b"t" * 64
    with pytest.raises(ConfigError, match="a file of yours"):
        own_files.read_own(file, private=True)


@pytest.mark.real_time
async def test_files_of_http_that_were_taken_away_are_there_again(at: Place) -> None:
    where = at.app.places
    address = await trio.Path(where.http_address_file).read_text()
    os.unlink(where.http_token_file)
    shutil.rmtree(where.runtime_dir)
    await until(lambda: os.path.exists(where.http_token_file) and os.path.exists(where.http_address_file))
    # The same token: clients' files hold it.
    assert own_files.http_token(where) == at.token
    assert await trio.Path(where.http_address_file).read_text() == address
    assert (await at.post(rpc("initialize", INITIALIZE))).status == 200


def test_a_token_file_that_somebody_wrote_is_left_alone(root: Path) -> None:
    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
    made = own_files.http_token(where)
    assert own_files.keep_http_token(where, "o" * 64) is None
    assert own_files.http_token(where) == made
    os.unlink(where.http_token_file)
    assert own_files.keep_http_token(where, made) is not None
    assert own_files.http_token(where) == made


@pytest.mark.real_time
async def test_the_token_can_be_lifted_on_loopback(root: Path) -> None:
    async with place(root, http_token_required=False) as at:
        assert at.token is None
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]
        assert (await at.post(rpc("ping"), headers={"Host": "evil.example"})).status == 421
        # Nothing else keeps a browser's pages out.
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        for page in ("http://evil.example", "null", "http://127.0.0.1:1"):
            for path in ("/mcp", "/sse", "/message?session_id=1", "/healthz"):
                for method in ("POST", "GET", "OPTIONS"):
                    reply = await at.post(rpc("ping"), method=method, path=path, headers={"Origin": page, **asked})
                    assert (reply.status, reply.error["data"]["error_code"]) == (403, "origin_refused"), (page, path)
                    assert not [name for name in reply.headers if name.startswith("access-control-")]
        own = {"Origin": f"http://127.0.0.1:{at.port}"}
        assert (await at.post(rpc("initialize", INITIALIZE), headers=own)).status == 200


@pytest.mark.real_time
async def test_a_page_that_was_allowed_may_read_what_it_is_answered(root: Path) -> None:
    page = "https://page.example"
    async with place(root, http_allowed_origins=("https://Page.Example",)) as at:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        preflight = await at.post(b"", method="OPTIONS", headers={"Origin": page, "Authorization": None, **asked})
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, page)
        reply = await at.post(rpc("initialize", INITIALIZE), headers={"Origin": page})
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)
        assert "mcp-session-id" in reply.headers["access-control-expose-headers"]
        strange = await at.post(rpc("initialize", INITIALIZE), headers={"Origin": "https://other.example"})
        assert (strange.status, strange.headers.get("access-control-allow-origin")) == (403, None)
