"""What doctor found."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAULT = "fault"


@frozen
class Finding:
    """What was found about `subject`; `advice` says what to do where the text does not."""

    subject: str
    state: State
    text: str
    advice: str = ""
