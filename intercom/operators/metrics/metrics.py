"""The page for Prometheus: counts since the server started, and current gauges."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import trio
from attrs import define, field, frozen
from prometheus_client import CollectorRegistry, GCCollector, Info, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from actors import Info as Tree
from intercom._version import __version__
from intercom.model.errors import IntercomError
from intercom.model.page import Answer
from intercom.operators.metrics.counted import Counted
from intercom.operators.metrics.present import Moment, Present
from intercom.store.census import Census

log = logging.getLogger(__name__)

#: How long the counts of the database may take, in seconds; Prometheus gives up a scrape after ten.
_CENSUS_SECONDS = 5.0


@frozen
class Sources:
    """The sources of the gauges.

    `census` counts in the database. `policies` counts policy changes that wait for a person, `agents` the connected
    agents. `chat` returns the status of the chat channel, None without one. `own` returns figures that other parts keep
    themselves.
    """

    tree: Callable[[], Tree]
    census: Callable[[], Awaitable[Census]]
    policies: Callable[[], int]
    agents: Callable[[], int]
    chat: Callable[[], Awaitable[Mapping[str, Any] | None]]
    now: Callable[[], datetime]
    own: Callable[[], Mapping[tuple[str, str], float]] = dict


@define
class Metrics:
    """One server's metrics. `counted` holds the two hooks that feed them."""

    registry: CollectorRegistry = field(factory=CollectorRegistry, init=False)
    counted: Counted = field(init=False)
    _moment: Moment = field(factory=Moment, init=False)
    _one: trio.Lock = field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.counted = Counted(self.registry)
        self.registry.register(self._moment)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        Info("intercom", "This server.", registry=self.registry).info({"version": __version__})

    async def answer(self, sources: Sources) -> Answer:
        """Return the metrics in the plain text format. A part that does not answer is omitted, and its `up` figure says
        so."""
        # Two answers at once would share the one `Moment`.
        async with self._one:
            self._moment.now = await present(sources)
            return Answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.registry))


async def present(sources: Sources) -> Present:
    """Collect the current state from all sources."""
    return Present(
        at=sources.now(),
        tree=sources.tree(),
        census=await _census(sources),
        policies=sources.policies(),
        agents=sources.agents(),
        chat=await sources.chat(),
        own=sources.own(),
    )


async def _census(sources: Sources) -> Census | None:
    try:
        with trio.fail_after(_CENSUS_SECONDS):
            return await sources.census()
    except (IntercomError, trio.TooSlowError) as failed:
        log.warning("the database could not be counted: %s", failed or "it took too long")
        return None
