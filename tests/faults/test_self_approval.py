"""The agent that tries to approve itself, from its own shell, with everything real: client, shim, server, ctl."""

from __future__ import annotations

import json

import pytest

from tests.attack.scene import run_in_shell, spare_directory
from tests.attack.self_approval import KILL_RELAY
from tests.faults.hosted import ctl, hosted
from tests.support.server_process import Home

pytestmark = [pytest.mark.real_time, pytest.mark.home("")]

#: What the agent's shell runs (`tests.attack.self_approval` says what stands in it, and has many more).
ATTEMPTS = [
    "{ctl} approve {id}",
    "{ctl} answer {id} continue",
    "{ctl} mode remote",
    "{ctl} resume --session {session} 'go on'",
    "{ctl} nudge {session} 'go on'",
    "{ctl} policy accept",
    "sh -c 'sh -c \"{ctl} approve {id}\"'",
    "echo '{ctl} approve {id}' | sh | cat",
    "setsid -w {ctl} approve {id}",
    "env -i $(env | grep -E '^(HOME|PATH|XDG_.*)=') {ctl} approve {id}",
    "cp -r {package} {spare}/ && cd {spare} && PYTHONPATH={spare} {ctl} approve {id}",
    "(sh -c '{ctl} approve {id} >{out}' &) ; cat {out}",
    "{python} {programs}/raw_socket.py {id}",
    "{python} {programs}/raw_socket.py {id} approve child=1 >{out} & cat {out}",
]


@pytest.mark.parametrize("command", ATTEMPTS)
async def test_an_agent_can_not_approve_itself_from_its_own_shell(served: Home, command: str) -> None:
    root = served.workspace()
    with spare_directory() as spare:
        async with hosted(served, root) as agent:
            asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
            async with served.person(root) as person:
                card = await person.card(status="pending", away=False)
            id = card["request_id"]
            _, before = await ctl(served, "log")
            said = await run_in_shell(agent, served, command, spare=spare, id=id, session=card["session_id"])
            assert json.loads(said)["error_code"] == "unauthorized"
            code, shown = await ctl(served, "show", id)
            assert (code, shown["status"], shown["decided"]) == (0, "pending", None)
            _, log = await ctl(served, "log")
            # Of others the end may still be noted: the server is one for all tests here.
            since = [entry for entry in log["entries"] if entry["id"] > before["entries"][-1]["id"]]
            assert [entry["kind"] for entry in since].count("security") == 1
            # A person beside it approves as ever, and only then does the call return.
            code, done = await ctl(served, "approve", id)
            assert (code, done["status"]) == (0, "approved")
            assert (await agent.answer(asked))["status"] == "approved"
            assert (await agent.call("check_diff", request_id=id))["status"] == "applied"


async def test_an_agent_that_ends_its_own_shim_is_an_agent_still(served: Home) -> None:
    root = served.workspace()
    with spare_directory() as spare:
        async with hosted(served, root) as agent:
            await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
            async with served.person(root) as person:
                id = (await person.card(status="pending", away=False))["request_id"]
                await run_in_shell(agent, served, KILL_RELAY, spare=spare)
                await person.card(request_id=id, away=True)
            said = await run_in_shell(agent, served, "{ctl} approve {id}", spare=spare, id=id)
            assert json.loads(said)["error_code"] == "unauthorized"
            code, _ = await ctl(served, "approve", id)
            assert code == 0


async def test_an_agent_can_not_widen_its_own_policy(served: Home) -> None:
    root = served.workspace()
    async with hosted(served, root) as agent:
        assert (await agent.call("ping"))["acknowledged"]
        policy = '{"enabled": true, "file_patterns": {"write": ["**/*"]}}'
        written = await agent.shell(f"mkdir -p {root}/.intercom && echo '{policy}' > {root}/.intercom/settings.json")
        assert written["code"] == 0
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with served.person(root) as person:
            proposed = await person.card(kind="policy")
            waiting = await person.card(kind="approval", status="pending", away=False)
        with spare_directory() as spare:
            said = await run_in_shell(agent, served, "{ctl} policy accept {id}", spare=spare, id=proposed["request_id"])
        assert json.loads(said)["error_code"] == "unauthorized"
        # An operator may.
        code, _ = await ctl(served, "policy", "accept", proposed["request_id"])
        assert code == 0
        let_pass = await agent.call("check_clearance", title="u", diff="y\n", file_path="y.txt")
        assert let_pass["auto_approved"] == "file_pattern:write:**/*"
        await ctl(served, "reject", waiting["request_id"])
        assert (await agent.answer(asked))["status"] == "rejected"


async def test_an_agent_can_not_have_its_policy_changed_by_proposal_without_a_person(served: Home) -> None:
    root = served.workspace()
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text(
        '{"enabled": true, "file_patterns": {"write": ["**/*", ".intercom/*"]}}'
    )
    await ctl(served, "policy", "accept", str(root))
    async with hosted(served, root) as agent:
        let_pass = await agent.call("check_clearance", title="t", diff="x\n", file_path="x.txt")
        assert let_pass["status"] == "approved"
        for path in (".intercom/settings.json", ".git/hooks/pre-commit", ".monocoque/settings.json", ".mcp.json"):
            asked = await agent.ask("check_clearance", title="sneaky", diff="{}\n", file_path=path)
            async with served.person(root) as person:
                card = await person.card(lambda card, path=path: card["detail"] == path, status="pending", away=False)
            await ctl(served, "reject", card["request_id"])
            assert (await agent.answer(asked))["status"] == "rejected"
