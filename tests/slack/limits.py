"""What Slack allows, as numbers: one table, the stand-in's own.

From Slack's reference of Block Kit, views and methods, unless a comment says otherwise. Nothing here is imported from
the program under test, so a wrong number there is caught here. Lengths are in characters (code points), as Slack counts
what it was sent: an entity such as `&amp;` counts as the five characters it is.
"""

from __future__ import annotations

# A message
BLOCKS_IN_MESSAGE = 50
TEXT_OF_POST = 40_000  # longer is cut, and the answer warns of it
TEXT_OF_UPDATE = 4_000  # longer is refused (`msg_too_long`): only posting cuts
# Slack refuses a message whose blocks hold too much together (`msg_blocks_too_long`) and does not publish the number.
# Measured by users of its SDKs: 13,297 characters in one block pass and one more does not; 9,597 in 50 blocks pass;
# 11,341 in 45 blocks do not. So every block weighs something of its own: 60 fits all three.
BLOCKS_TOGETHER = 13_357
WEIGHT_OF_BLOCK = 60

# Blocks
BLOCK_ID = 255
SECTION_TEXT = 3_000
SECTION_FIELDS = 10
SECTION_FIELD_TEXT = 2_000
HEADER_TEXT = 150
CONTEXT_ELEMENTS = 10
TEXT_OBJECT = 3_000
ACTIONS_ELEMENTS = 25
IMAGE_URL = 3_000
IMAGE_ALT_TEXT = 2_000
IMAGE_TITLE = 2_000
INPUT_LABEL = 2_000
INPUT_HINT = 2_000
MARKDOWN_TEXT = 12_000  # of all markdown blocks of one message together

# Elements
ACTION_ID = 255
BUTTON_TEXT = 75
BUTTON_VALUE = 2_000
BUTTON_URL = 3_000
ACCESSIBILITY_LABEL = 75
PLACEHOLDER = 150
INPUT_VALUE = 3_000
SELECT_OPTIONS = 100
OPTION_GROUPS = 100
OVERFLOW_OPTIONS = 5
CHECKBOX_OPTIONS = 10
OPTION_TEXT = 75
OPTION_VALUE = 150
OPTION_DESCRIPTION = 75
OPTION_GROUP_LABEL = 75
CONFIRM_TITLE = 100
CONFIRM_TEXT = 300
CONFIRM_BUTTON = 30

# Modals
BLOCKS_IN_MODAL = 100
MODAL_TITLE = 24
MODAL_BUTTON = 24
PRIVATE_METADATA = 3_000
CALLBACK_ID = 255
EXTERNAL_ID = 255
VIEW_BYTES = 250_000
VIEWS_STACKED = 3

# Metadata of a message. Slack refuses what is too large (`metadata_too_large`) and publishes no number: a careful one.
METADATA_BYTES = 8_000

# Paging
PAGE = 100
PAGE_OF_REPLIES = 1_000
PAGE_MOST = 999

# Time, in seconds
ACK_WITHIN = 3.0
TRIGGER_LIVES = 3.0
RESPONSE_URL_LIVES = 1_800.0
RESPONSE_URL_USES = 5
TICKET_LIVES = 30.0
WARNED_BEFORE = 10.0  # a socket is warned so long before it is taken away

# Socket Mode
CONNECTIONS = 10

# Requests a second and burst, by method: Slack's tiers are so many a minute. Posting is by channel, the rest by app.
TIER_2, TIER_3, TIER_4 = (20 / 60, 20), (50 / 60, 50), (100 / 60, 100)
RATES: dict[str, tuple[float, int]] = {
    "chat.postMessage": (1.0, 4),
    "chat.update": TIER_3,
    "chat.delete": TIER_3,
    "chat.postEphemeral": TIER_4,
    "conversations.history": TIER_3,
    "conversations.replies": TIER_3,
    "conversations.info": TIER_3,
    "conversations.join": TIER_3,
    "users.info": TIER_4,
    "views.open": TIER_4,
    "views.update": TIER_4,
    "views.push": TIER_4,
    "files.getUploadURLExternal": TIER_4,
    "files.completeUploadExternal": TIER_4,
    "files.info": TIER_4,
    "reactions.add": TIER_3,
    "apps.connections.open": TIER_2,
}
BY_CHANNEL = frozenset({"chat.postMessage"})
