"""Doctor's check of the operator keys: whether decisions are signed, and what it means if they are not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from intercom.cli.finding import Finding, State
from intercom.local import operator_keys
from intercom.local.places import SYSTEM_OPERATOR_KEYS, Places
from intercom.model.errors import ConfigError
from intercom.operators.ctl.client import NoServer, Refusal, request

SUBJECT = "operator key"

NO_KEY = (
    "none: a decision counts when it comes from a terminal that is no agent's. A process of your account that types"
    " into such a terminal (tmux), or writes the database, can decide in your place"
)


def examine(where: Places, system_file: str = SYSTEM_OPERATOR_KEYS, owner: int = 0) -> Finding:
    """Check the keys, and ask a running server which of them count."""
    try:
        listed = operator_keys.read_public(Path(where.operator_keys_file))
        private = operator_keys.private_keys(where)
    except ConfigError as fault:
        return Finding(SUBJECT, State.FAULT, fault.message)
    try:
        known = request(where, "keys", {}, patience=0.0)
    except (NoServer, Refusal, OSError):
        known = None
    if (unsafe := _unsafe(system_file, owner)) is not None:
        return Finding(SUBJECT, State.FAULT, unsafe, f"sudo chown root: {system_file}; sudo chmod 0644 {system_file}")
    if known is None:
        if not listed and not private:
            return Finding(SUBJECT, State.WARN, NO_KEY, "agent-intercom-ctl key create")
        return Finding(SUBJECT, State.OK, f"{_count(len(listed))} listed; no server runs that could say which count")
    counting = [each for each in known["keys"] if each["counts"]]
    others = [f"{each['key_id']}: {each['why']}" for each in known["keys"] if not each["counts"]]
    if others or (known["required"] and not counting):
        text = "; ".join(others) or "decisions have to be signed, and no key counts"
        return Finding(SUBJECT, State.FAULT, text, "see docs/how-to/operator-key.md, and agent-intercom-ctl key list")
    if not counting:
        return Finding(SUBJECT, State.WARN, NO_KEY, "agent-intercom-ctl key create")
    if unsigned := known.get("unsigned_settings"):
        return Finding(SUBJECT, State.WARN, str(unsigned), "agent-intercom-ctl key settings")
    anchor = "root's list" if os.path.exists(system_file) else "your list"
    text = (
        f"decisions are signed; {_count(len(counting))} in {anchor}: {', '.join(each['key_id'] for each in counting)}"
    )
    if os.path.exists(system_file):
        return Finding(SUBJECT, State.OK, text)
    return Finding(
        SUBJECT,
        State.OK,
        text,
        f"let only root change it: sudo install -D -o root -g root -m 0644 {where.operator_keys_file} {system_file}",
    )


def _unsafe(system_file: str, owner: int) -> str | None:
    """Say why root's key list is not safe, so that no key counts; None if it is safe or missing."""
    try:
        found = [os.stat(system_file, follow_symlinks=False), os.stat(os.path.dirname(system_file))]
    except OSError:
        return None
    if any(each.st_uid != owner or each.st_mode & 0o022 for each in found) or not stat.S_ISREG(found[0].st_mode):
        return f"{system_file} and its directory must be root's, and writable by nobody else: no key counts"
    return None


def _count(number: int) -> str:
    return f"{number} key" if number == 1 else f"{number} keys"
