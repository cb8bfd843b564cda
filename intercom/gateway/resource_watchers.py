"""The agents that want to hear when a resource changes, and what each downstream is asked to tell of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import define, field

from intercom.gateway.resources_and_prompts import Place

#: The most resources that one agent may watch, and the longest address of one (characters).
MOST_WATCHED: Final = 1000
LONGEST_ADDRESS: Final = 2000


@define(eq=False)
class ResourceWatchers:
    """Who watches which resources. `ask` (downstream, addresses) has a downstream tell of these resources, and of no
    others; it must not wait."""

    ask: Callable[[str, frozenset[str]], object] = field(repr=False)
    _watched: dict[str, dict[Place, Callable[[], object]]] = field(factory=dict, init=False)

    def watch(self, watcher: str, wanted: Mapping[Place, Callable[[], object]]) -> frozenset[Place]:
        """Call what belongs to a resource when it has changed; it must not wait. Returns the resources that are watched
        now: those that are too many, or have too long an address, are left out."""
        watched = self._watched.setdefault(watcher, {})
        for place, changed in wanted.items():
            if len(place.name) <= LONGEST_ADDRESS and (place in watched or len(watched) < MOST_WATCHED):
                watched[place] = changed
        for downstream in {place.downstream for place in wanted}:
            self.again(downstream)
        return frozenset(wanted.keys() & watched.keys())

    def unwatch(self, watcher: str, place: Place) -> None:
        """End what `watch` began."""
        self._watched.get(watcher, {}).pop(place, None)
        self.again(place.downstream)

    def leave(self, watcher: str) -> None:
        """Forget a watcher, with all that it watches."""
        for downstream in {place.downstream for place in self._watched.pop(watcher, {})}:
            self.again(downstream)

    def again(self, downstream: str) -> None:
        """Ask a downstream for what is watched of it: nothing is kept of it after a crash of its actor."""
        places = (place for watched in self._watched.values() for place in watched)
        self.ask(downstream, frozenset(place.name for place in places if place.downstream == downstream))

    def changed(self, downstream: str, addresses: Iterable[str]) -> None:
        """Tell everybody who watches one of these resources."""
        places = [Place(downstream, address) for address in addresses]
        for watched in tuple(self._watched.values()):
            for place in places:
                if (changed := watched.get(place)) is not None:
                    changed()
