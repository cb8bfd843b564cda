"""The main job: an agent behind a real MCP client proposes, a person answers with ctl from beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from tests.support.person_shell import the_person
from tests.support.server_process import CTL, Home, begin, call

DIFF = """--- a/notes.txt
+++ b/notes.txt
@@ -1 +1,2 @@
 one
+two
"""


@pytest.mark.home("")
@pytest.mark.real_time
async def test_an_agent_proposes_and_a_person_beside_it_approves(home: Home) -> None:
    async def ctl(*words: str) -> tuple[int, Any]:
        done = await the_person().run_async([*CTL, *words], home.environ)
        return done.returncode, json.loads(done.stdout)

    root = home.workspace()
    (root / "notes.txt").write_text("one\n")
    proposal = {"title": "Add a line", "diff": DIFF, "file_path": "notes.txt", "risk_level": "low"}
    with home.serving():
        async with home.agent(root) as agent, trio.open_nursery() as nursery:
            asked = begin(nursery, agent, "check_clearance", **proposal)
            async with home.person(root) as person:
                shown = await person.card(kind="approval")
            id = shown["request_id"]
            # Made by the server from the bytes, as git writes it.
            assert shown["diff"] == f"diff --git a/notes.txt b/notes.txt\n{DIFF}"
            # This process is the agent's client, which tries to answer itself.
            tried = await trio.run_process(
                [*CTL, "approve", id], env=home.environ, check=False, capture_stdout=True, start_new_session=True
            )
            assert (tried.returncode, json.loads(tried.stdout)["error_code"]) == (1, "unauthorized")

            code, waiting = await ctl("pending")
            assert (code, [entry["request_id"] for entry in waiting]) == (0, [id])
            code, done = await ctl("approve", id[:8])
            assert (code, done["status"]) == (0, "approved")
            assert (await asked())["status"] == "approved"
            assert (await call(agent, "check_diff", request_id=id))["status"] == "applied"
            assert (root / "notes.txt").read_bytes() == b"one\ntwo\n"

            code, log = await ctl("log")
            assert code == 0
            refused = [entry for entry in log["entries"] if "refused approve" in entry["summary"]]
            assert [entry["kind"] for entry in refused] == ["security"]
            code, again = await ctl("reject", id)
            assert (code, again["error_code"]) == (1, "already_decided")
