"""The reference of rooms names every error code with its status, every event with its fields, and every path."""

from __future__ import annotations

import json
import re

from intercom.model.room import STATUS, RoomEvent
from intercom.rooms.transactions import author
from intercom.rooms.transactions.feed import MOST_PINS
from tests.docs.generated import BEGIN, DOCS

PAGE = (DOCS / "reference/rooms.md").read_text().partition(BEGIN)[0]


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    part = PAGE.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return [re.split(r" *\| *", line)[1:-1] for line in part.splitlines() if line.startswith("| `")]


def test_every_error_code_of_rooms_is_there_with_its_status() -> None:
    told = {code.strip("`"): int(status) for code, status, _ in rows("## Errors")}
    assert {code: told.get(code) for code in map(str, STATUS)} == {str(code): status for code, status in STATUS.items()}


def test_every_event_is_there() -> None:
    assert [event.strip("`") for event, *_ in rows("## Messages")] == [event.value for event in RoomEvent]


def test_every_limit_is_there() -> None:
    limits = [f"{each:,}" for each in (author.TITLE, author.DESCRIPTION, author.TEAM_NAME, author.REASON)]
    limits += [f"{author.MESSAGE_TEXT // 2**10} KiB", f"{author.DOCUMENT // 2**20} MiB", str(MOST_PINS)]
    part = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert re.findall(r"[\d,]*\d(?: [KM]iB)?", part) == limits


def test_the_messages_shown_have_the_fields_of_messages() -> None:
    chat, system = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    needed = {"message_id", "cursor", "type", "from", "at"}
    assert (chat["type"], system["type"]) == ("chat", "system")
    assert needed <= chat.keys() & system.keys()
