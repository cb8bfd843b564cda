"""Lines, sessions, forms, help, files and output: what stands in them, and that Slack takes them all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import frozen
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from intercom.model.card import Card, CardKind, Notice
from intercom.model.checkpoint import CheckpointLine
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionMode, SessionStatus
from intercom.operators.slack.draw import files, help, lines, modals, output, sessions
from intercom.operators.slack.draw.output import Run
from tests.operators.slack.draw import given
from tests.operators.slack.draw.valid import Plain, Words, check_message, check_view, shown

PLAIN = Plain()


def test_notices_come_in_one_message_with_the_icon_of_their_level() -> None:
    told = [Notice(f"line {n}", level, given.NOW) for n, level in enumerate(("info", "success", "warning", "error"))]
    drawn = lines.notices(told, PLAIN).content()
    check_message(drawn)
    assert shown(drawn).split("\n") == ["ℹ️ line 0", "✅ line 1", "⚠️ line 2", "❌ line 3"]
    assert drawn["text"] == "ℹ️ line 0 (and 3 more)"


def test_more_notices_than_fit_are_counted() -> None:
    drawn = lines.notices([Notice("x", "info", given.NOW)] * 60, PLAIN).content()
    check_message(drawn)
    assert "and 20 more lines" in shown(drawn)


def test_a_masked_notice_says_so() -> None:
    drawn = lines.notices([Notice("the key is hunter2", "info", given.NOW)], Words("hunter2")).content()
    assert "hunter2" not in str(drawn)
    assert "🔒 1 secret masked (test secret)" in shown(drawn)


@settings(max_examples=60, deadline=None)
@for_any(st.lists(given.texts, min_size=1, max_size=50), st.sampled_from(["info", "error", "?"]))
def test_slack_takes_any_notices(texts: list[str], level: str) -> None:
    check_message(lines.notices([Notice(text, level, given.NOW) for text in texts], PLAIN).content())


def test_the_last_word_says_that_nothing_is_lost() -> None:
    assert "2 requests stay open" in shown(lines.shutdown(2).content())
    check_message(lines.shutdown(0).content())


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
    drawn = sessions.thread_root(session(prompt="Make it fast", progress_snapshot=steps), PLAIN).content()
    check_message(drawn)
    text = shown(drawn)
    for words in ("🟢 Claude Code in shop", "active", "hybrid", "`7c9e6679`", "Make it fast", "✅ parse", "🔄 test"):
        assert words in text
    ended = session(status=SessionStatus.TERMINATED, terminated_at=given.NOW)
    assert "⚫ Claude Code in shop" in shown(sessions.thread_root(ended, PLAIN).content())


def test_a_thread_s_first_message_does_not_change_with_every_call() -> None:
    before, after = session(), session(last_tool="ping", updated_at=given.NOW + timedelta(hours=1))
    assert sessions.thread_root(before, PLAIN) == sessions.thread_root(after, PLAIN)


@settings(max_examples=60, deadline=None)
@for_any(st.lists(given.sessions, max_size=30))
def test_slack_takes_any_sessions(given_sessions: list[Session]) -> None:
    check_message(sessions.session_list(given_sessions, PLAIN, now=given.NOW).content())
    for one in given_sessions[:3]:
        check_message(sessions.thread_root(one, PLAIN).content())


@settings(max_examples=40, deadline=None)
@for_any(st.lists(st.tuples(given.words, st.none() | given.texts), max_size=40))
def test_slack_takes_any_checkpoints(entries: list[tuple[str, str | None]]) -> None:
    made = [CheckpointLine(name, name, "/x", given.NOW, label, 1) for name, label in entries]
    check_message(sessions.checkpoint_list(made, PLAIN).content())


def test_lists_say_what_they_leave_out() -> None:
    text = shown(sessions.session_list([session()] * 25, PLAIN, now=given.NOW).content())
    assert "25 sessions" in text
    assert "5 not shown" in text
    assert "No session" in shown(sessions.session_list([], PLAIN, now=given.NOW).content())
    assert "No checkpoint" in shown(sessions.checkpoint_list([], PLAIN).content())


def test_forms_ask_for_words_and_remember_what_for() -> None:
    card = given.card(kind=CardKind.PROMPT, body="Go on with <all> of it?")
    view = modals.refine(card, '{"card": 1}', PLAIN)
    check_view(view)
    assert (view["callback_id"], view["private_metadata"]) == ("intercom_refine", '{"card": 1}')
    assert view["blocks"][-1]["element"]["initial_value"] == "Go on with <all> of it?"
    assert modals.refine(card, "", PLAIN, "the task")["blocks"][-1]["element"]["initial_value"] == "the task"
    for form, name in ((modals.reject, "reject"), (modals.nudge, "nudge"), (modals.resume, "resume")):
        view = form(card, "m", PLAIN)
        check_view(view)
        assert view["callback_id"] == f"intercom_{name}"
        assert view["blocks"][-1]["optional"] is (name == "reject")


@settings(max_examples=60, deadline=None)
@for_any(given.cards, given.words.map(lambda text: text[:3_000]))
def test_slack_takes_any_form(card: Card, metadata: str) -> None:
    for form in (modals.reject, modals.refine, modals.nudge, modals.resume):
        view = form(card, "m", PLAIN)
        check_view(view)


@frozen
class Command:
    name: str
    args: str
    summary: str
    category: str
    example: str


COMMANDS = [
    Command("list-files", "[path]", "Shows a directory", "files", "/intercom list-files src"),
    Command("sessions", "", "Lists the sessions", "session", "/intercom sessions"),
    Command("status", "", "git status", "custom", "/intercom status"),
]


def test_help_is_made_from_the_commands() -> None:
    drawn = help.command_help(COMMANDS).content()
    check_message(drawn)
    text = shown(drawn)
    for words in ("`/intercom list-files [path]` Shows a directory", "*📁 Files*", "Categories: `files`, `session`"):
        assert words in text
    one = shown(help.command_help(COMMANDS, "files").content())
    assert "for example `/intercom list-files src`" in one
    assert "sessions`" not in one.split("Categories")[0]
    assert "sessions`" in shown(help.command_help(COMMANDS, "nothing").content())


@settings(max_examples=40, deadline=None)
@for_any(st.lists(st.builds(Command, given.words, given.words, given.texts, given.words, given.texts), max_size=60))
def test_slack_takes_any_help(commands: list[Command]) -> None:
    check_message(help.command_help(commands).content())
    if commands:
        check_message(help.command_help(commands, commands[0].category).content())


def test_a_small_tree_stands_in_the_message_and_a_large_one_beside_it() -> None:
    drawn, beside = files.tree("src", "src/\n├── a.py\n└── b.py", 1, 2, 3, PLAIN)
    check_message(drawn.content())
    assert beside is None
    assert "├── a.py" in shown(drawn.content())
    assert "1 directory, 2 files · depth 3" in shown(drawn.content())
    drawn, beside = files.tree("src", "\n".join(f"├── {n}" for n in range(41)), 1, 41, 3, PLAIN)
    check_message(drawn.content())
    assert beside is not None
    assert beside.snippet_type == "text"
    assert "The tree (41 lines) follows as a file" in shown(drawn.content())


def test_a_small_file_stands_in_the_message_and_a_large_one_beside_it() -> None:
    drawn, beside = files.file("src/a.py", "x = 1\n", 6, given.NOW, PLAIN)
    check_message(drawn.content())
    assert beside is None
    for words in ("📄 src/a.py", "```\nx = 1\n```", "1 line", "6 bytes", "modified <!date"):
        assert words in shown(drawn.content())
    drawn, beside = files.file("src/a.py", "x = 1\n" * 31, 186, given.NOW, PLAIN)
    assert beside is not None
    assert (beside.filename, beside.snippet_type, beside.text) == ("a.py", "python", "x = 1\n" * 31)
    drawn, beside = files.file("a.rs", "y" * 2_049, 2_049, given.NOW, PLAIN)
    assert beside is not None
    assert beside.snippet_type == "rust"
    drawn, beside = files.file("a.py", "x\n", 600, given.NOW, PLAIN, lines=(10, 10), total=300)
    assert "lines 10–10 of 300 lines" in shown(drawn.content())


@settings(max_examples=60, deadline=None)
@for_any(given.texts, given.texts)
def test_slack_takes_any_file_and_tree(path: str, text: str) -> None:
    for drawn, beside in (
        files.file(path, text, len(text), given.NOW, PLAIN),
        files.tree(path, text, 1, 1, 3, PLAIN),
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
    drawn = output.output("git status", "clean\n", run, PLAIN, code_=code, seconds=1.25).content()
    check_message(drawn)
    assert words in shown(drawn)
    assert "1.2 s" in shown(drawn)
    assert "clean" in shown(drawn)


def test_of_long_output_the_end_is_shown() -> None:
    text = "".join(f"line {n}\n" for n in range(1_000))
    drawn = output.output("run", text, Run.DONE, PLAIN, truncated=True).content()
    check_message(drawn)
    assert "line 999" in shown(drawn)
    assert "line 1\n" not in shown(drawn)
    assert "only the end is shown" in shown(drawn)
    assert "the output limit was reached" in shown(drawn)
    beside = output.output_file("run", text, PLAIN)
    assert beside is not None
    assert beside.text == text
    assert "(no output)" in shown(output.output("run", "", Run.DONE, PLAIN).content())
    assert output.output_file("run", "x", PLAIN) is None


@settings(max_examples=60, deadline=None)
@for_any(given.texts, given.texts, st.sampled_from(Run))
def test_slack_takes_any_output(command: str, text: str, run: Run) -> None:
    check_message(output.output(command, text, run, PLAIN, seconds=0.0).content())
    beside = output.output_file(command, text, PLAIN)
    if beside is not None:
        assert beside.title.strip()
        assert beside.text.strip()
