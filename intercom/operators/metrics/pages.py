"""The monitoring pages, for the web server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from intercom.model.page import Page
from intercom.operators.metrics.health import Health
from intercom.operators.metrics.metrics import Metrics, Sources
from intercom.sessions.desk import Desk
from intercom.store import census


def pages(
    metrics: Metrics,
    desk: Desk,
    *,
    life: str,
    agents: Callable[[], int],
    own: Callable[[], Mapping[tuple[str, str], float]] = dict,
) -> Sequence[Page]:
    """Return `/healthz`, open to anybody, and `/metrics`. `agents` counts the connected agents. `own` returns figures
    that other parts keep themselves, by name and help text."""
    health = Health(desk.tree, desk.context.store, life, desk.system.clock)
    sources = Sources(
        tree=desk.tree,
        census=partial(desk.reader.read, census.take),
        policies=lambda: len(desk.board.cards()),
        agents=agents,
        chat=desk.chat_standing,
        now=desk.context.now,
        own=own,
    )
    return (Page("/healthz", health.answer, open=True), Page("/metrics", partial(metrics.answer, sources)))
