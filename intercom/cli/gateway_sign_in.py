"""Runs `agent-intercom gateway sign-in` and `sign-out`: a person signs in to a remote downstream with OAuth.

It runs here and not in the server, because the browser and the loopback are the person's. It needs no server: one that
runs notices the new credentials by itself. What servers wrote is made safe for a terminal before it is shown.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import trio

from intercom.cli.browser import has_screen, open_in_browser
from intercom.cli.ctl_text import one_line
from intercom.gateway.config_directory import Settings, read_settings
from intercom.gateway.credentials import CredentialStore
from intercom.gateway.downstream_config import DownstreamConfig, MissingVariables, Transport, expand, host_of
from intercom.gateway.oauth import (
    SIGN_IN_SECONDS,
    Revocation,
    SignedIn,
    SignedOut,
    SignInFailed,
    TakeAddress,
    sign_in,
    sign_out,
)
from intercom.gateway.service import lookup_in
from intercom.local.places import Places
from intercom.masking import Masker
from intercom.model.config import Config
from intercom.model.errors import ConfigError

PROGRAM: Final = "agent-intercom"
#: The longest line that a person pastes (bytes), and how much is shown of what a server wrote (characters).
_LINE_BYTES: Final = 65_536
_SAID_LENGTH: Final = 300
#: Prints one line for the person.
Say = Callable[[str], object]


def run(options: argparse.Namespace, where: Places, config: Config) -> int:
    """Carry out `sign-in` or `sign-out`. Returns 0 if it was done, 1 if it failed, 130 if the person interrupted it.

    Raises ConfigError for a downstream that has no sign-in, or that does not exist.
    """
    store = CredentialStore(Path(where.gateway_credentials))
    settings = read_settings(config.gateway.directory or Path(where.gateway_directory))
    if options.action == "sign-out":
        return _sign_out(options.name, settings, store)
    found = expanded(find(options.name, settings), os.environ)
    say: Say = lambda text: print(one_line(text), flush=True)  # noqa: E731
    try:
        known = store.load(found)
    except ConfigError:
        # The sign-in says what is wrong with the file.
        known = None
    is_known = known is not None and bool(known.client) and not options.register
    may_open = not options.no_browser and has_screen(os.environ, sys.platform)
    say(f"signing in to {found.name}, {host_of(found.base_url)}")
    try:
        done = trio.run(_signed_in, found, store, say, may_open, is_known, options)
    except SignInFailed as failed:
        print(f"{PROGRAM}: {one_line(failure_text(found.name, failed))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; what was stored before is still there", file=sys.stderr)
        return 130
    for line in signed_in_lines(done, is_on=config.gateway.enabled):
        print(one_line(line))
    return 0


def _sign_out(name: str, settings: Settings, store: CredentialStore) -> int:
    config = settings.configs.get(name)
    try:
        config = None if config is None else expanded(config, os.environ)
    except ConfigError:
        # Without its address the token cannot be ended, but it can be removed.
        config = None
    try:
        had_some = store.stamp(name) is not None
    except ValueError:
        had_some = False
    if not had_some:
        if config is None:
            # Raises what is wrong with the name.
            find(name, settings)
        print(one_line(f"nobody has signed in to {name}"))
        return 0
    done = trio.run(sign_out, name, config, store)
    for line in signed_out_lines(done):
        print(one_line(line))
    return 0


# --- what is signed in to --------------------------------------------------------------------------------------------


def find(name: str, settings: Settings) -> DownstreamConfig:
    """Return the configuration of a downstream that a person can sign in to. Raises ConfigError."""
    config = settings.configs.get(name)
    if config is None:
        faults = [fault for fault in settings.faults if f"/{name}.json" in fault] or settings.faults[:1]
        if faults and not settings.configs.keys() - {name}:
            raise ConfigError(faults[0])
        there = ", ".join(each for each, found in sorted(settings.configs.items()) if found.signs_in)
        fault = f"; its file has a fault: {faults[0]}" if faults and f"/{name}.json" in faults[0] else ""
        near = get_close_matches(name[:80], settings.configs, 1)
        hint = f" did you mean {near[0]}?" if near and not fault else ""
        raise ConfigError(
            f"no MCP server is called {name[:80]!r}{fault};{hint} those with a sign-in are: {there or 'none'}"
        )
    if config.transport is Transport.STDIO:
        raise ConfigError(f"{name} is a program on this machine, which signs in by itself: see its documentation")
    if not config.signs_in:
        raise ConfigError(
            f"{name} is sent the token in its headers, so no sign-in counts: remove Authorization from headers in its"
            " file first"
        )
    return config


def expanded(config: DownstreamConfig, environ: Mapping[str, str]) -> DownstreamConfig:
    """Return the configuration with the values of its references. Raises ConfigError."""
    try:
        return expand(config, lookup_in(environ))
    except MissingVariables as missing:
        named = ", ".join(map(str, missing.references))
        raise ConfigError(
            f"the configuration of {config.name} needs {named}, which is not set here: set it as the server has it"
        ) from None


# --- the sign-in -----------------------------------------------------------------------------------------------------


async def _signed_in(
    config: DownstreamConfig,
    store: CredentialStore,
    say: Say,
    may_open: bool,
    is_known: bool,
    options: argparse.Namespace,
) -> SignedIn:
    seconds = options.wait or SIGN_IN_SECONDS
    shown = trio.Event()
    page = ""

    async def show(address: str) -> None:
        nonlocal page
        for line in page_lines(config, address, os.environ):
            say(line)
        if is_known:
            say("if the page does not know this client any more: end this with ^C, and add --register")
        say(f"waiting up to {seconds / 60:g} min; ^C ends it")
        page = address
        shown.set()

    async def paste(take: TakeAddress) -> None:
        async with trio.open_nursery() as nursery:
            if may_open:
                nursery.start_soon(open_page)
            await _take_lines(take, say)

    async def open_page() -> None:
        await shown.wait()
        # Some browsers only return when they are closed: nothing waits for this.
        why = await trio.to_thread.run_sync(open_in_browser, page, abandon_on_cancel=True)
        if why is not None:
            say(f"{why}: open the address yourself")

    try:
        return await sign_in(config, store, show, paste=paste, register=options.register, seconds=seconds)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise


def page_lines(config: DownstreamConfig, address: str, environ: Mapping[str, str]) -> list[str]:
    """Return what a person is told about the page on which they sign in: whose it is, and how to get back from it."""
    back = urlsplit(parse_qs(urlsplit(address).query)["redirect_uri"][-1])
    page, server = host_of(address), host_of(config.base_url)
    whose = "" if page == server else f", which {server} has named: check that you know it"
    lines = [
        f"its sign-in page is at {page}{whose}",
        "open this address in a browser:",
        "",
        f"  {address}",
        "",
        f"a browser on another machine cannot come back here, and shows an error at the end: copy the address of that"
        f" page, which begins with {back.scheme}://{back.netloc}{back.path}?, paste it here, and press Enter",
    ]
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        forward = f"ssh -N -L {back.port}:{back.hostname}:{back.port} HOST"
        lines.append(
            f"or, before you open it, run this on the machine with the browser, HOST being this one: {forward}"
        )
    return lines


async def _take_lines(take: TakeAddress, say: Say) -> None:
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        # There is no standard input.
        return
    async for line in _lines(descriptor):
        if not line.strip():
            continue
        why = take(line)
        say("taken" if why is None else why)
        if why is None:
            return


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """Yield the lines of an input until it ends. No thread reads, because that would keep this process from ending."""
    rest = b""
    while True:
        try:
            await trio.lowlevel.wait_readable(descriptor)
            data = os.read(descriptor, _LINE_BYTES)
        except OSError:
            # It is a file, or a terminal that is gone.
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines if data else [rest]:
            yield line.decode("utf-8", "replace")
        if not data:
            return
        rest = rest[:_LINE_BYTES]


# --- what came of it -------------------------------------------------------------------------------------------------


def signed_in_lines(done: SignedIn, *, is_on: bool) -> list[str]:
    """Return what was granted, until when, and what comes next."""
    name = shlex.quote(done.downstream)
    if done.expires_at is None:
        until = "until its server ends it"
    else:
        # A server may say any number of seconds; its life is limited to ten years.
        until = f"until {datetime.fromtimestamp(done.expires_at, UTC):%Y-%m-%d %H:%M} UTC"
        again = f"then run {PROGRAM} gateway sign-in {name} again: this server's tokens cannot be renewed"
        until = f"{until}; {'Intercom renews it by itself' if done.is_refreshable else again}"
    first = f"agent-intercom-ctl gateway list   # {done.downstream} should be ready within seconds, if the server runs"
    if not is_on:
        first = f"write enabled = true under [gateway] in the configuration, and run {PROGRAM} stop: the gateway is off"
    return [
        f"signed in to {done.downstream} at {done.issuer}",
        f"  granted: {', '.join(done.scopes) or 'what it grants without scopes'}",
        f"  valid:   {until}",
        "next:",
        f"  {first}",
        f"  {PROGRAM} gateway sign-out {name}   # ends it",
    ]


def signed_out_lines(done: SignedOut) -> list[str]:
    """Return what a sign-out has ended, and what a person may do about the rest."""
    lines = [f"signed out of {done.downstream}: what was stored here is removed, and its connection ends in seconds"]
    if done.revocation is Revocation.DONE:
        lines.append(f"{done.issuer} has ended the token")
    else:
        who = done.issuer or "its authorization server"
        why = "did not confirm that the token has ended" if done.revocation is Revocation.FAILED else "was not asked"
        if done.issuer is not None and done.revocation is Revocation.NOT_OFFERED:
            why = "offers no way to end the token from here"
        lines.append(f"{who} {why}: if it must end now, remove the access in your account there")
    return [*lines, f"to sign in again: {PROGRAM} gateway sign-in {shlex.quote(done.downstream)}"]


def failure_text(name: str, failed: SignInFailed) -> str:
    """Return why a sign-in failed, with the beginning of what a server said about it."""
    # Masked before it is cut: half a secret is not recognised.
    said = " ".join(Masker().mask(failed.detail).text.split())
    shown = said if len(said) <= _SAID_LENGTH else f"{said[:_SAID_LENGTH]}..."
    return f"not signed in to {name}: {failed.reason}{f' (it said: {shown})' if shown else ''}"
