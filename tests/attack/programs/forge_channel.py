"""Signs a decision with the key that the server keeps for a channel: `forge_channel.py DATABASE REQUEST CHANNEL`."""

import sqlite3
import sys
from datetime import UTC, datetime

from sqlite_utils import Database

from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.decision import Decided, Decision, Verdict
from intercom.model.request import ApprovalStatus
from intercom.sessions import request_kinds
from intercom.sessions.signatures import Signatures
from intercom.sessions.trusted_keys import Keyring
from intercom.store import sessions
from intercom.store.requests import approvals

database, request_id, channel = sys.argv[1:4]
db = Database(sqlite3.connect(database, timeout=10, isolation_level=None))
request = approvals.get(db, request_id)
assert request is not None, "there is no such request"
session = sessions.get(db, request.session_id)
assert session is not None, "there is no such session"
now = datetime.now(UTC)
verdict = Verdict(f"forged-{request_id}", Decision.APPROVE, "U0123456789", channel, now)
keyring = Keyring(places(), Config())
signature = Signatures(keyring)._sign(verdict, request_kinds.card_of(request, session.workspace_root), now)
print(approvals.decide(db, request.id, ApprovalStatus.APPROVED, Decided.of(verdict, now, signature)))
