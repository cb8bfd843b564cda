"""An exported room: whole, without secrets, and what teams wrote stays in its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from intercom.model.json_types import JsonObject
from intercom.model.room import (
    Ack,
    DocumentVersion,
    Message,
    MessageType,
    Room,
    RoomEvent,
    RoomId,
    RoomStatus,
    Team,
    TeamId,
    TeamRole,
)
from intercom.rooms.export import BUNDLE, MARKDOWN, Form
from tests.rooms.test_headings import texts

AT = datetime(2026, 11, 25, 12, 30, 15, tzinfo=UTC)
ID = RoomId("6d8d5b0e-1f0a-4a55-8f7e-5d7c3b1a2f00")
ALEX, BEA = TeamId("alex-id"), TeamId("bea-id")


def written(form: Form, *about: Any, page: int = 2) -> str:
    """The whole file, with its messages in pages."""
    room, document, teams, messages, now, *evidence = about
    pages = [form.page(messages[at : at + page], at == 0) for at in range(0, len(messages), page)]
    linked = [form.evidence(each, place == 0) for place, each in enumerate(evidence)]
    return form.begin(room, document, teams, now) + "".join(pages) + form.between + "".join(linked) + form.end


def markdown(*about: Any) -> str:
    return written(MARKDOWN, *about)


def bundle(*about: Any) -> Any:
    return json.loads(written(BUNDLE, *about))


def room(title: str = "Split the parser", description: str = "Two teams.") -> Room:
    return Room(
        ID,
        title,
        description,
        ALEX,
        AT,
        AT,
        status=RoomStatus.CLOSED,
        closed_at=AT,
        last_sequence=3,
        session_doc_version=2,
        passcode_hash="passcode-hash",
    )


def team(id: TeamId, name: str, left_at: datetime | None = None) -> Team:
    return Team(ID, id, name, f"token-hash-of-{id}", AT, AT, left_at=left_at)


def message(sequence: int, content: JsonObject, author: str | None = None, role: TeamRole | None = None) -> Message:
    kind = MessageType.CHAT if author else MessageType.SYSTEM
    return Message(ID, sequence, f"m{sequence}", kind, content, AT, author=author, role=role, key=f"key-{sequence}")


def document(content: str) -> DocumentVersion:
    return DocumentVersion(ID, 2, content, ALEX, "Alex's Team", AT)


MESSAGES = (
    message(1, {"event": RoomEvent.TEAM_JOINED.value, "team": "Bea's Team"}),
    message(2, {"text": "I take the lexer."}, "Bea's Team", TeamRole.MEMBER),
    message(3, {"text": "Fine."}, "ann", TeamRole.OPERATOR),
)
TEAMS = (team(ALEX, "Alex's Team"), team(BEA, "Bea's Team", left_at=AT))

EXPECTED = """\
# Split the parser

- Session: `6d8d5b0e-1f0a-4a55-8f7e-5d7c3b1a2f00`
- Status: closed since 2026-11-25 12:30:15 UTC
- Created: 2026-11-25 12:30:15 UTC by Alex's Team
- Exported: 2026-11-25 12:30:15 UTC

## Description

```
Two teams.
```

## Teams

- Alex's Team: joined 2026-11-25 12:30:15 UTC
- Bea's Team: joined 2026-11-25 12:30:15 UTC, left 2026-11-25 12:30:15 UTC

## Document, version 2

````markdown
# Plan

```
code
```
````

## Feed

### 1. \\[server\\] team\\_joined, 2026-11-25 12:30:15 UTC

```
team: Bea's Team
```

### 2. \\[team\\] Bea's Team, 2026-11-25 12:30:15 UTC

```
I take the lexer.
```

### 3. \\[operator\\] ann, 2026-11-25 12:30:15 UTC

