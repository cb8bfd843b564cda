"""help, sessions, session-resume, session-end, list-files and show-file, as a person meets them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.card import CardKind
from intercom.model.config import SlackSettings
from intercom.model.errors import InvalidState
from intercom.model.session import Session, SessionStatus
from intercom.operators.slack.commands.runner import ACK_SECONDS
from intercom.operators.slack.web_api import SlackRefused, Unreachable
from intercom.store import idempotency
from intercom.store.outbox import RowKind
from intercom.store.store_and_reader import Store
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL
from tests.operators.slack.server import ELSEWHERE, command_server, texts
from tests.operators.stand_in_service import START, StandInService, card, session

ALIASES = {"status": "git status", "deploy": "./deploy.sh --key hush-123", "help": "echo no"}


async def test_help_tells_of_every_command_and_of_the_aliases_without_their_secrets(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands=ALIASES) as server:
        for text in ("help", "", "HELP"):
            told = await server.told(text)
            for usage in (
                "/intercom sessions",
                "/intercom session-resume [session] [instruction]",
                "/intercom session-end [session]",
                "/intercom list-files [path] [--depth N]",
                "/intercom show-file &lt;path&gt; [--lines A:B]",
                "/intercom status",
                "git status",
                "./deploy.sh --key [masked: test secret]",
            ):
                assert usage in told
            assert "hush-123" not in told
            assert "echo no" not in told


async def test_what_waits_is_listed_with_the_risk_and_no_secrets(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        assert "Nothing waits for you." in str(await server.type("pending", act="slack/1"))
        asked = card("3f0c6f5e-7b1d-4c55-9d7a-1a2b3c4d5e6f", title="Use *hush-123*\n`now`")
        server.service.cards = {each.id: each for each in (asked, card("b", CardKind.PROMPT, title="Go on?"))}
        told = str(await server.type("pending", act="slack/2"))
        assert "🟡 `3f0c6f5e` approval · since" in told
        assert "hush-123" not in told
        assert "`Go on?`" in told
        assert "2 requests at" in told


async def test_what_waits_in_one_session_is_listed_alone(tmp_path: Path) -> None:
    cards = [card(id, CardKind.PROMPT, title=f"Of {id}?", session_id=f"s-{id}") for id in "ab"]
    async with command_server(tmp_path, *cards, session("s-a"), session("s-b")) as server:
        told = await server.told("pending s-a")
        assert "`Of a?`" in told
        assert "Of b?" not in told
        assert "no session has an id" in await server.told("pending nobody", act="slack/2")


async def test_help_of_a_category_gives_examples_and_of_a_command_all_about_it(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        for name in ("files", "Files"):
            told = await server.told(f"help {name}")
            assert "/intercom show-file src/main.py --lines 10:50" in told
            assert "session-end" not in told
        assert await server.told("help session") == await server.told("help sessions", act="slack/2")
        told = await server.told("help session-end")
        assert "Only the person who started a session" in told
        assert "the beginning of its id" in told
        answer = await server.type("help show-file")
        assert answer is not None
        assert "&lt;path&gt;" in answer["text"]
        assert "session-restore" in await server.told("help checkpoint")
        told = await server.told("help nonsense")
        assert "the categories are" in told
        assert "checkpoint" in told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seshions", "did you mean /intercom sessions"),
        ("show", "/intercom show-file"),
        ("session-strt fix it", "did you mean /intercom session-start"),
        ("frobnicate", "/intercom help lists the commands"),
        ("Status", "did you mean /intercom status, /intercom task or"),
        ("show-file", "name a file: /intercom show-file"),
        ("show-file a b", "2 arguments"),
        ("show-file 'a", "not closed"),
        ("show-file a --lines x", "A:B"),
        ("show-file ../x", "leads outside the workspace"),
        ("show-file nope", "there is no file 'nope'"),
        ("list-files --depth 11", "from 1 to 10"),
        ("list-files --depth two", "from 1 to 10"),
        ("list-files /etc", "is absolute"),
        ("list-files --session nope", "no session has an id that begins with 'nope'"),
        ("session-end a b", "2 arguments"),
        ("session-end s-1 --session s-1", "there is no option --session; there are none here"),
        ("session-end nope", "no session has an id"),
        ("session-start fix it --workspce /x", "there is no option --workspce; there is --workspace DIR"),
        ("steer s-1 go on --force", "there is no option --force"),
        ("session-resume 1a2b3c4d5 go on", "no session has an id"),
        ("session-resume", "no session of yours is paused or stands by"),
    ],
)
@pytest.mark.real_time
async def test_what_was_typed_wrong_is_answered_to_the_person_alone(tmp_path: Path, text: str, says: str) -> None:
    here = session("s-1", workspace_root=str(tmp_path / "work"))
    async with command_server(tmp_path, here, commands={"status": "git status"}) as server:
        answer = await server.type(text)
        assert answer is not None
        assert answer["response_type"] == "ephemeral"
        assert says in await server.told(text, act="slack/again")
        assert await server.find() is None
        assert server.service.acts == []


async def test_sessions_lists_them(tmp_path: Path) -> None:
    live, over = session("s-live", client_name="codex"), session("s-over", status=SessionStatus.TERMINATED)
    async with command_server(tmp_path, live, over) as server:
        told = await server.told("sessions")
        assert "s-live" in told
        assert "`Codex`" in told
        assert "s-over" not in told


async def test_resume_answers_who_waits_with_the_instruction_word_for_word(tmp_path: Path) -> None:
    service = StandInService(
        card("w-1", CardKind.STANDBY, session_id="aaaa1111", created_at=START),
        card("w-2", CardKind.STANDBY, session_id="bbbb2222", created_at=START + timedelta(seconds=5)),
        sessions=(session("aaaa1111"), session("bbbb2222")),
    )
    async with command_server(tmp_path, service=service) as server:
        assert "resumed session bbbb2222 in /home/me/project" in await server.told("session-resume", act="slack/1")
        # With words it is not guessed whose they are.
        assert "2 sessions wait; give the id" in await server.told("session-resume go", act="slack/0")
        told = await server.told("session-resume -- bbbb don’t --stop &amp; go", act="slack/2")
        assert "with your instruction" in told
        await server.type("session-resume aaaa run\nthe tests", act="slack/3")
        await server.type("session-resume --session aaaa1111 hi", act="slack/4")
        assert service.acts == [
            ("resume", "bbbb2222", None, "resume"),
            ("resume", "bbbb2222", "don’t --stop & go", "resume"),
            ("resume", "aaaa1111", "run\nthe tests", "resume"),
            ("resume", "aaaa1111", "hi", "resume"),
        ]


async def test_a_redelivered_command_is_answered_as_before_and_not_done_again(tmp_path: Path) -> None:
    async with command_server(tmp_path, session("s-1"), session("s-2")) as server:
        first = await server.type("session-end s-1")
        assert "ended session s-1" in texts(first)
        assert await server.type("session-end s-1") == first
        assert "is over already" in await server.told("session-end s-1", act="slack/other")
        assert [act[0] for act in server.service.acts] == ["end"]
    service = StandInService(card("w-1", CardKind.STANDBY), sessions=(session("s-1"),))
    async with command_server(tmp_path, service=service) as server:
        first = await server.type("session-resume go", act="slack/9")
        service.cards.clear()
        assert await server.type("session-resume go", act="slack/9") == first
        assert len(service.acts) == 1


@pytest.mark.parametrize("command", ["session-end", "session-pause", "session-checkpoint"])
async def test_of_several_sessions_none_is_guessed(tmp_path: Path, command: str) -> None:
    """`session-end` without an id ended one of several."""
    older, newer = session("s-old"), session("s-new", updated_at=START + timedelta(minutes=1))
    async with command_server(tmp_path, newer, older) as server:
        told = await server.told(command)
        assert "give the id of the one you mean: s-new in /home/me/project, s-old in /home/me/project" in told
        assert server.service.acts == []


async def test_clear_ends_the_only_session_and_records_who_did_it(tmp_path: Path) -> None:
    async with command_server(tmp_path, session("s-new"), session("s-bert", owner_user_id=BERT)) as server:
        # The name that the specification gives it.
        assert "ended session s-new" in await server.told("session-clear")
        assert server.service.acts[0][:4] == ("end", "s-new", f"anna ({ANNA})", "slack")
        kinds = await server.store(lambda db: db.execute("select kind, who, summary from audit").fetchall())
        assert kinds == [("command", f"anna ({ANNA})", "/intercom session-end")]


async def test_only_the_owner_ends_or_resumes_a_session_that_somebody_started(tmp_path: Path) -> None:
    owned = session("s-owned", owner_user_id=BERT, status=SessionStatus.PAUSED)
    async with command_server(tmp_path, owned) as server:
        assert f"belongs to {BERT}" in await server.told("session-end s-owned", act="slack/1")
        assert f"belongs to {BERT}" in await server.told("session-resume s-owned", act="slack/2")
        assert "no session of yours" in await server.told("session-end", act="slack/3")
        assert server.service.acts == []
        assert "ended" in await server.told("session-end s-owned", by=BERT, act="slack/4")


async def test_what_the_service_refuses_is_told(tmp_path: Path) -> None:
    service = StandInService(sessions=(session("s-1", status=SessionStatus.PAUSED),))

    async def refuse(*_args: Any) -> Session:
        raise InvalidState("nothing to resume")

    service.resume = refuse  # type: ignore[method-assign, assignment]
    async with command_server(tmp_path, service=service) as server:
        assert "nothing to resume" in await server.told("session-resume")
        assert "nothing to resume" in await server.told("session-resume")


async def test_a_slow_command_is_acknowledged_in_time_and_answered_later(tmp_path: Path) -> None:
    service = StandInService(sessions=(session("s-1"),))

    async def slow(*_args: Any) -> Session:
        await trio.sleep(10)
        return session("s-1")

    service.end = slow  # type: ignore[method-assign, assignment]
    async with command_server(tmp_path, service=service) as server:
        server.slack.faults["respond"] = [Unreachable("gone", maybe_done=True), Unreachable("gone", maybe_done=False)]
        began = trio.current_time()
        assert await server.type("session-end") is None
        assert trio.current_time() - began == pytest.approx(ACK_SECONDS, abs=0.1)
        await trio.sleep(20)
        assert [answer["response_type"] for answer in server.slack.responses] == ["ephemeral"]
        assert "ended session s-1" in server.slack.responses[0]["text"]
        server.slack.faults["respond"] = [SlackRefused("the response_url", "expired_url")]
        await server.type("session-end", act="slack/2")
        await trio.sleep(20)
        assert len(server.slack.responses) == 1


async def test_what_changes_something_is_not_acknowledged_before_it_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = Store.transact

    async def slow(store: Store, work: Any) -> Any:
        await trio.sleep(ACK_SECONDS)
        return await transact(store, work)

    async with command_server(tmp_path, session("s-1")) as server:
        monkeypatch.setattr(Store, "transact", slow)
        await server.type("session-end")
        monkeypatch.undo()
        assert await server.store(partial(idempotency.known, act_id="slack/1.2.3")) is not None


@pytest.mark.real_time
async def test_a_tree_is_shown_in_the_channel_with_who_asked(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        (tmp_path / "work" / "src").mkdir()
        (tmp_path / "work" / "src" / "a.py").write_text("")
        assert await server.type("list-files —depth 2") is None
        shown = await server.shown()
        assert "└── src/\n    └── a.py" in shown
        assert "1 directory, 1 file" in shown
        assert "anna: /intercom list-files" in shown
        found = await server.find()
        assert found is not None
        assert (found.channel, found.kind) == (CHANNEL, RowKind.MESSAGE)
        assert server.recorded["slack/outbox"]


@pytest.mark.real_time
async def test_a_long_tree_and_a_long_file_go_beside_the_message(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        for i in range(60):
            (tmp_path / "work" / f"f{i:02}").write_text("")
        (tmp_path / "work" / "long.py").write_text("password = 'hush-1'\n" * 50)
        await server.type("list-files", act="slack/1")
        await server.type("show-file long.py", act="slack/2")
        for act, snippet, holds in (("1", "text", "├── f59"), ("2", "python", "password = '[masked: ")):
            file = await server.find(f"command/slack/{act}/file")
            assert file is not None
            assert (file.kind, file.thread) == (RowKind.FILE, f"command/slack/{act}")
            assert file.content["snippet_type"] == snippet
            assert holds in file.content["text"]
            assert "hush" not in file.content["text"]
        assert "masked" in await server.shown("command/slack/2")


@pytest.mark.real_time
async def test_a_file_is_shown_with_its_lines_as_linked_by_slack(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        (tmp_path / "work" / "README.md").write_text("one\ntwo\nthree\n")
        assert await server.type("show-file <http://README.md|README.md> --lines 2:3") is None
        shown = await server.shown()
        assert "two\nthree" in shown
        assert "one" not in shown.replace("None", "")
        assert "3 lines" in shown


@pytest.mark.real_time
async def test_files_are_those_of_the_session_named_or_of_the_channels_session(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in-{name}").write_text("")
    mine = session("s-mine", workspace_root=str(tmp_path / "mine"))
    other = session("s-other", workspace_root=str(tmp_path / "other"), channel_id=ELSEWHERE)
    async with command_server(tmp_path, mine, other) as server:
        await server.type("list-files", act="slack/1")
        assert "in-mine" in await server.shown("command/slack/1")
        await server.type("list-files", act="slack/2", channel=ELSEWHERE)
        assert "in-other" in await server.shown("command/slack/2")
        await server.type("list-files --session s-other", act="slack/3")
        assert "in-other" in await server.shown("command/slack/3")


@pytest.mark.real_time
async def test_what_is_asked_in_a_strange_channel_is_answered_in_our_own(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        told = await server.told("list-files", channel="C0STRANGE")
        assert f"the answer is in <#{CHANNEL}>" in told
        found = await server.find()
        assert found is not None
        assert found.channel == CHANNEL
    async with command_server(tmp_path, slack=SlackSettings()) as server:
        assert "not one of intercom's" in await server.told("list-files", channel="C0STRANGE", act="slack/2")


async def test_a_mistake_of_ours_is_logged_and_told_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with command_server(tmp_path, session("s-1")) as server:
        server.service.crash = ZeroDivisionError("inner secret")
        told = await server.told("sessions")
        assert "server's log" in told
        assert "inner secret" not in told
        assert "inner secret" in caplog.text
        server.service.crash = None
        assert "s-1" in await server.told("sessions", act="slack/2")
