"""When a background server leaves."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors import NotRunning
from intercom.cli import serve
from intercom.model.errors import DatabaseError


class IdleApp:
    """Who is there, at which second: (from, to) while somebody is connected, while something waits, and while somebody
    is signed in to the page."""

    def __init__(
        self, connected: tuple[float, float], pending: tuple[float, float], page: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        self.connected, self.waits, self.page = connected, pending, page
        self.left: float | None = None
        self.service = self.system = self
        self.slack: object | None = None
        self.http: object | None = None

    def is_idle(self) -> bool:
        return not self.connected[0] <= trio.current_time() < self.connected[1]

    async def pending(self) -> tuple[int, ...]:
        return (1,) if self.waits[0] <= trio.current_time() < self.waits[1] else ()

    async def is_page_needed(self) -> bool:
        return self.page[0] <= trio.current_time() < self.page[1]

    def request_stop(self) -> None:
        self.left = trio.current_time()


NEVER = (0.0, 0.0)


@pytest.mark.parametrize(
    ("connected", "pending", "page", "leaves"),
    [
        (NEVER, NEVER, NEVER, 300),
        ((0, 1000), NEVER, NEVER, 1300),
        (NEVER, (0, 5000), NEVER, 5300),
        ((0, 1000), (500, 2000), NEVER, 2300),
        # Somebody comes when it was about to leave: it waits anew.
        ((290, 400), NEVER, NEVER, 700),
        # The sign-in outlasts the agent.
        ((0, 1000), NEVER, (500, 40_000), 40_300),
    ],
)
async def test_it_leaves_when_nobody_has_been_there_and_nothing_has_waited_for_a_while(
    connected: tuple[float, float], pending: tuple[float, float], page: tuple[float, float], leaves: float
) -> None:
    app: Any = IdleApp(connected, pending, page)
    await serve._until_idle(app)
    assert app.left == pytest.approx(leaves, abs=10)


@pytest.mark.parametrize(
    ("question", "fault"),
    [("pending", DatabaseError("the disk cannot be read")), ("is_page_needed", NotRunning("web"))],
)
async def test_it_stays_while_it_cannot_be_read_what_waits_and_who_is_there(question: str, fault: Exception) -> None:
    app: Any = IdleApp(NEVER, NEVER)
    answer = getattr(app, question)

    async def unreadable() -> object:
        if trio.current_time() < 1000:
            raise fault
        return await answer()

    setattr(app, question, unreadable)
    await serve._until_idle(app)
    assert app.left == pytest.approx(1300, abs=10)


async def test_in_slack_it_stays_for_whoever_wants_something_of_it_there() -> None:
    app: Any = IdleApp(NEVER, NEVER)
    app.slack = object()
    with trio.move_on_after(50 * serve.IDLE_SECONDS):
        await serve._until_idle(app)
    assert app.left is None


async def test_with_http_on_it_stays_for_clients_that_can_not_start_one() -> None:
    app: Any = IdleApp(NEVER, NEVER)
    app.http = object()
    with trio.move_on_after(50 * serve.IDLE_SECONDS):
        await serve._until_idle(app)
    assert app.left is None
