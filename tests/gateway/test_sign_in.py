"""What a person's sign-in and sign-out do beside the plain flow: pasted addresses, forged metadata, others at the same
time, and the end of it all."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.credentials import CredentialStore
from intercom.gateway.http_exchange import NoToken
from intercom.gateway.oauth import OAuthTokens, Revocation, SignInFailed, TakeAddress, _Callback, sign_in, sign_out
from tests.gateway.authorization_server import Provider, provider, visit
from tests.gateway.http_servers import Request
from tests.gateway.test_oauth import CONFIG, CREDENTIALS, Person, config_of, signed_in, store

__all__ = ["store"]

pytestmark = pytest.mark.real_time


def returned(address: str, **changes: str) -> str:
    """The address that a browser is sent to by a page that agrees."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    return f"{query['redirect_uri']}?{urlencode({'code': 'the-code', 'state': query['state'], **changes})}"


class Paster:
    """A person whose browser is on another machine."""

    def __init__(self, write: Callable[[str], list[str]]) -> None:
        self.answers: list[str | None] = []
        self._write = write
        self._lines: list[str] = []
        self._shown = trio.Event()

    async def show(self, address: str) -> None:
        self._lines = self._write(address)
        self._shown.set()

    async def paste(self, take: TakeAddress) -> None:
        await self._shown.wait()
        self.answers = [take(line) for line in self._lines]


# --- pasted addresses


async def test_a_pasted_address_completes_the_sign_in(store: CredentialStore) -> None:
    async with provider() as found:
        person = Paster(lambda address: [f"  {returned(address)}#\n"])
        await sign_in(config_of(found), store, person.show, paste=person.paste, clock=found.clock)
        assert person.answers == [None]
        assert await OAuthTokens(config_of(found), store, found.clock)() == "token-1"


HOSTILE: list[Callable[[str], str]] = [
    lambda good: good.replace("http://127.0.0.1", "https://127.0.0.1"),
    lambda good: good.replace("http://127.0.0.1", "http://evil.example"),
    lambda good: good.replace("http://", "http://user@"),
    lambda good: good.replace("http://127.0.0.1", "http://127.0.0.1.evil.example"),
    lambda good: good.replace("/callback", "/callback/../x"),
    lambda good: good.replace("state=", "state=x"),
    lambda good: good.partition("&state=")[0],
    lambda good: f"{good}&state=other",
    lambda good: f"{good}&code=other",
    lambda good: good.replace("code=", "kode="),
    lambda good: good + "&a=" * 100,
    lambda good: good + "\x1b[2J\ud800",
    lambda _good: "javascript:alert(1)",
    lambda _good: "the-code",
    lambda _good: "http://[::1",
]


@pytest.mark.parametrize("forge", HOSTILE)
async def test_a_hostile_paste_is_refused_with_what_to_paste_and_the_right_one_still_counts(
    store: CredentialStore, forge: Callable[[str], str]
) -> None:
    async with provider() as found:
        person = Paster(lambda address: [forge(returned(address)), returned(address)])
        await sign_in(config_of(found), store, person.show, paste=person.paste, clock=found.clock)
        assert person.answers[0] is not None
        assert "paste the" in person.answers[0]
        assert person.answers[1] is None
        assert [grant["code"] for grant in found.grants] == ["the-code"]


async def _ignore(_address: str) -> None:
    pass


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_nothing_is_taken_that_does_not_know_the_state(text: str, query: dict[str, str]) -> None:
    callback = _Callback("http://127.0.0.1:1/callback", _ignore)
    assert callback.take(text) is not None
    assert callback.take(f"http://127.0.0.1:1/callback?{urlencode({**query, 'code': 'x'}, errors='replace')}")


async def test_a_wrong_issuer_in_the_return_is_no_sign_in(store: CredentialStore) -> None:
    async with provider() as found:
        with pytest.raises(SignInFailed, match="breaks the protocol"):
            await sign_in(config_of(found), store, Person(iss="https://evil.example"), clock=found.clock)
        assert (found.grants, store.load(config_of(found))) == ([], None)


