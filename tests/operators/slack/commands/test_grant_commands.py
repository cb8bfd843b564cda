"""Grants and rules as a person types them in Slack: shown first, then made, and only by those who may decide."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.operators.slack.live.server import CONFIG, Work, at_work
from tests.slack_standin import ALICE, CHANNEL, MALLORY, text_of


async def typed(work: Work, text: str, user: str = ALICE) -> str:
    """What the person alone reads in answer to a command."""
    answer = await work.slack.command(user, CHANNEL, text).answer()
    return "" if not answer else "\n".join([answer.get("text", ""), text_of(answer)])


def id_of(card: dict[str, Any]) -> str:
    """The beginning of the request's id, as the card shows it."""
    found = re.search(r"approval `(\w{8})", text_of(card))
    assert found is not None
    return found[1]


def command(shown: str) -> str:
    """The command that a preview says to type."""
    found = re.search(r"/intercom (grant .* --sha \w+)", shown)
    assert found is not None
    return found[1]


async def told(work: Work, words: str) -> str:
    """What the person alone is shown with these words."""
    return text_of(await work.slack.told(ALICE, words))


@pytest.mark.real_time
async def test_what_is_permitted_in_slack_is_shown_first_and_passes_then() -> None:
    async with at_work(CONFIG) as work:
        waiting, card = await work.propose("change a.txt", diff="x\n", file_path="a.txt")
        id = id_of(card)

        shown = await typed(work, f"grant {id} --pattern *.txt --for 5m --uses 1")
        assert 'for 5 minutes or 1 use:\n  proposed changes of "*.txt", up to risk low' in shown
        assert "it has nothing to be tried on: this is the first request of its kind" in shown
        assert "no grant is in force" in await typed(work, "grants")

        await work.tap(card, "approve_permit")
        covers = """proposed changes of "*" (files of the workspace's top directory), up to risk low"""
        assert covers in await told(work, f"/intercom grant {id} --sha")
        assert 'write pattern added: "a.txt"' in await told(work, f"/intercom allow {id} --sha")
        await work.slack.tap(MALLORY, card["ts"], "approve_permit").answer()
        assert "no grant is in force" in await typed(work, "grants")
        assert len(work.slack.ephemerals(MALLORY)) == 0
        assert not waiting.done

        then = command(shown)
        assert then.startswith(f"grant {id} --pattern '*.txt' --for 5m --uses 1 --sha ")
        assert not await work.slack.command(MALLORY, CHANNEL, then).answer()
        assert "is not as it was shown" in await typed(work, then.replace("--uses 1", "--uses 2"))
        assert "no duration up to 24h" in await typed(work, f"grant {id} --for 3d")
        assert "no risk that can be permitted" in await typed(work, f"grant {id} --risk critical")
        assert "no grant is in force" in await typed(work, "grants")
        granted = await typed(work, then)
        assert "granted" in granted
        assert f"1 card of this kind still waits for an answer ({id[:8]})" in granted
        answer = await work.call("check_clearance", title="change b.txt", diff="x\n", file_path="b.txt")
        assert answer["auto_approved"].startswith("grant/")
        listed = await typed(work, "grants")
        assert "no grant is in force" in listed
        assert not waiting.done

        shown = await typed(work, f"allow {id}")
        assert 'write pattern added: "a.txt"' in shown
        found = re.search(r"--sha ([0-9a-f]+)", shown)
        assert found is not None
        assert "is not as it was shown" in await typed(work, f"allow {id} --sha {found[1][:-1]}0")
        assert "is not as it was shown" in await typed(work, f"allow {id} --sha {found[1][:4]}")
        assert "in force" in await typed(work, f"allow {id} --sha {found[1]}")
        stated = json.loads((work.workspace / ".intercom" / "settings.json").read_text())
        assert stated["file_patterns"] == {"write": ["a.txt"]}
        answer = await work.call("check_clearance", title="again", diff="y\n", file_path="a.txt")
        assert answer["auto_approved"] == "file_pattern:write:a.txt"

        again, other = await work.propose("change c.md", diff="x\n", file_path="c.md")
        assert "granted" in await typed(work, command(await typed(work, f"grant {id_of(other)} --uses 5")))
        name = re.search(r"([0-9a-f]{8}) for session", await typed(work, "grants"))
        assert name is not None
        assert "revoked" in await typed(work, f"revoke {name[1]}")
        assert "no grant is in force" in await typed(work, "grants")
        assert not again.done
