"""The Web API's client against a server on the loopback."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.web_api import RateLimited, SlackApiError, SlackRefused, SlackTokens, Unreachable, WebApi
from tests.operators.slack.wire.http_end import Asked, HttpEnd, http_end, raw, reply
from tests.support.async_tests import bounded

TOKENS = SlackTokens("xapp-very-secret", "xoxb-very-secret")

Call = Callable[[WebApi, HttpEnd], Any]


def meet(answer: Callable[[Asked], bytes | None], *, base: str | None = None, **how: Any) -> Callable[[Call], HttpEnd]:
    """Run a call against a server that answers so."""

    def run(call: Call) -> HttpEnd:
        met: list[HttpEnd] = []

        async def case() -> None:
            async with http_end(answer) as end:
                met.append(end)
                async with WebApi(TOKENS, base_url=base or end.base, **how) as web:
                    await call(web, end)

        trio.run(bounded(case))
        return met[0]

    return run


def ok(_asked: Asked) -> bytes:
    return reply(ok=True, ts="1.1")


def failure(answer: Callable[[Asked], bytes | None], **how: Any) -> SlackApiError:
    """What calling a method raises when it is answered so."""
    raised: list[SlackApiError] = []

    async def call(web: WebApi, _end: HttpEnd) -> None:
        with pytest.raises(SlackApiError) as caught:
            await web.call("chat.postMessage", text="what was said")
        raised.append(caught.value)

    meet(answer, **how)(call)
    return raised[0]


def test_a_hundred_calls_take_one_connection() -> None:
    async def call(web: WebApi, _end: HttpEnd) -> None:
        for _ in range(100):
            assert await web.call("chat.postMessage", text="x") == {"ok": True, "ts": "1.1"}

    assert meet(ok)(call).connections == 1


def test_what_a_call_sends() -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "é & = ✅"}}]

    async def call(web: WebApi, _end: HttpEnd) -> None:
        await web.call(
            "chat.postMessage",
            channel="C1",
            text="half \ud83d",
            blocks=blocks,
            unfurl_links=False,
            limit=5,
            thread_ts=None,
        )
        await web.call("apps.connections.open", app=True)

    first, second = meet(ok)(call).asked
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
def test_a_limit_says_when_to_come_back(answer: bytes) -> None:
    limited = failure(lambda _asked: answer)
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
def test_a_limit_without_a_sensible_time_is_one_second(header: str, seconds: float) -> None:
    limited = failure(lambda _asked: reply(429, header, ok=False))
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == seconds


@pytest.mark.parametrize("status", [200, 400, 403])
def test_a_refusal_carries_slacks_word(status: int) -> None:
    refused = failure(lambda _asked: reply(status, ok=False, error="not_in_channel", needed="chat:write"))
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
def test_an_answer_that_decides_nothing_says_whether_it_may_have_been_done(
    answer: bytes | None, maybe_done: bool, unanswered: bool
) -> None:
    sent: list[Asked] = []

    def once(asked: Asked) -> bytes | None:
        # A connection that ends after part of an answer: the next request on it ends it.
        sent.append(asked)
        return answer

    if answer is not None and answer.endswith(b"half of it"):
        unreachable = cut_after(answer)
    else:
        unreachable = failure(once)
        assert len(sent) == 1, "it is for the caller to ask again"
    assert isinstance(unreachable, Unreachable)
    assert (unreachable.maybe_done, unreachable.unanswered) == (maybe_done, unanswered)


def cut_after(said: bytes, scheme: str = "http") -> SlackApiError:
    """What a call raises when this is said to its first bytes, and no more."""
    raised: list[SlackApiError] = []

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said)
        await stream.aclose()

    async def case() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            async with WebApi(TOKENS, base_url=f"{scheme}://127.0.0.1:{port}/api/") as web:
                with pytest.raises(SlackApiError) as caught:
                    await web.call("chat.postMessage")
                raised.append(caught.value)
            nursery.cancel_scope.cancel()

    trio.run(bounded(case))
    return raised[0]


def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_where_nobody_listens_nothing_was_done() -> None:
    unreachable = failure(ok, base=f"http://127.0.0.1:{closed_port()}/api/")
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


def test_a_server_without_a_certificate_is_told_nothing() -> None:
    unreachable = cut_after(b"HTTP/1.1 400 Plain\r\n\r\n", "https")
    assert isinstance(unreachable, Unreachable)
    assert not unreachable.maybe_done


@pytest.mark.parametrize("reads", [True, False])
def test_a_call_that_takes_too_long_may_have_been_done_if_it_had_been_sent(reads: bool) -> None:
    clock = trio.testing.MockClock()

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        clock.jump(11)
        await trio.sleep_forever()

    class Nowhere(httpx2.AsyncBaseTransport):
        """As the network does it, a transport tells how far it came."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await request.extensions["trace"]("connection.connect_tcp.started", {})
            clock.jump(11)
            await trio.sleep_forever()
            raise AssertionError

    async def case() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            base = f"http://127.0.0.1:{port}/api/"
            async with WebApi(TOKENS, base_url=base, transport=None if reads else Nowhere()) as web:
                with pytest.raises(Unreachable, match="within 10 s") as caught:
                    await web.call("chat.postMessage")
            assert (caught.value.maybe_done, caught.value.unanswered) == (reads, reads)
            nursery.cancel_scope.cancel()

    trio.run(case, clock=clock)


