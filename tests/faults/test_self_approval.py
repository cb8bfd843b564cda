"""The agent that tries to approve itself, from its own shell, with everything real: client, shim, server, ctl."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.agents.live import Home, home, live
from tests.faults.hosted import ctl, hosted

CTL = f"{sys.executable} -m intercom.cli.ctl --json"


@pytest.fixture(scope="module")
def house() -> Iterator[Home]:
    # Nothing is trusted here: the configuration of everybody who writes none.
    with home("") as made, made.serving():
        yield made


@pytest.mark.parametrize(
    "command",
    [
        f"{CTL} approve {{id}}",
        f"{CTL} answer {{id}} continue",
        f"{CTL} mode remote",
        f"{CTL} resume --session {{session}} 'go on'",
        f"{CTL} nudge {{session}} 'go on'",
        f"{CTL} policy accept",
        f"sh -c 'sh -c \"{CTL} approve {{id}}\"'",
        f"setsid -w {CTL} approve {{id}}",
    ],
)
@live
async def test_an_agent_can_not_approve_itself_through_ctl_from_its_own_shell(house: Home, command: str) -> None:
    root = house.workspace()
    async with hosted(house, root) as agent:
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with house.person(root) as person:
            card = await person.card(status="pending", away=False)
        _, before = await ctl(house, "log")
        tried = await agent.shell(command.format(id=card["request_id"], session=card["session_id"]))
        assert tried["code"] == 1, tried
        assert json.loads(tried["out"])["error_code"] == "unauthorized"
        assert "Traceback" not in tried["err"]

        code, shown = await ctl(house, "show", card["request_id"])
        assert (code, shown["status"], shown["decided"]) == (0, "pending", None)
        _, log = await ctl(house, "log")
        # Of others the end may still be noted: the server is one for all tests here.
        since = [entry for entry in log["entries"] if entry["id"] > before["entries"][-1]["id"]]
        assert [entry["kind"] for entry in since].count("security") == 1
        # A person beside it approves as ever, and only then does the call return.
        code, done = await ctl(house, "approve", card["request_id"])
        assert (code, done["status"]) == (0, "approved")
        assert (await agent.answer(asked))["status"] == "approved"
        assert (await agent.call("check_diff", request_id=card["request_id"]))["status"] == "applied"


@live
async def test_an_agent_can_not_widen_its_own_policy(house: Home) -> None:
    root = house.workspace()
    async with hosted(house, root) as agent:
        assert (await agent.call("ping"))["acknowledged"]
        policy = '{"enabled": true, "file_patterns": {"write": ["**/*"]}}'
        written = await agent.shell(f"mkdir -p {root}/.intercom && echo '{policy}' > {root}/.intercom/settings.json")
        assert written["code"] == 0
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with house.person(root) as person:
            proposed = await person.card(kind="policy")
            waiting = await person.card(kind="approval", status="pending", away=False)
        tried = await agent.shell(f"{CTL} policy accept {proposed['request_id']}")
        assert json.loads(tried["out"])["error_code"] == "unauthorized"
        # An operator may.
        code, _ = await ctl(house, "policy", "accept", proposed["request_id"])
        assert code == 0
        let_pass = await agent.call("check_clearance", title="u", diff="y\n", file_path="y.txt")
        assert let_pass["auto_approved"] == "file_pattern:write:**/*"
        await ctl(house, "reject", waiting["request_id"])
        assert (await agent.answer(asked))["status"] == "rejected"


@live
async def test_an_agent_can_not_have_its_policy_changed_by_proposal_without_a_person(house: Home) -> None:
    root = house.workspace()
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text(
        '{"enabled": true, "file_patterns": {"write": ["**/*", ".intercom/*"]}}'
    )
    await ctl(house, "policy", "accept", str(root))
    async with hosted(house, root) as agent:
        let_pass = await agent.call("check_clearance", title="t", diff="x\n", file_path="x.txt")
        assert let_pass["status"] == "approved"
        for path in (".intercom/settings.json", ".git/hooks/pre-commit", ".monocoque/settings.json", ".mcp.json"):
            asked = await agent.ask("check_clearance", title="sneaky", diff="{}\n", file_path=path)
            async with house.person(root) as person:
                card = await person.card(lambda card, path=path: card["detail"] == path, status="pending", away=False)
            await ctl(house, "reject", card["request_id"])
            assert (await agent.answer(asked))["status"] == "rejected"
