"""What people have trusted until they say otherwise: the policies of workspaces, operator keys, programs' tokens, and
the browsers that get push messages.

A policy is identified by workspace root and content hash. In force is the last accepted one, unless rejected later.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from attrs import evolve, frozen
from sqlite_utils import Database

from intercom.model.errors import InvalidState
from intercom.model.policy import PolicyDecision
from intercom.model.request import RiskLevel
from intercom.model.web import ApiToken, PushSubscription
from intercom.store import audit, rows
from intercom.store.requests import DECIDED
from intercom.store.rows import Table


@frozen
class PastRequest:
    """An earlier request: the files of a proposal, or `question`, what the policy was asked about an operation.
    `question` is JSON; None if no policy could have allowed the operation. `tool` is the client's; None for a
    proposal."""

    id: str
    title: str
    risk: RiskLevel
    paths: tuple[str, ...] = ()
    question: str | None = None
    session_id: str = ""
    tool: str | None = None


class Policies(Table[PolicyDecision]):
    """Decisions of people about workspace policies, and what the policy file has removed from an accepted one since."""

    def record(self, db: Database, decision: PolicyDecision) -> bool:
        """Record a decision. Returns False and changes nothing if its card is already decided. Accepting a policy
        deletes its narrowing: all of it may take effect again."""
        is_new = self.insert(db, decision)
        if is_new and decision.accepted:
            self.narrow(db, decision.workspace_root, None, decision.decided.at)
        return is_new

    def decisions(self, db: Database, root: str) -> tuple[PolicyDecision, ...]:
        """Return all decisions about policies of this workspace, oldest first."""
        return self.select(db, "workspace_root = ? order by seq", (root,))

    def roots(self, db: Database) -> tuple[str, ...]:
        """Return the workspace roots that have a decision."""
        return tuple(rows.column(db, "select distinct workspace_root from policy_decision order by workspace_root"))

    def narrow(self, db: Database, root: str, text: str | None, at: datetime) -> None:
        """Record what the policy file narrowed an accepted policy to, None if not. Removed parts stay removed."""
        db.execute("delete from policy_narrowing where workspace_root = ?", (root,))
        if text is not None:
            row = {"workspace_root": root, "text": text, "at": at}
            rows.insert(db, "policy_narrowing", row, conflict="(workspace_root) do nothing")

    def narrowing(self, db: Database, root: str) -> str | None:
        """Return the text that the accepted policy is narrowed to; None if it is not narrowed."""
        found = rows.column(db, "select text from policy_narrowing where workspace_root = ?", (root,))
        return str(found[0]) if found else None

    def past_requests(self, db: Database, root: str, limit: int) -> tuple[PastRequest, ...]:
        """Return the newest approval requests of this workspace, newest first."""
        found = rows.every(
            db,
            "select request.id, request.session_id, request.title, request.risk_level, request.tool,"
            " request.policy_question from approval_request as request join session on session.id = request.session_id"
            " where session.workspace_root = ? order by request.created_at desc, request.rowid desc limit ?",
            (root, limit),
        )
        # For an operation the question tells more than the files: a file outside the workspace is not among them.
        proposals = [row["id"] for row in found if row["tool"] is None]
        files = (
            f"select request_id, path, old_path from approval_file where request_id in ({rows.placeholders(proposals)})"
        )
        paths: dict[str, list[str]] = {}
        for row in rows.every(db, files, proposals):
            paths.setdefault(row["request_id"], []).extend(path for path in (row["path"], row["old_path"]) if path)
        return tuple(
            PastRequest(
                each["id"],
                each["title"],
                RiskLevel(each["risk_level"]),
                tuple(paths.get(each["id"], ())),
                each["policy_question"],
                each["session_id"],
                each["tool"],
            )
            for each in found
        )


policies = Policies("policy_decision", PolicyDecision, names={"sha256": "sha"}, parts={"decided": DECIDED})


@frozen
class EnrolledKey:
    """A row of `operator_key`. `added_by` and `revoked_by` are ids of keys, whose signatures are stored with them.
    An unsigned row has no effect."""

    id: str
    public: str
    name: str
    added_at: str
    added_by: str
    added_signature: str
    revoked_at: str | None = None
    revoked_by: str | None = None
    revoked_signature: str | None = None


class OperatorKeys(Table[EnrolledKey]):
    """The operator keys that were enrolled."""

    def every(self, db: Database) -> tuple[EnrolledKey, ...]:
        """Return all keys, in the order of enrolment."""
        return self.select(db, "true order by rowid")

    def revoke(self, db: Database, id: str, at: str, by: str, signature: str) -> bool:
        """Revoke a key. Returns False if it is unknown or already revoked."""
        revoked = {"revoked_at": at, "revoked_by": by, "revoked_signature": signature}
        return self.update(db, "id = :id and revoked_at is null", {"id": id}, **revoked) > 0


operator_keys = OperatorKeys("operator_key", EnrolledKey)


class ApiTokens(Table[ApiToken]):
    """The tokens with which programs use the page's API."""

    def unrevoked(self, db: Database) -> tuple[ApiToken, ...]:
        """Return the tokens that nobody has revoked, also those that are too old; the oldest first."""
        return self.select(db, "revoked_at is null order by created_at, id")

    def with_digest(self, db: Database, digest: str) -> ApiToken | None:
        return self.first(db, "sha256 = ?", (digest,))

    def revoke(self, db: Database, id: str, at: datetime, by: str) -> None:
        """Revoke a token. Repeated, it changes nothing."""
        self.update(db, "id = :id and revoked_at is null", {"id": id}, revoked_at=at, revoked_by=by)


