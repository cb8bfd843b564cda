"""What people are shown of a proposal, on every channel, is made by us when the proposal is made."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.masking import Masker
from intercom.model.card import Card
from intercom.model.request import RiskLevel
from intercom.operators.commands.json_forms import card_entry
from intercom.operators.slack.draw.cards import card as slack_card
from intercom.operators.slack.draw.cards import diff_file
from intercom.sessions import request_kinds
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.store.requests import approvals
from intercom.store.writer_messages import Transact
from tests.cli.test_ctl_draw import drawn
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock

AUTH = "def is_admin(user):\n    return user.admin\n\n\ndef test_helper():\n    return 1\n"
#: The change is in `is_admin`; every word around it says otherwise.
LIES = """\
Index: tests/test_helper.py
===================================================================
--- a/auth.py\t2020-01-01 only a comment
+++ b/auth.py\t2020-01-01 only a comment
@@ -1,2 +1,2 @@ def test_helper(): reviewed by the security team
 def is_admin(user):
-    return user.admin
+    return True
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "auth.py").write_text(AUTH)
    return made


async def proposed(server: VirtualServer, agent: AgentClient, path: str, diff: str, **more: Any) -> Card:
    asked = CheckClearance("Tidy up", diff, path, None, RiskLevel.LOW, call=agent.call())
    opened = await agent.ask(asked)
    await server.wait(agent, opened.request_id)
    return await server.operator.card(id=opened.request_id)


def channels(card: Card) -> list[str]:
    """The card as each channel shows it: embedding, ctl as JSON and as text, Slack's message and file."""
    entry = card_entry(card)
    file = diff_file(card, Masker())
    return [
        str(card),
        str(entry),
        drawn("show", entry),
        drawn("pending", [entry], is_full=True),
        str(slack_card(card, Masker())),
        "" if file is None else file.text,
    ]


async def test_the_card_shows_no_hunk_header_and_no_prose_of_the_agent(server: VirtualServer, root: Path) -> None:
    card = await proposed(server, await server.arrive(root), "auth.py", LIES.split("\n", 2)[2])
    assert card.diff == (
        "diff --git a/auth.py b/auth.py\n--- a/auth.py\n+++ b/auth.py\n@@ -1,5 +1,5 @@\n"
        " def is_admin(user):\n-    return user.admin\n+    return True\n \n \n def test_helper():\n"
    )
    assert not card.diff_from_agent
    for shown in channels(card):
        for lie in ("security team", "only a comment", "tests/test_helper.py"):
            assert lie not in shown


async def test_what_hides_is_shown_as_its_code_on_every_channel(server: VirtualServer, root: Path) -> None:
    hidden = "\x1b[2K\x1b[1A\u202e\u2066\u200b\U000e0041\ufe01\u2028\r"
    card = await proposed(server, await server.arrive(root), "auth.py", f"ok = 1{hidden}x\n")
    assert "+ok = 1\\x1b[2K\\x1b[1A<U+202E><U+2066><U+200B><U+E0041><U+FE01><U+2028>\\x0dx\n" in (card.diff or "")
    for shown in channels(card):
        assert not {character for character in hidden if not "0" <= character <= "["} & set(shown)
    said = " ".join(remark.text for remark in card.remarks)
    for name in ("escape", "right-to-left override", "zero width space", "line separator", "carriage return"):
        assert f"({name})" in said
    for shown in channels(card)[1:5]:
        assert "(right-to-left override) is written as its code on line 1" in shown


async def test_titles_descriptions_and_messages_are_shown_as_codes_on_every_channel(
    server: VirtualServer, root: Path
) -> None:
    hidden = "\x1b[2J\u202e\u200b\U000e0041\ufe01\u2028"
    agent = await server.arrive(root)
    asked = CheckClearance(f"Tidy{hidden}", "x\n", "a.txt", f"why{hidden}", call=agent.call())
    opened = await agent.ask(asked)
    await server.wait(agent, opened.request_id)
    card = await server.operator.card(id=opened.request_id)
    for shown in channels(card)[:5]:
        assert "Tidy\\x1b[2J<U+202E><U+200B><U+E0041><U+FE01><U+2028>" in html.unescape(shown).replace("\\\\", "\\")
        assert not {character for character in hidden if not "0" <= character <= "["} & set(shown)
    for shown in channels(card)[2:5]:
        assert "gent asks" in shown
        assert "rom the agent: why" in shown
    await agent.ask(Broadcast(f"done{hidden}"))
    told = await server.operator.notice("done")
    assert told.text.endswith("done\\x1b[2J<U+202E><U+200B><U+E0041><U+FE01><U+2028>")


async def test_the_card_is_the_same_after_the_file_has_changed_and_the_server_has_restarted(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        card = await proposed(server, await server.arrive(root), "auth.py", AUTH.replace("user.admin", "True") + "\x1b")
        (root / "auth.py").write_text("something else\n")
    async with virtual_server(root.parent, clock) as server:
        (again,) = await server.app.service.pending()
        assert (again.diff, again.remarks, again.files) == (card.diff, card.remarks, card.files)


async def test_a_request_from_before_is_shown_as_the_agents_words(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    card = await proposed(server, agent, "auth.py", LIES.split("\n", 2)[2].replace("return True", "return True\x1b"))
    await server.ask("store", Transact(lambda db: db.execute("update approval_request set preview = null")))
    request = await server.ask("store", Transact(lambda db: approvals.get(db, card.id)))
    assert request is not None
    old = request_kinds.card_of(request, str(root))
    assert old.diff_from_agent
    for shown in channels(old)[2:5]:
        assert "the agent's own text, not a diff made from the files" in shown
        assert "\x1b" not in shown
