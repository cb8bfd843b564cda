"""What one downstream offers: its lists, how its tools compare with the pins, and what agents and people are told.

`OfferedTools` is a part of the actor of the downstream, which calls it. It uses the actor's timers and tasks, and their
messages come back through the actor's mailbox. Agents see only tools that are as pinned. People are asked about all
others, as often as the pace of cards allows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from actors import Actor
from intercom.gateway import downstream_tasks as tasks
from intercom.gateway import pins
from intercom.gateway.connection import Connection
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.downstream_lists import DownstreamLists
from intercom.gateway.downstream_tasks import DownstreamDeps, Marked, Recalled, ToolsChanged, ToolsPinned
from intercom.gateway.messages import Offer, OfferChanged
from intercom.gateway.pins import Changes, Mark, Pin
from intercom.model.json_types import Json

#: How many changes are shown at once while nobody decides.
FREE_CHANGES: Final = 3
#: The pause before the next one, which doubles with each up to the longest (seconds).
FIRST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 3600.0
#: A downstream that has changed nothing for so long starts afresh (seconds).
CALM_SECONDS: Final = 2 * LONGEST_PAUSE
#: How long after an announced change the lists are read again, and how often at most (seconds).
SETTLE_SECONDS: Final = 0.2
LISTED_SECONDS: Final = 5.0
_LISTS, _CHANGES = "lists", "changes"


@frozen
class ReadLists:
    """It is time to read the lists again."""


@frozen
class ShowChanges:
    """People may be shown what is offered now."""


@frozen
class _Server:
    """What the downstream has said of itself in the last handshake; nothing before the first."""

    version: str = ""
    capabilities: Mapping[str, Json] = field(factory=dict)
    instructions: str = ""


@frozen
class Pace:
    """What was shown of one downstream since a person has decided: how many changes, and when. All times are seconds
    of a clock that never goes back. `noted_at` is when it has changed last."""

    shown: int = 0
    shown_at: float = -math.inf
    noted_at: float = -math.inf

    @property
    def is_restless(self) -> bool:
        """Whether it has changed so often that the next change has to wait."""
        return self.shown >= FREE_CHANGES

    def noted(self, now: float) -> Pace:
        """Return the pace after one more change."""
        fresh = self if now - self.noted_at < CALM_SECONDS else Pace()
        return evolve(fresh, noted_at=now)

    def wait(self, now: float) -> float:
        """Return how long the change has to wait until it is shown (seconds)."""
        if not self.is_restless:
            return 0.0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * float(2 ** min(self.shown - FREE_CHANGES, 16)))
        return max(0.0, self.shown_at + pause - now)

    def after(self, now: float, *, asks: bool) -> Pace:
        """Return the pace after a change was shown. One that asks nobody does not count."""
        return evolve(self, shown=self.shown + asks, shown_at=now)


@define(eq=False)
class OfferedTools:
    """The tools, resources and prompts that one downstream offers. See the module.

    `offer` is what agents may see, and `marks` are the marks of pinned tools, by the names of the tools that have any.
    """

    _actor: Actor
    _deps: DownstreamDeps
    _config: DownstreamConfig
    #: Whether the downstream runs, or is disabled. Agents see nothing of a disabled one.
    _is_enabled: bool = field(init=False, default=False)
    offer: Offer = field(init=False, factory=Offer)
    marks: Mapping[str, tuple[Mark, ...]] = field(init=False, factory=dict)
    _server: _Server = field(init=False, factory=_Server)
    _lists: DownstreamLists = field(init=False, factory=DownstreamLists)
    _is_listing: bool = field(init=False, default=False)
    _is_outdated: bool = field(init=False, default=False)
    _listed_at: float = field(init=False, default=-math.inf)
    #: None if the tools were never pinned.
    _pins: tuple[Pin, ...] | None = field(init=False, default=None)
    #: The pins in which marks were looked for last.
    _marked: tuple[Pin, ...] = field(init=False, default=())
    _changes: Changes = field(init=False, factory=Changes)
    _shown_changes: Changes = field(init=False, factory=Changes)
    _pace: Pace = field(init=False, factory=Pace)
    _is_change_due: bool = field(init=False, default=False)
    _is_restless_told: bool = field(init=False, default=False)

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of the tools that the downstream offers and agents may not see, because they are not as pinned."""
        changes = self._changes
        return (
            *(each.name for each in changes.changed),
            *(each.name for each in changes.added),
            *(each.name for each in changes.refused),
        )

    def is_withheld(self, tool: str) -> bool:
        """Whether the downstream offers this tool, and agents may not see it."""
        changes = self._changes
        return not changes.is_none and tool in self.withheld

    def start(self, known: Recalled, *, is_enabled: bool) -> None:
        """Begin with what the store remembers. This tells nobody anything."""
        self._pins, self._is_enabled = known.pins, is_enabled

    def configure(self, config: DownstreamConfig, *, is_enabled: bool) -> None:
        """Use this configuration, and offer agents what it allows."""
        self._config, self._is_enabled = config, is_enabled
        self._publish()

    # --- lists -------------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection, lists: DownstreamLists) -> None:
        """Use what was read over a new connection."""
        self._server = _Server(connection.version, connection.capabilities, connection.instructions)
        self._listed_at = trio.current_time()
        self._is_outdated = False
        self._compare(lists)

    def read_soon(self) -> None:
        """Read the lists soon. Whatever else is announced until then belongs to the same change."""
        if not self._is_outdated:
            self._is_outdated = True
            due = max(SETTLE_SECONDS, self._listed_at + LISTED_SECONDS - trio.current_time())
            self._actor.set_timer(_LISTS, due, ReadLists())

    def read(self, connection: Connection | None, number: int) -> None:
        """Read the lists over the connection with this number, if there is one."""
        # While they are being read, the change may come too late for it: they are read once more.
        if connection is not None and self._is_outdated and not self._is_listing:
            self._is_listing, self._is_outdated = True, False
            self._listed_at = trio.current_time()
            self._actor.spawn(tasks.read_again, connection, number, self._actor.actor_ref.tell)

    def listed(self, lists: DownstreamLists | None) -> None:
        """Use the lists that were read; None if that failed, or if their connection is not used any more."""
        self._is_listing = False
        if lists is not None:
            self._compare(lists)
        if self._is_outdated:
            self._is_outdated = False
            self.read_soon()

    # --- pins --------------------------------------------------------------------------------------------------------

    def _compare(self, lists: DownstreamLists) -> None:
        """Compare what is offered with the pins, and offer agents what is allowed."""
        self._lists = lists
        if self._pins is None:
            found = pins.compare((), lists.tools)
            self._pins = found.added
            self._deps.publish(ToolsPinned(self._config.name, found.added))
        changes = pins.compare(self._pins, lists.tools)
        if changes != self._changes:
            self._changes = changes
            self._pace = self._pace.noted(trio.current_time())
            self._show_changes()
        if self._pins != self._marked:
            self._marked = self._pins
            self._actor.spawn(tasks.find_marks, self._pins, self._actor.actor_ref.tell)
        self._publish()

    def show_due_changes(self) -> None:
        """Have people asked about what is offered now, after a wait for the pace."""
        self._is_change_due = False
        self._show_changes()

    def _show_changes(self) -> None:
        """Have people asked about what is offered now, at once or when the pace allows it."""
        name, now = self._config.name, trio.current_time()
        wait = self._pace.wait(now)
        if self._is_change_due or self._changes == self._shown_changes:
            return
        if wait > 0.0:
            self._is_change_due = True
            self._actor.set_timer(_CHANGES, wait, ShowChanges())
            if not self._is_restless_told:
                self._is_restless_told = True
                self._deps.tell(
                    f"the downstream {name} keeps changing its tools: what has changed stays withheld, and people"
                    f" are asked about it less and less often; agent-intercom-ctl gateway disable {name} ends it",
                    "warning",
                )
            return
        self._shown_changes = self._changes
        asks = bool(self._changes.changed or self._changes.added or self._changes.refused)
        self._pace = self._pace.after(now, asks=asks)
        self._is_restless_told = self._is_restless_told and self._pace.is_restless
        self._deps.publish(ToolsChanged(name, self._changes))

    def marked(self, found: Marked) -> None:
        """Use these marks, if they are of the tools that are pinned now."""
        if found.pins == self._pins:
            self.marks = dict(found.marks)

    def recalled(self, known: Recalled) -> None:
        """Use what a person has allowed, though it is not what is offered now."""
        if known.pins is not None:
            self._pins = known.pins
            self._compare(self._lists)

    def allow(self, sha256: str, *, accepted: bool) -> None:
        """Pin what is offered now, if it is what the person saw. Otherwise only the store knows what that was."""
        if not accepted or self._pins is None:
            return
        self._pace = Pace()
        if pins.changes_hash(self._changes) != sha256:
            self._actor.spawn(tasks.recall_again, self._deps, self._config.name, self._actor.actor_ref.tell)
            return
        usable = (*self._changes.unchanged, *(each.after for each in self._changes.changed), *self._changes.added)
        self._pins = tuple(sorted(usable, key=lambda each: each.name))
        self._compare(self._lists)

    def _publish(self) -> None:
        """Tell the gateway what agents may see, if that has changed. A lost connection does not change it: clients
        suffer from lists that come and go."""
        offer = Offer()
        if self._is_enabled:
            offer = Offer(
                tools=tuple(each.fields for each in self._changes.unchanged if self._config.offers(each.name)),
                resources=self._lists.resources,
                templates=self._lists.templates,
                prompts=self._lists.prompts,
                capabilities=self._server.capabilities,
                version=self._server.version,
                instructions=self._server.instructions,
            )
        if offer != self.offer or not self._is_enabled:
            self.offer = offer
            self._deps.publish(OfferChanged(self._config.name, offer))
