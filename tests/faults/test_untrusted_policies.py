"""Policies that nobody accepted, tried from outside: real clients, a real server, the agent's own shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.init import STARTER
from tests.faults.hosted import Hosted, ctl, hosted
from tests.support.person_shell import the_person
from tests.support.server_process import Home, user_home

pytestmark = [pytest.mark.real_time, pytest.mark.home("")]

WIDE = {"enabled": True, "commands": ["*"], "tools": ["transmit"], "file_patterns": {"write": ["**"], "read": ["**"]}}
MAIN = [sys.executable, "-m", "intercom.cli.main"]


def write(root: Path, directory: str = ".intercom", policy: dict[str, Any] | None = None) -> Path:
    file = root / directory / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(policy or WIDE))
    return file


async def is_asked(agent: Hosted, home: Home, root: Path) -> None:
    """Whatever the agent wants to do, a person is asked."""
    checked = await agent.call("auto_check", tool_name="write", context={"file_path": "docs/a.md"})
    assert checked["auto_approved"] is False
    checked = await agent.call("auto_check", tool_name="ls")
    assert checked["auto_approved"] is False
    asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="docs/a.md")
    async with home.person(root) as person:
        card = await person.card(kind="approval", status="pending", away=False)
    code, _ = await ctl(home, "reject", card["request_id"])
    assert code == 0
    assert (await agent.answer(asked))["status"] == "rejected"
    assert not (root / "docs").exists()


@pytest.mark.parametrize("directory", [".intercom", ".monocoque"])
async def test_a_policy_that_came_with_a_clone_grants_nothing_and_is_a_card(served: Home, directory: str) -> None:
    root = served.workspace()
    write(root, directory)
    async with hosted(served, root) as agent:
        await is_asked(agent, served, root)
        code, shown = await ctl(served, "policy", "show", str(root))
        assert (code, shown["status"], shown["grants"]) == (0, "waiting", "nothing")


async def test_a_policy_in_a_directory_that_the_agent_chose_grants_nothing(served: Home) -> None:
    outer = served.workspace()
    write(outer, policy={"enabled": True, "file_patterns": {"write": ["notes/**"]}})
    code, _ = await ctl(served, "policy", "accept", str(outer))
    assert code == 0
    inner = outer / "sub"
    write(inner)
    async with hosted(served, inner) as agent:
        await is_asked(agent, served, inner)


async def test_no_word_of_an_agents_own_process_accepts_a_policy(served: Home) -> None:
    root = served.workspace()
    write(root)
    async with hosted(served, root) as agent:
        assert (await agent.call("ping"))["acknowledged"]
        async with served.person(root) as person:
            card = await person.card(kind="policy", status="pending")
        program = f"{sys.executable} -m intercom.cli"
        for command in (
            f"{program}.ctl --json policy accept",
            f"{program}.ctl --json policy accept {card['request_id']}",
            f"{program}.ctl --json policy accept {root} --yes",
            f"{program}.ctl --json policy accept {root}/../{root.name}/",
            f"setsid -w {program}.ctl --json policy accept {root}",
            f"{program}.main init --write --policy --workspace {root}",
        ):
            tried = await agent.shell(command)
            assert tried["code"] == 1, (command, tried)
            assert "Traceback" not in tried["err"]
        await is_asked(agent, served, root)
        code, shown = await ctl(served, "policy", "show", str(root))
        assert (code, shown["status"], shown["accepted_sha256"]) == (0, "waiting", None)


async def test_a_person_accepts_a_policy_and_it_holds_after_the_server_was_killed() -> None:
    docs = {"enabled": True, "file_patterns": {"write": ["docs/**"]}}
    with user_home("") as home, home.serving():
        root = home.workspace()
        file = write(root, policy=docs)
        code, done = await ctl(home, "policy", "accept", str(root))
        assert (code, done["status"]) == (0, "accepted")
        async with hosted(home, root) as agent:
            passed = await agent.call("check_clearance", title="t", diff="x\n", file_path="docs/a.md")
            assert passed["auto_approved"] == "file_pattern:write:docs/**"
            _, log = await ctl(home, "log")
            assert {"policy_accept", "policy_in_force"} <= {entry["kind"] for entry in log["entries"]}
            home.kill()
            # The relay starts another. Swapped meanwhile: what was accepted is the content and not the file.
            file.write_text(json.dumps({**docs, "commands": ["ls"], "file_patterns": {"write": ["docs/**", "**"]}}))
            assert not (await agent.call("auto_check", tool_name="write", context={"file_path": "a"}))["auto_approved"]
            assert not (await agent.call("auto_check", tool_name="ls"))["auto_approved"]
            kept = await agent.call("auto_check", tool_name="write", context={"file_path": "docs/b"})
            assert kept == {"auto_approved": True, "matched_rule": "file_pattern:write:docs/**"}


def test_init_gives_a_project_a_policy_and_a_person_accepts_it(served: Home) -> None:
    root = served.workspace()
    command = [*MAIN, "init", "--write", "--policy", "--workspace", str(root)]
    shown = the_person().run([*MAIN, "init", "--policy", "--workspace", str(root)], served.environ)
    assert "would be written" in shown.stdout
    assert not (root / ".intercom").exists()
    done = the_person().run(command, served.environ)
    assert done.returncode == 0, done
    assert (root / ".intercom/settings.json").read_text() == STARTER
    assert "accepted policy-" in done.stdout
    again = the_person().run(command, served.environ)
    assert (again.returncode, "needs no acceptance" in again.stdout) == (0, True), again


def test_init_writes_a_policy_without_a_server_and_says_how_to_accept_it() -> None:
    with user_home("") as made:
        root = made.workspace()
        done = the_person().run([*MAIN, "init", "--write", "--policy", "--workspace", str(root)], made.environ)
        assert done.returncode == 0, done
        assert f"agent-intercom-ctl policy accept {root}" in done.stdout
        assert (root / ".intercom/settings.json").read_text() == STARTER
