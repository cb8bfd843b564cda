"""The actor of one room: the calls that wait in it, posts on their way to the database, and its teams.

The database has the truth. The actor keeps the end of the feed in memory, so that a new message reaches all waiting
calls without a query. On several nodes a room has an actor on each: the room's lock in the database orders their
messages, and an actor that misses a number in the sequence reads what it has not seen.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen

from actors import Actor, Name, Refused, Reply
from intercom.model.errors import IntercomError
from intercom.model.rate_limit import RateLimit
from intercom.model.room import (
    Message,
    MessageType,
    Room,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    Team,
    TeamId,
    TeamRole,
    no_such_room,
    not_a_member,
    opens,
    team_of,
)
from intercom.rooms import roster, transactions
from intercom.rooms.messages import (
    AddPost,
    Advance,
    Change,
    Flushed,
    Identify,
    Page,
    ReadRoster,
    Roster,
    Tick,
    View,
    Wait,
    Watch,
    Watched,
    Withdraw,
)
from intercom.rooms.roster import Thresholds
from intercom.rooms.transactions import Post, Rules, Written
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase, RoomStore
from intercom.store.rooms import Seen
from intercom.store.store_and_reader import STORE_FAULTS, StoreUnavailable

R = TypeVar("R")
log = logging.getLogger("intercom.rooms")

#: The messages of one page, and those that the actor keeps in memory.
PAGE = 100
TAIL = 256
#: The most characters of the texts of one page, which has one message at least.
PAGE_CHARACTERS = 2**20
#: The most posts that one transaction writes.
GROUP = 256
#: The interval at which the actor ends waits and looks after teams, in seconds.
TICK_SECONDS = 1.0
#: How long a room without calls stays in memory, in seconds.
IDLE_SECONDS = 60.0
#: The interval at which it is recorded how far teams have read, in seconds.
SEEN_SECONDS = 2.0
#: How old the roster may be by which a call that reads is let in, in seconds, if other nodes can change it. They record
#: no oftener what they see.
ROSTER_SECONDS = SEEN_SECONDS

#: A team's id, as all teams see it. Its token is longer.
_TEAM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: The events that change the roster.
_ROSTER = frozenset({RoomEvent.TEAM_JOINED, RoomEvent.TEAM_LEFT, RoomEvent.TEAM_DROPPED, RoomEvent.TEAM_REJOINED})


@frozen
class RoomDeps:
    """What rooms need. `rules` and `thresholds` return the present settings. `posts_per_minute` limits each team; 0
    means no limit. `changed` gets the room after each change, the new messages, and whether this node wrote them.
    `deserted` gets an open room that has a concluder, once all its teams are gone."""

    store: RoomStore
    now: Callable[[], datetime]
    rules: Callable[[], Rules]
    thresholds: Callable[[], Thresholds]
    posts_per_minute: Callable[[], int]
    directory: Name
    changed: Callable[[Room, tuple[Message, ...], bool], object]
    deserted: Callable[[Room], object]


class Waiter:
    """One waiting call. It has no dictionary, because there may be ten thousand."""

    __slots__ = ("reply", "since", "team", "until")

    def __init__(self, reply: Reply[Page], team: TeamId, since: int, until: float) -> None:
        self.reply = reply
        self.team = team
        self.since = since
        self.until = until


@frozen
class Viewer:
    """One person's wait for something new in the room."""

    reply: Reply[View]
    after: int
    until: float


