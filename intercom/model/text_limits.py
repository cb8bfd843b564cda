"""How long the texts may be that agents and people send, in characters.

They are constants: a text over its limit is refused with a sentence, never cut, so nobody decides on half of it. Diffs
have a limit of their own, in bytes, where they are read.
"""

from __future__ import annotations

#: What stands in one line of a card or a list.
TITLE = 500
#: A tool's name, an id, or a label.
NAME = 200
#: A path, as the system has it.
PATH = 4096
#: What a person reads: a question, a description, a line told to people, a person's own answer.
TEXT = 20_000
#: One line about how the work goes.
STATUS = 2_000
#: A command and its arguments, as the policy is asked about them.
COMMAND = 100_000
#: What a client's hook says a tool is used with: the content of a file, perhaps.
WHOLE = 8 * 1024 * 1024
#: Entries of a task list.
ITEMS = 200


def over(name: str, text: str | None, most: int) -> str | None:
    """Why a text is refused, in a sentence; None where it is not."""
    if text is None or len(text) <= most:
        return None
    return f"{name}: must have at most {most} characters, and has {len(text)}; shorten it"