def test_an_answer_is_read_only_so_far() -> None:
    bomb = gzip.compress(bytes(10**6))
    assert len(bomb) < 2000
    unreachable = failure(lambda _asked: raw(bomb, 200, "Content-Encoding: gzip\r\n"), max_answer=10_000)
    assert isinstance(unreachable, Unreachable)
    assert "longer than 10000 bytes" in str(unreachable)


def test_a_connection_that_was_given_up_leaves_the_client_usable() -> None:
    answers = [None, raw(b"x" * 50_000), reply(ok=True)]

    async def call(web: WebApi, _end: HttpEnd) -> None:
        for _ in range(2):
            with pytest.raises(Unreachable):
                await web.call("chat.postMessage")
        assert await web.call("chat.postMessage") == {"ok": True}

    assert len(meet(lambda _asked: answers.pop(0), max_answer=10_000)(call).asked) == 3


def test_without_a_token_nothing_is_sent() -> None:
    async def call(_web: WebApi, end: HttpEnd) -> None:
        async with WebApi(SlackTokens("", ""), base_url=end.base) as web:
            with pytest.raises(SlackRefused) as caught:
                await web.call("auth.test")
            assert caught.value.error == "not_authed"

    assert meet(ok)(call).asked == []


def test_no_token_and_no_ticket_reaches_a_log_a_repr_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []

    async def call(web: WebApi, end: HttpEnd) -> None:
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

    meet(lambda _asked: None)(call)
    meet(ok)(call)
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


def test_an_upload_sends_the_bytes_and_no_token() -> None:
    async def call(web: WebApi, end: HttpEnd) -> None:
        await web.upload(end.base + "v1/abc", b"\x00data", "change.diff")

    asked = meet(lambda _asked: raw(b"OK - 5"))(call).asked[0]
    assert asked.body == b"\x00data"
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(b"no", 500), Unreachable),
        (raw(b"no", 404), Unreachable),
        (raw(b"no", 429), RateLimited),
        (None, Unreachable),
    ],
)
def test_an_upload_that_fails_says_how(answer: bytes | None, kind: type[SlackApiError]) -> None:
    async def call(web: WebApi, end: HttpEnd) -> None:
        with pytest.raises(kind):
            await web.upload(end.base + "v1/abc", b"data", "change.diff")

    meet(lambda _asked: answer)(call)


def test_a_response_url_gets_json() -> None:
    async def call(web: WebApi, end: HttpEnd) -> None:
        await web.respond(end.base + "r", {"text": "é", "response_type": "ephemeral"})

    asked = meet(lambda _asked: raw(b"ok"))(call).asked[0]
    assert json.loads(asked.body) == {"text": "é", "response_type": "ephemeral"}
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("answer", "error"), [(reply(404, ok=False, error="used_url"), "used_url"), (reply(ok=False, error="x"), "x")]
)
def test_a_response_url_that_is_used_up_is_a_refusal(answer: bytes, error: str) -> None:
    async def call(web: WebApi, end: HttpEnd) -> None:
        with pytest.raises(SlackRefused) as caught:
            await web.respond(end.base + "r", {"text": "x"})
        assert caught.value.error == error

    meet(lambda _asked: answer)(call)


@pytest.mark.parametrize(
    "url", ["http://hooks.slack.test/x", "ftp://127.0.0.1/x", "https://", "nonsense", "https://[x/"]
)
def test_an_address_that_could_be_overheard_is_not_used(url: str) -> None:
    async def call(web: WebApi, _end: HttpEnd) -> None:
        with pytest.raises(Unreachable) as upload:
            await web.upload(url, b"data", "a.txt")
        with pytest.raises(Unreachable) as respond:
            await web.respond(url, {"text": "x"})
        with pytest.raises(Unreachable):
            await web.upgraded(url, {}).__aenter__()
        assert not upload.value.maybe_done
        assert not respond.value.maybe_done

    assert meet(ok)(call).asked == []


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
def test_a_proxy_that_the_environment_names_is_not_used(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """It would be sent the tokens, with a certificate that SSL_CERT_FILE makes good."""
    monkeypatch.setenv(variable, f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/evil.pem")

    async def call(web: WebApi, _end: HttpEnd) -> None:
        assert await web.call("auth.test") == {"ok": True, "ts": "1.1"}

    assert len(meet(ok)(call).asked) == 1


def test_the_proxy_that_the_configuration_names_is_used() -> None:
    seen: list[bytes] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def proxy(stream: trio.SocketStream) -> None:
                seen.append(bytes(await stream.receive_some()))
                await stream.send_all(b"HTTP/1.1 502 Nowhere\r\ncontent-length: 0\r\n\r\n")

            serve = partial(trio.serve_tcp, proxy, 0, host="127.0.0.1")
            [listener] = await nursery.start(serve)
            port = listener.socket.getsockname()[1]
            async with WebApi(TOKENS, proxy=f"http://127.0.0.1:{port}") as web:
                with pytest.raises(Unreachable):
                    await web.call("auth.test")
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert seen[0].startswith(b"CONNECT slack.com:443 ")
    assert b"xoxb" not in seen[0]


def test_certificates_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    async def main() -> str:
        async with WebApi(TOKENS, ca_file=tmp_path / "none.pem") as web:
            with pytest.raises(Unreachable) as failed:
                await web.call("auth.test")
        return str(failed.value)

    assert "the certificates or the proxy of the configuration cannot be used" in trio.run(main)
