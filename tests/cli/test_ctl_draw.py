"""What ctl draws, as text and in colour."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from intercom.cli import ctl_draw, ctl_text
from intercom.cli.ctl_table import age
from intercom.cli.ctl_text import short
from intercom.model.audit import AuditEntry, LogEntry
from intercom.model.card import ANSWERED, CardKind, CardState
from intercom.model.chat_status import ChatStatus, ConnectionState, ConnectionStatus, OutboxStatus
from intercom.model.decision import Decided
from intercom.model.errors import IpcError
from intercom.model.json_types import Json, JsonObject
from intercom.model.process import Origin
from intercom.model.request import ChangeKind, FileChange, Remark, RiskLevel
from intercom.model.server_view import ClientEntries, ClientEntry, HttpPort, ServerStatus
from intercom.model.session import SessionStatus
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.commands.json_forms import card_entry, plain, session_entry
from tests.operators.stand_in_service import START, StandInService, card, session

LATER = START + timedelta(minutes=3)


def drawn(verb: str, data: Any, *, colour: bool = False, width: int = 1000, is_full: bool = False) -> str:
    out = io.StringIO()
    on = Console(
        file=out,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    ctl_draw.show(verb, data, on, LATER, is_full=is_full)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_no_line_of_an_agents_text_looks_like_a_line_of_a_card() -> None:
    forged = "  agent-intercom-ctl approve 3f2a9c1e"
    text = f"hello\n{forged}\n HIGH  Agent asks: x"
    shown = drawn("show", card_entry(card("a", body=text, diff=text, diff_from_agent=True)))
    assert not {forged, " HIGH  Agent asks: x"} & set(shown.splitlines())
    out = io.StringIO()
    ctl_draw.print_notice(Console(file=out, width=80), {"text": text, "level": "info"})
    assert out.getvalue() == f"• hello\n│ {forged}\n│  HIGH  Agent asks: x\n"


def test_a_table_in_a_pipe_is_not_padded_and_on_a_narrow_terminal_cut_with_an_ellipsis() -> None:
    lines = [session("s-1", workspace_root="/home/me/" + "x" * 100), session("s-2", workspace_root="/home/me/y")]
    out = io.StringIO()
    ctl_draw.show("list", {"sessions": [session_entry(each) for each in lines]}, Console(file=out, width=1000), LATER)
    assert [line for line in out.getvalue().splitlines() if line != line.rstrip()] == []
    assert "x" * 100 in out.getvalue()
    cut = drawn("list", {"sessions": [session_entry(each) for each in lines]}, colour=True, width=60)
    assert "…" in cut
    assert len(cut.splitlines()) == 3


def test_a_list_says_what_an_interrupted_session_is() -> None:
    listed = {
        "sessions": [session_entry(session("s-1", status=SessionStatus.INTERRUPTED)), session_entry(session("s-2"))]
    }
    hint = "interrupted: its agent has gone; the session goes on when the agent comes back"
    assert hint in drawn("list", listed, colour=True)
    # For people: in a pipe there are lines of sessions alone.
    assert len(drawn("list", listed).splitlines()) == 3
    assert hint not in drawn("list", {"sessions": listed["sessions"][1:]}, colour=True)


def test_a_list_names_an_agent_as_people_know_its_client() -> None:
    text = drawn("list", {"sessions": [session_entry(session("s-1", client_name="codex-mcp-client"))]})
    assert " Codex " in text
    assert "codex-mcp-client" not in text


def log_of(entry: AuditEntry) -> JsonObject:
    return {"entries": [plain(entry)]}


@pytest.mark.parametrize("verb", [row.name for row in COMMANDS.values() if row.draws])
@pytest.mark.parametrize("answer", [{"sessions": 1}, None, 7, [{"id": 1}]])
def test_an_answer_of_another_version_is_refused_in_a_sentence(verb: str, answer: Json) -> None:
    with pytest.raises(IpcError, match="the same version"):
        drawn(verb, answer)


@pytest.mark.parametrize("width", [60, 80, 1000])
def test_pending_is_a_line_each_unless_more_is_asked_for(width: int) -> None:
    entries = [
        card_entry(card("3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f", title="Retry the upload\n" + "x" * 60)),
        card_entry(card("9d7a1111-7b1d-4c55-9d7a-1a2b3c4d5e6f", CardKind.PROMPT, title="Go on?\x1b[2J")),
    ]
    heading, *lines = re.sub(r"\x1b\[[\d;]*m", "", drawn("pending", entries, colour=True, width=width)).splitlines()
    assert heading.split() == ["id", "risk", "kind", "title", "age", "session"]
    assert [line.split()[:3] for line in lines[:2]] == [
        ["3f2a9c1e", "HIGH", "approval"],
        ["9d7a1111", "-", "prompt"],
    ]
    assert "  Retry " in lines[0]
    assert all(line.endswith("  3 min  s-1") for line in lines[:2])
    assert "Go on?\\x1b[2J" in lines[1] or width == 60
    # The hint is for people: in a pipe there are lines of cards alone.
    assert lines[2:] == ["agent-intercom-ctl show ID shows one in full, and how to answer it"]
    assert len(drawn("pending", entries).splitlines()) == 3


def test_pending_in_full_shows_what_a_person_needs_to_answer() -> None:
    entries = [
        card_entry(card("3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f", title="Retry the upload", body="It gives up at once.")),
        card_entry(
            card("9d7a1111-7b1d-4c55-9d7a-1a2b3c4d5e6f", CardKind.PROMPT, title="Go on?", away=True, note="late")
        ),
    ]
    assert drawn("pending", entries, is_full=True) == (
        " HIGH  Agent asks: Retry the upload\n"
        "approval · 3f2a9c1e · 3 min ago · expires in 57 min · session s-1 · /home/me/project\n"
        "from the agent: It gives up at once.\n"
        "  write  src/app.py  +1 -1\n"
        "--- a/src/app.py\n"
        "+++ b/src/app.py\n"
        "@@ -1,2 +1,2 @@\n"
        "-old = 1\n"
        "+new = 2\n"
        " same = 3\n"
        "  agent-intercom-ctl approve 3f2a9c1e\n"
        "  agent-intercom-ctl reject 3f2a9c1e --reason TEXT\n"
        "\n"
        "Go on?\n"
        "prompt · 9d7a1111 · 3 min ago · session s-1 · /home/me/project\n"
        "the agent does not wait any more; your answer reaches it when it comes back\n"
        "late\n"
        "  agent-intercom-ctl answer 9d7a1111 continue | refine TEXT | stop"
    )


def test_a_decided_card_says_who_and_when_and_offers_no_answer() -> None:
    decided = Decided("v", "reject", "ana", "slack", START, "not today")
    text = drawn("show", card_entry(card("a", state=CardState.REJECTED, decided=decided)))
    assert "rejected by ana (slack) at 2026-11-21 12:00:00 UTC: not today" in text
    there = drawn("show", card_entry(card("a", state=CardState.REJECTED, decided=decided, delivered=True)))
    assert "rejected by ana (slack) at 2026-11-21 12:00:00 UTC, delivered: not today" in there
    assert "expires" not in text
    assert "agent-intercom-ctl" not in text
    longer = Decided("v", "approve", "ana", "ctl", START, "approved with changes:\n- a.txt: not approved\n\n! a remark")
    (said,) = drawn("show", card_entry(card("a", state=CardState.APPROVED, decided=longer))).split("12:00:00 UTC")[1:]
    assert said.startswith(": approved with changes:\n    - a.txt: not approved\n    ! a remark\n")


@pytest.mark.parametrize(
    ("kind", "decision", "state", "words"),
    [
        (CardKind.APPROVAL, "approve", CardState.APPROVED, "approved by root (ctl)"),
        (CardKind.APPROVAL, "approve", CardState.DELIVERED, "approved by root (ctl), delivered"),
        (CardKind.APPROVAL, "approve", CardState.APPLIED, "approved by root (ctl), applied"),
        (CardKind.APPROVAL, "approve", CardState.EXPIRED, "approved by root (ctl), expired"),
        (
            CardKind.APPROVAL,
            "approve",
            CardState.INTERRUPTED,
            "approved by root (ctl), interrupted",
        ),
        (CardKind.PROMPT, "continue", CardState.ANSWERED, "continued by root (ctl)"),
        (CardKind.PROMPT, "stop", CardState.DELIVERED, "stopped by root (ctl), delivered"),
        (CardKind.STANDBY, "resume", CardState.DELIVERED, "resumed by root (ctl), delivered"),
        (CardKind.POLICY, "accept", CardState.APPLIED, "accepted by root (ctl), applied"),
        (CardKind.RESTORE, "proceed", CardState.APPROVED, "told to proceed by root (ctl)"),
        (CardKind.RESTORE, "cancel", CardState.REJECTED, "cancelled by root (ctl)"),
        (CardKind.RESTORE, "proceed", CardState.CLOSED, "told to proceed by root (ctl), closed"),
    ],
)
def test_who_decided_did_not_do_what_came_of_it(kind: CardKind, decision: str, state: CardState, words: str) -> None:
    decided = Decided("v", decision, "root", "ctl", START)
    said = words.replace("(ctl)", "(ctl) at 2026-11-21 12:00:00 UTC")
    assert said in drawn("show", card_entry(card("a", kind, state=state, decided=decided))).splitlines()


def test_a_decision_says_where_it_came_from() -> None:
    part = AuditEntry(1, START, "decided", None, "kim", "approve", {"changes": "a.py: not approved: @@ -1,2 +1,2 @@"})
    assert ctl_draw.summary_of(part) == "approve with changes"
    origin = Origin("ctl", 12, 3456, "boot", "/dev/pts/3", 11, 3400, "/usr/bin/python3", 11, "/usr/bin/bash")
    decided = Decided("v", "approve", "root", "ctl", START, origin=origin)
    text = drawn("show", card_entry(card("a", state=CardState.APPROVED, decided=decided)))
    assert "from python3 (process 12), in /dev/pts/3, started by bash (process 11)" in text.splitlines()
    logged = drawn(
        "log", log_of(AuditEntry(1, START, "decided", None, "root", "approve", {"origin": origin.to_data()}))
    )
    assert "approve (in a terminal, /dev/pts/3)" in logged
    told = f"root used reject: {origin.describe()}"
    logged = drawn("log", log_of(AuditEntry(1, START, "security", None, "root", told, {"origin": origin.to_data()})))
    assert logged.count("process 12") == 1


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (Origin("web", 12, executable="/usr/lib/firefox"), "in the browser"),
        (Origin("slack"), "from Slack"),
        (Origin("ctl", 12, executable="/usr/bin/python3"), "from python3 (process 12), without a terminal"),
    ],
)
def test_the_log_says_in_words_where_a_person_decided(origin: Origin, words: str) -> None:
    entry = AuditEntry(1, START, "decided", None, "kim", "approve", {"origin": origin.to_data()})
    assert ctl_draw.summary_of(entry) == f"approve ({words})"


def test_what_nobody_decided_is_nobodys_act() -> None:
    by_policy = Decided("v", "approve", "policy", "policy", START, "tool:write")
    by_time = Decided("v", "continue", "timeout", "timeout", START)
    shown = drawn("show", card_entry(card("a", state=CardState.APPLIED, decided=by_policy)))
    assert "approved by the workspace's policy at 2026-11-21 12:00:00 UTC, applied: tool:write" in shown
    shown = drawn(
        "show", card_entry(card("a", state=CardState.APPLIED, decided=evolve(by_policy, by="grant", channel="grant")))
    )
    assert "approved by a grant, which a person gave in advance at 2026" in shown
    shown = drawn("show", card_entry(card("a", CardKind.PROMPT, state=CardState.EXPIRED, decided=by_time)))
    assert "expired at 2026-11-21 12:00:00 UTC: nobody answered in time, so it was continued" in shown
    by_client = Decided("v", "continue", "the agent's client", "elicitation", START)
    shown = drawn("show", card_entry(card("a", CardKind.PROMPT, state=CardState.ANSWERED, decided=by_client)))
    assert "continued by the agent's client (over the agent's own connection) at 2026-11-21" in shown
    assert "delivered\n" in drawn("show", card_entry(card("a", CardKind.STEER, state=CardState.DELIVERED))) + "\n"


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f", "3f2a9c1e"),
        ("deadbeef-7b1d-4c55-9d7a-1a2b3c4d5e6f", "deadbeef"),
        ("policy-0b82a62096ca9c54", "policy-0b82a620"),
        ("apply-3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f", "apply-3f2a9c1e"),
        ("pol-1", "pol-1"),
    ],
)
def test_what_is_shown_of_an_id_is_enough_to_tell_it_from_others(id: str, shown: str) -> None:
    assert short(id) == shown
    assert f"agent-intercom-ctl policy accept {shown}" in drawn("show", card_entry(card(id, CardKind.POLICY)))


@pytest.mark.parametrize("kind", ANSWERED)
def test_every_kind_of_card_says_how_to_answer_it(kind: CardKind) -> None:
    assert "  agent-intercom-ctl " in drawn("show", card_entry(card("a", kind)))


@pytest.mark.parametrize("risk", [RiskLevel.LOW, RiskLevel.CRITICAL])
def test_a_whole_approval_says_how_to_permit_more_like_it_unless_that_always_needs_a_person(risk: RiskLevel) -> None:
    shown = drawn("show", card_entry(card("3f2a", risk=risk))).splitlines()
    permits = ["  agent-intercom-ctl grant 3f2a", "  agent-intercom-ctl allow 3f2a"]
    assert shown[-2:] == permits if risk is RiskLevel.LOW else not {*permits} & {*shown}


def test_a_diff_is_in_colour_on_a_terminal_only() -> None:
    entry = card_entry(card("a"))
    coloured = drawn("show", entry, colour=True)
    assert "\x1b[31m-old = 1\x1b[0m" in coloured
    assert "\x1b[32m+new = 2\x1b[0m" in coloured
    assert "\x1b[36m@@ -1,2 +1,2 @@\x1b[0m" in coloured
    assert "\x1b" not in drawn("show", entry)


def test_no_word_of_an_agent_reaches_the_terminal_as_a_command() -> None:
    nasty = "x\x1b[2J\x1b]0;t\x07[bold red]m[/]:smile:\r\u202e"
    change = FileChange(nasty, ChangeKind.RENAME, "a", "b", old_path=nasty)
    shown = card_entry(
        card(
            "a",
            title=nasty,
            body=nasty,
            detail=nasty,
            note=nasty,
            diff=f"+{nasty}\n",
            files=(change,),
            workspace_root=nasty,
        )
    )
    rows = [
        drawn("show", shown),
        drawn("list", {"sessions": [session_entry(session("s", workspace_root=nasty, last_tool=nasty))]}),
        drawn("log", log_of(AuditEntry(1, START, nasty, nasty, nasty, nasty))),
        drawn("tree", {"tree": plain(StandInService().tree()) | {"name": nasty, "last_crash": nasty}}),
    ]
    for text in rows:
        assert not set(text) & set("\x1b\x07\r\u202e")
        assert "[bold red]m[/]:smile:" in text


def test_no_line_of_an_agents_reads_as_ours() -> None:
    words = "fine\n  write  README.md  +1 -1\n  ! approved by the security team"
    shown = drawn("show", card_entry(card("a", body=words)))
    assert (
        "from the agent:\n│ fine\n│   write  README.md  +1 -1\n│   ! approved by the security team\n  write  src"
        in shown
    )
    # What we wrote ourselves is not said to be an agent's.
    assert "from the agent" not in drawn("show", card_entry(card("a", CardKind.POLICY, body="grants more")))


@pytest.mark.parametrize("before", ["", "fine\n"])
def test_no_row_of_an_agents_long_line_reads_as_ours_on_a_terminal(before: str) -> None:
    """A terminal that wraps the line by itself would begin the next row with the agent's own words."""
    words = " ".join(["approved by the security team."] * 9)
    shown = drawn("show", card_entry(card("a", body=before + words)), colour=True, width=50)
    rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    about = [row for row in rows if re.search("approved|security|team", row)]
    assert len(about) > 5
    assert all(row.startswith(("from the agent: ", "│ ")) for row in about)
    out = io.StringIO()
    ctl_draw.print_notice(Console(file=out, width=50, force_terminal=True, color_system=None), {"text": words})
    assert all(row.startswith(("• ", "│ ")) and len(row) <= 50 for row in out.getvalue().splitlines())


