"""The icons that clients show beside the server, its tools and its prompts: line drawings of 24 by 24, as data URIs.

They are part of the answers, so nothing is fetched to show them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

import mcp_types as types

#: The grey of the lines, which is legible on light and dark backgrounds.
_COLOUR: Final = "#7a8291"


def _icon(path: str) -> types.Icon:
    """Return the icon that draws this SVG path."""
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="{_COLOUR}" stroke-width="2"'
        f' stroke-linecap="round" stroke-linejoin="round"><path d="{path}"/></svg>'
    )
    data = b64encode(drawn.encode("ascii")).decode("ascii")
    return types.Icon(src=f"data:image/svg+xml;base64,{data}", mime_type="image/svg+xml", sizes=["any"])


#: A handset.
SERVER: Final = _icon("M5 3h4l2 5-3 2a12 12 0 0 0 6 6l2-3 5 2v4a2 2 0 0 1-2 2A16 16 0 0 1 3 5a2 2 0 0 1 2-2")
#: The tools, then the prompts.
_PATHS: Final[Mapping[str, str]] = {
    "check_clearance": "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM9 12l2 2 4-4",
    "check_diff": "M6 3h8l4 4v14H6zM12 9v6M9 12h6M9 18h6",
    "auto_check": "M4 6h16M4 12h10M4 18h6M16 17l2 2 4-4",
    "transmit": "M4 5h16v11H9l-5 4zM12 13v0M10 8a2 2 0 1 1 2 3",
    "broadcast": "M4 10v4h4l6 4V6l-6 4zM17 9a4 4 0 0 1 0 6",
    "reboot": "M4 12a8 8 0 1 0 3-6M4 4v4h4",
    "switch_freq": "M4 8h12l-3-3M20 16H8l3 3",
    "standby": "M9 5v14M15 5v14",
    "ping": "M3 12h4l3-7 4 14 3-7h4",
    "away": "M14 4h5v16h-5M4 12h10M11 8l4 4-4 4",
    "back": "M10 4H5v16h5M20 12H10M13 8l-4 4 4 4",
    "status": "M5 6h14M5 12h14M5 18h8",
    "checkpoint": "M6 4h12v16l-6-4-6 4z",
    "ask": "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 18v0",
}


def of(name: str) -> list[types.Icon] | None:
    """Return the icons of the tool or prompt with this name; None if it has none."""
    path = _PATHS.get(name)
    return None if path is None else [_icon(path)]
