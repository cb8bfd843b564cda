"""An agent's shell tries to approve its own request, in every way of the table, without and with an operator key.

Without one, the ways succeed that the table says remain, and no others. With one, none does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from intercom.local import operator_keys
from tests.attack.scene import end_attempt, person_approves, run_in_shell, served_home, spare_directory
from tests.attack.self_approval import KILL, SERVER, WAYS, Way
from tests.faults.hosted import ctl, hosted
from tests.support.person_shell import the_person
from tests.support.server_process import Home


@pytest.fixture(scope="module", params=["no key", "key"])
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    with served_home(with_key=request.param == "key") as made:
        yield made


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.name)
@pytest.mark.real_time
async def test_an_agent_does_not_approve_itself(home: Home, way: Way) -> None:
    root = home.workspace()
    with_key = bool(operator_keys.private_keys(home.places))
    async with AsyncExitStack() as stack:
        spare = stack.enter_context(spare_directory())
        if way.ends_relay:
            other = await stack.enter_async_context(hosted(home, home.workspace()))
            await other.call("ping")
        agent = await stack.enter_async_context(hosted(home, root, *way.wrapper))
        await agent.call("ping")
        if way.after_a_decision:
            await person_approves(home, agent, root, "first.txt")
        await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with home.person(root) as person:
            card = await person.card(status="pending", detail="x.txt")
        id, server = card["request_id"], home.server()
        stack.callback(end_attempt, id)
        names = {"id": id, "session": card["session_id"]}
        said = await run_in_shell(agent, home, way.command, spare=spare, tty=the_person().device, **names)
        if way.ends_relay:
            code, shown = await ctl(home, "show", id)
            assert code == 0, shown
            succeeded = shown["status"] != "pending"
        else:
            answer = await agent.call("check_diff", request_id=id)
            succeeded = answer["status"] == "applied"
            assert succeeded == (root / "x.txt").exists()
        if KILL in way.command:
            assert home.server() != server, f"the server was not killed\n{said}"
    if way.remains is SERVER and home.server() is not None:
        # The next way is to find a server of ours.
        home.kill()
    if with_key or way.remains is None:
        assert not succeeded, said
    else:
        assert succeeded, f"this does not succeed any more: say so in the table and in the threat model\n{said}"