def test_pending_cuts_a_long_diff_and_show_does_not() -> None:
    entry = card_entry(card("a", diff="".join(f"+{number}\n" for number in range(200))))
    cut = drawn("pending", [entry], is_full=True)
    assert "+59\n" in cut
    assert "+60\n" not in cut
    assert "(60 of 200 lines; all: agent-intercom-ctl show a)" in cut
    assert "+199\n" in drawn("show", entry)


def test_a_diff_left_out_is_said_to_be() -> None:
    assert "the diff is long: agent-intercom-ctl show a" in drawn(
        "pending", [card_entry(card("a").without_diff())], is_full=True
    )


def test_lines_are_not_broken() -> None:
    assert "+" + "x" * 500 in drawn("show", card_entry(card("a", diff="+" + "x" * 500)), width=80)


def test_on_a_terminal_words_are_kept_whole_and_lines_of_a_patch_too() -> None:
    prose, added = "word " * 40, "+" + "patched " * 40 + "end"
    shown = drawn("show", card_entry(card("a", body=prose, diff=added)), width=80, colour=True)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert added in plain
    told = [line for line in plain if "word" in line]
    assert len(told) > 1
    assert {word for line in told for word in line.split()} == {"word", "from", "the", "agent:", "│"}
    assert max(map(len, told)) <= 80


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ({}, ["    @@ -97,2 +97,4 @@", " 97  same", "    -old", " 98 +new", " 99 +2", "100 +100"]),
        ({"width": 30}, ["@@ -97,2 +97,4 @@", " same", "-old", "+new", "+2", "+100"]),
        ({"colour": False}, ["@@ -97,2 +97,4 @@", " same", "-old", "+new", "+2", "+100"]),
    ],
)
def test_the_lines_to_comment_on_are_numbered_on_a_terminal_that_is_wide_enough(
    more: dict[str, Any], rows: list[str]
) -> None:
    change = FileChange("notes.txt", ChangeKind.WRITE, "aa" * 32, "bb" * 32, added=3, removed=1)
    text = "diff --git a/notes.txt b/notes.txt\n@@ -97,2 +97,4 @@\n same\n-old\n+new\n+2\n+100\n"
    entry = card_entry(card("3f2a", diff=text, files=(change,), amendable=True))
    shown = re.sub(r"\x1b\[[\d;]*m", "", drawn("show", entry, **({"colour": True} | more)))
    lines = shown.splitlines()
    at = lines.index(rows[0])
    assert lines[at : at + len(rows)] == rows
    assert "  agent-intercom-ctl changes 3f2a [--comment LINE TEXT]" in lines


