"""Push messages: what is sent to whom, that only the browser can read it, and where nothing is ever sent."""

from __future__ import annotations

import json
import stat
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from actors import ChildSpec, System
from intercom.masking import Masker
from intercom.model.card import Card, CardKind, CardState
from intercom.model.errors import InvalidArguments, InvalidState, IpcError, NotFound
from intercom.model.session import SessionMode
from intercom.model.web import PushSubscription
from intercom.operators.card_router import CardRouter
from intercom.operators.web import push_delivery, push_encryption
from intercom.operators.web.listener import WebLinks
from intercom.operators.web.push_delivery import Attempt, Outcome, send
from intercom.operators.web.push_encryption import BrowserKeys, ServerKey, encrypt, server_key
from intercom.operators.web.push_sender import (
    GATHER_SECONDS,
    PAUSE_SECONDS,
    RETRIES,
    PushDeps,
    PushSender,
    digest,
    message_of,
)
from intercom.operators.web.push_subscriptions import Destinations, PushCalls, is_public
from intercom.operators.web.sign_in import WebRole
from intercom.store import rows
from intercom.store.store_and_reader import Reader, Store, StoreUnavailable
from intercom.store.trust import MOST_BROWSERS_OF_ONE, subscription_id
from intercom.store.writer import Writer
from tests.operators.stand_in_service import StandInService, card
from tests.operators.web.page_server import page_server
from tests.operators.web.push_service import PushBrowser, claims, data, private_key, push_service
from tests.support.database import new_database

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
PUBLIC = "https://updates.push.example.com/wpush/v2/gAAAA"


# --- the encryption and the key --------------------------------------------------------------------------------------


def test_the_encryption_is_that_of_the_standard() -> None:
    """RFC 8291, appendix A."""
    keys = BrowserKeys.read(
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    own, salt = private_key("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), data("DGv6ra1nlYgDCS1FRnbzlw")
    sent = push_encryption._encrypt(b"When I grow up, I want to be a watermelon\x02", keys, own, salt)
    assert sent == data(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
        "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_only_the_browser_reads_a_message_and_its_length_says_nothing() -> None:
    browser = PushBrowser()
    short, long = (encrypt(text, BrowserKeys.read(**keys_of(browser))) for text in (b"a", b"b" * 2000))
    assert (browser.read(short), browser.read(long)) == (b"a", b"b" * 2000)
    assert len(short) == len(long) <= 4096
    with pytest.raises(ValueError, match="at most"):
        encrypt(b"x" * 4000, BrowserKeys.read(**keys_of(browser)))


def keys_of(browser: PushBrowser) -> dict[str, str]:
    return {"public": browser.keys["public"], "secret": browser.keys["auth"]}


@pytest.mark.parametrize(
    ("public", "auth"),
    [
        ("", ""),
        ("BAAA", "BTBZMqHH6r4Tts7J_aSIgg"),
        ("B" + "A" * 86, "BTBZMqHH6r4Tts7J_aSIgg"),
        ("é", "a=="),
        ("A\n", "B"),
    ],
)
def test_other_keys_than_a_browser_makes_are_refused(public: str, auth: str) -> None:
    with pytest.raises(InvalidArguments):
        BrowserKeys.read(public, auth)


def test_the_servers_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "web-push.key"
    made = server_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert server_key(file).public == made.public
    assert len(data(made.public)) == 65
    token, key = claims(made.authorization(PUBLIC, "mailto:alex@example.org", NOW))
    expires = int((NOW + timedelta(hours=12)).timestamp())
    assert token == {"aud": "https://updates.push.example.com", "exp": expires, "sub": "mailto:alex@example.org"}
    assert key == made.public
    assert "sub" not in claims(made.authorization(PUBLIC, None, NOW))[0]
    assert "PRIVATE" not in repr(made)


def test_a_key_that_others_could_read_or_that_is_none_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "web-push.key"
    server_key(file)
    file.chmod(0o644)
    with pytest.raises(IpcError, match="chmod"):
        server_key(file)
    file.chmod(0o600)
    file.write_text("nothing")
    with pytest.raises(IpcError, match="holds no key"):
        server_key(file)
    assert file.read_text() == "nothing"


# --- where nothing is sent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["8.8.8.8", "2a00:1450:4001:81b::200e", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1"),
        *("::", "::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:53aa:64c:0:0:80ff:fffe", "localhost", ""),
        *("fec0::1", "64:ff9b:1::7f00:1", "::7f00:1", "2001:470::5efe:a00:1", "2001:470::200:5efe:7f00:1"),
    ],
)
def test_private_addresses_are_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "endpoint",
    [
        *(
            "https://localhost/",
            "https://intranet/a",
            "https://push.example.com\\@10.0.0.1/",
            "https://a b.example.com/",
        ),
        *("http://push.example.com/a", "ftp://push.example.com/", "push.example.com", "", "https://", "https:///a"),
        *("https://localhost./", "https://a..example.com/", "https://.../", "https://a%2eb.com/", "https://a.b;c/"),
        *("https://127.0.0.1/a", "https://[::1]/a", "https://10.0.0.1/", "https://169.254.169.254/latest/meta-data"),
        *(
            "https://2130706433/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https://[::ffff:7f00:1]/",
        ),
        *("https://user@push.example.com/", "https://a:b@push.example.com/", "https://push.example.com/a#b"),
        *("https://push.example.com:22/", "https://push.example.com:0/", "https://push.example.com:99999/"),
        *(
            "https://push.example.com/\r\nHost: x",
            "https://push.example.com/é",
            f"https://push.example.com/{'a' * 3000}",
        ),
    ],
)
def test_endpoints_that_lead_elsewhere_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidArguments):
        Destinations().check(endpoint)


