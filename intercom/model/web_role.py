"""The roles of people and programs on the page and in its API.

The module uses the standard library alone: ctl reads it at every start.
"""

from __future__ import annotations

from enum import StrEnum


class WebRole(StrEnum):
    """What somebody may do on the page. A viewer sees everything, an operator decides and acts, and an admin manages
    keys, tokens and settings too."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return list(WebRole).index(self)

    def includes(self, least: WebRole) -> bool:
        """Whether this role may do what `least` may."""
        return self.rank >= least.rank