def test_an_agents_own_words_are_not_drawn_like_a_diff() -> None:
    words = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n- bread\n+ butter\n"
    shown = drawn("show", card_entry(card("a", diff=words, diff_from_agent=True)), colour=True)
    assert "the agent's own text, not a diff made from the files:" in shown
    assert "\n│ --- a/x\n│ +++ b/x\n│ @@ -1 +1 @@\n│ - bread\n│ + butter\n" in shown
    # An entry that does not say whose words they are is not taken for a diff either.
    entry = card_entry(card("a", diff=words))
    del entry["diff_from_agent"]
    assert "the agent's own text" in drawn("show", entry)


def test_lines_of_a_hunk_that_look_like_headers_are_drawn_as_lines() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n @@ -1 +1 @@\ndiff --git a/z b/z\n"
    shown = drawn("show", card_entry(card("a", diff=diff)), colour=True)
    assert "\x1b[1m--- a/x\x1b[0m" in shown
    assert "\x1b[31m--- a/y\x1b[0m" in shown
    assert "\x1b[32m+++ b/y\x1b[0m" in shown
    assert "\n @@ -1 +1 @@\n" in shown
    assert "\x1b[1mdiff --git a/z b/z\x1b[0m" in shown


def test_what_a_diff_cannot_show_is_said_above_it() -> None:
    said = tuple(Remark("src/app.py", f"line {n} is long\x1b") for n in range(9))
    entry = card_entry(card("a", remarks=(Remark(None, "of the whole"), *said)))
    whole, some = drawn("show", entry), drawn("pending", [entry], is_full=True)
    assert "  ! of the whole\n  ! src/app.py: line 0 is long\\x1b\n" in whole
    assert "  ! src/app.py: line 8 is long\\x1b\n---" in whole
    assert "  ! src/app.py: line 4 is long\\x1b\n  ! and 4 more: agent-intercom-ctl show a\n---" in some