api_tokens = ApiTokens("api_token", ApiToken)


# --- browsers that get push messages ----------------------------------------------------------------------------------

#: How many browsers are subscribed at once, of one person and of all.
MOST_BROWSERS_OF_ONE: Final = 16
MOST_BROWSERS: Final = 128
#: The kinds of the audit entries about subscriptions.
PUSH_SUBSCRIBED, PUSH_ENDED = "push_subscribed", "push_ended"


def subscription_id(endpoint: str) -> str:
    """Return the id of an endpoint's subscription. It does not show the endpoint."""
    return hashlib.sha256(endpoint.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class PushSubscriptions(Table[PushSubscription]):
    """The subscriptions, each with the id of its endpoint."""

    def all(self, db: Database) -> tuple[PushSubscription, ...]:
        """Return all, oldest first."""
        return self.select(db, "true order by created_at, id")

    def put(self, db: Database, made: PushSubscription) -> PushSubscription:
        """Record a subscription, in the place of an earlier one of the same endpoint. Returns it as it is recorded.
        Raises InvalidState if there are too many."""
        known = self.all(db)
        same = next((each for each in known if each.id == made.id), None)
        if same is not None and evolve(made, created_at=same.created_at) == same:
            return same
        others = [each for each in known if each.id != made.id]
        if len(others) >= MOST_BROWSERS or sum(each.by == made.by for each in others) >= MOST_BROWSERS_OF_ONE:
            raise InvalidState("too many browsers are subscribed to push messages: take one off the list first")
        db.execute("delete from push_subscription where id = ?", (made.id,))
        self.insert(db, made)
        self._record(db, PUSH_SUBSCRIBED, made, made.by, made.channel, made.created_at)
        return made

    def end(self, db: Database, id: str, by: str, channel: str, at: datetime) -> PushSubscription | None:
        """Delete a subscription, and return it; None if there is none."""
        found = self.get(db, id)
        if found is not None:
            db.execute("delete from push_subscription where id = ?", (id,))
            self._record(db, PUSH_ENDED, found, by, channel, at)
        return found

    def _record(
        self, db: Database, kind: str, subscription: PushSubscription, by: str, channel: str, at: datetime
    ) -> None:
        # The endpoint is a secret.
        about = {"push_id": subscription.id, "channel": channel, "user": subscription.by}
        says = f"push messages to {subscription.by}'s {subscription.label} over {subscription.service}"
        audit.record(db, at, kind, None, by, f"{says}{'' if kind == PUSH_SUBSCRIBED else ' ended'}", about)


push_subscriptions = PushSubscriptions(
    "push_subscription", PushSubscription, names={"by": "subscribed_by", "channel": "subscribed_via"}
)
