"""Who is signed in to the page: one-time links, the sessions of browsers, and what each role may do.

A link is made for a person at a terminal. It signs in one browser, once, within a minute. The browser then shows a
cookie, and a second secret in a header with everything that changes something. Both are random, 256 bits long, new with
each sign-in, and kept here as hashes only. Where the system shows the browser's process, the session counts for that
process alone: cookies are shared by all ports of a host, so another local server could see one.

Everything is in memory, and ends with the server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from attrs import define, evolve, field, frozen

from intercom.local.processes import ProcessKey
from intercom.model.errors import Ambiguous, NotFound, Unauthorized
from intercom.model.web_role import WebRole
from intercom.operators.commands.command import OperatorCommand

#: How long a link is good.
LINK_LIFE = timedelta(seconds=60)
#: How long a session lasts without a request, and at most.
IDLE_LIFE = timedelta(hours=12)
LONGEST_LIFE = timedelta(days=7)
#: How many links and sessions are kept; the oldest are dropped first.
MOST_LINKS = 32
MOST_SESSIONS = 256
_SECRET_CHARS = 64

#: What every refusal of a person who is not signed in ends with.
SIGN_IN = "sign in with a new link: agent-intercom-ctl web"


def may_use(role: WebRole, row: OperatorCommand) -> bool:
    """Whether this role may send this command from the page."""
    return row.least_role is not None and role.includes(row.least_role)


def require_role(role: WebRole, row: OperatorCommand) -> None:
    """Raise Unauthorized, with what to do, if this role may not send this command from the page."""
    if row.least_role is None:
        raise Unauthorized(f"{row.name} is not for the page: use agent-intercom-ctl in a terminal")
    if may_use(role, row):
        return
    may = {
        WebRole.VIEWER: "a viewer sees everything and changes nothing",
        WebRole.OPERATOR: "an operator decides and acts, but manages no keys, tokens and settings",
    }
    raise Unauthorized(f"your role is {role.value}: {may[role]}; {row.name} needs the role {row.least_role.value}")


def cookie_name(port: int) -> bytes:
    """Return the name of the session's cookie. It has the port in it, because two servers of one host would otherwise
    replace each other's."""
    return f"intercom_session_{port}".encode()


def set_cookie(port: int, secret: str) -> bytes:
    """Return the header that gives a browser its session; with an empty secret, the one that takes it away."""
    life = b"" if secret else b"; Max-Age=0"
    return cookie_name(port) + b"=" + secret.encode() + b"; HttpOnly; SameSite=Strict; Path=/" + life


def shown_secrets(headers: Iterable[tuple[bytes, bytes]], port: int) -> list[str]:
    """Return what a request shows as its session. There may be many cookies of this name that another local server has
    set for longer paths: a browser sends those first, so all are looked at. The head of a request limits them."""
    wanted, found = cookie_name(port), []
    pairs = [pair for name, value in headers if name == b"cookie" for pair in value.split(b";")]
    for pair in pairs:
        name, _, value = pair.strip().partition(b"=")
        if name == wanted and len(value) == _SECRET_CHARS:
            found.append(value.decode("latin-1"))
    return found


@frozen
class IssuedLink:
    """A link for a person. `id` is the hash of its code. `by` is who made it."""

    name: str
    role: WebRole
    expires_at: datetime
    id: bytes = field(repr=False)
    by: str


@frozen
class BrowserSession:
    """A browser in which a person signed in. `csrf` is the secret that its requests show in a header. `processes` are
    those for which alone it counts; empty if the system did not show them."""

    name: str
    role: WebRole
    csrf: str = field(repr=False)
    began_at: datetime
    used_at: datetime
    processes: frozenset[ProcessKey] = frozenset()

    @property
    def key(self) -> str:
        """What names it among all that have open streams."""
        return self.csrf

    @property
    def id(self) -> str:
        """What names it in lists, and signs nobody in. The page makes the same of its own secret."""
        return hashlib.sha256(self.csrf.encode()).hexdigest()[:32]

    def shows_csrf(self, shown: bytes | None) -> bool:
        """Whether a request showed the secret of this session. The comparison takes constant time."""
        return hmac.compare_digest(shown or b"", self.csrf.encode())

    def fits(self, holders: frozenset[ProcessKey]) -> bool:
        """Whether a connection that these processes hold may use this session."""
        return not self.processes or bool(self.processes & holders)

    def is_over(self, now: datetime) -> bool:
        return now - self.used_at > IDLE_LIFE or now - self.began_at > LONGEST_LIFE


@define
class _UsedLink:
    """A link that was used less than LINK_LIFE ago. `session` is the hash of the secret of the session that it began;
    None while that is not decided. `is_shared` is set once another browser has shown it too."""

    name: str
    expires_at: datetime
    session: bytes | None = None
    is_shared: bool = False