def test_list_is_a_table() -> None:
    entry = session_entry(session("3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f", last_tool="ping"))
    started = {"waiting": 2, "process": {"label": "my\ttests"}}
    lines = [entry, entry | {"client_name": "codex"} | {"process": None}, entry | {"client_name": "codex"} | started]
    assert drawn("list", {"sessions": lines}).splitlines() == [
        "session   status  waiting  label     mode   workspace         last tool  active",
        "3f2a9c1e  active  -        -         local  /home/me/project  ping       3 min",
        "3f2a9c1e  active  -        Codex     local  /home/me/project  ping       3 min",
        "3f2a9c1e  active  2        my tests  local  /home/me/project  ping       3 min",
    ]


def test_the_tree_shows_state_mailbox_restarts_and_last_crash() -> None:
    assert drawn("tree", {"tree": plain(StandInService().tree())}).splitlines() == [
        "root  Supervisor  running  up 3 min  mailbox 0  handled 0",
        "└── store  Writer  running  up 3 min  mailbox 1  handled 7  restarts 2  last crash: OSError: disk full",
    ]


def test_the_server_shows_its_files_and_why_its_port_is_closed() -> None:
    closed = HttpPort(None, "port 3000 is taken", token_required=True)
    status = ServerStatus("1.2", START, None, "/state/a.db", None, closed, has_gateway=False, has_page=True)
    assert drawn("server", plain(status)).splitlines() == [
        "version 1.2, up for 3 min",
        "configuration  none: the defaults apply",
        "database       /state/a.db",
        "rooms          none",
        "HTTP port      closed (port 3000 is taken)",
        "gateway        none",
        "page           agent-intercom-ctl web opens it",
    ]


