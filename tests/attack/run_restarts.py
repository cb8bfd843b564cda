"""A server that comes up again is asked to approve, from the first instant it listens, by the agent that asked."""

from __future__ import annotations

import pytest

from tests.attack.scene import run_in_shell, spare_directory
from tests.faults.hosted import hosted
from tests.support.server_process import Home

KILLS = 10
ANSWERS = 40


pytestmark = pytest.mark.home("")


@pytest.mark.parametrize("options", ["", "--session"], ids=["from the shell", "from POSIX sessions of their own"])
@pytest.mark.real_time
async def test_no_instant_of_a_start_lets_an_agent_decide(served: Home, options: str) -> None:
    root = served.workspace()
    with spare_directory() as spare:
        async with hosted(served, root) as agent:
            asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
            async with served.person(root) as person:
                card = await person.card(status="pending")
            command = f"{{python}} {{programs}}/approve_during_start.py {{database}} {{id}} {KILLS} {ANSWERS} {options}"
            said = await run_in_shell(agent, served, command, spare=spare, id=card["request_id"])
            answer = await agent.call("check_diff", request_id=card["request_id"])
    assert answer["status"] != "applied", said
    assert not (root / "x.txt").exists(), asked
    assert '"ok": true' not in said.replace('"ok":true', '"ok": true'), said
    assert said, "no server answered"
