"""Conversion of progress items to and from the JSON column of sessions, alerts and checkpoints."""

from __future__ import annotations

import json

from intercom.model.session import ProgressItem, ProgressStatus
from intercom.store import rows


def progress_text(items: tuple[ProgressItem, ...] | None) -> str | None:
    if items is None:
        return None
    return rows.json_text([{"label": item.label, "status": item.status.value} for item in items])


def progress_value(text: str | None) -> tuple[ProgressItem, ...] | None:
    if text is None:
        return None
    return tuple(ProgressItem(item["label"], ProgressStatus(item["status"])) for item in json.loads(text))
