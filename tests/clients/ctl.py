"""A person at a terminal."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import trio

from tests.support.person_shell import the_person
from tests.support.server_process import CTL, Home

#: The exit code that says that there is no server (yet).
NO_SERVER = 3


async def ctl(home: Home, *words: str) -> dict[str, Any]:
    """What agent-intercom-ctl prints for these words; a person whose server is restarting tries again."""
    run = partial(the_person().run_async, [*CTL, *words], home.environ)
    while (done := await run()).returncode == NO_SERVER:  # noqa: ASYNC110 - another process
        await trio.sleep(0.1)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
