"""A policy that no person accepted grants nothing, however it came there, without and with an operator key.

Without one, the ways succeed that the table says need it, and no others. With one, none does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from intercom.local import operator_keys
from tests.attack.policies import WAYS, PolicyWay
from tests.attack.scene import PROGRAMS, run_in_shell, served_home, spare_directory
from tests.faults.hosted import hosted
from tests.support.server_process import Home

PATH = "src/main.py"


@pytest.fixture(scope="module", params=["no key", "key"])
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    with served_home(with_key=request.param == "key") as made:
        yield made


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.name)
@pytest.mark.real_time
async def test_what_nobody_accepted_lets_nothing_pass(home: Home, way: PolicyWay) -> None:
    names = {"root": home.workspace(), "programs": PROGRAMS}
    await trio.run_process(way.tree.format(**names), shell=True)
    root = Path(way.works_in.format(**names))
    with spare_directory() as spare:
        async with hosted(home, root) as agent:
            await agent.call("ping")
            if way.command:
                await run_in_shell(agent, home, way.command, spare=spare, root=str(root))
            checked = await agent.call(
                "auto_check", tool_name="write_file", context={"file_path": PATH, "risk_level": "low"}
            )
            if way.needs_key and not operator_keys.private_keys(home.places):
                assert checked["auto_approved"], "this fails now: say so in the table and in the threat model"
                return
            assert checked["auto_approved"] is False, checked
            asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path=PATH)
            async with home.person() as person:
                card = await person.card(lambda each: each["detail"] == PATH, status="pending", kind="approval")
            assert card["request_id"], asked
