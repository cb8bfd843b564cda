"""ctl approves a part, an edited text or several requests, and requests changes: a real server, agent and terminal."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.cli.ctl_amend import _drafts
from tests.cli.test_ctl_signed import AGENT, PIN, Scene, ctl, json_lines, make_key, running, scene, typing
from tests.cli.test_ctl_signed import CTL as CTL_AT_HOME
from tests.sessions.test_amendments import DIFF, NEW, OLD, ONE_AND_THREE
from tests.support.person_shell import the_person
from tests.support.server_process import CTL, Home, begin, call
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.real_time


@pytest.mark.home("")
async def test_a_person_approves_two_of_three_hunks(home: Home) -> None:
    root = home.workspace()
    (root / "a.txt").write_text(OLD)
    proposal = {"title": "Shout", "diff": DIFF, "file_path": "a.txt", "risk_level": "low"}
    with home.serving():
        async with home.agent(root) as agent, trio.open_nursery() as nursery:
            asked = begin(nursery, agent, "check_clearance", **proposal)
            async with home.person(root) as person:
                id = (await person.card(kind="approval"))["request_id"]
            code, seen = await said(home, "approve", id, "--hunks", "7")
            assert (code, seen["error"]) == (1, "there is no hunk 7; the card has hunks 1 to 3")
            code, seen = await said(home, "approve", id[:8], "--hunks", "1,3", "--note", "15 is quoted")
            assert (code, seen["status"]) == (0, "approved")
            answer = await asked()
            assert (answer["status"], answer["note"]) == ("approved", "15 is quoted")
            assert answer["changes"] == [{"path": "a.txt", "left_out": ['@@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")']}]
            assert (await call(agent, "check_diff", request_id=id))["status"] == "applied"
            assert (root / "a.txt").read_text() == ONE_AND_THREE
            code, shown = await said(home, "show", id)
            assert (shown["note"], shown["decided"]["decision"]) == ("approved with changes", "approve")


@pytest.mark.home("")
async def test_a_person_comments_on_lines_and_decides_several_at_once(home: Home) -> None:
    root = home.workspace()
    (root / "a.txt").write_text(OLD)
    with home.serving():
        async with home.agent(root) as agent, trio.open_nursery() as nursery:
            pending = {}
            for n in range(3):
                diff = DIFF.replace("+LINE 2\n", f"+LINE {n}\n")
                asked = begin(nursery, agent, "check_clearance", title=f"t{n}", diff=diff, file_path="a.txt")
                async with home.person(root) as person:
                    pending[(await person.card(kind="approval", title=f"t{n}"))["request_id"]] = asked
            first, second, third = pending
            code, refused = await said(home, "changes", first, "--comment", "a.txt:9", "x")
            assert (code, refused["error_code"]) == (1, "invalid_arguments")
            assert refused["error"].endswith("to comment on the file as a whole, write --comment a.txt TEXT")
            code, done = await said(home, "changes", first, "--comment", "a.txt:2", "why?", "--comment", "a.txt", "hm")
            assert (code, done["status"]) == (0, "rejected")
            answer = await pending[first]()
            assert answer["comments"] == [{"path": "a.txt", "text": "why?", "line": 2}, {"path": "a.txt", "text": "hm"}]
            # One of them is closed, so nothing is decided.
            code, refused = await said(home, "reject", second, first)
            assert (code, "nothing was decided" in refused["error"]) == (1, True)
            code, done = await said(home, "reject", second, third, "--reason", "no")
            assert (code, [each["status"] for each in done]) == (0, ["rejected", "rejected"])
            assert {(await pending[id]())["reason"] for id in (second, third)} == {"no"}


async def said(home: Home, *words: str) -> tuple[int, Any]:
    done = await the_person().run_async([*CTL, *words], home.environ)
    return done.returncode, json.loads(done.stdout)


def editor(tmp_path: Path, program: str) -> str:
    script = tmp_path / "editor"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    return str(script)


async def test_an_edited_text_is_shown_signed_and_written(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        env = {**at.env, "EDITOR": editor(tmp_path, "printf 'three\\n' >> \"$1\"")}
        async with on_terminal([*CTL_AT_HOME, "approve", at.id, "--edit"], env) as screen:
            shown = await screen.until("[y/N] ")
            assert "+two" in shown
            assert "+three" in shown
            assert "notes.txt: edited by the person" in shown
            assert f"approve your edit of {at.id[:8]}" in shown
            screen.type("y\n")
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            assert f"approved your edit of {at.id}" in await screen.rest()
        told = await anext(at.agent)
        assert told["answer"]["changes"] == [{"path": "notes.txt", "edited": True}]
        assert at.file.read_text() == "one\ntwo\nthree\n"
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"]["signature"]["text"] == entry["decided"]["text"]
        async with on_terminal([*CTL_AT_HOME, "log"], at.env) as screen:
            assert "approve with changes" in await screen.rest()


async def test_chosen_hunks_are_shown_signed_with_the_pin_and_written(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path, OLD, DIFF.replace("a.txt", "notes.txt")) as at:
        async with typing(at, "show", at.id) as screen:
            shown = await screen.rest()
            assert "hunk 2" in shown
            assert f"approve {at.id[:8]} --hunks 1,3\x1b[0m\r\n" in shown
            assert f"approve {at.id[:8]} --edit\x1b[0m\r\n" in shown
        async with typing(at, "approve", at.id, "--hunks", "1,3", "--note", "15 is quoted") as screen:
            shown = await screen.until("[y/N] ")
            assert "+LINE 28" in shown
            assert "+LINE 15" not in shown.partition("the agent is told:")[0]
            assert 'notes.txt: not approved: @@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")' in shown
            assert "note: 15 is quoted" in shown
            assert f"approve this part of {at.id[:8]}" in shown
            screen.type("y\n")
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            assert f"approved a part of {at.id}" in await screen.rest()
        told = await anext(at.agent)
        left_out = ['@@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")']
        assert told["answer"]["changes"] == [{"path": "notes.txt", "left_out": left_out}]
        assert told["answer"]["note"] == "15 is quoted"
        assert at.file.read_text() == ONE_AND_THREE
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"]["signature"]["text"] == entry["decided"]["text"]
        assert "15 is quoted" in entry["decided"]["text"]


@contextlib.asynccontextmanager
async def second_proposal(at: Scene, risk: str) -> AsyncIterator[str]:
    """Another agent proposes a second change of the same file; the id of its request."""
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    program = AGENT.replace('"low"', f'"{risk}"').replace("Add a line", "Add another")
    diff = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1,2 @@\n one\n+second\n"
    async with (
        running([*CTL_AT_HOME, "--json", "watch"], at.env, stdout=subprocess.PIPE) as watch,
        running([sys.executable, "-c", program, str(at.file.parent), diff], at.env, **piped),
    ):
        async for event in json_lines(watch):
            if event["event"] == "card" and event["data"]["title"] == "Add another":
                yield str(event["data"]["request_id"])
                return


@pytest.mark.parametrize("risk", ["high", "critical"])
async def test_several_cards_are_all_shown_before_the_pin_that_signs_them(tmp_path: Path, risk: str) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at, second_proposal(at, risk) as other:
        async with typing(at, "approve", at.id, other) as screen:
            shown = await screen.until("[y/N] ")
            assert "+two" in shown
            assert "+second" in shown
            screen.type("y\n")
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            said = ""
            if risk == "critical":
                # It wants a PIN of its own.
                said = await screen.until("PIN of key")
                screen.type(f"{PIN}\n")
            said += await screen.rest()
        assert f"approved {at.id}" in said
        assert f"approved {other}" in said
        assert said.count("PIN of key") == (risk == "critical")


async def test_what_was_not_drawn_is_shown_before_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path, OLD, DIFF.replace("a.txt", "notes.txt")) as at:
        async with typing(at, "--json", "approve", at.id, "--hunks", "1") as screen:
            shown = await screen.until("PIN of key")
            assert "+LINE 2" in shown
            assert "+LINE 15" not in shown.partition("the agent is told:")[0]
            assert 'notes.txt: not approved: @@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")' in shown
            screen.type("\x03")
            await screen.rest()
        # Comments on a card do not count as a look at it.
        async with typing(at, "changes", at.id, "--comment", "notes.txt:2", "x") as screen:
            await screen.until("PIN of key")
            screen.type("\x03")
            await screen.rest()
        async with typing(at, "approve", at.id) as screen:
            assert "+LINE 15" in await screen.until("PIN of key")


async def test_comments_are_signed_with_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        async with typing(at, "changes", at.id, "--comment", "notes.txt:2", "why?") as screen:
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            assert "changes requested" in await screen.rest()
        told = await anext(at.agent)
        assert told["answer"]["comments"] == [{"path": "notes.txt", "text": "why?", "line": 2}]
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"]["signature"]["text"] == entry["decided"]["text"]


@pytest.mark.parametrize(
    ("program", "sentence"), [("true", "nothing was changed in the editor"), ("exit 3", "ended with 3")]
)
async def test_an_editor_that_changes_nothing_or_fails_decides_nothing(
    tmp_path: Path, program: str, sentence: str
) -> None:
    async with scene(tmp_path) as at:
        env = {**at.env, "EDITOR": editor(tmp_path, program)}
        async with on_terminal([*CTL_AT_HOME, "approve", at.id, "--edit"], env) as screen:
            assert sentence in await screen.rest()
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["status"] == "pending"


async def test_what_a_person_wrote_is_kept_if_it_is_not_approved(tmp_path: Path) -> None:
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    async with scene(tmp_path) as at:
        env = {**at.env, "EDITOR": editor(tmp_path, "printf 'three\\n' >> \"$1\""), "TMPDIR": str(drafts)}
        for answer in ("n", "y"):
            async with on_terminal([*CTL_AT_HOME, "approve", at.id, "--edit"], env) as screen:
                await screen.until("[y/N] ")
                screen.type(f"{answer}\n")
                said = await screen.rest()
            assert ("what you wrote is kept in" in said) is (answer == "n")
            [kept] = drafts.glob("*/1-notes.txt")
            assert kept.read_text() == "one\ntwo\nthree\n"
            assert kept.parent.stat().st_mode & 0o077 == 0


async def test_comments_are_written_below_the_numbered_diff_in_an_editor(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        program = editor(tmp_path, "grep -q '^# 2 +two' \"$1\" && echo 'notes.txt:2: why?' >> \"$1\"")
        async with on_terminal([*CTL_AT_HOME, "changes", at.id], at.env | {"EDITOR": program}) as screen:
            asked = await screen.until("[y/N] ")
            assert f"request changes to {at.id[:8]}" in asked
            assert "notes.txt:2: why?" in asked
            screen.type("y\n")
            assert "changes requested" in await screen.rest()
        async with on_terminal([*CTL_AT_HOME, "log"], at.env) as screen:
            assert "reject with 1 comment" in await screen.rest()
        told = await anext(at.agent)
        assert told["answer"]["comments"] == [{"path": "notes.txt", "text": "why?", "line": 2}]


@pytest.mark.parametrize("wrong", ["notes.txt:77: x", "other.txt:2: x"])
async def test_comments_that_do_not_fit_the_card_come_back_in_the_editor_before_the_pin(
    tmp_path: Path, wrong: str
) -> None:
    make_key(tmp_path)
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    # The second time, it finds what was written the first time, and mends it.
    mend = f"grep -q '^{wrong}' \"$1\" && sed -i 's/^{wrong}/notes.txt:2: why?/' \"$1\" || echo '{wrong}' >> \"$1\""
    async with scene(tmp_path) as at:
        env = at.env | {"TMPDIR": str(drafts), "EDITOR": editor(tmp_path, mend)}
        for answers in (("n",), ("y", "n"), ("y", "y")):
            async with on_terminal([*CTL_AT_HOME, "changes", at.id], env) as screen:
                said = await screen.until("[y/N] ")
                assert "open the editor again" in said
                assert "is not in the diff" in said or "begins with no file" in said
                for answer in answers[:-1]:
                    screen.type(f"{answer}\n")
                    assert "request these changes" in await screen.until("[y/N] ")
                screen.type(f"{answers[-1]}\n")
                if answers == ("y", "y"):
                    said = await screen.until("PIN of key")
                    assert "reject" not in said
                    assert f"to request changes to {at.id[:8]}" in said + await screen.until(": ")
                    screen.type(f"{PIN}\n")
                    assert "changes requested" in await screen.rest()
                else:
                    said = await screen.rest()
                    assert "nothing was decided" in said
                    assert "what you wrote is kept in" in said
        told = await anext(at.agent)
        assert told["answer"]["comments"] == [{"path": "notes.txt", "text": "why?", "line": 2}]
        assert len([*drafts.glob("*/1-comments.txt")]) == 2


def test_a_draft_that_was_not_sent_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = []
    for what, is_left in (("a", True), ("b", False), ("a", True), ("a", False), ("a", False)):
        with contextlib.suppress(KeyboardInterrupt), _drafts({"c.txt": "new"}, (what,)) as files:
            opened.append(files["c.txt"].read_text())
            files["c.txt"].write_text(opened[-1] + "+")
            if is_left:
                raise KeyboardInterrupt
    assert opened == ["new", "new", "new+", "new++", "new"]
    assert [*tmp_path.iterdir()] == []


async def test_a_text_that_is_too_large_for_a_request_is_refused_with_its_size(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        grow = "yes 'a line of text' | head -n 80000 >> \"$1\""
        env = {**at.env, "EDITOR": editor(tmp_path, grow), "TMPDIR": str(tmp_path)}
        async with on_terminal([*CTL_AT_HOME, "approve", at.id, "--edit"], env) as screen:
            assert "is the most" in await screen.rest()
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["status"] == "pending"


async def test_all_that_wait_in_a_session_are_named_first_and_asked_about(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        code, refused = await ctl(at.env, "approve", "--all")
        assert (code, "needs a terminal" in refused["error"]) == (1, True)
        for words in (("approve",), ("approve", at.id, "--all")):
            assert (await ctl(at.env, *words))[0] == 2
        async with typing(at, "approve", "--all", "--session", "0000") as screen:
            assert "0000" in await screen.rest()
        async with typing(at, "reject", "--all", "--session", at.card["session_id"][:8], "--reason", "no") as screen:
            shown = await screen.until("[y/N] ")
            assert "notes.txt" in shown
            screen.type("y\n")
            assert f"rejected {at.id}" in await screen.rest()
        assert (await anext(at.agent))["answer"]["reason"] == "no"
        async with typing(at, "approve", "--all") as screen:
            assert "no proposal waits" in await screen.rest()


async def test_a_person_who_says_no_to_what_is_shown_decides_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        async with typing(at, "approve", at.id, "--hunks", "1") as screen:
            await screen.until("[y/N] ")
            screen.type("\n")
            assert "nothing was decided" in await screen.rest()
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["status"] == "pending"
        assert NEW != at.file.read_text() == "one\n"
