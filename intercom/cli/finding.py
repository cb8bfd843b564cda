"""The result of a doctor check."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAULT = "fault"


@frozen
class Finding:
    """What a check found about `subject`. `advice` says what to do if `text` does not."""

    subject: str
    state: State
    text: str
    advice: str = ""