def test_an_entry_is_shown_for_both_ways_with_what_is_missing() -> None:
    entry = ClientEntry("zed", "Zed", ".mcp.json", True, "", "", '{\n  "url": 1\n}\n', "restart\x1b it", "no path")
    assert drawn("clients", plain(ClientEntries((entry,), "http://h", "no port"))).splitlines() == [
        *("Zed (zed): in .mcp.json in the project", "", "over stdio", "", "no path", "", "", "", "over HTTP", ""),
        *("{", '  "url": 1', "}", "", "restart\\x1b it", "", "over HTTP: no port"),
    ]


def test_slack_says_whether_it_is_connected_and_what_waits() -> None:
    assert drawn("slack", {"slack": None}).startswith("this server is not in Slack")
    up = ConnectionStatus(ConnectionState.UP, START, 0, "gone before", None, 0)
    idle = OutboxStatus({"card": 0, "log": 0}, 0, None, {}, None)
    assert drawn("slack", {"slack": plain(ChatStatus("C1", up, idle))}).splitlines() == [
        "connected for 3 min, channel C1",
        "to be posted: nothing; to be updated: nothing",
    ]
    down = evolve(up, state=ConnectionState.REFUSED, last_error="the token is revoked\x1b")
    busy = OutboxStatus({"card": 2, "log": 0}, 1, START, {"C1": "invite the bot"}, None)
    assert drawn("slack", {"slack": plain(ChatStatus("C1", down, busy))}).splitlines() == [
        "not connected (refused) for 3 min, channel C1",
        "  the token is revoked\\x1b",
        "to be posted: 2 card, the oldest for 3 min; to be updated: 1",
        "  C1: invite the bot",
    ]
    assert drawn("slack", {"slack": plain(ChatStatus("C1", None, None))}).splitlines() == [
        "the connection is restarting",
        "what sends messages is restarting",
    ]


