"""Limits pydantic's string cache for HTTP requests, so that their strings are freed with them.

By default, pydantic's JSON parser caches the last 16,384 strings of less than 64 bytes. Ids and titles rarely repeat:
in a long run they take up to 1.5 MB, and fragment the memory around them.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pydantic_core
from mcp.server import streamable_http


def keep_no_strings() -> None:
    """Make the SDK's HTTP server cache only field names, which do repeat. It affects the whole process, and is
    idempotent."""
    parser = ModuleType(pydantic_core.__name__)
    vars(parser).update(vars(pydantic_core), from_json=partial(pydantic_core.from_json, cache_strings="keys"))
    vars(streamable_http)["pydantic_core"] = parser
