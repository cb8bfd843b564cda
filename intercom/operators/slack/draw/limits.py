"""What Slack takes, as it publishes it (docs.slack.dev, "Block Kit" and the pages of the methods); and, where it
publishes nothing, what it was seen to take. Lengths are in characters; we count UTF-16 units, which are never fewer."""

from __future__ import annotations

from typing import Final

# Messages
BLOCKS: Final = 50
#: Of the plain text. chat.postMessage cuts at 40,000, but chat.update refuses more than 4,000.
TEXT: Final = 3_000
#: Of all blocks together, as JSON. Unpublished: `msg_blocks_too_long` came from about 11,300 characters of text on.
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

# Files. A snippet past one megabyte is no longer shown as text.
SNIPPET: Final = 1_000_000

# Our own: what is read in the channel and what becomes a file.
DIFF_LINES: Final = 20
TREE_LINES: Final = 40
FILE_LINES: Final = 30
FILE_BYTES: Final = 2_048
