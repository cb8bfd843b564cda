"""What ctl prints of the server itself: its actors, its files and ports, its channels, and who connects to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from intercom.cli.ctl_table import age, print_table, safe_text, timestamp
from intercom.cli.ctl_text import clean, one_line, short
from intercom.model.chat_status import ChatStatus, ConnectionState
from intercom.model.json_types import Json
from intercom.model.server_view import ClientEntries, ServerStatus
from intercom.model.web import PagePeople, PushEntry, SignedIn, TokenEntry
from intercom.operators.commands.json_forms import read, reads

if TYPE_CHECKING:
    from actors import Info

reads(SignedIn, {}, id="browser_id")


def draw_tree(on: Console, data: Json, at: datetime) -> None:
    from actors import Info

    on.print(_branch(read(Info, data, "tree"), at, Tree), soft_wrap=not on.is_terminal)


def _branch(node: Info, at: datetime, make: Callable[[Text], Tree]) -> Tree:
    label = Text().append(one_line(node.name), "bold").append(f"  {one_line(node.class_name)}", "dim")
    label.append(f"  {one_line(node.state)}", "green" if node.state == "running" else "yellow")
    if node.started_at is not None:
        label.append(f"  up {age(datetime.fromtimestamp(node.started_at, UTC), at)}", "dim")
    label.append(f"  mailbox {node.mailbox}  handled {node.handled}")
    if node.restarts:
        label.append(f"  restarts {node.restarts}", "yellow")
    if node.last_crash:
        label.append(f"  last crash: {one_line(node.last_crash)}", "red")
    branch = make(label)
    for child in node.children:
        _branch(child, at, branch.add)
    return branch


def draw_server(on: Console, data: Json, at: datetime) -> None:
    status = read(ServerStatus, data)
    on.print(f"version {status.version}, up for {age(status.started_at, at)}")
    http = status.http
    port = "none" if http is None else http.base or f"closed ({http.fault or 'it is being opened'})"
    rows = (
        ("configuration", status.configuration or "none: the defaults apply"),
        ("database", status.database),
        ("rooms", status.rooms_database or "none"),
        ("HTTP port", port),
        ("gateway", "yes" if status.has_gateway else "none"),
        ("page", "agent-intercom-ctl web opens it" if status.has_page else "none"),
    )
    for name, value in rows:
        on.print(safe_text(f"{name:<15}{value}"), soft_wrap=True)


def draw_clients(on: Console, data: Json, at: datetime) -> None:
    found = read(ClientEntries, data)
    for each in found.clients:
        where = f"{each.file} in the project" if each.is_in_project else each.file
        on.print(safe_text(f"{each.title} ({each.name}): in {where}", "bold"), soft_wrap=True)
        ways = (("over stdio", each.stdio or each.fault, each.stdio_note), ("over HTTP", each.http, each.http_note))
        for way, text, note in ways:
            on.print(safe_text(f"\n{way}\n\n{text.rstrip()}\n\n{note}"), soft_wrap=True)
        on.print()
    if found.remark:
        on.print(safe_text(f"over HTTP: {found.remark}", "yellow"), soft_wrap=True)


def draw_slack(on: Console, data: Json, at: datetime) -> None:
    if data == {"slack": None}:
        on.print("this server is not in Slack; agent-intercom doctor says what is missing")
        return
    status = read(ChatStatus, data, "slack")
    connection, outbox = status.connection, status.outbox
    if connection is None:
        on.print("the connection is restarting")
    else:
        is_up = connection.state is ConnectionState.UP
        state = "connected" if is_up else f"not connected ({connection.state})"
        on.print(f"{state} for {age(connection.since, at)}, channel {status.channel}")
        if not is_up and connection.last_error:
            on.print(safe_text(f"  {connection.last_error}", "red"), soft_wrap=True)
    if outbox is None:
        on.print("what sends messages is restarting")
        return
    waiting = ", ".join(f"{number} {urgency}" for urgency, number in outbox.waiting.items() if number)
    since = f", the oldest for {age(outbox.oldest, at)}" if outbox.oldest else ""
    on.print(f"to be posted: {waiting or 'nothing'}{since}; to be updated: {outbox.updates or 'nothing'}")
    for channel, fault in outbox.faults.items():
        on.print(safe_text(f"  {channel}: {fault}", "red"), soft_wrap=True)


def draw_token(on: Console, data: Json, at: datetime) -> None:
    """Print a new token alone, and the rest on standard error: the token may be piped into a program."""
    made = read(TokenEntry, data)
    on.print(clean(made.token), soft_wrap=True)
    until = f"until {timestamp(made.expires_at)} UTC"
    about = f"the token {made.name} has the role {made.role} {until}; it is shown only now"
    print(one_line(about), file=sys.stderr)
    print(one_line(f"send it to {made.url}/api/operator as Authorization: Bearer TOKEN"), file=sys.stderr)


def draw_tokens(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            safe_text(each.name),
            safe_text(each.role),
            safe_text(each.created_by),
            timestamp(each.created_at),
            timestamp(each.expires_at),
        )
        for each in read(list[TokenEntry], data, "tokens")
    ]
    columns = ("name", "role", "by", "made (UTC)", "until (UTC)")
    print_table(on, columns, rows, "no program has a token: token add makes one")


def draw_revoked_token(on: Console, data: Json, at: datetime) -> None:
    on.print(safe_text(f"revoked the token {read(TokenEntry, data).name}"))


def draw_people(on: Console, data: Json, at: datetime) -> None:
    found = read(PagePeople, data)
    rows = [
        (
            short(each.id),
            safe_text(one_line(each.name)),
            safe_text(one_line(each.role)),
            timestamp(each.began_at),
            f"{age(each.used_at, at)} ago",
        )
        for each in found.signed_in
    ]
    columns = ("id", "name", "role", "signed in (UTC)", "was there")
    print_table(on, columns, rows, "nobody is signed in: agent-intercom-ctl web makes a link")
    if found.public_url is not None:
        on.print(safe_text(f"\nwho may come in at {one_line(found.public_url)}"), soft_wrap=True)
        members = [(safe_text(one_line(each.name)), safe_text(each.role)) for each in found.members]
        print_table(on, ("name", "role"), members, "nobody: [web.members] in the configuration has their names")
    if found.in_slack is not None:
        ids = ", ".join(map(one_line, found.in_slack))
        nobody = "nobody: authorized_user_ids in the configuration has their ids"
        on.print(safe_text(f"\nwho may answer in Slack: {ids or nobody}"), soft_wrap=True)


def draw_signed_out(on: Console, data: Json, at: datetime) -> None:
    ended = read(SignedIn, data)
    on.print(safe_text(f"signed {one_line(ended.name)} out in the browser {short(ended.id)}"))


def draw_subscriptions(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            short(each.push_id),
            safe_text(one_line(each.by)),
            safe_text(one_line(each.label)),
            safe_text(one_line(each.service)),
            safe_text(timestamp(each.created_at)),
        )
        for each in read(list[PushEntry], data, "subscriptions")
    ]
    columns = ("id", "of", "browser", "push service", "since (UTC)")
    print_table(on, columns, rows, "no browser gets push messages: switch them on under Notifications on the page")