# --- forged metadata


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("authorization_endpoint", "http://198.51.100.1/authorize", "without TLS"),
        ("authorization_endpoint", "https://bank.example@198.51.100.1/authorize", "forged"),
        # These metadata count as none: the addresses of a server without any are used.
        ("authorization_endpoint", "javascript:alert(1)", "gave no token"),
        ("authorization_endpoint", "file:///etc/passwd", "gave no token"),
        ("token_endpoint", "http://198.51.100.1/token", "without TLS"),
        ("registration_endpoint", "http://198.51.100.1/register", "without TLS"),
        ("issuer", "https://evil.example", "breaks the protocol"),
    ],
)
async def test_metadata_that_lead_elsewhere_are_not_followed(
    store: CredentialStore, key: str, value: str, reason: str
) -> None:
    async with provider() as found:
        found.metadata = {key: value}
        person = Person()
        with pytest.raises(SignInFailed) as caught:
            await sign_in(config_of(found), store, person, clock=found.clock)
        assert reason in caught.value.reason
        assert person.address.startswith(f"{found.base}/authorize?") or not person.address
        assert person.shown == [] or key == "token_endpoint" or reason == "gave no token"
        assert store.load(config_of(found)) is None


@pytest.mark.parametrize("path", ["/register", "/oauth/token", "/.well-known/oauth-authorization-server"])
async def test_redirects_to_other_hosts_are_not_followed(store: CredentialStore, path: str) -> None:
    async with provider() as found, provider() as other:

        async def lead_away(request: Request) -> bool:
            if urlsplit(request.path).path != path:
                return False
            await request.respond(307, location=f"{other.base}{path}")
            return True

        found.override = lead_away
        other.override = _record(seen := [])
        with pytest.raises(SignInFailed):
            await sign_in(config_of(found), store, Person(), clock=found.clock)
        assert [request.path for request in seen if request.method == "POST"] == []
        assert store.load(config_of(found)) is None


def _record(seen: list[Request]) -> Callable[[Request], Awaitable[bool]]:
    async def record(request: Request) -> bool:
        seen.append(request)
        return False

    return record


async def test_a_registration_that_gives_a_secret_and_no_way_to_send_it(store: CredentialStore) -> None:
    async with provider() as found:
        found.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post", "none"]}

        async def register(request: Request) -> bool:
            if request.path != "/register":
                return False
            await request.json_response({**request.json, "client_id": "c", "client_secret": "hush"}, status=201)
            return True

        found.override = register
        tokens = await signed_in(found, store)
        assert found.grants[0]["client_secret"] == "hush"
        found.now += 10_000
        assert await tokens() == "token-2"
        assert found.grants[1]["client_secret"] == "hush"


# --- others at the same time


async def test_two_sign_ins_at_once_both_succeed_and_the_last_one_counts(store: CredentialStore) -> None:
    async with provider() as found:
        await signed_in(found, store)
        second = Person()

        async def slow(address: str) -> None:
            # While this one waits for its person, another one does it all.
            await sign_in(config_of(found), store, second, clock=found.clock)
            assert await OAuthTokens(config_of(found), store, found.clock)() == "token-2"
            assert await visit(address) == 200

        await sign_in(config_of(found), store, slow, clock=found.clock)
        assert await OAuthTokens(config_of(found), store, found.clock)() == "token-3"
        assert second.pages == [200]


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_a_refresh_that_is_under_way_does_not_undo_a_sign_in(store: CredentialStore, is_accepted: bool) -> None:
    async with provider() as found, trio.open_nursery() as nursery:
        tokens = await signed_in(found, store)
        found.now += 10_000
        has_begun, may_end = trio.Event(), trio.Event()

        async def hold(request: Request) -> bool:
            if request.path != "/oauth/token" or request.form["grant_type"] != "refresh_token":
                return False
            has_begun.set()
            await may_end.wait()
            if not is_accepted:
                await request.json_response({"error": "invalid_grant"}, status=400)
            return not is_accepted

        found.override = hold
        nursery.start_soon(tokens)
        await has_begun.wait()
        config = evolve(config_of(found), name="far")

        async def person(address: str) -> None:
            await visit(address)
            may_end.set()

        await sign_in(config, store, person, clock=found.clock)
        new = store.load(config)
        assert new is not None
        assert new.access_token == f"token-{found.count}" or not is_accepted
        assert await tokens() == new.access_token
        code = [number for number, grant in enumerate(found.grants, 1) if grant["grant_type"] != "refresh_token"][-1]
        assert new.access_token == f"token-{code}" or not is_accepted


