"""Links, sessions and roles of the page, without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from intercom.local.processes import ProcessKey
from intercom.model.errors import Ambiguous, InvalidArguments, NotFound, Unauthorized
from intercom.model.web import person_name
from intercom.model.web_role import WebRole
from intercom.operators.commands.command import Access, OperatorCommand
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.web.sign_in import (
    IDLE_LIFE,
    LINK_LIFE,
    LONGEST_LIFE,
    MOST_LINKS,
    MOST_SESSIONS,
    SignIns,
    may_use,
    new_secret,
    require_role,
    set_cookie,
    shown_secrets,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BROWSER, OTHER = ProcessKey(10, 1, "boot"), ProcessKey(11, 1, "boot")


@define
class Wall:
    """A wall clock that the test sets."""

    at: datetime = NOON

    def __call__(self) -> datetime:
        return self.at


def signed_in(
    role: WebRole = WebRole.ADMIN, processes: frozenset[ProcessKey] = frozenset()
) -> tuple[Wall, SignIns, str]:
    wall = Wall()
    known = SignIns(wall)
    known.issue("kim", role, "code")
    secret, _ = known.begin(known.redeem("code"), processes)
    return wall, known, secret


@pytest.mark.parametrize(
    ("after", "is_good"),
    [
        (timedelta(0), True),
        (LINK_LIFE, True),
        (LINK_LIFE + timedelta(microseconds=1), False),
        (timedelta(days=400), False),
        # A clock that was set back does not make a link last longer.
        (timedelta(seconds=-1), False),
    ],
)
def test_a_link_is_good_for_a_minute(after: timedelta, is_good: bool) -> None:
    wall = Wall()
    known = SignIns(wall)
    known.issue("kim", WebRole.ADMIN, "code")
    wall.at += after
    if is_good:
        assert known.redeem("code").name == "kim"
    else:
        with pytest.raises(Unauthorized, match="older than 60 s; sign in with a new link"):
            known.redeem("code")
    with pytest.raises(Unauthorized, match="used before"):
        known.redeem("code")


@given(code=st.text(max_size=100))
def test_no_other_code_signs_in(code: str) -> None:
    known = SignIns(Wall())
    right = new_secret()
    known.issue("kim", WebRole.ADMIN, right)
    with pytest.raises(Unauthorized):
        known.redeem(code)
    assert known.redeem(right).role is WebRole.ADMIN


def test_only_the_newest_links_and_sessions_are_kept() -> None:
    known = SignIns(Wall())
    for number in range(MOST_LINKS + 1):
        known.issue("kim", WebRole.ADMIN, str(number))
    with pytest.raises(Unauthorized):
        known.redeem("0")
    link = known.redeem("1")
    secrets = [known.begin(link, frozenset())[0] for _ in range(MOST_SESSIONS)]
    assert known.find([secrets[0]]) is not None
    known.begin(link, frozenset())
    # The one that was used last is not the one that is dropped.
    assert known.find([secrets[0]]) is not None
    assert known.find([secrets[1]]) is None


@given(pauses=st.lists(st.timedeltas(timedelta(0), 2 * IDLE_LIFE), max_size=40))
def test_a_session_ends_when_it_is_not_used_and_after_a_week_in_any_case(pauses: list[timedelta]) -> None:
    wall, known, secret = signed_in()
    lasts = True
    for pause in pauses:
        wall.at += pause
        lasts = lasts and pause <= IDLE_LIFE and wall.at - NOON <= LONGEST_LIFE
        assert (known.find([secret]) is not None) is lasts


def test_a_page_that_is_only_open_does_not_make_its_session_last_longer() -> None:
    wall, known, secret = signed_in()
    session = known.find([secret])
    assert session is not None
    for _ in range(13):
        assert known.has(session)
        wall.at += timedelta(hours=1)
    assert not known.has(session)
    assert known.find([secret]) is None


def test_a_sign_in_makes_new_secrets_and_a_sign_out_ends_them() -> None:
    _, known, first = signed_in()
    known.issue("kim", WebRole.ADMIN, "again")
    second, session = known.begin(known.redeem("again"), frozenset())
    assert first != second
    assert session.csrf not in (first, second)
    assert session.shows_csrf(session.csrf.encode())
    assert not any(session.shows_csrf(shown) for shown in (None, b"", second.encode(), session.csrf.encode() + b"0"))
    known.end([second])
    assert known.find([second]) is None
    assert known.find([first]) is not None
    assert second not in repr(known)
    assert session.csrf not in repr(session)


@pytest.mark.parametrize(
    ("bound", "holders", "fits"),
    [
        ({BROWSER}, {BROWSER}, True),
        ({BROWSER, OTHER}, {BROWSER}, True),
        ({BROWSER}, {OTHER}, False),
        # The same pid later.
        ({BROWSER}, {ProcessKey(10, 2, "boot")}, False),
        ({BROWSER}, set(), False),
        (set(), {OTHER}, True),
        (set(), set(), True),
    ],
)
def test_a_session_counts_for_the_processes_that_signed_in(
    bound: set[ProcessKey], holders: set[ProcessKey], fits: bool
) -> None:
    _, known, secret = signed_in(processes=frozenset(bound))
    session = known.find([secret])
    assert session is not None
    assert session.fits(frozenset(holders)) is fits


@pytest.mark.parametrize(
    ("bound", "holders", "shows_session", "after", "is_ended"),
    [
        ({BROWSER}, {OTHER}, False, timedelta(0), True),
        ({BROWSER}, set(), False, timedelta(0), True),
        (set(), {OTHER}, False, timedelta(0), True),
        (set(), set(), False, timedelta(0), True),
        # The browser that has used it.
        ({BROWSER}, {BROWSER}, False, timedelta(0), False),
        (set(), set(), True, timedelta(0), False),
        # Nobody keeps an old link for a surprise.
        ({BROWSER}, {OTHER}, False, 2 * LINK_LIFE, False),
    ],
)
def test_a_link_that_two_browsers_show_signs_in_neither(
    bound: set[ProcessKey], holders: set[ProcessKey], shows_session: bool, after: timedelta, is_ended: bool
) -> None:
    wall, known, secret = signed_in(processes=frozenset(bound))
    wall.at += after
    shown = [secret] if shows_session else [new_secret()]
    assert known.show_again("code", shown, frozenset(holders)) == ("kim" if is_ended else None)
    assert (known.find([secret]) is None) is is_ended
    assert known.show_again("code", shown, frozenset(holders)) is None
    assert known.show_again("another", shown, frozenset(holders)) is None


def test_a_link_that_is_shown_again_while_it_signs_in_signs_nobody_in() -> None:
    known = SignIns(Wall())
    known.issue("kim", WebRole.ADMIN, "code")
    link = known.redeem("code")
    assert known.show_again("code", [], frozenset({OTHER})) == "kim"
    with pytest.raises(Unauthorized, match="in two browsers"):
        known.begin(link, frozenset({BROWSER}))


def test_a_link_that_is_given_back_is_good_again_for_its_minute() -> None:
    wall = Wall()
    known = SignIns(wall)
    known.issue("kim", WebRole.ADMIN, "code")
    known.give_back(known.redeem("code"))
    assert not known.was_used("code")
    assert known.show_again("code", [], frozenset({OTHER})) is None
    known.give_back(known.redeem("code"))
    wall.at += 2 * LINK_LIFE
    with pytest.raises(Unauthorized, match="older than 60 s"):
        known.redeem("code")


def test_a_link_that_another_browser_has_shown_is_not_given_back() -> None:
    known = SignIns(Wall())
    known.issue("kim", WebRole.ADMIN, "code")
    link = known.redeem("code")
    assert known.show_again("code", [], frozenset({OTHER})) == "kim"
    known.give_back(link)
    with pytest.raises(Unauthorized, match="used before"):
        known.redeem("code")


def test_sessions_are_listed_by_ids_that_sign_nobody_in_and_ended_from_elsewhere() -> None:
    wall = Wall()
    sign_ins = SignIns(wall)
    secrets, sessions = [], []
    for name in ("kim", "sam"):
        secret, session = sign_ins.begin(sign_ins.issue(name, WebRole.VIEWER, name), frozenset())
        secrets.append(secret)
        sessions.append(session)
    wall.at += timedelta(minutes=1)
    assert sign_ins.find([secrets[0]]) is not None
    assert [each.name for each in sign_ins.every()] == ["kim", "sam"]
    assert [each.id for each in sign_ins.every()] == [each.id for each in sessions]
    for each in sessions:
        assert sign_ins.find([each.id]) is None
        assert not each.shows_csrf(each.id.encode())
    for wrong in ("", "x", secrets[1], sessions[1].csrf, "x" * 60_000):
        with pytest.raises(NotFound) as refused:
            sign_ins.end_from_elsewhere(wrong)
        assert len(str(refused.value)) < 200
    assert sign_ins.end_from_elsewhere(sessions[1].id[:12]).name == "sam"
    assert sign_ins.find([secrets[1]]) is None
    assert sign_ins.find([secrets[0]]) is not None
    assert not sign_ins.has(sessions[1])
    wall.at += timedelta(days=8)
    assert sign_ins.every() == ()


def test_an_id_that_begins_like_several_is_not_guessed() -> None:
    sign_ins = SignIns(Wall())
    # There are sixteen first digits.
    for each in range(17):
        sign_ins.begin(sign_ins.issue("kim", WebRole.VIEWER, str(each)), frozenset())
    digits = [each.id[0] for each in sign_ins.every()]
    with pytest.raises(Ambiguous):
        sign_ins.end_from_elsewhere(max(digits, key=digits.count))
    assert len(sign_ins.every()) == 17


def test_a_cookie_is_for_one_port_and_is_read_back() -> None:
    secret = new_secret()
    given = set_cookie(4000, secret)
    assert given == f"intercom_session_4000={secret}; HttpOnly; SameSite=Strict; Path=/".encode()
    sent = given.partition(b";")[0]
    assert shown_secrets([(b"cookie", sent)], 4000) == [secret]
    assert shown_secrets([(b"cookie", sent)], 4001) == []
    # Another local server may have set many, also of the same name, that a browser sends first.
    others = b"".join(b"intercom_session_4000=%064d; c%d=x; " % (each, each) for each in range(100))
    assert shown_secrets([(b"cookie", others + sent)], 4000)[-1] == secret
    assert set_cookie(4000, "").endswith(b"Max-Age=0")


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_stands_in_a_cookie_is_read_or_ignored(values: list[bytes]) -> None:
    found = shown_secrets([(b"cookie", value) for value in values], 80)
    assert all(len(each) == 64 for each in found)
    assert SignIns(Wall()).find(found) is None


#: What only shows something, though it is not for every process of the machine.
SHOWS = {"amend", "gateway-tail", "gateway-evidence", "people-list", "push-key", "push-list"}
#: Keys, tokens and settings.
MANAGES = {"key-add", "key-revoke", "passkeys", "rooms-token", "rooms-url", "token-list", "token-revoke"}
MANAGES |= {"people-sign-out"}
#: What makes something with which somebody acts for a person.
IN_TERMINAL = {"web", "token-add"}


def least_role(row: OperatorCommand) -> WebRole | None:
    if row.name in IN_TERMINAL:
        return None
    if row.name in MANAGES:
        return WebRole.ADMIN
    return WebRole.VIEWER if row.access is Access.ANYONE or row.name in SHOWS else WebRole.OPERATOR


@pytest.mark.parametrize("role", WebRole)
def test_each_role_may_do_what_its_word_says(role: WebRole) -> None:
    assert COMMANDS.keys() >= SHOWS | MANAGES | IN_TERMINAL
    for row in COMMANDS.values():
        least = least_role(row)
        assert row.least_role is least, row.name
        assert may_use(role, row) is (least is not None and [*WebRole].index(role) >= [*WebRole].index(least))
        if may_use(role, row):
            require_role(role, row)
            continue
        with pytest.raises(Unauthorized) as refused:
            require_role(role, row)
        said = str(refused.value)
        assert row.name in said
        assert ("in a terminal" if least is None else f"needs the role {least}") in said


def test_no_command_that_makes_a_person_sign_is_a_viewers() -> None:
    for row in COMMANDS.values():
        if row.access in (Access.SIGNED, Access.SIGNED_CARD) or row.for_agent or row.decision:
            assert not may_use(WebRole.VIEWER, row), row.name


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Kim", "Kim"), (" Zoë O'Neil ", "Zoë O'Neil"), ("kim@example.org", "kim@example.org"), ("e\u0301a", "éa")],
)
def test_a_persons_name_is_kept_as_it_is_written(typed: str, name: str) -> None:
    assert person_name(typed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "token ci",
        "Token ci",
        "<!channel>",
        "a*b",
        "a\nb",
        "a\u202eb",
        "kim\u3164",
        "token\uffa0ci",
        "a  b",
        "-x",
        "x" * 65,
        "a/b",
        "a\0b",
    ],
)
def test_a_name_that_could_be_read_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidArguments, match="name"):
        person_name(name)
