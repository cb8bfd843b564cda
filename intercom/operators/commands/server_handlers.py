"""The handlers of the operator commands about the server itself, its records and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import trio
from attrs import evolve

from actors import Info
from intercom._version import __version__
from intercom.model.audit import LogEntry
from intercom.model.card import Card
from intercom.model.chat_status import ChatStatus
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.json_types import Json, JsonObject
from intercom.model.server_view import ClientEntries, ServerOperations, ServerStatus
from intercom.model.web import (
    ApiToken,
    NewToken,
    PageMember,
    PagePeople,
    ProposedPasskey,
    PushSubscription,
    SignedIn,
    SignInLink,
    WebOperations,
    person_name,
)
from intercom.model.web_role import WebRole
from intercom.operators.commands.caller_and_handler import Caller, handles
from intercom.operators.commands.command_table import LISTED
from intercom.operators.commands.json_forms import (
    card_entry,
    form,
    plain,
    returns,
    shape,
    under,
    verification_entry,
)
from intercom.sessions.operator_service import OperatorService
from intercom.store.audit_chain import Verification

# --- the server -------------------------------------------------------------------------------------------------------


@returns(shape(tree=Info, tasks=int))
def _tree_entry(tree: Info) -> JsonObject:
    return {"tree": plain(tree), "tasks": trio.lowlevel.current_statistics().tasks_living}


@handles("tree", _tree_entry)
async def tree(service: OperatorService, caller: Caller) -> Info:
    return service.tree()


def server_of(service: OperatorService) -> ServerOperations:
    """Return what is known of this server itself. Raises InvalidState if nothing is."""
    if service.server is None:
        raise InvalidState("this server does not tell about itself")
    return service.server


@handles("server", plain)
async def server(service: OperatorService, caller: Caller) -> ServerStatus:
    return server_of(service).status()


@handles("clients", plain)
async def clients(service: OperatorService, caller: Caller, id: str | None = None) -> ClientEntries:
    """Return the entries with which clients find this server; with `id`, that of the client with this name."""
    return await server_of(service).entries(id)


@handles("slack", under("slack"))
async def slack(service: OperatorService, caller: Caller) -> ChatStatus | None:
    return await service.chat_status()


# --- what happened ----------------------------------------------------------------------------------------------------


@handles("log", under("entries"))
async def log(
    service: OperatorService,
    caller: Caller,
    limit: int = LISTED,
    session: str | None = None,
    text: str | None = None,
    before: int | None = None,
) -> Sequence[LogEntry]:
    """Return the newest entries of the audit log, oldest first; with `before`, the newest ones before that entry."""
    return await service.audit(limit, session, text=text, before=before)


@returns(shape(requests=[card_entry]))
def _past_entries(found: Sequence[Card]) -> JsonObject:
    # A page of a list needs no diffs; `show` has them.
    return {"requests": [card_entry(each.without_diff()) for each in found]}


@handles("history", _past_entries)
async def history(
    service: OperatorService,
    caller: Caller,
    text: str | None = None,
    limit: int = LISTED,
    session: str | None = None,
    start: int = 0,
) -> Sequence[Card]:
    """Return requests that do not wait any more, the newest first, without the `start` newest ones."""
    return await service.history.requests(text, session, limit=limit, start=start)


@handles("audit-verify", verification_entry)
async def audit_verify(service: OperatorService, caller: Caller) -> Verification:
    """Verify the audit log in a worker thread."""
    return await service.history.verify()


# --- the page ---------------------------------------------------------------------------------------------------------


@returns(shape(url=str, expires_at=datetime, file=str | None))
def _link_entry(link: SignInLink) -> JsonObject:
    return {"url": link.url, "expires_at": plain(link.expires_at), "file": link.file}


@handles("web", _link_entry)
async def web(
    service: OperatorService,
    caller: Caller,
    format: str | None = None,
    role: str | None = None,
    name: str | None = None,
) -> SignInLink:
    """Return a link with which the caller signs in to the page as an admin, or somebody of this name with this role;
    with the format `file`, also a file that leads to it."""
    if name is not None and role is None:
        raise InvalidArguments("a link for somebody else needs a role: viewer, operator or admin")
    for_whom = caller.name if name is None else person_name(name)
    return await _page(service).sign_in_link(
        for_whom, role=WebRole(role or WebRole.ADMIN), by=caller.name, with_file=format is not None
    )


def _page(service: OperatorService) -> WebOperations:
    """Return what people do with the page. Raises InvalidState if this server has none."""
    if service.web is None:
        raise InvalidState("this server has no page: set enabled under [web] in its configuration, and start it again")
    return service.web


_TOKEN = ("name", "role", "created_at", "created_by", "expires_at")
_token_entry = form(ApiToken, *_TOKEN)


@returns(shape(_token_entry, token=str, url=str))
def _new_token_entry(made: NewToken) -> JsonObject:
    return {**_token_entry(made.token), "token": made.text, "url": made.url}


@handles("token-add", _new_token_entry)
async def token_add(
    service: OperatorService, caller: Caller, name: str, role: str = WebRole.VIEWER, days: int | None = None
) -> NewToken:
    return await _page(service).add_token(name, WebRole(role), days, caller.name)


@returns(shape(tokens=[_token_entry]))
def _token_entries(found: Sequence[ApiToken]) -> JsonObject:
    return {"tokens": [_token_entry(each) for each in found]}


@handles("token-list", _token_entries)
async def token_list(service: OperatorService, caller: Caller) -> Sequence[ApiToken]:
    return await _page(service).tokens()


@handles("token-revoke", form(ApiToken, *_TOKEN, status="revoked"))
async def token_revoke(service: OperatorService, caller: Caller, name: str) -> ApiToken:
    return await _page(service).revoke_token(name, caller.name)


@handles("passkeys", under("passkeys"))
async def passkeys(service: OperatorService, caller: Caller) -> Sequence[ProposedPasskey]:
    return () if service.web is None else await service.web.proposed_passkeys()


_signed_in_entry = form(SignedIn, "browser_id=id", "name", "role", "began_at", "used_at")


@returns(
    shape(public_url=str | None, members=[PageMember], signed_in=[_signed_in_entry], in_slack=tuple[str, ...] | None)
)
def _people_entry(found: PagePeople) -> JsonObject:
    members: list[Json] = [plain(each) for each in found.members]
    browsers: list[Json] = [_signed_in_entry(each) for each in found.signed_in]
    return {
        "public_url": found.public_url,
        "members": members,
        "signed_in": browsers,
        "in_slack": plain(found.in_slack),
    }


@handles("people-list", _people_entry)
async def people_list(service: OperatorService, caller: Caller) -> PagePeople:
    return evolve(await _page(service).people(), in_slack=service.chat_people)


@returns(shape(_signed_in_entry, status="signed out"))
def _signed_out_entry(ended: SignedIn) -> JsonObject:
    return {**_signed_in_entry(ended), "status": "signed out"}


@handles("people-sign-out", _signed_out_entry)
async def people_sign_out(service: OperatorService, caller: Caller, id: str) -> SignedIn:
    return await _page(service).sign_out(id, caller.name)


# --- push messages ----------------------------------------------------------------------------------------------------

_SUBSCRIPTION = ("push_id=id", "by", "channel", "label", "service", "created_at")
_subscription_entry = form(PushSubscription, *_SUBSCRIPTION)


@handles("push-key", under("public_key"))
async def push_key(service: OperatorService, caller: Caller) -> str:
    return await _page(service).push.public_key()


@handles("push-subscribe", form(PushSubscription, *_SUBSCRIPTION, status="subscribed"))
async def push_subscribe(
    service: OperatorService, caller: Caller, url: str, public: str, auth: str, label: str = ""
) -> PushSubscription:
    return await _page(service).push.subscribe(url, public, auth, label, caller.name, caller.channel.value)


@returns(shape(subscriptions=[_subscription_entry]))
def _subscription_entries(found: Sequence[PushSubscription]) -> JsonObject:
    return {"subscriptions": [_subscription_entry(each) for each in found]}


@handles("push-list", _subscription_entries)
async def push_list(service: OperatorService, caller: Caller) -> Sequence[PushSubscription]:
    return await _page(service).push.subscriptions()


@handles("push-remove", form(PushSubscription, *_SUBSCRIPTION, status="removed"))
async def push_remove(service: OperatorService, caller: Caller, id: str) -> PushSubscription:
    """End the subscription of a browser; `id` is a prefix of the subscription's."""
    return await _page(service).push.unsubscribe(id, caller.name, caller.channel.value)


@returns(shape(version=str))
def _version_entry(found: Mapping[str, str]) -> JsonObject:
    return dict(found)


@handles("version", _version_entry)
async def version(service: OperatorService, caller: Caller) -> dict[str, str]:
    return {"version": __version__}
