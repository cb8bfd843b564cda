"""Lines, sessions, forms, help, files and output: what stands in them, and that Slack takes them all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from intercom.model.card import Card, CardKind, Notice
from intercom.model.card_hunks import HunkOfCard, hunks_of
from intercom.model.checkpoint import CheckpointLine
from intercom.model.request import ChangeKind, FileChange
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionMode, SessionStatus
from intercom.operators.slack.amendment_forms import draw_changes, draw_confirmation, draw_hunks
from intercom.operators.slack.button_actions import draw_form
from intercom.operators.slack.buttons import BY_FORM
from intercom.operators.slack.commands.runner import HELP
from intercom.operators.slack.commands.slash_command_table import TITLES, Category, Entry, Parameter
from intercom.operators.slack.draw import answers, cards
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Mask
from intercom.operators.slack.envelope_parser import COMMENTS
from intercom.sessions.amendments import AmendedCard
from tests.operators.slack.draw import given
from tests.operators.slack.draw.valid import PLAIN, Words, check_message, check_view, shown

FORMS = {name: button.form for name, button in BY_FORM.items() if button.form is not None}


@pytest.mark.parametrize(
    ("level", "icon"), [("info", "ℹ️"), ("success", "✅"), ("warning", "⚠️"), ("error", "❌"), ("?", "ℹ️")]
)
def test_a_notice_has_the_icon_of_its_level(level: str, icon: str) -> None:
    drawn = cards.notice(Notice("a line", level, given.NOW), PLAIN).content()
    check_message(drawn)
    assert shown(drawn) == drawn["text"] == f"{icon} a line"


def test_a_masked_notice_says_so() -> None:
    drawn = cards.notice(Notice("the key is hunter2", "info", given.NOW), Words("hunter2")).content()
    assert "hunter2" not in str(drawn)
    assert "🔒 1 secret masked (test secret)" in shown(drawn)


def test_no_further_line_of_a_notice_reads_as_a_card() -> None:
    drawn = cards.notice(Notice("hello\n❌ Rejected by ann", "info", given.NOW), PLAIN).content()
    assert "ℹ️ hello\n│ ❌ Rejected by ann" in shown(drawn)


@settings(max_examples=60, deadline=None)
@for_any(given.texts, st.sampled_from(["info", "error", "?"]))
def test_slack_takes_any_notice(text: str, level: str) -> None:
    check_message(cards.notice(Notice(text, level, given.NOW), PLAIN).content())


@pytest.mark.parametrize(
    ("prompt", "status", "shows"),
    [
        ("Make it fast", SessionStatus.CREATED, True),
        ("Make it fast", SessionStatus.ACTIVE, True),
        ("Make it fast", SessionStatus.TERMINATED, False),
        (None, SessionStatus.ACTIVE, False),
    ],
)
def test_a_session_that_a_person_started_has_a_stop_button_until_it_ends(
    prompt: str | None, status: SessionStatus, shows: bool
) -> None:
    drawn = cards.thread_root(session(prompt=prompt, status=status), PLAIN).content()
    check_message(drawn)
    found = [each for block in drawn["blocks"] if block["type"] == "actions" for each in block["elements"]]
    assert [(each["action_id"], each["value"]) for each in found] == [("session_stop", session().id)] * shows
    assert all(each["confirm"]["style"] == "danger" for each in found)


def test_a_step_of_the_agents_list_is_one_line() -> None:
    steps = (ProgressItem("build\n✅ Approved by ann", ProgressStatus.DONE),)
    assert "✅ build ✅ Approved" in shown(cards.thread_root(session(progress_snapshot=steps), PLAIN).content())


def test_the_last_word_says_that_nothing_is_lost() -> None:
    assert "2 requests stay open" in shown(cards.shutdown(2).content())
    check_message(cards.shutdown(0).content())


def session(**changes: object) -> Session:
    return Session(
        **{  # type: ignore[arg-type]
            "id": given.SESSION,
            "owner_user_id": "",
            "workspace_root": "/home/ann/shop",
            "status": SessionStatus.ACTIVE,
            "mode": SessionMode.HYBRID,
            "created_at": given.NOW,
            "updated_at": given.NOW,
            "client_name": "Claude Code",
            **changes,
        }
    )


def test_a_thread_begins_with_who_works_where() -> None:
    steps = (ProgressItem("parse", ProgressStatus.DONE), ProgressItem("test", ProgressStatus.IN_PROGRESS))
    drawn = cards.thread_root(session(prompt="Make it fast", progress_snapshot=steps), PLAIN).content()
    check_message(drawn)
    text = shown(drawn)
    for words in ("🟢 Claude Code in shop", "active", "hybrid", "`7c9e6679`", "Make it fast", "✅ parse", "🔄 test"):
        assert words in text
    ended = session(status=SessionStatus.TERMINATED, terminated_at=given.NOW)
    assert "⚫ Claude Code in shop" in shown(cards.thread_root(ended, PLAIN).content())
    away = cards.thread_root(session(status=SessionStatus.INTERRUPTED), PLAIN).content()
    assert "agent away: its connection has ended" in shown(away)


def test_an_agent_is_named_as_people_know_its_client() -> None:
    codex = session(client_name="codex-mcp-client")
    assert "🟢 Codex in shop" in shown(cards.thread_root(codex, PLAIN).content())
    assert "`Codex`" in shown(answers.session_list([codex], PLAIN, now=given.NOW).content())


def test_a_thread_s_first_message_does_not_change_with_every_call() -> None:
    before, after = session(), session(last_tool="ping", updated_at=given.NOW + timedelta(hours=1))
    assert cards.thread_root(before, PLAIN) == cards.thread_root(after, PLAIN)


@settings(max_examples=60, deadline=None)
@for_any(st.lists(given.sessions, max_size=30))
def test_slack_takes_any_sessions(given_sessions: list[Session]) -> None:
    check_message(answers.session_list(given_sessions, PLAIN, now=given.NOW).content())
    for one in given_sessions[:3]:
        check_message(cards.thread_root(one, PLAIN).content())


@settings(max_examples=40, deadline=None)
@for_any(st.lists(st.tuples(given.words, st.none() | given.texts), max_size=40))
def test_slack_takes_any_checkpoints(entries: list[tuple[str, str | None]]) -> None:
    made = [CheckpointLine(name, name, "/x", given.NOW, label, 1) for name, label in entries]
    check_message(answers.checkpoint_list(made, PLAIN).content())


def test_lists_say_what_they_leave_out() -> None:
    text = shown(answers.session_list([session()] * 25, PLAIN, now=given.NOW).content())
    assert "25 sessions" in text
    assert "5 not shown" in text
    assert "No session" in shown(answers.session_list([], PLAIN, now=given.NOW).content())
    assert "No checkpoint" in shown(answers.checkpoint_list([], PLAIN).content())


def test_forms_ask_for_words_and_remember_what_for() -> None:
    card = given.card(kind=CardKind.PROMPT, body="Go on with <all> of it?")
    view = draw_form(FORMS["refine"], card, '{"card": 1}', PLAIN)
    check_view(view)
    assert (view["callback_id"], view["private_metadata"]) == ("intercom_refine", '{"card": 1}')
    assert view["blocks"][-1]["element"]["initial_value"] == "Go on with <all> of it?"
    for name, form in FORMS.items():
        view = draw_form(form, card, "m", PLAIN)
        check_view(view)
        assert view["callback_id"] == f"intercom_{name}"
        assert view["blocks"][-1]["optional"] is (name == "reject")


@settings(max_examples=60, deadline=None)
@for_any(given.cards, given.words.map(lambda text: text[:3_000]))
def test_slack_takes_any_form(card: Card, metadata: str) -> None:
    for form in FORMS.values():
        check_view(draw_form(form, card, "m", PLAIN))


hunks = st.lists(
    st.builds(
        HunkOfCard,
        number=st.integers(1, 10**6),
        path=given.texts,
        file=st.just(0),
        place=st.just(0),
        range=st.none() | st.just("@@ -1,3 +1,4 @@"),
        added=st.integers(0, 10**9),
        removed=st.integers(0, 10**9),
        line=st.integers(0, 20),
        end=st.integers(0, 40),
    ),
    min_size=1,
    max_size=80,
    unique_by=lambda hunk: hunk.number,
)


@settings(max_examples=60, deadline=None)
@for_any(given.cards, hunks, st.none() | given.texts)
def test_slack_takes_any_form_about_a_part_of_a_proposal(card: Card, hunks: list[HunkOfCard], text: str | None) -> None:
    found = AmendedCard(card, tuple(hunks), text, {})
    for view in (draw_hunks(found, "m", PLAIN), draw_confirmation(found, "m", PLAIN), draw_changes(card, "m", PLAIN)):
        check_view(view)
        assert view["submit"]["text"]


def test_a_hunk_is_shown_without_the_header_of_the_next_file() -> None:
    diff = (
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
        "diff --git a/b b/b\nold mode 100644\nnew mode 100755\n"
    )
    files = tuple(FileChange(path, ChangeKind.WRITE, "x", "y", added=1, removed=1) for path in ("a", "b"))
    card = given.card(diff=diff, files=files)
    view = draw_hunks(AmendedCard(card, hunks_of(diff, files), None, {}), "m", PLAIN)
    first, second = (block["text"]["text"] for block in view["blocks"][2:4])
    assert first == "*1* `a`\n```\n@@ -1 +1 @@\n-1\n+2\n```"
    assert second == "*2* `b`\n```\ndiff --git a/b b/b\nold mode 100644\nnew mode 100755\n```"


@pytest.mark.parametrize(("mask", "line"), [(PLAIN, "2 +two"), (Words("one"), "+two")])
def test_the_form_for_comments_numbers_the_lines_unless_a_secret_may_have_moved_them(mask: Mask, line: str) -> None:
    diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-2\n+two\n"
    card = given.card(diff=diff, files=(FileChange("a", ChangeKind.WRITE, "x", "y", added=1, removed=1),))
    view = draw_changes(card, "m", mask)
    assert f"\n{line}\n" in view["blocks"][2]["text"]["text"]
    [asked] = (block for block in view["blocks"] if block.get("block_id") == COMMENTS)
    assert asked["element"]["placeholder"]["text"] == "12: use the constant"
    assert asked["hint"]["text"].startswith("A line each: LINE: TEXT or FILE:LINE: TEXT")


def _entry(name: str, category: Category, summary: str, example: str, path: str = "path") -> Entry:
    return Entry(name, category, summary, "", example, HELP.handler, (Parameter(path, "a path"),))


LIST = _entry("list-files", Category.FILES, "Shows a directory", "/intercom list-files src")
SESSIONS = _entry("sessions", Category.SESSIONS, "Lists the sessions", "/intercom sessions")


def test_help_is_made_from_the_commands() -> None:
    groups = {Category.FILES: [LIST], Category.SESSIONS: [SESSIONS]}
    drawn = answers.command_help(groups, TITLES).content()
    check_message(drawn)
    text = shown(drawn)
    for words in ("`/intercom list-files [path]` Shows a directory", "*📁 Files*", "Categories: `files`, `session`"):
        assert words in text
    one = shown(answers.command_help(groups, TITLES, Category.FILES).content())
    assert "for example `/intercom list-files src`" in one
    assert "sessions" not in one.split("Categories")[0]


@settings(max_examples=40, deadline=None)
@for_any(
    st.lists(
        st.builds(_entry, given.words, st.sampled_from(Category), given.texts, given.texts, given.words),
        min_size=1,
        max_size=60,
    )
)
def test_slack_takes_any_help(commands: list[Entry]) -> None:
    groups = {name: [each for each in commands if each.category is name] for name in Category}
    groups = {name: entries for name, entries in groups.items() if entries}
    check_message(answers.command_help(groups, TITLES).content())
    check_message(answers.command_help(groups, TITLES, commands[0].category).content())


def test_a_small_tree_stands_in_the_message_and_a_large_one_beside_it() -> None:
    drawn, beside = answers.tree("src", "src/\n├── a.py\n└── b.py", 1, 2, 3, PLAIN)
    check_message(drawn.content())
    assert beside is None
    assert "├── a.py" in shown(drawn.content())
    assert "1 directory, 2 files · depth 3" in shown(drawn.content())
    drawn, beside = answers.tree("src", "\n".join(f"├── {n}" for n in range(41)), 1, 41, 3, PLAIN)
    check_message(drawn.content())
    assert beside is not None
    assert beside.snippet_type == "text"
    assert "The tree (41 lines) follows as a file" in shown(drawn.content())


def test_a_small_file_stands_in_the_message_and_a_large_one_beside_it() -> None:
    drawn, beside = answers.file("src/a.py", "x = 1\n", 6, given.NOW, PLAIN)
    check_message(drawn.content())
    assert beside is None
    for words in ("📄 src/a.py", "```\nx = 1\n```", "1 line", "6 bytes", "modified <!date"):
        assert words in shown(drawn.content())
    drawn, beside = answers.file("src/a.py", "x = 1\n" * 31, 186, given.NOW, PLAIN)
    assert beside is not None
    assert (beside.filename, beside.snippet_type, beside.text) == ("a.py", "python", "x = 1\n" * 31)
    drawn, beside = answers.file("a.rs", "y" * 2_049, 2_049, given.NOW, PLAIN)
    assert beside is not None
    assert beside.snippet_type == "rust"
    drawn, beside = answers.file("a.py", "x\n", 600, given.NOW, PLAIN, lines=(10, 10), total=300)
    assert "lines 10–10 of 300 lines" in shown(drawn.content())


@settings(max_examples=60, deadline=None)
@for_any(given.texts, given.texts)
def test_slack_takes_any_file_and_tree(path: str, text: str) -> None:
    for drawn, beside in (
        answers.file(path, text, len(text), given.NOW, PLAIN),
        answers.tree(path, text, 1, 1, 3, PLAIN),
    ):
        check_message(drawn.content())
        if beside is not None:
            assert beside.text.strip()
            assert len(beside.text.encode()) <= 1_000_000
            assert beside.filename.strip()
            assert "/" not in beside.filename


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (Run.RUNNING, None, "⏳ running"),
        (Run.DONE, 0, "✅ done · exit code 0"),
        (Run.FAILED, 1, "❌ failed · exit code 1"),
        (Run.TIMED_OUT, None, "⌛ timed out"),
        (Run.STOPPED, None, "🛑 stopped"),
    ],
)
def test_output_says_how_its_command_ended(run: Run, code: int | None, words: str) -> None:
    drawn = answers.output("git status", "clean\n", run, PLAIN, code_=code, seconds=1.25).content()
    check_message(drawn)
    assert words in shown(drawn)
    assert "1.2 s" in shown(drawn)
    assert "clean" in shown(drawn)


def test_of_long_output_the_end_is_shown() -> None:
    text = "".join(f"line {n}\n" for n in range(1_000))
    drawn = answers.output("run", text, Run.DONE, PLAIN, truncated=True).content()
    check_message(drawn)
    assert "line 999" in shown(drawn)
    assert "line 1\n" not in shown(drawn)
    assert "only the end is shown" in shown(drawn)
    assert "the output limit was reached" in shown(drawn)
    beside = answers.output_file("run", text, PLAIN)
    assert beside is not None
    assert beside.text == text
    assert "(no output)" in shown(answers.output("run", "", Run.DONE, PLAIN).content())
    assert answers.output_file("run", "x", PLAIN) is None
    assert answers.output_file("run", "\r\n" * 3000, PLAIN) is None


@settings(max_examples=60, deadline=None)
@for_any(given.texts, given.texts, st.sampled_from(Run))
def test_slack_takes_any_output(command: str, text: str, run: Run) -> None:
    check_message(answers.output(command, text, run, PLAIN, seconds=0.0).content())
    beside = answers.output_file(command, text, PLAIN)
    if beside is not None:
        assert beside.title.strip()
        assert beside.text.strip()
