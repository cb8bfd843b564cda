"""A server whose operator has a key."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio.testing

from intercom.local import operator_keys
from intercom.local.operator_keys import Allowed
from intercom.model.card import Card
from intercom.model.clock import to_text
from intercom.model.config import Config
from intercom.model.decision import Decision
from tests.support.keys import Key
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def enrol(server: VirtualServer, key: Key, by: Key | None = None) -> None:
    operator_keys.add_public(server.app.places, key.public)
    await server.app.service.add_key(key.public, *(by or key).for_key("add", key.public, server.now()))


@contextlib.asynccontextmanager
async def keyed(
    root: Path, clock: Clock, key: Key, config: Config | None = None, *, sign_settings: bool = True
) -> AsyncIterator[VirtualServer]:
    """A server whose operator has this key, and has signed the settings."""
    async with virtual_server(root.parent, clock, config) as server:
        await arm(server, key, sign_settings)
        yield server


async def arm(server: VirtualServer, key: Key, sign_settings: bool = True) -> None:
    if not server.app.signatures.required:
        await enrol(server, key)
    if sign_settings:
        sign_allowed(server, key, Allowed.by(server.app.config))


def sign_allowed(server: VirtualServer, key: Key, allowed: Allowed) -> None:
    signed = operator_keys.sign(allowed, to_text(server.now()), key.public.id, key.private.sign)
    operator_keys.write(server.app.places, signed)


def sql(server: VirtualServer, statement: str, *values: Any) -> None:
    """What any process of this user can do."""
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


async def approve(server: VirtualServer, key: Key, id: str, **more: Any) -> Card:
    card = await server.app.service.card(id)
    return await server.app.service.decide(id, key.verdict(card, Decision.APPROVE, server.now(), **more))
