"""Commands about the server itself: its actors, its connection to Slack, its log, and its operator keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio
from attrs import frozen

from actors import Info
from intercom.local.operator_keys import PublicKey
from intercom.model.errors import InvalidArguments
from intercom.operators.commands.entries import plain, under
from intercom.operators.commands.handler import ById, Caller, Nothing, handles
from intercom.operators.commands.table import LISTED
from intercom.sessions.operator_service import OperatorService
from intercom.store.audit import AuditEntry


def _tree_entry(tree: Info) -> dict[str, Any]:
    return {"tree": plain(tree), "tasks": trio.lowlevel.current_statistics().tasks_living}


@handles("tree", Nothing, _tree_entry)
async def tree(service: OperatorService, caller: Caller, asked: Nothing) -> Info:
    return service.tree()


@handles("slack", Nothing, under("slack"))
async def slack(service: OperatorService, caller: Caller, asked: Nothing) -> Mapping[str, Any] | None:
    return await service.chat_standing()


@frozen
class ReadLog:
    limit: int = LISTED
    session: str | None = None


@handles("log", ReadLog, under("entries"))
async def log(service: OperatorService, caller: Caller, asked: ReadLog) -> Sequence[AuditEntry]:
    """Return the newest entries of the audit log, oldest first."""
    return await service.audit(asked.limit, asked.session)


@handles("version", Nothing, plain)
async def version(service: OperatorService, caller: Caller, asked: Nothing) -> dict[str, Any]:
    return service.version()


# --- operator keys: those that change them bring a signature of their own ---------------------------------------------


@handles("keys", Nothing, plain)
async def keys(service: OperatorService, caller: Caller, asked: Nothing) -> dict[str, Any]:
    keyring = service.signatures.keyring
    # Settings that were just signed are noticed here.
    await service.note_settings()
    return {
        "required": keyring.has_keys,
        "keys": keyring.status(),
        "unsigned_settings": keyring.unsigned_settings() if keyring.has_keys else None,
    }


@frozen
class AddKey:
    public: str
    name: str = ""


@frozen
class KeyAdded:
    key: PublicKey
    is_new: bool


def _added_entry(added: KeyAdded) -> dict[str, Any]:
    return {"key_id": added.key.id, "status": "enrolled" if added.is_new else "enrolled before"}


@handles("key-add", AddKey, _added_entry)
async def key_add(service: OperatorService, caller: Caller, asked: AddKey) -> KeyAdded:
    by = caller.signature
    if by is None:
        raise InvalidArguments("key-add needs a public key, its name, and a signature")
    key = PublicKey.of(asked.public, asked.name)
    return KeyAdded(key, await service.add_key(key, by.at, by.key_id, by.value))


def _revoked_entry(key: PublicKey) -> dict[str, Any]:
    return {"key_id": key.id, "status": "revoked"}


@handles("key-revoke", ById, _revoked_entry)
async def key_revoke(service: OperatorService, caller: Caller, asked: ById) -> PublicKey:
    by = caller.signature
    if by is None:
        raise InvalidArguments("key-revoke needs a key's id and a signature")
    return await service.revoke_key(asked.id, by.at, by.key_id, by.value)