def new_secret() -> str:
    return secrets.token_hex(_SECRET_CHARS // 2)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


@define(eq=False)
class SignIns:
    """All links and sessions of a server's run. `port` is the port of the page, None until it was opened: it stays the
    same, so that open pages find the server again. `now` is the wall clock, which also counts while the machine
    sleeps."""

    now: Callable[[], datetime]
    port: int | None = None
    _programs: set[str] = field(factory=set, init=False)
    _links: dict[bytes, IssuedLink] = field(factory=dict, init=False, repr=False)
    _used: dict[bytes, _UsedLink] = field(factory=dict, init=False, repr=False)
    _sessions: dict[bytes, BrowserSession] = field(factory=dict, init=False, repr=False)

    def issue(self, name: str, role: WebRole, code: str, by: str = "") -> IssuedLink:
        """Make a link with this code good, for LINK_LIFE. `by` is who made it, if it is for somebody else."""
        id = _hash(code)
        link = self._links[id] = IssuedLink(name, role, self.now() + LINK_LIFE, id, by or name)
        while len(self._links) > MOST_LINKS:
            del self._links[next(iter(self._links))]
        return link

    def redeem(self, code: str) -> IssuedLink:
        """Return the link with this code, which is not good any more then. Raises Unauthorized for another code."""
        link = self._links.pop(_hash(code), None)
        if link is None:
            raise Unauthorized(f"this link was used before, or is none of this server's; {SIGN_IN}")
        # The clock may have been set back since: then the link was made in the future.
        if not timedelta(0) <= link.expires_at - self.now() <= LINK_LIFE:
            raise Unauthorized(f"this link is older than {LINK_LIFE.seconds} s; {SIGN_IN}")
        self._used[link.id] = _UsedLink(link.name, link.expires_at)
        while len(self._used) > MOST_LINKS:
            del self._used[next(iter(self._used))]
        return link

    def give_back(self, link: IssuedLink) -> None:
        """Make a link that was redeemed good again, as long as it would have been: it began no session. If another
        browser has shown it meanwhile, it stays used."""
        used = self._used.get(link.id)
        if used is not None and not used.is_shared:
            del self._used[link.id]
            self._links[link.id] = link

    def was_used(self, code: str) -> bool:
        """Whether this is the code of a link that was used, and is not too old."""
        used = self._used.get(_hash(code))
        return used is not None and self.now() <= used.expires_at

    def show_again(self, code: str, shown: Iterable[str], processes: frozenset[ProcessKey]) -> str | None:
        """Note that these processes have shown the code of a used link, with these secrets of sessions.

        If another browser has used the link, somebody has taken it from the person, and nobody knows which of the two.
        Then the session that the link began is ended, or not begun, and this returns the person's name. It returns None
        for the browser that has used the link, and for any other code."""
        used = self._used.get(_hash(code))
        if used is None or not self.was_used(code):
            return None
        session = None if used.session is None else self._sessions.get(used.session)
        if used.session is not None:
            is_same = session is not None and bool(session.processes & processes)
            if session is None or is_same or used.session in map(_hash, shown):
                return None
            del self._sessions[used.session]
        used.is_shared = True
        return used.name

    def begin(self, link: IssuedLink, processes: frozenset[ProcessKey]) -> tuple[str, BrowserSession]:
        """Return a new session and its secret. What the browser showed before plays no part in it. Raises Unauthorized
        if another browser has shown the link meanwhile."""
        secret, now = new_secret(), self.now()
        session = BrowserSession(link.name, link.role, new_secret(), now, now, processes)
        if (used := self._used.get(link.id)) is not None:
            if used.is_shared:
                raise Unauthorized(f"this link was opened in two browsers, so it signs nobody in; {SIGN_IN}")
            used.session = _hash(secret)
        self._sessions[_hash(secret)] = session
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return secret, session

    def find(self, shown: Iterable[str]) -> BrowserSession | None:
        """Return the session of one of these secrets, and note that it was used; None if all are unknown or over."""
        now = self.now()
        for secret in shown:
            session = self._sessions.pop(_hash(secret), None)
            if session is not None and not session.is_over(now):
                # The one that was used last is dropped last.
                used = self._sessions[_hash(secret)] = evolve(session, used_at=max(now, session.used_at))
                return used
        return None

    def is_new_program(self, program: str | None) -> bool:
        """Note the program of a browser that signs in. Returns whether none of this program did before. None is a
        program that the system does not show: it may be any, so it is always new."""
        is_new = program is None or program not in self._programs
        if program is not None:
            self._programs.add(program)
        return is_new

    def has(self, session: BrowserSession) -> bool:
        """Whether this session still lasts. A page that is only open does not make it last longer."""
        found = next((each for each in self._sessions.values() if each.csrf == session.csrf), None)
        return found is not None and not found.is_over(self.now())

    def every(self) -> tuple[BrowserSession, ...]:
        """Return the sessions that last, the one that was used last first."""
        now = self.now()
        return tuple(each for each in reversed(self._sessions.values()) if not each.is_over(now))

    def end_from_elsewhere(self, prefix: str) -> BrowserSession:
        """End the session whose id begins like this, and return it. Raises NotFound and Ambiguous."""
        found = [each for each in self.every() if prefix and each.id.startswith(prefix)]
        if not found:
            raise NotFound(
                f"no browser that is signed in has an id that begins with {prefix[:40]!r}; agent-intercom-ctl people"
                " list shows those that there are"
            )
        if len(found) > 1:
            raise Ambiguous(f"{prefix[:40]!r} fits {len(found)} browsers; give more of the id")
        self.end_session(found[0])
        return found[0]

    def end_session(self, session: BrowserSession) -> None:
        """End this session, if it lasts."""
        self._sessions = {key: each for key, each in self._sessions.items() if each.csrf != session.csrf}

    def end(self, shown: Iterable[str]) -> None:
        """End the sessions of these secrets."""
        for secret in shown:
            self._sessions.pop(_hash(secret), None)