def test_the_log_says_who_did_what_and_when() -> None:
    entry = AuditEntry(1, START, "verdict", "s", "me", "approved")
    assert drawn("log", log_of(entry)).splitlines()[0].startswith("when (UTC)")
    assert drawn("log", log_of(entry)).splitlines()[1].split() == [
        "2026-11-21", "12:00:00", "verdict", "me", "s", "approved",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("summary", "title", "says"),
    [
        ("approve", "Retry the upload", "3f2a9c1e Retry the upload: approve"),
        ("Retry the upload", "Retry the upload", "3f2a9c1e Retry the upload"),
        (
            "nobody answered in time: 3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f",
            "Go on?",
            "3f2a9c1e Go on?: nobody answered in time",
        ),
        ("approve", None, "3f2a9c1e: approve"),
    ],
)
def test_the_log_names_the_request_by_its_id_and_title(summary: str, title: str | None, says: str) -> None:
    data = {"request_id": "3f2a9c1e-7b1d-4c55-9d7a-1a2b3c4d5e6f"}
    entry = LogEntry(1, START, "decided", None, "kim", summary, data, title=title)
    assert drawn("log", log_of(entry)).splitlines()[1].endswith(f"decided  kim  -        {says}")


@pytest.mark.parametrize(("rows", "is_paged"), [(8, True), (40, False)])
def test_what_is_longer_than_the_terminal_is_shown_by_the_pager(
    rows: int, is_paged: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "$LESS $1" > {tmp_path}/said\ncat > {tmp_path}/read\n')
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", f"{pager} 'an option'")
    monkeypatch.delenv("LESS", raising=False)
    monkeypatch.setattr(
        ctl_draw,
        "console",
        lambda: Console(
            width=80,
            height=rows,
            force_terminal=True,
            color_system="standard",
            markup=False,
            _environ={"TERM": "xterm"},
        ),
    )
    assert ctl_draw.show_by_page("show", card_entry(card("a", body="\x1b[2J"))) is is_paged
    shown = (tmp_path / "read").read_text() if is_paged else capsys.readouterr().out
    assert "\x1b[32m+new = 2\x1b[0m" in shown
    assert "\\x1b[2J" in shown
    assert "\x1b[2J" not in shown
    assert not is_paged or (tmp_path / "said").read_text() == "FRX an option\n"


@pytest.mark.parametrize("pager", ["cat", "no-such-pager", ""])
def test_without_a_pager_or_a_terminal_all_is_printed(
    pager: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", pager)
    if pager:
        monkeypatch.setattr(
            ctl_draw, "console", lambda: Console(width=80, height=3, force_terminal=True, _environ={"TERM": "xterm"})
        )
    assert ctl_draw.show_by_page("show", card_entry(card("a"))) is False
    assert "+new = 2" in capsys.readouterr().out


def test_on_a_narrow_terminal_a_long_summary_leaves_the_other_columns_whole() -> None:
    lines = drawn(
        "log", log_of(AuditEntry(1, START, "verdict", None, "me", "approved " * 40)), colour=True, width=80
    ).splitlines()
    assert "2026-11-21 12:00:00  verdict  me" in lines[1]
    assert sum(line.count("approved") for line in lines) == 40


@pytest.mark.parametrize(
    ("verb", "data", "says"),
    [("list", {"sessions": []}, "no sessions"), ("pending", [], "nothing waits"), ("log", {"entries": []}, "empty")],
)
def test_where_there_is_nothing_it_says_so(verb: str, data: Any, says: str) -> None:
    assert says in drawn(verb, data)


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (timedelta(seconds=-5), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(seconds=61), "1 min"),
        (timedelta(hours=2), "2 h"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=3, hours=1), "3 d 1 h"),
    ],
)
def test_an_age_is_told_in_its_largest_units(passed: timedelta, words: str) -> None:
    assert age(START, START + passed) == words


