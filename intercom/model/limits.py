"""Limits of texts that agents and people send, and the form of a chat channel's id.

A text beyond its limit is refused with a message and never cut, so nobody decides on half of it. Diffs have their own
limit in bytes, in the code that reads them.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

#: One line of a card or a list.
TITLE = 500
#: A tool's name, an id, or a label.
NAME = 200
#: A path.
PATH = 4096
#: Text for people: a question, a description, a broadcast, or a person's own answer.
TEXT = 20_000
#: One line about progress.
STATUS = 2_000
#: A command and its arguments, as the policy gets them.
COMMAND = 100_000
#: The arguments of a tool, from a client's hook. They may contain a whole file.
WHOLE = 8 * 1024 * 1024
#: Entries of a task list.
ITEMS = 200


def over(name: str, text: str | None, most: int) -> str | None:
    """Return a message if a text exceeds its limit, else None."""
    if text is None or len(text) <= most:
        return None
    return f"{name}: must have at most {most} characters, and has {len(text)}; shorten it"


#: The form of the name by which an agent is the same over all its connections. It needs no escaping in a URL, and has
#: the characters of host names and paths.
AGENT_NAME = r"[A-Za-z0-9._~:@/+=-]{1,200}"
AGENT_NAME_FORM = "a key: 1 to 200 of letters, digits and . _ ~ : @ / + = -"


def is_agent_name(text: str) -> bool:
    """Whether this can be the permanent name of an agent."""
    return re.fullmatch(AGENT_NAME, text) is not None


CHANNEL_ID = r"[CGD][A-Z0-9]{2,}"
LOOKS_LIKE = "a channel id like C0123456789 (the channel's details in Slack show it)"


def is_channel_id(text: str) -> bool:
    """Whether this can be the id of a public channel, a private one, or a direct message."""
    return re.fullmatch(CHANNEL_ID, text) is not None


#: A header of HTTP that a proxy adds.
HEADER = r"[A-Za-z][A-Za-z0-9-]{0,63}"
#: The name of a person on the page, as it is recorded.
PERSON_NAME = r"\w(?:[\w .@+'-]{0,62}[\w.])?"
PERSON_NAME_FORM = "1 to 64 letters, digits, single spaces and . _ @ + ' -"
#: The form of an address below which a server's own paths are.
BASE_URL = r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?"
BASE_URL_FORM = "an address like https://rooms.example.org, without a query"


def is_base_url(text: str, form: str = BASE_URL) -> bool:
    """Whether this can be the public address of a server: it has this form, and a port and a host that there can be."""
    try:
        return re.fullmatch(form, text) is not None and urlsplit(text).port != 0
    except ValueError:
        return False
