"""Slack's limits, documented (docs.slack.dev, "Block Kit" and the pages of the methods) or else observed.

Lengths are in characters; we count UTF-16 units, which are never fewer.
"""

from __future__ import annotations

from typing import Final

# Messages
BLOCKS: Final = 50
#: Of the plain text. chat.postMessage cuts at 40,000, but chat.update refuses more than 4,000.
TEXT: Final = 3_000
#: Of all blocks together, as JSON. Undocumented: `msg_blocks_too_long` occurred from about 11,300 characters of text.
ALL_BLOCKS: Final = 10_000

# Blocks
HEADER: Final = 150
SECTION: Final = 3_000
FIELDS: Final = 10
CONTEXT_ELEMENTS: Final = 10
ACTIONS: Final = 25

# Buttons
BUTTON_TEXT: Final = 75
BUTTON_VALUE: Final = 2_000

# Modals
MODAL_TITLE: Final = 24
MODAL_BUTTON: Final = 24
LABEL: Final = 2_000
PLACEHOLDER: Final = 150
INPUT: Final = 3_000

# Files. Slack does not show a snippet over one megabyte as text.
SNIPPET: Final = 1_000_000

# Our own limits: what is shown in the message, and what becomes a file.
DIFF_LINES: Final = 20
TREE_LINES: Final = 40
FILE_LINES: Final = 30
FILE_BYTES: Final = 2_048
