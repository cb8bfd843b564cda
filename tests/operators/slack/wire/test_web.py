"""The Web API's client against a server on the loopback."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.web_api import (
    SLACK,
    RateLimited,
    SlackApiError,
    SlackRefused,
    SlackTokens,
    Unreachable,
    WebApi,
    api_base,
    may_follow,
    over_http,
)
from tests.operators.slack.wire.http_end import Asked, HttpEnd, http_end, raw, reply

TOKENS = SlackTokens("xapp-very-secret", "xoxb-very-secret")

Answer = Callable[[Asked], bytes | None]


def ok(_asked: Asked) -> bytes:
    return reply(ok=True, ts="1.1")


@asynccontextmanager
async def client(answer: Answer = ok, *, base: str | None = None, **how: Any) -> AsyncIterator[tuple[WebApi, HttpEnd]]:
    """A client, and the server that answers it so."""
    async with http_end(answer) as end, WebApi(TOKENS, base_url=base or end.base, **how) as web:
        yield web, end


async def failure(answer: Answer, **how: Any) -> SlackApiError:
    """What calling a method raises when it is answered so."""
    async with client(answer, **how) as (web, _):
        with pytest.raises(SlackApiError) as caught:
            await web.call("chat.postMessage", text="what was said")
    return caught.value


async def test_a_hundred_calls_take_one_connection() -> None:
    async with client() as (web, end):
        for _ in range(100):
            assert await web.call("chat.postMessage", text="x") == {"ok": True, "ts": "1.1"}
    assert end.connections == 1


async def test_what_a_call_sends() -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "é & = ✅"}}]
    more: dict[str, Any] = {"blocks": blocks, "unfurl_links": False, "limit": 5, "thread_ts": None}
    async with client() as (web, end):
        await web.call("chat.postMessage", channel="C1", text="half \ud83d", **more)
        await web.call("apps.connections.open", app=True)
    first, second = end.asked
    assert first.path == "/api/chat.postMessage"
    assert first.headers["authorization"] == "Bearer xoxb-very-secret"
    assert first.headers["user-agent"].startswith("agent-intercom/")
    form = first.form
    assert json.loads(form.pop("blocks")) == blocks
    assert form == {"channel": "C1", "text": "half ?", "unfurl_links": "false", "limit": "5"}
    assert second.headers["authorization"] == "Bearer xapp-very-secret"
    assert second.body == b""


@given(st.dictionaries(st.sampled_from(["text", "view", "metadata"]), st.text() | st.lists(st.text()), min_size=1))
def test_any_text_survives_the_form(params: dict[str, Any]) -> None:
    seen: list[bytes] = []

    def transport(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.content)
        return httpx2.Response(200, json={"ok": True})

    async def call() -> None:
        async with WebApi(TOKENS, transport=httpx2.MockTransport(transport)) as web:
            await web.call("views.open", **params)

    trio.run(call)
    form = Asked("", {}, seen[0]).form
    for name, value in params.items():
        got = form[name]
        assert (got if isinstance(value, str) else json.loads(got)) == value


@pytest.mark.parametrize(
    "answer",
    [
        reply(429, "Retry-After: 7\r\n", ok=False, error="ratelimited"),
        raw(b"slow down", 429, "Retry-After: 7\r\n"),
        reply(200, "Retry-After: 7\r\n", ok=False, error="ratelimited"),
    ],
)
async def test_a_limit_says_when_to_come_back(answer: bytes) -> None:
    limited = await failure(lambda _asked: answer)
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 7


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 1.0),
        ("Retry-After: soon\r\n", 1.0),
        ("Retry-After: -3\r\n", 1.0),
        ("Retry-After: inf\r\n", 1.0),
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n", 1.0),
        ("Retry-After: 0\r\n", 0.0),
        ("Retry-After: 2.5\r\n", 2.5),
        ("Retry-After: 999999999\r\n", 3600.0),
    ],
)
async def test_a_limit_without_a_sensible_time_is_one_second(header: str, seconds: float) -> None:
    limited = await failure(lambda _asked: reply(429, header, ok=False))
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == seconds


@pytest.mark.parametrize("status", [200, 400, 403])
async def test_a_refusal_carries_slacks_word(status: int) -> None:
    refused = await failure(lambda _asked: reply(status, ok=False, error="not_in_channel", needed="chat:write"))
    assert isinstance(refused, SlackRefused)
    assert refused.error == "not_in_channel"
    assert refused.data["needed"] == "chat:write"
    assert str(refused) == "slack refused chat.postMessage: not_in_channel"


@pytest.mark.parametrize(
    ("answer", "maybe_done", "unanswered"),
    [
        (reply(500, ok=False, error="internal_error"), True, False),
        (raw(b"<html>", 502), True, False),
        (raw(b"", 504), True, False),
        (reply(200, ok=False, error="fatal_error"), True, False),
        (raw(b"<html>log in to the wifi", 200), True, False),
        (raw(b"[]", 200), True, False),
        (reply(200, welcome="to the wifi"), True, False),
        (raw(b"moved", 302, "Location: https://elsewhere.example\r\n"), False, False),
        (raw(b"no such page", 404), False, False),
        (None, True, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it", True, True),
        (b"no http at all\r\n\r\n", True, True),
        (raw(b"no gzip", 200, "Content-Encoding: gzip\r\n"), True, True),
    ],
)
async def test_an_answer_that_decides_nothing_says_whether_it_may_have_been_done(
    answer: bytes | None, maybe_done: bool, unanswered: bool
) -> None:
    sent: list[Asked] = []

    def once(asked: Asked) -> bytes | None:
        sent.append(asked)
        return answer

    if answer is not None and answer.endswith(b"half of it"):
        unreachable = await cut_after(answer)
    else:
        unreachable = await failure(once)
        assert len(sent) == 1, "it is for the caller to ask again"
    assert isinstance(unreachable, Unreachable)
    assert (unreachable.maybe_done, unreachable.unanswered) == (maybe_done, unanswered)


@asynccontextmanager
async def listening(serve: Callable[[trio.SocketStream], Any], scheme: str = "http") -> AsyncIterator[str]:
    """Serve connections so; the address of the Web API there."""
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"{scheme}://127.0.0.1:{listener.socket.getsockname()[1]}/api/"
        nursery.cancel_scope.cancel()


async def cut_after(said: bytes, scheme: str = "http") -> SlackApiError:
    """What a call raises when this is said to its first bytes, and no more."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said)
        await stream.aclose()

    async with listening(serve, scheme) as base:
        return await failure(ok, base=base)


