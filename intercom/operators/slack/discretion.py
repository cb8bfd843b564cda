"""Keep addresses that are secrets out of the HTTP library's log: sockets' tickets, response_urls, upload addresses."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit


def keep_addresses_out_of_logs() -> None:
    """Have the HTTP library log where it calls, but no query and no path except a method's name. Once is enough."""
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
