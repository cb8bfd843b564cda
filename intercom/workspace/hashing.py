"""Content hashes of files: SHA-256, in hex."""

from __future__ import annotations

import hashlib

from intercom.model.approval import NEW_FILE
from intercom.workspace.reading import read_beneath


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data`, in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def file_hash(top: int, rel: str) -> str:
    """Return the digest of `rel` beneath the open directory `top`; "new_file" if absent. Raises as `reading.read`."""
    found = read_beneath(top, rel)
    return NEW_FILE if found is None else digest(found.data)
