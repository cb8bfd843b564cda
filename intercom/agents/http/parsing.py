"""What clients say is let go of with the request that said it.

The SDK reads requests with pydantic's parser of JSON, which as a rule remembers the last 16,384 strings of less than 64
bytes that it met, to make no second object of one that comes again. Ids and titles never do: in a server that runs for
hours they would only stay, up to 1.5 MB of them, and each keep the memory around it from being given back.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pydantic_core
from mcp.server import streamable_http


def keep_no_strings() -> None:
    """Have the SDK's server over HTTP remember the names of fields alone, which do come again; in this process, for
    good. Once is enough."""
    parser = ModuleType(pydantic_core.__name__)
    vars(parser).update(vars(pydantic_core), from_json=partial(pydantic_core.from_json, cache_strings="keys"))
    vars(streamable_http)["pydantic_core"] = parser
