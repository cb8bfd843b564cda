"""Signing in, and the tokens that follow, against an authorization server on the loopback."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from attrs import evolve

from intercom.gateway import credentials as credentials_module
from intercom.gateway.credentials import Credentials, CredentialStore
from intercom.gateway.downstream_config import DownstreamConfig, OAuth, Transport
from intercom.gateway.http_exchange import NoToken
from intercom.gateway.oauth import OAuthTokens, SignedIn, SignInFailed, sign_in
from intercom.model.errors import ConfigError
from tests.gateway.authorization_server import Provider, provider, visit
from tests.gateway.http_servers import Request

pytestmark = pytest.mark.real_time


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    return CredentialStore(tmp_path / "state" / "gateway-oauth")


def config_of(found: Provider, **oauth: Any) -> DownstreamConfig:
    settings = OAuth(**oauth) if oauth else None
    return DownstreamConfig("far", Transport.HTTP, ("far.*",), "1.0.0", base_url=f"{found.base}/mcp", oauth=settings)


class Person:
    """Signs in whenever shown an address."""

    def __init__(self, **changes: str) -> None:
        self.shown: list[dict[str, str]] = []
        self.address = ""
        self.pages: list[int] = []
        self.changes = changes

    async def __call__(self, address: str) -> None:
        self.address = address
        self.shown.append({name: values[0] for name, values in parse_qs(urlsplit(address).query).items()})
        self.pages.append(await visit(address, **self.changes))


async def signed_in(found: Provider, store: CredentialStore, **oauth: Any) -> OAuthTokens:
    config = config_of(found, **oauth)
    await sign_in(config, store, Person(), clock=found.clock)
    return OAuthTokens(config, store, found.clock, found.steady)


# --- signing in


async def test_a_sign_in_gives_the_token_that_requests_send(store: CredentialStore, tmp_path: Path) -> None:
    async with provider() as found:
        person = Person()
        done = await sign_in(config_of(found), store, person, clock=found.clock)
        assert done == SignedIn("far", found.base, ("read", "write"), found.now + 3600, True)
        assert person.pages == [200]
        assert person.shown[0]["code_challenge_method"] == "S256"
        assert person.shown[0]["resource"] == f"{found.base}/mcp"
        assert found.grants[0]["code"] == "the-code"
        assert await OAuthTokens(config_of(found), store, found.clock)() == "token-1"
    directory = tmp_path / "state" / "gateway-oauth"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {
        "far.json": 0o600,
        "far.lock": 0o600,
    }


async def test_a_second_sign_in_uses_the_registered_client_and_its_port(store: CredentialStore) -> None:
    async with provider() as found:
        first, second, third = Person(), Person(), Person()
        for person in (first, second):
            await sign_in(config_of(found), store, person, clock=found.clock)
        assert len(found.registered) == 1
        assert first.shown[0]["redirect_uri"] == second.shown[0]["redirect_uri"]
        await sign_in(config_of(found), store, third, register=True, clock=found.clock)
        assert len(found.registered) == 2


async def test_a_taken_port_registers_a_new_client(store: CredentialStore) -> None:
    async with provider() as found:
        person = Person()
        await sign_in(config_of(found), store, person, clock=found.clock)
        port = urlsplit(person.shown[0]["redirect_uri"]).port
        assert port is not None
        [taken] = await trio.open_tcp_listeners(port, host="127.0.0.1")
        async with taken:
            await sign_in(config_of(found), store, person, clock=found.clock)
            assert len(found.registered) == 2
            with pytest.raises(SignInFailed, match=f"port {port} is in use"):
                await sign_in(config_of(found, client_id="mine", callback_port=port), store, person)


async def test_the_settings_of_the_configuration_are_used(store: CredentialStore) -> None:
    async with provider() as found:
        found.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        person = Person()
        config = config_of(
            found, client_id="mine", client_secret="hush", scopes=("one", "two"), resource=f"{found.base}/mcp/other"
        )
        await sign_in(config, store, person, clock=found.clock)
        assert found.registered == []
        assert person.shown[0]["client_id"] == "mine"
        assert person.shown[0]["scope"] == "one two"
        assert person.shown[0]["resource"] == f"{found.base}/mcp/other"
        assert found.grants[0]["client_secret"] == "hush"


async def test_the_metadata_of_the_configuration_is_used(store: CredentialStore) -> None:
    async with provider() as found:

        async def elsewhere(request: Request) -> bool:
            path = urlsplit(request.path).path
            if path.startswith("/.well-known/"):
                await request.respond(404)
                return True
            if path == "/tenant/metadata":
                await request.json_response({**found.description(), "issuer": f"{found.base}/tenant"})
                return True
            return False

        found.override = elsewhere
        config = config_of(found, metadata_url=f"{found.base}/tenant/metadata")
        done = await sign_in(config, store, Person(), clock=found.clock)
        assert done.issuer == f"{found.base}/tenant"


@pytest.mark.parametrize("changes", [{"state": "wrong"}, {"code": ""}, {"state": ""}, {"code": "", "state": "x"}])
async def test_only_the_right_return_of_the_browser_counts(store: CredentialStore, changes: dict[str, str]) -> None:
    async with provider() as found:

        async def person(address: str) -> None:
            assert await visit(address, **changes) == 404
            assert found.grants == []
            assert await visit(address) == 200

        await sign_in(config_of(found), store, person, clock=found.clock)
        assert len(found.grants) == 1


async def test_a_hostile_client_of_the_callback_does_not_stop_the_sign_in(store: CredentialStore) -> None:
    async with provider() as found:

        async def person(address: str) -> None:
            port = urlsplit(parse_qs(urlsplit(address).query)["redirect_uri"][0]).port
            assert port is not None
            for data in (
                b"",
                b"\x00\xff" * 1000,
                b"GET /" + b"a" * 200_000,
                b"GET /callback?" + b"a&" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
            ):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                try:
                    await stream.send_all(data)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                await stream.aclose()
            assert await visit(address) == 200

        await sign_in(config_of(found), store, person, clock=found.clock)


async def test_a_person_may_refuse(store: CredentialStore) -> None:
    async with provider() as found:
        for error, shown in (("access_denied", r"\(access_denied\)"), ("<script>", "browser$")):
            with pytest.raises(SignInFailed, match=shown):
                await sign_in(config_of(found), store, Person(code="", error=error), clock=found.clock)
        assert store.load(config_of(found)) is None


async def test_nobody_comes_back(store: CredentialStore) -> None:
    async with provider() as found:

        async def nobody(address: str) -> None:
            pass

        with pytest.raises(SignInFailed, match="nobody finished the sign-in"):
            await sign_in(config_of(found), store, nobody, seconds=0.3, clock=found.clock)


async def test_a_failed_sign_in_keeps_the_one_before(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        with pytest.raises(SignInFailed):
            await sign_in(config_of(found), store, Person(code="", error="x"), clock=found.clock)
        assert await tokens() == "token-1"


async def test_a_server_that_asks_for_nothing(store: CredentialStore) -> None:
    async with provider() as found:
        found.asks = False
        with pytest.raises(SignInFailed, match="asks for no sign-in"):
            await sign_in(config_of(found), store, Person(), clock=found.clock)


async def test_what_the_command_itself_raises_stays_as_it_is(store: CredentialStore) -> None:
    async def broken(address: str) -> None:
        raise KeyError

    async with provider() as found:
        with pytest.raises(KeyError):
            await sign_in(config_of(found), store, broken, clock=found.clock)


@pytest.mark.parametrize(
    ("path", "status", "body", "reason"),
    [
        ("/register", 403, b"secret", "oauth.clientId"),
        ("/register", 201, b"{}", "oauth.clientId"),
        ("/oauth/token", 400, b'{"error": "invalid_client", "secret": 1}', "gave no token"),
        ("/oauth/token", 200, b"secret", "gave no token"),
        ("/oauth/token", 200, b'{"access_token": ""}', "does not accept the token"),
        ("/.well-known/oauth-protected-resource/mcp", 500, b"secret", "breaks the protocol"),
        (
            "/.well-known/oauth-protected-resource/mcp",
            200,
            b'{"resource": "https://other.example/", "authorization_servers": ["https://other.example/"]}',
            "breaks the protocol",
        ),
        (
            "/.well-known/oauth-protected-resource/mcp",
            200,
            b'{"resource": "%s/mcp", "authorization_servers": ["http://198.51.100.1/"]}',
            "without TLS",
        ),
        ("/.well-known/oauth-authorization-server", 200, b" " * 2_000_000, "sent more than"),
    ],
)
async def test_a_server_that_misbehaves(
    store: CredentialStore, path: str, status: int, body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with provider() as found:

        async def misbehave(request: Request) -> bool:
            if request.path != path:
                return False
            await request.respond(status, body.replace(b"%s", found.base.encode()), content_type="application/json")
            return True

        found.override = misbehave
        with pytest.raises(SignInFailed) as caught:
            await sign_in(config_of(found), store, Person(), clock=found.clock)
        assert reason in caught.value.reason
        assert "secret" not in caught.value.reason
        assert "secret" not in caplog.text
        assert store.load(config_of(found)) is None


async def test_a_remote_server_without_tls_is_not_signed_in_to(store: CredentialStore) -> None:
    async with provider() as found:
        config = evolve(config_of(found), base_url="http://198.51.100.1/mcp")
        with pytest.raises(SignInFailed, match="without TLS"):
            await sign_in(config, store, Person())


async def test_a_token_that_the_server_then_refuses(store: CredentialStore) -> None:
    async with provider() as found:

        async def refuse(request: Request) -> bool:
            found.valid = set()
            return False

        found.override = refuse
        with pytest.raises(SignInFailed, match="does not accept the token"):
            await sign_in(config_of(found), store, Person(), clock=found.clock)


# --- tokens


async def test_nobody_has_signed_in(store: CredentialStore) -> None:
    async with provider() as found:
        token = await OAuthTokens(config_of(found), store, found.clock)()
        assert isinstance(token, NoToken)
        assert token.reason.startswith("needs sign-in: ")
        assert "gateway sign-in far" in token.reason


async def test_a_token_is_refreshed_before_it_expires_and_after_a_restart(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        found.now += 3530
        assert await tokens() == "token-1"
        found.now += 20
        assert await tokens() == "token-2"
        assert found.grants[-1]["grant_type"] == "refresh_token"
        assert found.grants[-1]["refresh_token"] == "refresh-1"
        found.now += 10_000
        # Another process: nothing but the file is known. Nobody is asked.
        assert await OAuthTokens(config_of(found), store, found.clock)() == "token-3"
        assert found.grants[-1]["refresh_token"] == "refresh-2"
        assert found.grants[-1]["client_id"] == "client-1"


async def test_many_wait_for_one_refresh(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        found.now += 10_000
        other = OAuthTokens(config_of(found), store, found.clock)  # as in another process
        got: list[object] = []

        async def ask(source: OAuthTokens) -> None:
            got.append(await source())

        async with trio.open_nursery() as nursery:
            for source in (tokens, other) * 10:
                nursery.start_soon(ask, source)
        assert got == ["token-2"] * 20
        assert len(found.grants) == 2


async def test_a_refused_token_is_refreshed_once(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        assert await tokens("token-1") == "token-2"
        # Another request was under way with the old one.
        assert await tokens("token-1") == "token-2"
        assert len(found.grants) == 2


async def test_a_token_without_refresh_needs_a_person_when_it_is_refused_or_expired(store: CredentialStore) -> None:
    async with provider() as found:

        async def short(request: Request) -> bool:
            if request.path != "/oauth/token":
                return False
            found.valid = {"only"}
            await request.json_response({"access_token": "only", "token_type": "Bearer", "expires_in": 100})
            return True

        found.override = short
        tokens = await signed_in(found, store)
        found.now += 99
        assert await tokens() == "only"
        refused = await tokens("only")
        assert isinstance(refused, NoToken)
        assert "refused the token" in refused.reason
        found.now += 2
        expired = await tokens()
        assert isinstance(expired, NoToken)
        assert expired.reason.startswith("needs sign-in: the sign-in has expired")


@pytest.mark.parametrize(("error", "registrations"), [("invalid_grant", 1), ("invalid_client", 2)])
async def test_an_ended_sign_in_needs_a_person(store: CredentialStore, error: str, registrations: int) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)

        async def end(request: Request) -> bool:
            if request.path == "/oauth/token" and "refresh_token" in request.form:
                await request.json_response({"error": error}, status=400)
                return True
            return False

        found.override = end
        for _ in range(2):
            ended = await tokens("token-1")
            assert isinstance(ended, NoToken)
            assert ended.reason.startswith("needs sign-in")
        await sign_in(config_of(found), store, Person(), clock=found.clock)
        # The same object notices what another process has stored.
        assert await tokens() == "token-2"
        assert len(found.registered) == registrations


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (200, b"nothing"), (400, b'{"error": "temporarily_unavailable"}'), (302, b""), (0, b"")]
)
async def test_a_failed_refresh_is_repeated_later_and_keeps_the_sign_in(
    store: CredentialStore, answer: tuple[int, bytes]
) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        tries = 0

        async def fail(request: Request) -> bool:
            nonlocal tries
            if request.path != "/oauth/token":
                return False
            tries += 1
            if answer[0] == 0:
                await request.stream.aclose()
            else:
                await request.respond(*answer, location="http://198.51.100.1/")
            return True

        found.override = fail
        found.now += 3550
        # The old one is still valid, and the server is not asked again and again.
        assert [await tokens() for _ in range(3)] == ["token-1"] * 3
        assert tries == 1
        found.now += 1000
        failed = await tokens()
        assert isinstance(failed, NoToken)
        assert failed.reason.startswith("its token could not be refreshed")
        found.override = None
        found.now += 11
        assert await tokens() == "token-2"


async def test_a_clock_that_is_put_back_does_not_put_off_a_refresh(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)

        async def fail(request: Request) -> bool:
            await request.respond(500, b"")
            return True

        found.override, found.ahead = fail, 8 * 3600.0
        assert isinstance(await tokens(), NoToken)
        found.override, found.ahead = None, 0.0
        found.now += 3700
        assert await tokens() == "token-2"


async def test_a_cancelled_caller_loses_no_refresh_token(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = await signed_in(found, store)
        found.now += 10_000
        scope = trio.CancelScope()

        async def cancel(request: Request) -> bool:
            # The old refresh token is used up from now on.
            scope.cancel()
            return False

        found.override = cancel
        with scope:
            await tokens()
        found.override = None
        assert await OAuthTokens(config_of(found), store, found.clock)() == "token-2"
        assert len(found.grants) == 2


async def test_the_environment_chooses_no_proxy(store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with provider() as found:
        assert await (await signed_in(found, store))() == "token-1"


@pytest.mark.parametrize("expires_in", [None, 0, -5, 10**30])
async def test_a_life_that_makes_no_sense(store: CredentialStore, expires_in: object) -> None:
    async with provider() as found:
        found.expires_in = expires_in
        tokens = await signed_in(found, store)
        found.now += 86_400
        assert await tokens() == "token-1"


# --- what is stored


async def test_credentials_are_for_one_address(store: CredentialStore) -> None:
    async with provider() as found:
        await signed_in(found, store)
        moved = evolve(config_of(found), base_url="https://evil.example/mcp")
        assert store.load(moved) is None
        assert isinstance(await OAuthTokens(moved, store, found.clock)(), NoToken)


async def test_another_issuer_gets_nothing_of_the_first(store: CredentialStore) -> None:
    async with provider() as found, provider() as other:
        await signed_in(found, store)

        async def moved(request: Request) -> bool:
            if request.path != "/.well-known/oauth-protected-resource/mcp":
                return False
            await request.json_response({"resource": f"{found.base}/mcp", "authorization_servers": [other.base]})
            return True

        found.override = moved
        other.grant = found.grant  # type: ignore[method-assign]
        other.count = 10
        person = Person()
        done = await sign_in(config_of(found), store, person, clock=found.clock)
        assert done.issuer.rstrip("/") == other.base
        assert len(other.registered) == 1
        assert json.dumps(other.registered).count("client-1") == 0


async def test_a_configured_secret_stays_with_its_first_issuer(store: CredentialStore) -> None:
    async with provider() as found, provider() as other:
        oauth = {"client_id": "mine", "client_secret": "hush"}
        other.count = 10
        await signed_in(found, store, **oauth)

        async def moved(request: Request) -> bool:
            if request.path != "/.well-known/oauth-protected-resource/mcp":
                return False
            await request.json_response({"resource": f"{found.base}/mcp", "authorization_servers": [other.base]})
            return True

        found.override = moved
        person = Person()
        with pytest.raises(SignInFailed):
            await sign_in(config_of(found, **oauth), store, person, clock=found.clock)
        assert person.shown[0]["client_id"] == "client-1"
        assert "hush" not in json.dumps(other.grants)


CREDENTIALS = Credentials(
    "https://a.example", "https://b.example/mcp", {"client_id": "c"}, tokens={"access_token": "hush"}
)
CONFIG = DownstreamConfig("far", Transport.HTTP, ("far.*",), "1.0.0", base_url="https://b.example/mcp")


def test_the_store_keeps_what_it_is_given(store: CredentialStore) -> None:
    assert store.load(CONFIG) is None
    assert store.stamp("far") is None
    store.save("far", CREDENTIALS)
    assert store.load(CONFIG) == CREDENTIALS
    assert store.load(evolve(CONFIG, name="other")) is None
    assert store.forget("far") is True
    assert store.forget("far") is False
    assert "hush" not in repr(CREDENTIALS)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"current": 1, "issuers": []}', b"\xff", b'{"current":"","issuers":{"a":{}}}']
)
def test_a_damaged_file_is_a_fault_that_names_it(store: CredentialStore, tmp_path: Path, content: bytes) -> None:
    store.save("far", CREDENTIALS)
    path = tmp_path / "state" / "gateway-oauth" / "far.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"far\.json is damaged: remove it, and sign in again"):
        store.load(CONFIG)
    store.save("far", CREDENTIALS)
    assert store.load(CONFIG) == CREDENTIALS


async def test_a_file_that_others_can_read_is_not_used(store: CredentialStore, tmp_path: Path) -> None:
    store.save("far", CREDENTIALS)
    (tmp_path / "state" / "gateway-oauth" / "far.json").chmod(0o644)
    with pytest.raises(ConfigError, match="open to other users"):
        store.load(CONFIG)
    token = await OAuthTokens(CONFIG, store)()
    assert isinstance(token, NoToken)
    assert "cannot be used" in token.reason


@pytest.mark.parametrize("name", ["../far", "", "a/b", "far\n", "x" * 41])
def test_no_name_leads_out_of_the_directory(store: CredentialStore, name: str) -> None:
    with pytest.raises(ValueError):
        store.save(name, CREDENTIALS)


async def test_a_lock_that_is_never_released_does_not_stop_a_refresh(
    store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "LOCK_SECONDS", 0.01)
    async with provider() as found:
        tokens = await signed_in(found, store)
        found.now += 10_000
        async with store.locked("far"):
            assert await tokens() == "token-2"
