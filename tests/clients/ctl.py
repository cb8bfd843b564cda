"""A person at a terminal."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import Any

import trio

from tests.agents.live import CTL, Home

#: The exit code that says that there is no server (yet).
NO_SERVER = 3


async def ctl(house: Home, *words: str) -> dict[str, Any]:
    """What agent-intercom-ctl prints for these words; a person whose server is restarting tries again."""
    run = partial(subprocess.run, [*CTL, *words], env=house.environ, capture_output=True, text=True, check=False)
    while (done := await trio.to_thread.run_sync(run)).returncode == NO_SERVER:  # noqa: ASYNC110 - another process
        await trio.sleep(0.1)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
