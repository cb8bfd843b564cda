"""In Slack: a person approves a part of a proposal, or requests changes by line, with the real server behind it."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from intercom.model.amendment import Change, Comment
from intercom.model.card import CardState
from intercom.model.decision import Decision
from intercom.sessions.messages import Answered
from intercom.sessions.request_kinds import ClearanceAnswer
from intercom.sessions.tools.check_clearance import CheckClearance
from tests.operators.slack.live.embedded import Room, quick, room
from tests.sessions.test_amendments import DIFF, NEW, OLD, ONE_AND_THREE
from tests.slack_standin import ALICE, BOB, buttons, text_of
from tests.support.virtual_server import Pending

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@frozen
class Scene:
    """A proposal with three hunks that waits, and its message in Slack."""

    server: Room
    asking: Pending[Answered[ClearanceAnswer]]
    message: dict[str, Any]
    file: Path
    id: str

    async def press(self, action: str, user: str = ALICE) -> None:
        await self.server.slack.tap(user, self.message["ts"], action).answer()

    async def submit(self, user: str = ALICE, **values: str) -> None:
        [view] = self.server.slack.views(user)
        await self.server.slack.submit(user, view, values).answer()

    def view(self, user: str = ALICE) -> dict[str, Any]:
        [view] = self.server.slack.views(user)
        return view


def fields(view: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a form with the text of a file."""
    return [block for block in view["blocks"] if block["block_id"].startswith("text")]


@asynccontextmanager
async def scene(tmp_path: Path, diff: str = DIFF, old: str = OLD) -> AsyncIterator[Scene]:
    async with room(tmp_path) as server:
        (tmp_path / "agent").mkdir()
        file = tmp_path / "agent" / "a.txt"
        file.write_text(old)
        asking = server.ask(CheckClearance("Shout", diff, "a.txt"))
        message = await server.card("Shout")
        [card] = await server.app.service.pending()
        yield Scene(server, asking, message, file, card.id)