async def test_what_others_store_is_noticed_once_and_what_the_server_stores_is_not(store: CredentialStore) -> None:
    async with provider() as found:
        tokens = OAuthTokens(config_of(found), store, found.clock)
        assert isinstance(await tokens(), NoToken)
        assert tokens.notice_change() is False
        await sign_in(config_of(found), store, Person(), clock=found.clock)
        # A request that has used the new token already makes no difference.
        assert await tokens() == "token-1"
        assert [tokens.notice_change() for _ in range(2)] == [True, False]
        found.now += 10_000
        assert await tokens() == "token-2"
        assert tokens.notice_change() is False
        await sign_out("far", config_of(found), store)
        assert [tokens.notice_change() for _ in range(2)] == [True, False]
        assert isinstance(await tokens(), NoToken)


# --- a kill while the credentials are written

KILLED = """
import os, signal, sys
from pathlib import Path
from intercom.gateway.credentials import CredentialStore
from attrs import evolve
from tests.gateway.test_oauth import CREDENTIALS
def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], end)
CredentialStore(Path(sys.argv[1])).save("far", evolve(CREDENTIALS, tokens={"access_token": "new"}))
"""


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_kill_while_credentials_are_written_keeps_the_old_ones(
    store: CredentialStore, tmp_path: Path, call: str
) -> None:
    store.save("far", CREDENTIALS)
    directory = tmp_path / "state" / "gateway-oauth"
    done = subprocess.run([sys.executable, "-c", KILLED, str(directory), call], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert store.load(CONFIG) == CREDENTIALS
    assert len(list(directory.glob(".far.json.*"))) == 1
    store.save("far", CREDENTIALS)
    assert [each.name for each in directory.iterdir()] == ["far.json"]


# --- signing out


async def ended(found: Provider, store: CredentialStore, **metadata: Any) -> Revocation:
    found.metadata = metadata
    await signed_in(found, store)
    done = await sign_out("far", config_of(found), store)
    assert (done.issuer, store.load(config_of(found))) == (found.base, None)
    return done.revocation


async def test_a_sign_out_ends_the_token_where_that_is_offered(store: CredentialStore) -> None:
    async with provider() as found:
        assert await ended(found, store, revocation_endpoint=f"{found.base}/revoke") is Revocation.DONE
        assert found.revoked == ["refresh-1"]
        assert await ended(found, store) is Revocation.NOT_OFFERED
        assert await ended(found, store, revocation_endpoint=f"{found.base}/nothing") is Revocation.FAILED
        assert await ended(found, store, revocation_endpoint="http://198.51.100.1/revoke") is Revocation.FAILED


async def test_a_sign_out_removes_what_it_cannot_read_and_what_a_kill_has_left(
    store: CredentialStore, tmp_path: Path
) -> None:
    store.save("far", CREDENTIALS)
    directory = tmp_path / "state" / "gateway-oauth"
    (directory / "far.json").write_text("{")
    (directory / ".far.json.0123").write_text("a draft")
    (directory / ".further.json.0123").write_text("another one's")
    done = await sign_out("far", CONFIG, store)
    assert (done.issuer, done.revocation) == (None, Revocation.NOT_OFFERED)
    assert sorted(each.name for each in directory.iterdir()) == [".further.json.0123", "far.lock"]
    assert (await sign_out("far", None, store)).issuer is None


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, False),
        ({"tokens": None}, True),
        ({"expires_at": 900.0}, True),
        ({"expires_at": 900.0, "tokens": {"access_token": "a", "refresh_token": "r"}}, False),
        ({"expires_at": 1100.0}, False),
        ({"server": "https://other.example"}, False),
    ],
)
def test_files_tell_whether_a_sign_in_has_ended(store: CredentialStore, changes: dict[str, Any], needs: bool) -> None:
    store.save("far", evolve(CREDENTIALS, **changes))
    assert store.needs_sign_in(CONFIG, 1000.0) is needs


def test_files_tell_that_nobody_has_signed_in_where_the_configuration_says_how(store: CredentialStore) -> None:
    from intercom.gateway.downstream_config import OAuth

    assert store.needs_sign_in(CONFIG, 0.0) is False
    assert store.needs_sign_in(evolve(CONFIG, oauth=OAuth(client_id="c")), 0.0) is True
