"""A client without the variables of its person's shell reaches the server that runs there, and so does a terminal."""

from __future__ import annotations

import pytest
import trio

from tests.support.server_process import CTL, Home, call

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("real_starts")]


async def test_without_the_runtime_directory_the_server_is_found_by_its_record(home: Home) -> None:
    root = home.workspace()
    temporary = home.root / "tmp"
    temporary.mkdir()
    bare = {"XDG_RUNTIME_DIR": str(home.root / "no-such-directory"), "TMPDIR": str(temporary)}
    with home.serving():
        process = home.server
        async with home.agent(root) as first, home.agent(root, **bare) as second:
            sessions = {(await call(agent, "ping"))["session_id"] for agent in (first, second)}
            assert len(sessions) == 2
            listed = await trio.run_process([*CTL, "list"], env=home.environ | bare, capture_stdout=True)
            assert all(each.encode() in listed.stdout for each in sessions)
        # There is no second one.
        assert home.server == process
        assert not list(temporary.glob("*/*.sock"))