@quick
async def test_the_hunks_that_are_ticked_are_shown_approved_and_written(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        assert {"approve_accept", "approve_reject", "approve_hunks", "approve_changes"} <= set(buttons(at.message))
        await at.press("approve_hunks")
        first = at.view()
        assert "+LINE 15" in text_of(first)
        assert [each["value"] for each in first["blocks"][-1]["element"]["initial_options"]] == ["1", "2", "3"]
        await at.submit(hunks0="1,3")
        seen = text_of(at.view())
        assert "+LINE 28" in seen
        assert "+LINE 15" not in seen.partition("The agent is told:")[0]
        assert 'a.txt: not approved: @@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")' in seen
        assert (await at.server.app.service.card(at.id)).state is CardState.PENDING
        await at.submit(note="15 is quoted")
        assert at.server.slack.views(ALICE) == []
        answer = (await at.asking()).answer
        assert (answer.status, answer.note) == ("approved", "15 is quoted")
        assert answer.changes == (Change("a.txt", ('@@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")',)),)
        await at.server.agent().check_diff(at.id)
        assert at.file.read_text() == ONE_AND_THREE
        shown = text_of(await at.server.shows(at.message["ts"], "*Applied*"))
        assert "approved with changes" in shown
        assert "\n+LINE 15" not in shown


@quick
async def test_a_long_diff_that_was_amended_is_not_said_to_be_the_file_of_the_proposal(tmp_path: Path) -> None:
    old = "".join(f"{n}\n" for n in range(200))
    new = "".join(f"{n}{'!' if n < 30 or n == 100 else ''}\n" for n in range(200))
    diff = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/a.txt", "b/a.txt"))
    async with scene(tmp_path, diff, old) as at:
        assert "is in the thread of this message as a file" in text_of(at.message)
        await at.press("approve_hunks")
        await at.submit(hunks0="1")
        await at.submit()
        await at.asking()
        shown = text_of(await at.server.shows(at.message["ts"], "approved with changes"))
        assert "the file in the thread is what the agent proposed" in shown
        assert "is in the thread of this message as a file" not in shown


@quick
async def test_a_file_that_is_edited_is_shown_approved_and_written(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_edit")
        [field] = fields(at.view())
        assert field["element"]["initial_value"] + "\n" == NEW
        await at.submit(**{field["block_id"]: NEW.replace("LINE 15", "Line 15").removesuffix("\n")})
        seen = text_of(at.view())
        assert "+Line 15" in seen
        assert "a.txt: edited by the person" in seen
        assert (await at.server.app.service.card(at.id)).state is CardState.PENDING
        await at.submit(note="15 is a name")
        answer = (await at.asking()).answer
        assert (answer.status, answer.note) == ("approved", "15 is a name")
        assert answer.changes == (Change("a.txt", edited=True),)
        await at.server.agent().check_diff(at.id)
        assert at.file.read_text() == NEW.replace("LINE 15", "Line 15")
        assert "approved with changes" in text_of(await at.server.shows(at.message["ts"], "*Applied*"))


@quick
async def test_an_edit_that_slack_delivers_again_is_approved_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_edit")
        [field] = fields(at.view())
        await at.submit(**{field["block_id"]: "one"})
        sent = at.server.slack.submit(ALICE, at.view(), {})
        assert await sent.answer() is None
        await at.asking()
        await at.server.slack.redeliver(sent)
        await at.server.slack.wait_for(lambda: sent.acks[1:])
        assert not sent.acks[1].get("payload")
        assert (await at.server.app.service.card(at.id)).state is not CardState.PENDING


@quick
async def test_what_is_typed_after_an_edit_was_shown_is_shown_before_it_is_approved(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_edit")
        [field] = fields(at.view())
        await at.submit(**{field["block_id"]: "one\n"})
        await at.submit(**{field["block_id"]: "two"}, note="shorter")
        assert "+two" in text_of(at.view())
        assert "+one" not in text_of(at.view())
        assert (await at.server.app.service.card(at.id)).state is CardState.PENDING
        await at.submit()
        await at.asking()
        await at.server.agent().check_diff(at.id)
        assert at.file.read_text() == "two\n"


@quick
async def test_an_edit_that_changes_nothing_and_one_of_a_file_that_changed_approve_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_edit")
        [field] = fields(at.view())
        await at.submit()
        assert "this is what the agent proposed" in str(at.server.slack.view_errors(ALICE))
        await at.submit(**{field["block_id"]: "one"})
        at.file.write_text(f"another\n{OLD}")
        await at.submit()
        assert at.view()["title"]["text"] == "Nothing was changed"
        assert (await at.server.app.service.card(at.id)).state is CardState.PENDING


@quick
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"token = '{SECRET}'", "it contains a secret"),
        ("windows\r", "it contains characters that Slack may change"),
        ("a \u00a0 space", "it contains characters that Slack may change"),
        ("ship it \U0001f680", "it contains characters that Slack may change"),
        ("ship it :rocket:", "it contains characters that Slack may change"),
        ("long " * 600, "longer than 3,000 characters"),
    ],
    ids=["secret", "carriage-return", "hard-space", "emoji", "name-of-an-emoji", "long"],
)
async def test_a_file_that_slack_must_not_see_or_would_change_is_edited_elsewhere(
    tmp_path: Path, line: str, why: str
) -> None:
    async with scene(tmp_path, DIFF.replace("+LINE 2\n", f"+{line}\n")) as at:
        await at.press("approve_edit")
        told = (await at.server.slack.told(ALICE, "nothing of this can be edited"))["text"]
        assert why in told
        assert f"agent-intercom-ctl approve {at.id[:8]} --edit" in told
        assert at.server.slack.views(ALICE) == []


@quick
async def test_all_hunks_are_a_plain_approval_and_none_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_hunks")
        await at.submit(hunks0="")
        assert "choose at least one" in str(at.server.slack.view_errors(ALICE))
        await at.submit()
        assert "All of it will be approved" in text_of(at.view())
        await at.submit()
        answer = (await at.asking()).answer
        assert (answer.status, answer.changes, answer.note) == ("approved", (), None)


