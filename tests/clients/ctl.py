"""A person at a terminal."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import trio

from tests.agents.live import CTL, Home
from tests.support.person_shell import the_person

#: The exit code that says that there is no server (yet).
NO_SERVER = 3


async def ctl(house: Home, *words: str) -> dict[str, Any]:
    """What agent-intercom-ctl prints for these words; a person whose server is restarting tries again."""
    run = partial(the_person().run_async, [*CTL, *words], house.environ)
    while (done := await run()).returncode == NO_SERVER:  # noqa: ASYNC110 - another process
        await trio.sleep(0.1)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
