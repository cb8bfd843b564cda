"""Redaction of secret addresses in the HTTP library's log: socket tickets, response_urls and upload addresses."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit


def keep_addresses_out_of_logs() -> None:
    """Make the HTTP library log hosts and method names only, no other paths and no queries. Repeated calls have no
    effect."""
    logger = logging.getLogger("httpx2")
    if _discreet not in logger.filters:
        logger.addFilter(_discreet)


def _discreet(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_place(arg) if _is_address(arg) else arg for arg in record.args)
    return True


def _is_address(arg: object) -> bool:
    return type(arg).__name__ == "URL" or (isinstance(arg, str) and "://" in arg)


def _place(address: object) -> str:
    parts = urlsplit(str(address))
    method = parts.path if parts.path.startswith("/api/") and not parts.query else "/…"
    return f"{parts.scheme}://{parts.hostname}{method}"