class RoomActor(Actor):
    """The actor `room/<id>`. It answers the messages to a room in `intercom.rooms.messages`."""

    mailbox_size = 100_000
    refusals = (Refused, IntercomError, StoreUnavailable)

    def __init__(self, id: RoomId, deps: RoomDeps) -> None:
        super().__init__()
        self.id = id
        self._deps = deps
        self._has_nodes = deps.store.dialect is Dialect.POSTGRESQL
        self._room: Room
        self._teams: dict[TeamId, Team] = {}
        #: Whether `_teams` lacks a change, because the database did not answer after it.
        self._is_roster_old = False
        self._followed_at = -math.inf
        #: The end of the feed, without gaps up to `_room.last_sequence`.
        self._tail: deque[Message] = deque(maxlen=TAIL)
        self._waiters: dict[str, Waiter] = {}
        self._viewers: dict[str, Viewer] = {}
        self._polling: Counter[TeamId] = Counter()
        self._empty: Counter[TeamId] = Counter()
        self._seen: dict[TeamId, Seen] = {}
        self._posts: list[tuple[Post, Reply[Message]]] = []
        #: The group that is being written, with those who wait for it.
        self._flushing: list[tuple[Post, Reply[Message]]] = []
        self._limit = RateLimit()
        self._is_ticking = False
        self._watched = False
        self._used_at = -math.inf
        self._recorded_at = -math.inf
        self._deserted = False

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        def load(db: RoomsDatabase) -> tuple[Room, tuple[Team, ...], tuple[Message, ...]] | None:
            room = rooms.get(db, self.id)
            return None if room is None else (room, rooms.members(db, self.id), rooms.before(db, self.id, None, TAIL))

        found = await self._deps.store.read(load)
        if found is None:
            raise no_such_room(self.id)
        self._room, teams, tail = found
        self._teams = {team.team_id: team for team in teams}
        self._tail.extend(tail)
        self._use()

    async def on_stop(self) -> None:
        # The waits end with Down; their callers ask again.
        await self._record_seen()

    async def on_receive(self, message: object) -> Any:
        match message:
            case Tick():
                return await self._tick()
            case Advance():
                return await self._read_newer()
            case Withdraw():
                return self._withdraw(message.ticket)
            case Flushed():
                return await self._flushed(message)
        self._use()
        match message:
            case Wait():
                return await self._wait(message)
            case Watch():
                return await self._look(message)
            case AddPost():
                return await self._add(message)
            case Identify():
                await self._follow_nodes()
                return await self._team(message.token)
            case ReadRoster():
                return await self._roster(message)
            case Change():
                return await self._change(message.work)
            case _:
                raise TypeError(f"a room does not understand {type(message).__name__}")

    def _use(self) -> None:
        """Note that the room is used, and keep its clock going."""
        self._used_at = trio.current_time()
        if not self._is_ticking:
            self._is_ticking = True
            self.set_timer("tick", TICK_SECONDS, Tick())

    # --- teams -------------------------------------------------------------------------------------------------------

    async def _team(self, token: str) -> Team:
        """Return the team of a token. Raises RoomRefused."""
        team = self._teams.get(team_of(token))
        if team is None or team.left_at is not None or not opens(team, token):
            # It may have joined on another node just now, or got a new token.
            await self._read_teams()
            team = self._teams.get(team_of(token))
        if team is None or team.left_at is not None or not opens(team, token):
            raise _no_secret() if _TEAM_ID.fullmatch(token) else not_a_member()
        return team

    async def _follow_nodes(self) -> None:
        """Read the teams again if other nodes may have changed them. Writes do without: their transaction looks."""
        now = trio.current_time()
        if self._has_nodes and now - self._followed_at >= ROSTER_SECONDS:
            self._followed_at = now
            await self._reread_teams()

    async def _read_teams(self) -> None:
        self._take_over(await self._deps.store.read(partial(rooms.members, room_id=self.id)))

    def _take_over(self, teams: Iterable[Team]) -> None:
        self._teams = {team.team_id: self._latest(team) for team in teams}
        self._is_roster_old = False

    async def _reread_teams(self) -> None:
        """Read the teams after a change of the roster. If the database does not answer, the next tick does it."""
        self._is_roster_old = True
        with suppress(*STORE_FAULTS):
            await self._read_teams()

    def _latest(self, team: Team) -> Team:
        """Return a team as the database has it, with what is known here and not recorded yet."""
        seen = self._seen.get(team.team_id)
        if seen is None:
            return team
        return evolve(team, last_seen_at=max(team.last_seen_at, seen.at), cursor=max(team.cursor, seen.cursor))

    def _saw(self, team: Team, cursor: int) -> Team:
        """Note that a team was here, and how far it has read. It is recorded with others, a little later."""
        cursor = max(team.cursor, cursor)
        seen = self._seen[team.team_id] = Seen(team.team_id, self._deps.now(), cursor)
        team = self._teams[team.team_id] = evolve(team, last_seen_at=seen.at, cursor=cursor)
        return team

    async def _roster(self, asked: ReadRoster) -> Roster:
        def read(db: RoomsDatabase) -> tuple[Room, tuple[Team, ...]]:
            # Another node may have changed the room since the last message that is known here.
            return rooms.get(db, self.id) or self._room, rooms.members(db, self.id)

        room = self._room
        try:
            room, teams = await self._deps.store.read(read)
            self._take_over(teams)
        except STORE_FAULTS:
            self._is_roster_old = True
            if not asked.or_known:
                raise
        return Roster(room, tuple(self._teams.values()), frozenset(self._polling))

    async def _record_seen(self) -> None:
        """Record how far teams have read. What cannot be recorded now is tried again."""
        seen, self._seen = self._seen, {}
        if not seen:
            return
        try:
            await self._deps.store.transact(self.id, partial(rooms.seen, room_id=self.id, seen=tuple(seen.values())))
        except STORE_FAULTS:
            self._seen = seen | self._seen

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, asked: Wait) -> Page | None:
        await self._follow_nodes()
        team = await self._team(asked.token)
        if team.dropped_at is not None:
            work = partial(transactions.rejoined, room_id=self.id, team_id=team.team_id, now=self._deps.now())
            # Of a reader the feed says nothing, so the roster is not read again for it.
            team = self._teams[team.team_id] = self._latest(await self._change(work))
        if asked.since is not None and asked.since > self._room.last_sequence:
            # The team may have it from another node, and this one has not heard of it yet.
            await self._catch_up()
        end = self._room.last_sequence
        since = team.cursor if asked.since is None else min(max(asked.since, 0), end)
        team = self._saw(team, since)
        if since < end or self._room.is_closed or asked.seconds <= 0:
            return await self._page(team.team_id, since)
        until = trio.current_time() + asked.seconds
        self._waiters[asked.ticket] = Waiter(self.defer(), team.team_id, since, until)
        self._polling[team.team_id] += 1
        self._watch()
        return None

    async def _page(self, team: TeamId, since: int) -> Page:
        """Return the page after `since`. A page without messages counts as an empty poll."""
        first = self._tail[0].sequence if self._tail else self._room.last_sequence + 1
        if since + 1 >= first or since >= self._room.last_sequence:
            return self._page_in_memory(team, since)
        found = await self._deps.store.read(partial(rooms.after, room_id=self.id, sequence=since, limit=PAGE))
        return self._made(team, since, found)

    def _page_in_memory(self, team: TeamId, since: int) -> Page:
        newer = self._room.last_sequence - since
        if newer <= 0:
            return self._made(team, since, ())
        begin = len(self._tail) - newer
        return self._made(
            team, since, tuple([self._tail[at] for at in range(begin, min(begin + PAGE, len(self._tail)))])
        )

    def _made(self, team: TeamId, since: int, messages: tuple[Message, ...]) -> Page:
        messages = messages[: fitting(messages)]
        cursor = messages[-1].sequence if messages else since
        unread = max(0, self._room.last_sequence - cursor)
        if self._room.is_closed and unread == 0 and (reader := self._teams.get(team)) is not None:
            # Nobody waits again after this page, so nothing else would say that it was read.
            self._saw(reader, cursor)
        if messages:
            self._empty.pop(team, None)
        else:
            self._empty[team] += 1
        return Page(
            messages, cursor, self._room.is_closed and unread == 0, unread, self._empty[team] if not messages else 0
        )

    def _withdraw(self, ticket: str) -> None:
        self._viewers.pop(ticket, None)
        waiter = self._waiters.pop(ticket, None)
        if waiter is not None:
            self._ended(waiter)

    def _ended(self, waiter: Waiter) -> None:
        self._polling[waiter.team] -= 1
        if self._polling[waiter.team] <= 0:
            del self._polling[waiter.team]
        if (team := self._teams.get(waiter.team)) is not None:
            self._saw(team, 0)
        if not self._waiters:
            self._watch()

    async def _look(self, asked: Watch) -> View | None:
        if asked.after > self._room.last_sequence:
            await self._catch_up()
        if asked.after != self._room.last_sequence or asked.known != self._room or asked.seconds <= 0:
            return await self._view(asked.after)
        self._viewers[asked.ticket] = Viewer(self.defer(), asked.after, trio.current_time() + asked.seconds)
        self._watch()
        return None

    async def _view(self, after: int) -> View:
        first = self._tail[0].sequence if self._tail else self._room.last_sequence + 1
        if after + 1 >= first:
            newer = [each for each in self._tail if each.sequence > after][:PAGE]
        else:
            newer = list(await self._deps.store.read(partial(rooms.after, room_id=self.id, sequence=after, limit=PAGE)))
        messages = tuple(newer[: fitting(newer)])
        return View(self._room, tuple(self._teams.values()), frozenset(self._polling), messages)

    async def _answer_viewers(self, is_due: Callable[[Viewer], bool] = lambda _: True) -> None:
        for ticket in [ticket for ticket, viewer in self._viewers.items() if is_due(viewer)]:
            viewer = self._viewers.pop(ticket, None)
            if viewer is None or viewer.reply.done or viewer.reply.abandoned:
                continue
            try:
                viewer.reply.set(await self._view(viewer.after))
            except STORE_FAULTS as fault:
                _fail(viewer.reply, fault)

    def _answer_waiters(self, is_due: Callable[[Waiter], bool]) -> None:
        """Answer the waits that are due. Those that wait for the same see the same page."""
        due = [ticket for ticket, waiter in self._waiters.items() if is_due(waiter)]
        for ticket in due:
            waiter = self._waiters.pop(ticket)
            if not waiter.reply.done and not waiter.reply.abandoned:
                waiter.reply.set(self._page_in_memory(waiter.team, waiter.since))
            self._ended(waiter)

    def _watch(self) -> None:
        """Tell the directory whether calls wait here, and how much of the feed is known."""
        is_watched = bool(self._waiters or self._viewers)
        if is_watched or self._watched:
            self._watched = is_watched
            self._deps.directory.tell(Watched(self.id, self._room.last_sequence if self._watched else None))

    # --- the feed ----------------------------------------------------------------------------------------------------

    async def _change(self, work: Callable[[RoomsDatabase], Written[R]]) -> R:
        written = await self._deps.store.transact(self.id, work)
        await self._written(written)
        return written.answer

    async def _written(self, written: Written[Any]) -> None:
        """Take over what a transaction of this node has written."""
        known = self._room.last_sequence
        if written.messages or written.room.last_sequence > known:
            # A transaction that was repeated after a lost answer does not name its messages.
            self._deps.store.wake((self.id,))
        if written.messages:
            self._deps.changed(written.room, written.messages, True)
        if written.room.last_sequence == known + len(written.messages):
            await self._advanced(written.room, written.messages)
        elif written.room.last_sequence > known:
            await self._read_newer()

    async def _read_newer(self) -> None:
        """Read what other nodes have written. If the database does not answer, the directory tells us again."""
        with suppress(*STORE_FAULTS):
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Read what other nodes have written. Raises what the store's reads raise."""

        def read(db: RoomsDatabase, after: int) -> tuple[Room | None, tuple[Message, ...]]:
            return rooms.get(db, self.id), rooms.after(db, self.id, after, TAIL)

        while True:
            room, messages = await self._deps.store.read(partial(read, after=self._room.last_sequence))
            if room is None:
                return
            if not messages:
                if room.last_sequence == self._room.last_sequence:
                    await self._advanced(room, ())
                return
            await self._advanced(evolve(room, last_sequence=messages[-1].sequence), messages)
            self._deps.changed(room, messages, False)
            if messages[-1].sequence >= room.last_sequence:
                return

    async def _advanced(self, room: Room, messages: tuple[Message, ...]) -> None:
        """Take over a later state of the room, and the messages between, in order; then answer the waiting calls.

        Raises nothing if the database does not answer: what is taken over here is committed.
        """
        self._room = room
        self._tail.extend(messages)
        if messages:
            if len(messages) < TAIL:
                self._answer_waiters(lambda waiter: waiter.since < room.last_sequence)
            else:
                await self._answer_from_database()
        if _changes_roster(messages):
            await self._reread_teams()
        await self._answer_viewers()
        if messages:
            self._watch()

    async def _answer_from_database(self) -> None:
        """Answer waiting calls that may have missed more than is in memory. If the database does not answer, all that
        are left are refused: they could not be answered from memory later."""
        fault: Exception | None = None
        for ticket, waiter in tuple(self._waiters.items()):
            del self._waiters[ticket]
            if not waiter.reply.done and not waiter.reply.abandoned and fault is None:
                try:
                    waiter.reply.set(await self._page(waiter.team, waiter.since))
                except STORE_FAULTS as raised:
                    fault = raised
            if fault is not None:
                _fail(waiter.reply, fault)
            self._ended(waiter)

    async def _add(self, asked: AddPost) -> None:
        """Put a post into the next group. All that wait while a group is written make the next one."""
        post = asked.post
        if asked.token is not None:
            team = await self._team(asked.token)
            wait = self._limit.allow(team.team_id, trio.current_time(), self._deps.posts_per_minute(), 60.0)
            if wait is not None:
                raise RoomRefused(
                    RoomErrorCode.RATE_LIMITED,
                    f"this team may post {self._deps.posts_per_minute()} messages a minute: post again in {wait:.0f} s",
                    retry_after=math.ceil(wait),
                )
            # That the team posts is no sign that it is here: its waits alone are.
            post = evolve(post, author=transactions.Author(team, team.team_name, team.role))
        self._posts.append((post, self.defer()))
        if not self._flushing:
            self._flush()

    def _flush(self) -> None:
        self._flushing, self._posts = self._posts[:GROUP], self._posts[GROUP:]
        self.spawn(self._write, tuple(post for post, _ in self._flushing))

    async def _write(self, posts: tuple[Post, ...]) -> None:
        work = partial(transactions.post, room_id=self.id, posts=posts, rules=self._deps.rules(), now=self._deps.now())
        try:
            written = await self._deps.store.transact(self.id, work)
        except (*STORE_FAULTS, RoomRefused) as fault:
            self.actor_ref.tell(Flushed(len(posts), None, fault))
        except Exception as fault:
            # One that cannot be written must not fail the others of its group, nor end the room.
            if len(posts) > 1:
                for each in posts:
                    await self._write((each,))
                return
            if not isinstance(fault, IntercomError):
                log.error("a post to the room %s failed", self.id, exc_info=fault)
            self.actor_ref.tell(Flushed(1, None, fault))
        else:
            self.actor_ref.tell(Flushed(len(posts), written, None))

    async def _flushed(self, group: Flushed) -> None:
        """Answer a group of posts, and then those who wait for messages: the author should know its cursor first."""
        waiting, self._flushing = self._flushing[: group.count], self._flushing[group.count :]
        if self._posts and not self._flushing:
            self._flush()
        if group.written is None:
            for _, reply in waiting:
                _fail(reply, group.fault)
            return
        for (_, reply), answer in zip(waiting, group.written.answer, strict=True):
            if isinstance(answer, RoomRefused):
                _fail(reply, answer)
            elif not reply.done and not reply.abandoned:
                reply.set(answer)
        await self._written(group.written)

    # --- time --------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        try:
            await self._look_after()
        finally:
            # Also after a fault: nothing else sets the timer again.
            self.set_timer("tick", TICK_SECONDS, Tick())

    async def _look_after(self) -> None:
        """End the waits whose time is over, and look after teams; or stop if the room is idle."""
        now = trio.current_time()
        self._answer_waiters(lambda waiter: waiter.until <= now)
        if self._viewers and self._has_nodes:
            # Other nodes tell of messages, but neither of a new document nor of teams that poll there.
            await self._read_newer()
            self._is_roster_old = True
        if self._is_roster_old:
            await self._reread_teams()
        await self._answer_viewers(lambda viewer: viewer.until <= now)
        if not self._waiters and not self._viewers:
            self._watch()
        if now - self._recorded_at >= SEEN_SECONDS:
            self._recorded_at = now
            self._see_polling()
            await self._record_seen()
            await self._drop_teams()
            self._note_desertion()
        if self._is_idle(now):
            self.stop()

    def _see_polling(self) -> None:
        """Note that teams with a long wait are here, before other nodes take them for idle, or a later run for gone."""
        thresholds, now = self._deps.thresholds(), self._deps.now()
        seconds = thresholds.disconnected_seconds / 3
        if self._has_nodes:
            # There, only what is recorded says that the team is active.
            seconds = min(seconds, thresholds.active_seconds / 2)
        limit = now - timedelta(seconds=seconds)
        for id in self._polling:
            team = self._teams.get(id)
            if team is not None and team.last_seen_at < limit:
                self._saw(team, 0)

    async def _drop_teams(self) -> None:
        """Say in the feed which teams are gone."""
        if self._room.is_closed:
            return
        now, thresholds = self._deps.now(), self._deps.thresholds()
        gone = roster.dropped(tuple(self._teams.values()), now, thresholds, frozenset(self._polling))
        if not gone:
            return
        limit = now - timedelta(seconds=thresholds.disconnected_seconds)
        ids = tuple(team.team_id for team in gone)
        try:
            await self._change(partial(transactions.drop, room_id=self.id, gone=ids, before=limit, now=now))
        except (*STORE_FAULTS, RoomRefused):
            # It is tried again at the next look.
            return
        await self._reread_teams()

    def _note_desertion(self) -> None:
        """Have the room concluded if it wants that and all its teams are gone: once, until a team comes back."""
        room = self._room
        if not room.has_concluder or room.is_closed:
            return
        members = [team for team in self._teams.values() if team.role is TeamRole.MEMBER]
        if not members or not all(team.left_at is not None or team.dropped_at is not None for team in members):
            self._deserted = False
            return
        last = max(team.last_seen_at for team in members)
        is_started = any(team.role is TeamRole.CONCLUDER and team.joined_at >= last for team in self._teams.values())
        if not is_started and not self._deserted:
            self._deserted = True
            self._deps.deserted(room)

    def _is_idle(self, now: float) -> bool:
        is_busy = bool(self._waiters or self._viewers or self._posts or self._flushing or self._seen)
        if is_busy or now - self._used_at < IDLE_SECONDS:
            return False
        # While a team may still be noticed as gone, the room stays.
        return self._room.is_closed or all(
            team.left_at is not None or team.dropped_at is not None for team in self._teams.values()
        )


def _no_secret() -> RoomRefused:
    return RoomRefused(
        RoomErrorCode.UNAUTHORIZED,
        "that is the id of a team without its secret: send the whole team_id that create_session or join_session"
        " returned, with the part after its dot",
    )


def _fail(reply: Reply[Any], fault: Exception | None) -> None:
    if not reply.done and not reply.abandoned:
        if not isinstance(fault, (*STORE_FAULTS, IntercomError)):
            fault = RoomRefused(RoomErrorCode.INTERNAL, "the server failed on this message; the fault is in its log")
        reply.fail(fault)


def fitting(messages: Iterable[Message]) -> int:
    """Return how many of these messages, from the first one, have room on a page."""
    count = total = 0
    for message in messages:
        text = message.content.get("text")
        total += len(text) if isinstance(text, str) else 0
        if count and total > PAGE_CHARACTERS:
            break
        count += 1
    return count


def _changes_roster(messages: Iterable[Message]) -> bool:
    return any(each.type is MessageType.SYSTEM and each.content.get("event") in _ROSTER for each in messages)