@quick
async def test_comments_by_line_reject_and_a_wrong_place_is_said_in_the_form(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_changes")
        assert "+LINE 15" in text_of(at.view())
        await at.submit(comments="a.txt:9: why?")
        assert "line 9 of a.txt is not in the diff" in str(at.server.slack.view_errors(ALICE))
        await at.submit(comments="somewhere: why?")
        assert "begins with no file of this proposal" in str(at.server.slack.view_errors(ALICE))
        await at.submit(comments="a.txt:2: why?\n  really", note="see the guide")
        answer = (await at.asking()).answer
        assert (answer.status, answer.comments) == ("rejected", (Comment("a.txt", "why?\nreally", 2),))
        assert "see the guide" in answer.reason
        assert "changes requested" in text_of(await at.server.shows(at.message["ts"], "Rejected by alice"))


@quick
async def test_a_file_that_changes_between_the_two_forms_stops_the_approval(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.press("approve_hunks")
        await at.submit(hunks0="1")
        at.file.write_text(f"another\n{OLD}")
        await at.submit()
        assert at.view()["title"]["text"] == "Nothing was changed"
        assert "changed since the proposal was made" in text_of(at.view())
        assert (await at.server.app.service.card(at.id)).state is CardState.PENDING


@quick
async def test_the_form_of_a_person_who_comes_second_says_so(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        for user in (ALICE, BOB):
            await at.press("approve_hunks", user)
            await at.submit(user, hunks0="1")
        await at.submit(BOB)
        await at.submit(ALICE)
        assert at.view()["title"]["text"] == "Too late"
        assert "bob" in text_of(at.view())
        [change] = (await at.asking()).answer.changes
        assert len(change.left_out) == 2


@quick
async def test_a_plain_approval_before_is_not_taken_for_the_part(tmp_path: Path) -> None:
    """The same person approves all of it first, and then a part: the second is too late, and is told so."""
    async with scene(tmp_path) as at:
        await at.press("approve_hunks")
        await at.submit(hunks0="1")
        await at.press("approve_accept")
        await at.submit()
        assert at.view()["title"]["text"] == "Too late"
        assert (await at.asking()).answer.changes == ()


@quick
@pytest.mark.parametrize("action", ["approve_hunks", "approve_edit", "approve_changes"])
async def test_a_button_of_a_card_that_is_decided_opens_nothing(tmp_path: Path, action: str) -> None:
    async with scene(tmp_path) as at:
        await at.server.decide(at.id, Decision.REJECT)
        await at.press(action)
        assert "nothing was changed" in (await at.server.slack.told(ALICE, "rejected"))["text"]
        assert at.server.slack.views(ALICE) == []


@quick
async def test_secrets_are_masked_in_every_form_and_written_as_they_are(tmp_path: Path) -> None:
    secret = NEW.replace("LINE 2\n", f"token = '{SECRET}'\n")
    diff = DIFF.replace("+LINE 2\n", f"+token = '{SECRET}'\n")
    async with scene(tmp_path, diff) as at:
        await at.press("approve_changes")
        assert SECRET not in str(at.view())
        at.server.slack.close_view(ALICE, at.view())
        await at.press("approve_hunks")
        assert SECRET not in str(at.view())
        assert "masked" in text_of(at.view())
        await at.submit(hunks0="1,3")
        assert SECRET not in str(at.view())
        await at.submit()
        await at.asking()
        await at.server.agent().check_diff(at.id)
        assert at.file.read_text() == secret.replace("LINE 15", "line 15")


@quick
async def test_hunks_in_groups_of_ten_and_too_many_of_them(tmp_path: Path) -> None:
    old = "".join(f"{n}\n" for n in range(1000))
    for count in (25, 81):
        new = "".join(f"{n}{'!' if n % 12 == 0 and n < count * 12 else ''}\n" for n in range(1000))
        diff = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/a.txt", "b/a.txt"))
        async with scene(tmp_path / str(count), diff, old) as at:
            await at.press("approve_hunks")
            if count > 80:
                assert "more than a form can show" in (await at.server.slack.told(ALICE, "81 hunks"))["text"]
                continue
            await at.submit(hunks0="", hunks1="11,12", hunks2="25")
            await at.submit()
            await at.asking()
            await at.server.agent().check_diff(at.id)
            kept = {"120!", "132!", "288!"}
            assert {line for line in at.file.read_text().split("\n") if "!" in line} == kept