def _grants() -> JsonObject:
    covers = "approvals of changes to src/billing/**, tests/billing/** with a risk of at most low"
    of = {
        "kind": "approval",
        "tool": None,
        "patterns": [],
        "risk_level": "low",
        "created_at": "2026-11-21T12:00:00+00:00",
        "until": "2026-11-21T12:30:00+00:00",
        "granted_by": "a.rather-long-name@example.org",
        "channel": "slack",
        "request_id": "r",
        "title": "t",
    }
    one = {
        "grant_id": "3f2a9c1e-7b1d",
        "session_id": "9d7a1111-7b1d",
        "covers": covers,
        "uses": 20,
        "used": 3,
        "over": None,
    }
    return {"grants": [of | one, of | one | {"covers": "all", "over": "revoked by a.rather-long-name@example.org"}]}


@pytest.mark.parametrize("width", [80, 100, 120])
def test_ids_and_times_are_whole_in_every_table_and_long_texts_give_way(width: int) -> None:
    grants = drawn("grants", _grants(), colour=True, width=width)
    for whole in ("3f2a9c1e", "9d7a1111", "3 of 20", "2026-11-21 12:30:00"):
        assert grants.count(whole) == 2
    assert "in force" in grants or width == 80
    plain_text = re.sub(r"\x1b\[[0-9;]*m", "", grants)
    assert plain_text.split("\n")[0].split()[-1] == "state" or width == 80
    assert max(map(len, plain_text.splitlines())) <= width
    long = session("3f2a9c1e-7b1d", workspace_root="/home/me/" + "x" * 200)
    sessions = drawn("list", {"sessions": [session_entry(long)]}, colour=True, width=width)
    assert "3f2a9c1e" in sessions
    assert sessions.rstrip().endswith("min")
    entry = AuditEntry(1, START, "an_event_of_the_log", "3f2a9c1e-7b1d", "a.rather-long-name@example.org", "word " * 90)
    log = drawn("log", log_of(entry), colour=True, width=width)
    for whole in ("3f2a9c1e", "2026-11-21 12:00:00", "an_event_of_the_log"):
        assert whole in log


