"""Grants from the command line: shown before they are made, signed with the PIN, listed and revoked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from intercom.cli.ctl_grant import granted_fields, preview_lines, say_waiting
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json, JsonObject
from tests.cli.test_ctl_signed import PIN, ctl, make_key, scene, typing, with_pin

SHOWN: JsonObject = {
    "request_id": "r-1",
    "session_id": "s-1",
    "title": "t",
    "scope": '{"kind":"tool"}',
    "covers": 'every use of "x\\u001b", with any arguments, up to risk low',
    "seconds": 90,
    "uses": 1,
    "trial": "would have let 1 of 1 past requests pass: \x1b[2Jtitle",
}


def test_what_is_sent_is_what_was_shown() -> None:
    fields = granted_fields(SHOWN, {"id": "r", "pattern": "**", "scope": str(SHOWN["scope"])})
    assert fields == {
        "id": "r-1",
        "session": "s-1",
        "scope": SHOWN["scope"],
        "duration": "90s",
        "uses": "1",
    }
    with pytest.raises(IntercomError, match="has changed since it was shown"):
        granted_fields(SHOWN, {"scope": "another"})


def test_a_preview_does_not_control_the_terminal() -> None:
    shown = "\n".join(preview_lines(SHOWN))
    assert "\x1b" not in shown
    assert "for 90 seconds or 1 use" in shown
    assert "not connected" not in shown
    assert "not connected" in "\n".join(preview_lines({**SHOWN, "is_agent_gone": True}))


def test_what_still_waits_is_named_with_how_to_answer_it(capsys: pytest.CaptureFixture[str]) -> None:
    for waiting in ([], ["r-1"], ["r-2"], ["r-1", "r-2"]):
        say_waiting({"waiting": list[Json](waiting)}, "r-1")
    assert capsys.readouterr().out.splitlines() == [
        "the card itself still waits for your answer: agent-intercom-ctl approve r-1, or reject",
        "1 card like it still waits for your answer: agent-intercom-ctl approve r-2, or reject",
        "2 cards of this kind still wait for your answer: agent-intercom-ctl approve r-1 r-2, or reject",
    ]


def test_on_a_terminal_what_is_granted_and_what_waits_end_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "\n".join(preview_lines({**SHOWN, "is_agent_gone": True}))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    shown = "\n".join(preview_lines({**SHOWN, "is_agent_gone": True}))
    say_waiting({"waiting": ["r-1", "r-2"]}, "r-1")
    waits = capsys.readouterr().out
    assert max(map(len, f"{shown}\n{waits}".splitlines())) <= 60
    assert shown.split() == before.split()
    assert waits.split()[-6:] == ["agent-intercom-ctl", "approve", "r-1", "r-2,", "or", "reject"]


@pytest.mark.real_time
async def test_a_grant_is_shown_signed_listed_and_revoked(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        code, refused = await ctl(at.env, "grant", at.id)
        assert (code, refused["error_code"]) == (1, "unauthorized")
        said = await with_pin(at, "grant", at.id, "--for", "5m", "--uses", "3", "--pattern", "*.txt", "--yes")
        before, _, after = said.partition("PIN of key")
        assert 'proposed changes of "*.txt", up to risk low' in before
        assert "for 5 minutes or 3 uses" in before
        assert "granted" in after
        assert f"the card itself still waits for your answer: agent-intercom-ctl approve {at.id[:8]}" in after
        _, listed = await ctl(at.env, "grants")
        (entry,) = listed["grants"]
        assert (entry["patterns"], entry["uses"], entry["used"], entry["over"]) == (["*.txt"], 3, 0, None)
        async with typing(at, "grants") as screen:
            assert re.search(r"0 of 3.*in force", await screen.rest())
        async with typing(at, "grant", at.id) as screen:
            await screen.until("[y/N]")
            screen.type("n\n")
            assert "nothing was changed" in await screen.rest()
        # To end one needs no key: it is what one does in a hurry.
        async with typing(at, "revoke", entry["grant_id"][:6]) as screen:
            assert "revoked" in await screen.rest()
        assert (await ctl(at.env, "grants"))[1] == {"grants": []}
        (over,) = (await ctl(at.env, "grants", "--all"))[1]["grants"]
        assert over["over"] == "it was revoked"
        async with typing(at, "grant", at.id) as screen:
            # A signed approval says that it was shown, also with a key that this terminal keeps unlocked.
            shown = await screen.until("grant this to session")
            assert "+two" in shown.partition("from now on this passes without you")[0]
            screen.type("y\n")
            assert "+two" not in await screen.until("and approve this card too? [y/N]")
            screen.type("y\n")
            await screen.until("PIN of key")
            await screen.until(f"to grant {at.id[:8]} and approve it (esc to leave): ")
            screen.type(f"{PIN}\n")
            said = await screen.rest()
            assert "granted" in said
            assert f"approved {at.id[:8]}" in said
            assert "PIN of key" not in said
            assert "still wait" not in said


@pytest.mark.real_time
async def test_a_rule_is_shown_written_and_accepted_with_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        code, refused = await ctl(at.env, "allow", at.id)
        assert (code, refused["error_code"]) == (1, "unauthorized")
        async with typing(at, "allow", at.id) as screen:
            shown = await screen.until("[y/N]")
            assert 'write pattern added: "notes.txt"' in shown
            assert "it has nothing to be tried on: this is the first request in this workspace" in " ".join(
                shown.split()
            )
            screen.type("\x1b")
            said = await screen.rest()
            assert "^[\b\b  \b\b" in said, "the key's echo was left on the screen"
            assert "nothing was changed" in said
        assert not (at.file.parent / ".intercom").exists()
        said = await with_pin(at, "allow", at.id, "--yes")
        assert "in force" in said.partition("PIN of key")[2]
        assert f"the card itself still waits for your answer: agent-intercom-ctl approve {at.id[:8]}" in said
        _, found = await ctl(at.env, "policy", "show", str(at.file.parent))
        assert found["status"] == "in force"
        # Without the PIN the rule waits, as any other change of the policy.
        async with typing(at, "allow", at.id, "--pattern", "*.txt", "--yes") as screen:
            await screen.until("PIN of key")
            screen.type("\x03")
            assert "waits until you accept it" in await screen.rest()
        _, found = await ctl(at.env, "policy", "show", str(at.file.parent))
        assert (found["status"], found["ways"]) == ("waiting", ['write pattern added: "*.txt"'])


@pytest.mark.real_time
@pytest.mark.parametrize("limits", [(), ("--for", "5m"), ("--pattern", "*.txt")])
async def test_a_grant_says_how_to_give_other_limits_unless_some_were_given(
    tmp_path: Path, limits: tuple[str, ...]
) -> None:
    async with scene(tmp_path) as at, typing(at, "grant", at.id, *limits) as screen:
        shown = await screen.until("[y/N]")
        assert "+two" in shown.partition("from now on this passes without you")[0]
        assert ("other limits: agent-intercom-ctl grant" in shown) is (not limits)
        screen.type("n\n")
        assert "nothing was changed" in await screen.rest()
