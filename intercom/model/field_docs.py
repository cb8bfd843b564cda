"""Descriptions and limits of attrs fields, for values that agents and hooks send and receive as JSON.

`agents/argument_schemas.py` makes JSON Schemas from them and checks what arrives.
"""

from __future__ import annotations

from typing import Any

#: Metadata of a field that is no part of the JSON value: the server sets it.
INTERNAL = {"internal": True}


def doc(text: str, **limits: Any) -> dict[str, Any]:
    """Return a field's metadata: its description, and `minimum`, `maximum`, `min_length`, `most` or `most_items`."""
    return {"doc": text, **limits}