```
Fine.
```
"""


def test_a_room_as_markdown() -> None:
    assert markdown(room(), document("# Plan\n\n```\ncode\n```\n"), TEAMS, MESSAGES, AT) == EXPECTED


def test_an_empty_room_as_markdown_says_so() -> None:
    text = markdown(room(description=""), None, (), (), AT)
    assert "## Document\n\nThe document is empty.\n" in text
    assert "## Description" not in text


def test_a_team_with_the_name_of_an_operator_is_shown_as_a_team() -> None:
    names = ("robin (operator)", "[operator] robin", "Server", "[server] session_paused")
    feed = tuple([message(at, {"text": "x"}, name, TeamRole.MEMBER) for at, name in enumerate(names, 1)])
    shown = MarkdownIt("commonmark").parse(markdown(room(), None, (), feed, AT))
    headings = [token.children or [] for token in shown if token.type == "inline" and token.content[0].isdigit()]
    assert ["".join(child.content for child in each).partition(", ")[0] for each in headings] == [
        "1. [team] robin (operator)",
        "2. [team] [operator] robin",
        "3. [team] Server",
        "4. [team] [server] session_paused",
    ]


def test_acknowledgements_are_shown() -> None:
    first = Message(ID, 1, "m", MessageType.CHAT, {"text": "x"}, AT, author="a", acks=(Ack(BEA, "Bea's *Team*", AT),))
    assert "\nRead by Bea's \\*Team\\*.\n" in markdown(room(), None, (), (first,), AT)


def test_a_bundle_holds_the_whole_room() -> None:
    read = bundle(room(), document("# Plan\r\n"), TEAMS, MESSAGES, AT)
    assert (read["format"], read["version"]) == ("intercom-room", 1)
    assert read["exported_at"] == "2026-11-25T12:30:15.000000+00:00"
    assert read["session"]["session_id"] == ID
    assert read["session"]["status"] == "closed"
    assert read["document"]["content"] == "# Plan\r\n"
    assert [each["team_name"] for each in read["participants"]] == ["Alex's Team", "Bea's Team"]
    assert [each["cursor"] for each in read["messages"]] == [1, 2, 3]
    assert read["messages"][0]["content"] == {"event": "team_joined", "team": "Bea's Team"}
    assert read["messages"][1] | {"acks": []} == {
        "cursor": 2,
        "message_id": "m2",
        "type": "chat",
        "content": {"text": "I take the lexer."},
        "posted_by_team_id": None,
        "team": "Bea's Team",
        "role": "member",
        "posted_at": "2026-11-25T12:30:15.000000+00:00",
        "acks": [],
    }


@pytest.mark.parametrize("form", [BUNDLE, MARKDOWN])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_pages_of_messages_leave_no_trace(form: Form, count: int) -> None:
    about = (room(), document("# Plan"), TEAMS, MESSAGES[:count], AT)
    assert written(form, *about, page=1) == written(form, *about, page=2) == written(form, *about, page=9)


def test_no_export_holds_a_secret() -> None:
    both = markdown(room(), None, TEAMS, MESSAGES, AT) + json.dumps(bundle(room(), None, TEAMS, MESSAGES, AT))
    for secret in ("token-hash", "passcode-hash", "key-2"):
        assert secret not in both


@pytest.mark.parametrize("text", ["\x1b[2J", "\u202egnp", "a\u2028# b", "a\rb"])
def test_nothing_invisible_reaches_the_reader_of_the_markdown(text: str) -> None:
    shown = markdown(room(text, text), document(text), (team(ALEX, text),), (message(1, {"text": text}, text),), AT)
    assert not set(shown) & set("\x1b\u202e\u2028\r")


@settings(max_examples=150)
@given(texts | st.text(), st.sampled_from(["title", "description", "document", "name", "message", "author", "reason"]))
def test_what_teams_wrote_cannot_leave_its_place(text: str, place: str) -> None:
    at: dict[str, str] = dict.fromkeys(["title", "description", "document", "name", "message", "author", "reason"], "x")
    plain = _shape(at)
    assert _shape({**at, place: text or "x"}) in (plain, _shape({**at, place: ""}))


def _shape(at: dict[str, str]) -> list[tuple[str, str]]:
    """The kinds of all blocks, and of all that stands in their lines except text."""
    shown = markdown(
        room(at["title"], at["description"]),
        document(at["document"]),
        (team(ALEX, at["name"]),),
        (
            message(1, {"event": "session_metadata_updated", "reason": at["reason"]}),
            message(2, {"text": at["message"]}, at["author"] or "x"),
        ),
        AT,
    )
    shape = []
    for token in MarkdownIt("commonmark").parse(shown):
        shape.append((token.type, token.tag))
        shape += [(child.type, child.tag) for child in token.children or () if child.type != "text"]
    return shape