def test_the_log_names_the_grant_and_a_process_once() -> None:
    passed = AuditEntry(1, START, "auto_approved", None, "grant", "Greet", {"matched_rule": "grant/3f2a9c1e-7b1d"})
    assert ctl_draw.summary_of(passed) == f"Greet (by grant {short('3f2a9c1e-7b1d')})"
    passed = evolve(passed, data={"matched_rule": "write pattern"})
    assert ctl_draw.summary_of(passed) == "Greet (by write pattern)"
    origin = Origin("ctl", 12, 3456, "boot", "/dev/pts/3", 11, 3400, "/usr/bin/python3", 11, "/usr/bin/bash")
    why = "refused approve of r: process 12 is, or was started by, process 9, which is an agent's"
    refused = AuditEntry(1, START, "security", None, "intercom", why, {"origin": origin.to_data()})
    assert ctl_draw.summary_of(refused) == f"{why} (python3, in /dev/pts/3, started by bash (process 11))"


def test_the_browsers_that_get_push_messages_are_listed_with_whose_they_are() -> None:
    entry: JsonObject = {
        "push_id": "0123456789abcdef0123456789abcdef",
        "by": "kim",
        "channel": "web",
        "label": "Fire\u202efox\non Linux",
        "service": "push.example.com",
        "created_at": plain(START),
    }
    shown = drawn("push-list", {"subscriptions": [entry]})
    assert "01234567  kim  Fire<U+202E>fox on Linux  push.example.com" in shown
    assert "no browser gets push messages" in drawn("push-list", {"subscriptions": []})
    assert ctl_text.done_line({**entry, "status": "removed"}) == "removed 01234567: Fire<U+202E>fox on Linux of kim"


def test_who_may_use_the_page_and_who_is_there_is_listed() -> None:
    browser: JsonObject = {
        "browser_id": "0123456789abcdef0123456789abcdef",
        "name": "k\u202eim",
        "role": "viewer",
        "began_at": plain(START),
        "used_at": plain(START),
    }
    members: list[Json] = [{"name": "zoe@example.org", "role": "operator"}]
    entry: JsonObject = {"public_url": "https://page.example.org", "members": members, "signed_in": [browser]}
    shown = drawn("people-list", entry)
    assert "01234567  k<U+202E>im  viewer" in shown
    assert "who may come in at https://page.example.org" in shown
    assert "zoe@example.org  operator" in shown
    assert "Slack" not in shown
    answering = drawn("people-list", {**entry, "in_slack": ["U012AB3CD", "U045EF6GH"]})
    assert "who may answer in Slack: U012AB3CD, U045EF6GH" in answering
    assert "who may answer in Slack: nobody" in drawn("people-list", {**entry, "in_slack": []})
    alone = drawn("people-list", {"public_url": None, "members": [], "signed_in": []})
    assert alone.splitlines() == ["nobody is signed in: agent-intercom-ctl web makes a link"]
    ended = drawn("people-sign-out", {**browser, "status": "signed out"})
    assert ended.splitlines() == ["signed k<U+202E>im out in the browser 01234567"]