def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


async def test_where_nobody_listens_nothing_was_done() -> None:
    unreachable = await failure(ok, base=f"http://127.0.0.1:{closed_port()}/api/")
    assert isinstance(unreachable, Unreachable)
    assert not unreachable.maybe_done


class NoNames(trio.abc.HostnameResolver):
    async def getaddrinfo(self, *_args: Any, **_how: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "name or service not known")

    async def getnameinfo(self, *_args: Any, **_how: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "name or service not known")


async def test_where_a_name_is_not_known_nothing_was_done() -> None:
    trio.socket.set_custom_hostname_resolver(NoNames())
    async with WebApi(TOKENS) as web:
        with pytest.raises(Unreachable, match="not known") as caught:
            await web.call("auth.test")
    assert not caught.value.maybe_done


async def test_a_server_without_a_certificate_is_told_nothing() -> None:
    unreachable = await cut_after(b"HTTP/1.1 400 Plain\r\n\r\n", "https")
    assert isinstance(unreachable, Unreachable)
    assert not unreachable.maybe_done


@pytest.mark.parametrize("reads", [True, False])
async def test_a_call_that_takes_too_long_may_have_been_done_if_it_had_been_sent(reads: bool) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await trio.sleep_forever()

    class Nowhere(httpx2.AsyncBaseTransport):
        """As the network does it, a transport tells how far it came."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await request.extensions["trace"]("connection.connect_tcp.started", {})
            await trio.sleep_forever()
            raise AssertionError

    async with listening(serve) as base, WebApi(TOKENS, base_url=base, transport=None if reads else Nowhere()) as web:
        with pytest.raises(Unreachable, match="within 10 s") as caught:
            await web.call("chat.postMessage")
    assert (caught.value.maybe_done, caught.value.unanswered) == (reads, reads)


async def test_an_answer_is_read_only_so_far() -> None:
    bomb = gzip.compress(bytes(10**6))
    assert len(bomb) < 2000
    unreachable = await failure(lambda _asked: raw(bomb, 200, "Content-Encoding: gzip\r\n"), max_answer=10_000)
    assert isinstance(unreachable, Unreachable)
    assert "longer than 10000 bytes" in str(unreachable)


async def test_a_connection_that_was_given_up_leaves_the_client_usable() -> None:
    answers = [None, raw(b"x" * 50_000), reply(ok=True)]
    async with client(lambda _asked: answers.pop(0), max_answer=10_000) as (web, end):
        for _ in range(2):
            with pytest.raises(Unreachable):
                await web.call("chat.postMessage")
        assert await web.call("chat.postMessage") == {"ok": True}
    assert len(end.asked) == 3


async def test_without_a_token_nothing_is_sent() -> None:
    async with http_end(ok) as end, WebApi(SlackTokens("", ""), base_url=end.base) as web:
        with pytest.raises(SlackRefused) as caught:
            await web.call("auth.test")
    assert caught.value.error == "not_authed"
    assert end.asked == []


async def test_no_token_and_no_ticket_reaches_a_log_a_repr_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    for answer in (lambda _asked: None, ok):
        async with client(answer) as (web, end):
            texts.extend([repr(web), repr(TOKENS), str(TOKENS)])
            root = end.base.removesuffix("api/")
            asks = [
                web.call("chat.postMessage", text="what-was-said"),
                web.upload(root + "upload/v1/very-secret", b"very-secret", "a.txt"),
                web.respond(root + "commands/T1/very-secret", {"text": "what-was-said"}),
                web.upgraded(root.replace("http", "ws") + "link/?ticket=very-secret", {}).__aenter__(),
            ]
            for asked in asks:
                try:
                    await asked
                except SlackApiError as failed:
                    texts.extend([str(failed), repr(failed), repr(failed.__cause__), repr(failed.__context__)])
    whole = caplog.text + "".join(texts)
    assert "127.0.0.1" in caplog.text
    assert "/api/chat.postMessage" in caplog.text
    assert "very-secret" not in whole
    assert "what-was-said" not in whole


@pytest.mark.parametrize("token", ["xoxb-1 ", "xoxb-1\n", "xoxb-é", "xoxb-1\r\nX: y"])
def test_a_token_that_cannot_be_one_is_named_but_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="the bot token") as caught:
        SlackTokens("xapp-1", token)
    assert token.strip() not in str(caught.value)


async def test_an_upload_sends_the_bytes_and_a_response_json_and_neither_a_token() -> None:
    async with client(lambda _asked: raw(b"OK - 5")) as (web, end):
        await web.upload(end.base + "v1/abc", b"\x00data", "change.diff")
        await web.respond(end.base + "r", {"text": "é", "response_type": "ephemeral"})
    uploaded, responded = end.asked
    assert uploaded.body == b"\x00data"
    assert json.loads(responded.body) == {"text": "é", "response_type": "ephemeral"}
    assert not any("authorization" in asked.headers for asked in end.asked)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(b"no", 500), Unreachable),
        (raw(b"no", 404), Unreachable),
        (raw(b"no", 429), RateLimited),
        (None, Unreachable),
    ],
)
async def test_an_upload_that_fails_says_how(answer: bytes | None, kind: type[SlackApiError]) -> None:
    async with client(lambda _asked: answer) as (web, end):
        with pytest.raises(kind):
            await web.upload(end.base + "v1/abc", b"data", "change.diff")


@pytest.mark.parametrize(
    ("answer", "error"), [(reply(404, ok=False, error="used_url"), "used_url"), (reply(ok=False, error="x"), "x")]
)
async def test_a_response_url_that_is_used_up_is_a_refusal(answer: bytes, error: str) -> None:
    async with client(lambda _asked: answer) as (web, end):
        with pytest.raises(SlackRefused) as caught:
            await web.respond(end.base + "r", {"text": "x"})
    assert caught.value.error == error


@pytest.mark.parametrize(
    "url", ["http://hooks.slack.test/x", "ftp://127.0.0.1/x", "https://", "nonsense", "https://[x/"]
)
async def test_an_address_that_could_be_overheard_is_not_used(url: str) -> None:
    async with client() as (web, end):
        asks = (web.upload(url, b"data", "a.txt"), web.respond(url, {"text": "x"}), web.upgraded(url, {}).__aenter__())
        for asked in asks:
            with pytest.raises(Unreachable) as refused:
                await asked
            assert not refused.value.maybe_done
    assert end.asked == []


@pytest.mark.real_time
async def test_while_whoever_holds_it_open_restarts_slack_is_out_of_reach_and_nothing_was_done() -> None:
    async with http_end(ok) as end:
        web = WebApi(TOKENS, base_url=end.base)
        for _ in range(2):
            with pytest.raises(Unreachable, match="closed just now") as refused:
                await web.call("chat.postMessage", text="hello")
            assert not refused.value.maybe_done
            async with web:
                assert (await web.call("chat.postMessage", text="hello"))["ok"]


@pytest.mark.real_time
async def test_a_call_whose_connection_is_closed_under_it_is_told_so() -> None:
    reached = trio.Event()

    def never(_asked: Asked) -> None:
        reached.set()

    async with http_end(never) as end, trio.open_nursery() as nursery:
        web = WebApi(TOKENS, base_url=end.base)

        async def call() -> None:
            with pytest.raises(Unreachable) as refused:
                await web.call("chat.postMessage", text="hello", timeout=30)
            assert refused.value.maybe_done

        async with web:
            nursery.start_soon(call)
            await reached.wait()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"])
async def test_a_proxy_that_the_environment_names_is_not_used(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """It would be sent the tokens, with a certificate that SSL_CERT_FILE makes good."""
    monkeypatch.setenv(variable, f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/evil.pem")
    async with client() as (web, end):
        assert await web.call("auth.test") == {"ok": True, "ts": "1.1"}
    assert len(end.asked) == 1


async def test_the_proxy_that_the_configuration_names_is_used() -> None:
    seen: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        seen.append(bytes(await stream.receive_some()))
        await stream.send_all(b"HTTP/1.1 502 Nowhere\r\ncontent-length: 0\r\n\r\n")

    async with listening(proxy) as base, WebApi(TOKENS, proxy=base.removesuffix("/api/")) as web:
        with pytest.raises(Unreachable):
            await web.call("auth.test")
    assert seen[0].startswith(b"CONNECT slack.com:443 ")
    assert b"xoxb" not in seen[0]


async def test_certificates_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    async with WebApi(TOKENS, ca_file=tmp_path / "none.pem") as web:
        with pytest.raises(Unreachable, match="the certificates or the proxy of the configuration cannot be used"):
            await web.call("auth.test")


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("", SLACK),
        ("http://127.0.0.1:8080/api", "http://127.0.0.1:8080/api/"),
        ("http://[::1]:8080/api/", "http://[::1]:8080/api/"),
        ("http://localhost:8080/api/", "http://localhost:8080/api/"),
        ("https://slack-gov.com/api/", "https://slack-gov.com/api/"),
    ],
)
def test_the_environment_may_name_another_place(given: str, base: str) -> None:
    assert api_base({"INTERCOM_SLACK_API": given}) == base
    assert api_base({}) == SLACK


@pytest.mark.parametrize(
    "given",
    [
        "http://slack.com/api/",
        "http://10.0.0.7/api/",
        "http://127.0.0.1.example.com/api/",
        "http://localhost.example.com/api/",
        "https://user:pass@slack.com/api/",
        "https://slack.com/api/?x=1",
        "ftp://127.0.0.1/",
        "slack.com",
        "http://[x/",
    ],
)
def test_tokens_are_sent_nowhere_they_could_be_overheard(given: str) -> None:
    with pytest.raises(ValueError):
        api_base({"INTERCOM_SLACK_API": given})


@pytest.mark.parametrize(
    ("url", "from_slack", "from_stand_in"),
    [
        ("wss://wss-primary.slack.com/link/?ticket=1", True, True),
        ("https://files.slack.com/upload/v1/abc", True, True),
        ("ws://127.0.0.1:80/link/", False, True),
        ("http://127.0.0.1:80/x", False, True),
        ("ws://slack.com/link/", False, False),
        ("http://slack.com/x", False, False),
        ("wss://user@slack.com/link/", False, False),
        ("file:///etc/passwd", False, False),
        ("", False, False),
    ],
)
def test_an_address_from_slack_is_used_if_it_is_encrypted(url: str, from_slack: bool, from_stand_in: bool) -> None:
    assert may_follow(url, SLACK) is from_slack
    assert may_follow(url, "http://127.0.0.1:8080/api/") is from_stand_in


def test_a_socket_is_asked_for_over_http() -> None:
    assert over_http("wss://a.slack.com:443/link/?ticket=1&a=b") == "https://a.slack.com:443/link/?ticket=1&a=b"
    assert over_http("ws://127.0.0.1:8/") == "http://127.0.0.1:8/"