@given(st.text(max_size=60))
def test_no_endpoint_does_more_than_be_refused(text: str) -> None:
    for endpoint in (text, f"https://{text}", f"https://{text}/a"):
        try:
            Destinations().check(endpoint)
        except InvalidArguments:
            continue
        assert endpoint.startswith("https://")


def test_the_endpoints_of_browsers_are_taken() -> None:
    for host in (
        "fcm.googleapis.com/fcm/send/a:b",
        "web.push.apple.com/Q",
        "wns2-am3p.notify.windows.com/w/?token=a%2b",
    ):
        Destinations().check(f"https://{host}")


class Names(trio.abc.HostnameResolver):
    """Gives these answers, one after the other: the answer for a name changes between two looks (DNS rebinding)."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, *_: Any, **__: Any) -> Any:
        return [(2, type, 6, "", (self.answers.pop(0), port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


@pytest.fixture
def key(tmp_path: Path) -> ServerKey:
    return server_key(tmp_path / "key" / "web-push.key")


def subscription(endpoint: str = PUBLIC, browser: PushBrowser | None = None, by: str = "kim") -> PushSubscription:
    keys = (browser or PushBrowser()).keys
    return PushSubscription(
        subscription_id(endpoint), endpoint, keys["public"], keys["auth"], by, "web", "Firefox", NOW
    )


async def test_a_name_that_leads_into_a_private_network_is_not_connected_to(key: ServerKey) -> None:
    trio.socket.set_custom_hostname_resolver(Names("10.0.0.7"))
    done = await send(subscription(), b"{}", key, Destinations(), None, NOW)
    assert done == Attempt(Outcome.REFUSED, "its name leads into a private network")


@pytest.mark.real_time
async def test_what_was_checked_is_what_is_connected_to(key: ServerKey) -> None:
    async with push_service() as service:
        names = Names("127.0.0.1", "10.0.0.7")
        trio.socket.set_custom_hostname_resolver(names)
        seen: list[str] = []
        rule = Destinations("http", None, lambda address: seen.append(address) or True)  # type: ignore[func-returns-value]
        endpoint = f"http://push.example.com:{service.port}/a"
        assert (await send(subscription(endpoint), b"{}", key, rule, None, NOW)).outcome is Outcome.SENT
        assert (seen, names.answers) == (["127.0.0.1"], ["10.0.0.7"])
        assert service.got[0][1]["host"] == f"push.example.com:{service.port}"


# --- one attempt -----------------------------------------------------------------------------------------------------


@pytest.mark.real_time
async def test_a_push_service_gets_what_the_standards_say(key: ServerKey) -> None:
    browser = PushBrowser()
    async with push_service() as service:
        to = subscription(service.endpoint, browser)
        assert (await send(to, b"hello", key, service.destinations, None, NOW)).outcome is Outcome.SENT
        [(target, headers, body)] = service.got
        assert (target, browser.read(body)) == ("/send/secret-1", b"hello")
        wanted = {"content-encoding": "aes128gcm", "urgency": "high", "topic": "waiting", "ttl": "14400"}
        assert wanted.items() <= headers.items()
        assert claims(headers["authorization"])[0]["aud"] == f"http://127.0.0.1:{service.port}"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("status", "headers", "outcome", "after"),
    [
        (404, {}, Outcome.GONE, 0),
        (410, {}, Outcome.GONE, 0),
        (429, {"Retry-After": "30"}, Outcome.LATER, 30),
        (503, {"Retry-After": "Thu, 26 Nov 2026 12:02:00 GMT"}, Outcome.LATER, 120),
        (500, {"Retry-After": "soon"}, Outcome.LATER, 0),
        (403, {}, Outcome.REFUSED, 0),
        (413, {}, Outcome.REFUSED, 0),
        # It leads to where nothing may be sent.
        (307, {"Location": "http://127.0.0.1:1/"}, Outcome.REFUSED, 0),
    ],
)
async def test_what_an_answer_means(
    key: ServerKey, status: int, headers: dict[str, str], outcome: Outcome, after: float
) -> None:
    async with push_service() as service:
        service.answers = [(status, headers)]
        done = await send(subscription(service.endpoint), b"{}", key, service.destinations, None, NOW)
        assert (done.outcome, done.after) == (outcome, after)
        assert len(service.got) == 1


@pytest.mark.real_time
async def test_a_push_service_that_is_away_is_tried_again(key: ServerKey) -> None:
    async with push_service() as service:
        rule = service.destinations
    done = await send(subscription(service.endpoint), b"{}", key, rule, None, NOW)
    assert done.outcome is Outcome.LATER
    assert "secret" not in done.why


# --- what is told ----------------------------------------------------------------------------------------------------


def _same(text: str) -> str:
    return text


def test_a_digest_says_kinds_and_titles_and_nothing_else() -> None:
    cards = [evolve(card(f"c{at}"), title=f"Change {at}", body="secret", diff="secret") for at in range(5)]
    assert digest(cards[:1], 1, _same) == {
        "tag": "waiting",
        "title": "Change",
        "body": "Change 0",
        "path": "/inbox/c0",
        "ids": ["c0"],
    }
    assert digest(cards[:1], 3, _same)["body"] == "Change: Change 0\nand 2 more"
    several = digest(cards, 6, _same)
    assert (several["title"], several["path"]) == ("6 requests wait", "/inbox")
    assert several["body"] == "Change: Change 0\nChange: Change 1\nChange: Change 2\nand 3 more"
    assert "secret" not in json.dumps(several)


def test_secrets_in_a_title_are_masked_and_hidden_characters_shown() -> None:
    hostile = evolve(card("c1"), title="deploy\u202e with AKIAIOSFODNN7EXAMPLQ\nnow")
    body = str(digest([hostile], 1, lambda text: Masker().mask(text).text)["body"])
    assert "AKIA" not in body
    assert "\u202e" not in body
    assert "\n" not in body


@given(st.lists(st.text(max_size=400), min_size=1, max_size=12), st.integers(1, 500))
def test_a_message_always_fits(titles: list[str], more: int) -> None:
    cards = [evolve(card("f" * 36), title=title) for title in titles]
    told = json.loads(message_of(digest(cards, len(cards) + more, _same)))
    assert told["tag"] == "waiting"


# --- the actor, in virtual time --------------------------------------------------------------------------------------


@define
class Calls:
    """Keeps the subscriptions in memory."""

    known: dict[str, PushSubscription] = field(factory=dict)
    destinations: Destinations = field(factory=Destinations)
    #: How many more readings work; then one fails.
    works: int | None = None

    async def subscriptions(self) -> tuple[PushSubscription, ...]:
        if self.works == 0:
            self.works = None
            raise StoreUnavailable("the database is locked")
        if self.works is not None:
            self.works -= 1
        return tuple(self.known.values())

    async def forget(self, id: str) -> None:
        del self.known[id]

    async def key(self) -> None:
        return None


@define
class Sent:
    """What was sent, and when: stands in for the sending. `outcomes` are those of the next attempts."""

    outcomes: list[Attempt] = field(factory=list)
    got: list[tuple[float, str, str]] = field(factory=list)
    began: float = field(factory=lambda: trio.current_time())
    seconds: float = 0.0

    async def send(self, to: PushSubscription, text: bytes, *_: Any) -> Attempt:
        await trio.sleep(self.seconds)
        told = json.loads(text)
        self.got.append((trio.current_time() - self.began, to.label, told["title"]))
        return self.outcomes.pop(0) if self.outcomes else Attempt(Outcome.SENT)


@define
class Pushing:
    system: System
    calls: Calls
    sent: Sent

    def put(self, *cards: Card) -> None:
        for each in cards:
            self.system.named("card_router").tell(each)


def fresh(id: str, **more: Any) -> Card:
    return evolve(card(id), created_at=NOW + timedelta(seconds=1), **more)


@asynccontextmanager
async def pushing(monkeypatch: pytest.MonkeyPatch, *labels: str, before: tuple[Card, ...] = ()) -> Any:
    calls, sent = Calls(), Sent()
    for label in labels:
        calls.known[label] = evolve(subscription(), id=label, label=label)
    monkeypatch.setattr(push_delivery, "send", sent.send)
    deps = PushDeps(StandInService(), calls, now=lambda: NOW)  # type: ignore[arg-type]

    async def open_cards() -> tuple[Card, ...]:
        return before

    async def mode_of(session_id: str) -> SessionMode:
        return SessionMode.REMOTE

    children = [
        ChildSpec("card_router", lambda: CardRouter(open_cards, mode_of)),
        ChildSpec("push", lambda: PushSender(deps)),
    ]
    async with System(children) as system:
        await trio.sleep(1)
        sent.began = trio.current_time()
        yield Pushing(system, calls, sent)


async def test_a_flood_is_one_message_to_each_browser_and_the_next_comes_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pushing(monkeypatch, "phone", "laptop") as on:
        on.put(*(fresh(f"c{at}") for at in range(5)))
        await trio.sleep(GATHER_SECONDS + 1)
        assert sorted(on.sent.got) == [(2.0, "laptop", "5 requests wait"), (2.0, "phone", "5 requests wait")]
        on.put(fresh("d1"), fresh("d2"))
        await trio.sleep(PAUSE_SECONDS + GATHER_SECONDS + 1)
        assert sorted(on.sent.got)[2:] == [(24.0, "laptop", "7 requests wait"), (24.0, "phone", "7 requests wait")]


async def test_what_was_decided_meanwhile_and_what_needs_no_answer_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pushing(monkeypatch, "phone") as on:
        on.put(fresh("a"), fresh("task", kind=CardKind.TASK), fresh("a", state=CardState.APPROVED))
        await trio.sleep(100)
        assert on.sent.got == []
        on.put(fresh("b"), fresh("b", note="the agent is away"))
        await trio.sleep(100)
        on.put(fresh("b", note="the agent is back"))
        await trio.sleep(100)
        assert [title for *_, title in on.sent.got] == ["Change"]


async def test_what_waited_before_the_server_started_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old, young = card("old"), fresh("young")
    async with pushing(monkeypatch, "phone", before=(old, young)) as on:
        await trio.sleep(100)
        assert [title for *_, title in on.sent.got] == ["2 requests wait"]
        on.put(evolve(old, note="again"))
        await trio.sleep(100)
        assert len(on.sent.got) == 1


async def test_a_failed_message_is_tried_again_with_what_waits_then_and_given_up_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pushing(monkeypatch, "phone") as on:
        on.sent.outcomes = [Attempt(Outcome.LATER, "x"), Attempt(Outcome.LATER, "x", 40.0)]
        on.put(fresh("a"))
        await trio.sleep(3)
        on.put(fresh("b"))
        await trio.sleep(200)
        # The second attempt comes after two seconds; the third one when its push service said, with what came since.
        assert on.sent.got == [
            (2.0, "phone", "Change"),
            (4.0, "phone", "2 requests wait"),
            (44.0, "phone", "2 requests wait"),
        ]
        on.sent.outcomes = [Attempt(Outcome.LATER, "x")] * 10
        on.put(fresh("c"))
        await trio.sleep(3600)
        assert len(on.sent.got) == 3 + 1 + len(RETRIES)
        on.sent.outcomes = []
        on.put(fresh("d"))
        await trio.sleep(100)
        assert on.sent.got[-1][2] == "4 requests wait"


@pytest.mark.parametrize("works", [0, 1])
async def test_a_card_that_came_while_the_store_was_away_is_told_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch, works: int
) -> None:
    """It is read when cards are gathered, and again for each message."""
    async with pushing(monkeypatch, "phone") as on:
        on.calls.works = works
        on.put(fresh("a"))
        await trio.sleep(100)
        assert [title for *_, title in on.sent.got] == ["Change"]


async def test_a_browser_that_has_unsubscribed_is_forgotten_and_others_are_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pushing(monkeypatch, "gone", "phone") as on:
        on.sent.outcomes = [Attempt(Outcome.GONE, "it answered 410")]
        on.put(fresh("a"))
        await trio.sleep(10)
        assert len(on.calls.known) == 1
        [left] = on.calls.known
        on.put(fresh("b"))
        await trio.sleep(100)
        assert [label for _, label, title in on.sent.got if title == "2 requests wait"] == [left]


async def test_a_slow_push_service_blocks_no_other_browser_and_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pushing(monkeypatch, "phone") as on:
        on.sent.seconds = 1000.0
        on.put(fresh("a"))
        await trio.sleep(10)
        # The actor takes cards while a message is on its way; the next message has what was decided meanwhile.
        on.put(fresh("b"), fresh("c"), fresh("b", state=CardState.APPROVED))
        on.calls.known["laptop"] = evolve(subscription(), id="laptop", label="laptop")
        await trio.sleep(3000)
        assert [(label, title) for _, label, title in sorted(on.sent.got)] == [
            ("phone", "Change"),
            ("laptop", "2 requests wait"),
            ("phone", "2 requests wait"),
        ]


# --- the subscriptions -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def stored(tmp_path: Path, **options: Any) -> Any:
    path = tmp_path / "intercom.db"
    new_database(path)
    reader = Reader(path)
    async with System([ChildSpec("store", lambda: Writer(path))]) as system:
        calls = PushCalls(Store(system.named("store")), reader, tmp_path / "web-push.key", lambda: NOW, **options)
        yield calls
    reader.close()


async def subscribe(
    calls: PushCalls, endpoint: str = PUBLIC, by: str = "kim", label: str = "Firefox"
) -> PushSubscription:
    return await calls.subscribe(endpoint, *PushBrowser().keys.values(), label, by, "web")


@pytest.mark.real_time
async def test_a_browser_is_subscribed_once_and_taken_off_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    async with stored(tmp_path) as calls:
        await subscribe(calls)
        again = await subscribe(calls, by="sam", label="Fire\u202efox\n")
        assert [(each.by, each.label) for each in await calls.subscriptions()] == [("sam", "Fire<U+202E>fox")]
        assert await calls.unsubscribe(again.id[:6], "kim", "ctl") == again
        assert await calls.subscriptions() == ()
        with pytest.raises(NotFound):
            await calls.unsubscribe(again.id[:6], "kim", "ctl")
        with pytest.raises(NotFound):
            await calls.unsubscribe("", "kim", "ctl")
        # Who did what is in the log, and the endpoint, with which anybody could send, is not.
        told = await calls.reader.read(
            lambda db: rows.every(db, "select kind, who, summary, data from audit order by id")
        )
        assert [(each["kind"], each["who"]) for each in told] == [
            *(("push_subscribed", "kim"), ("push_subscribed", "sam"), ("push_ended", "kim"))
        ]
        assert "gAAAA" not in str(told) + repr(again)


def test_the_name_of_a_push_service_has_nothing_of_the_endpoint_that_is_secret() -> None:
    for rest in ("/send/secret", "?token=secret", "/?secret"):
        assert subscription(f"https://push.example.com{rest}").service == "push.example.com"


@pytest.mark.real_time
async def test_a_new_subscription_is_announced_since_it_outlives_the_session(tmp_path: Path) -> None:
    told: list[str] = []
    browser = PushBrowser()
    async with stored(tmp_path, tell=told.append) as calls:
        await calls.subscribe(PUBLIC, *browser.keys.values(), "Firefox", "kim", "web")
        calls = evolve(calls, now=lambda: NOW + timedelta(seconds=1))
        await calls.subscribe(PUBLIC, *browser.keys.values(), "Firefox", "kim", "web")
        assert told == ["kim's Firefox gets push messages from now on, over updates.push.example.com"]
        await calls.subscribe(PUBLIC, *browser.keys.values(), "Firefox", "sam", "web")
        assert len(told) == 2


@pytest.mark.real_time
async def test_there_are_not_more_browsers_than_a_person_has(tmp_path: Path) -> None:
    async with stored(tmp_path) as calls:
        for number in range(MOST_BROWSERS_OF_ONE):
            await subscribe(calls, f"{PUBLIC}{number}")
        with pytest.raises(InvalidState, match="take one off"):
            await subscribe(calls, f"{PUBLIC}-more")
        await subscribe(calls, f"{PUBLIC}3")
        await subscribe(calls, f"{PUBLIC}-more", by="sam")


@pytest.mark.real_time
async def test_nothing_that_could_not_be_used_is_kept(tmp_path: Path) -> None:
    async with stored(tmp_path) as calls:
        with pytest.raises(InvalidArguments):
            await subscribe(calls, "https://169.254.169.254/")
        with pytest.raises(InvalidArguments):
            await calls.subscribe(PUBLIC, "AAAA", "BBBB", "", "kim", "web")
        assert await calls.subscriptions() == ()


@pytest.mark.real_time
async def test_the_page_subscribes_and_lists_and_a_viewer_does_not(tmp_path: Path) -> None:
    async with stored(tmp_path) as calls, page_server(tmp_path / "home") as server:
        server.service.web = WebLinks(server.system.named("web"), server.tokens, calls)
        browser = await server.browser(WebRole.OPERATOR)
        assert (await browser.command("push-key")).json() == {"data": {"public_key": await calls.public_key()}}
        fields = {"url": PUBLIC, "label": "Firefox", **PushBrowser().keys}
        made = (await browser.command("push-subscribe", **fields)).json()["data"]
        assert (made["by"], made["service"], made["status"]) == ("kim", "updates.push.example.com", "subscribed")
        assert "gAAAA" not in str(made)
        listed = await browser.command("push-list")
        assert [each["push_id"] for each in listed.json()["data"]["subscriptions"]] == [made["push_id"]]
        refused = await browser.command("push-subscribe", **fields | {"url": "https://10.0.0.1/"})
        assert (refused.status, refused.json()["error"]["code"]) == (400, "invalid_arguments")
        viewer = await server.browser(WebRole.VIEWER)
        for command in ("push-subscribe", "push-remove"):
            assert (await viewer.command(command, id=made["push_id"], **fields)).status == 403
        assert (await browser.command("push-remove", id=made["push_id"][:8])).json()["data"]["status"] == "removed"
        assert await calls.subscriptions() == ()


@pytest.mark.real_time
async def test_from_a_card_to_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.operators.web.push_sender.GATHER_SECONDS", 0.0)
    browser, service = PushBrowser(), StandInService()
    async with push_service() as at, stored(tmp_path, destinations=at.destinations) as calls:
        await calls.subscribe(at.endpoint, *browser.keys.values(), "Firefox", "kim", "web")
        public = await calls.public_key()

        async def open_cards() -> tuple[Card, ...]:
            return ()

        async def mode_of(session_id: str) -> SessionMode:
            return SessionMode.HYBRID

        children = [
            ChildSpec("card_router", lambda: CardRouter(open_cards, mode_of)),
            ChildSpec("push", lambda: PushSender(PushDeps(service, calls, "mailto:alex@example.org"))),  # type: ignore[arg-type]
        ]
        async with System(children) as system:
            at.answers = [(410, {})]
            await until_told(system, lambda: at.until(1))
            _, headers, body = at.got[0]
            assert json.loads(browser.read(body)) == {
                "tag": "waiting",
                "title": "Change",
                "body": "approval a",
                "path": "/inbox/a",
                "ids": ["a"],
            }
            token, signer = claims(headers["authorization"])
            assert (token["sub"], signer) == ("mailto:alex@example.org", public)
            while await calls.subscriptions():  # noqa: ASYNC110 - the store tells nobody
                await trio.sleep(0.01)


async def until_told(system: System, done: Callable[[], Awaitable[None]]) -> None:
    """Tell of a new card; the router passes it on once the actor has subscribed, or shows it then."""
    system.named("card_router").tell(evolve(card("a"), created_at=datetime.now(UTC)))
    await done()
