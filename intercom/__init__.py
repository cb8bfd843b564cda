"""Intercom: the switchboard between coding agents and the people responsible for them.

A program that embeds it uses `intercom.open` (Trio or asyncio) or `intercom.start` (synchronous); see
docs/how-to/embed.md. Importing the package loads nothing: the shim and ctl start on the standard library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.embedding import EmbeddedAgent, EmbeddedOperator, Switchboard, SyncSwitchboard, open, start

__all__ = ["EmbeddedAgent", "EmbeddedOperator", "Switchboard", "SyncSwitchboard", "open", "start"]


if not TYPE_CHECKING:
    # A type checker that sees this would take any name for one of the package's.
    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from intercom import embedding

        return getattr(embedding, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
