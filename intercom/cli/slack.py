"""`agent-intercom slack`: prints the app's manifest, and manages the credentials that a server finds."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from intercom.local import config_file
from intercom.local.places import DEFAULT_IPC_NAME, places
from intercom.model.errors import IntercomError, SlackError
from intercom.operators.slack import credentials
from intercom.operators.slack import settings as slack_settings
from intercom.operators.slack.credentials import APP, BOT, KINDS, TEAM, Kind, Looked, Source, check, file_in, look
from intercom.operators.slack.settings import Outcome, Proof, verify
from intercom.operators.slack.web_api import SlackTokens, api_base

#: Seconds that a person has to unlock the keychain.
_PATIENCE = 60.0
_NAME_LIMIT = 35


def run(options: argparse.Namespace) -> int:
    """Run manifest, login, logout or status. Returns 0 if done, 1 if failed, 2 for an unusable option."""
    try:
        file = file_in(places(options.ipc_name or DEFAULT_IPC_NAME).state_dir)
        match options.action:
            case "manifest":
                return _manifest(options.name, link=options.link)
            case "login":
                return _login(file, from_env=options.from_env, to_file=options.file)
            case "logout":
                return _logout(file)
            case _:
                return _status(file)
    except (IntercomError, OSError, ValueError) as fault:
        return _fail(str(fault))


def _manifest(name: str, *, link: bool) -> int:
    if not name.strip() or len(name) > _NAME_LIMIT:
        return _fail(f"an app's name has 1 to {_NAME_LIMIT} characters", code=2)
    print(slack_settings.link(name) if link else slack_settings.as_json(name))
    return 0


def _login(file: Path, *, from_env: bool, to_file: bool) -> int:
    # Checked first, so that no person pastes a token in vain.
    if not to_file and credentials.read_keychain([APP.name], patience=_PATIENCE) is None:
        return _fail(
            f"this machine has no keychain: agent-intercom slack login --file keeps the tokens in {file}, readable by"
            f" you alone; or put {APP.variable} and {BOT.variable} into the environment of agent-intercom serve"
        )
    given = _from_environment() if from_env else _asked()
    for kind in (APP, BOT):
        check(kind, given[kind.name])
    proofs, team_id = _verified(given)
    for proof in proofs:
        _say(proof)
    if proofs[0].outcome is Outcome.FAULT or proofs[-1].outcome is Outcome.FAULT:
        return _fail("nothing was kept: put that right, and log in again")
    given[TEAM.name] = team_id or given.get(TEAM.name, "")
    if to_file:
        credentials.write_file(file, given)
        kept = str(file)
    else:
        kept = str(credentials.write_keychain(given, patience=_PATIENCE))
    print(f"kept     in {kept}")
    _next_steps(to_file=to_file)
    return 0


def _from_environment() -> dict[str, str]:
    given = {kind.name: os.environ.get(kind.variable, "").strip() for kind in KINDS}
    missing = [kind.variable for kind in KINDS if kind.needed and not given[kind.name]]
    if missing:
        raise SlackError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in the environment")
    return given


def _asked() -> dict[str, str]:
    if not sys.stdin.isatty():
        raise SlackError("there is no terminal to ask at: use --from-env")
    print("nothing is shown while you paste\n")
    given = {}
    for kind in (APP, BOT):
        print(f"{kind.title}, {kind.begins}...  ({kind.where})")
        given[kind.name] = getpass.getpass("> ").strip()
        check(kind, given[kind.name])
    print()
    return given


def _verified(given: Mapping[str, str]) -> tuple[tuple[Proof, ...], str]:
    tokens = SlackTokens(given[APP.name], given[BOT.name], given.get(TEAM.name, ""))
    way = config_file.load().slack
    return trio.run(partial(verify, tokens, api_base(os.environ), proxy=way.proxy, ca_file=way.ca_file))


def _next_steps(*, to_file: bool) -> None:
    if not to_file and os.environ.get("PYTHON_KEYRING_BACKEND"):
        print(
            "note     a server that an agent starts does not see PYTHON_KEYRING_BACKEND: name the backend in"
            " keyringrc.cfg (python -m keyring diagnose says where)"
        )
    print(
        "next     invite the app into a channel (/invite), write the channel's id and your own under [slack] in the"
        " configuration, run agent-intercom doctor, and agent-intercom stop if a server runs: the next one is in Slack"
    )


def _logout(file: Path) -> int:
    forgotten = credentials.forget([kind.name for kind in KINDS], patience=_PATIENCE) or ()
    removed = credentials.remove(file)
    if forgotten:
        print("removed  from the keychain")
    if removed:
        print(f"removed  {file}")
    if not forgotten and not removed:
        print("nothing was kept")
    set_here = [kind.variable for kind in KINDS if os.environ.get(kind.variable)]
    if set_here:
        print(f"note     still in this environment: {', '.join(set_here)}")
    print("note     the tokens are valid until they are revoked in the app's settings, api.slack.com/apps")
    return 0


def _status(file: Path) -> int:
    looked = look(os.environ, file=file, patience=_PATIENCE)
    for kind in KINDS:
        credential = looked.found.get(kind.name)
        print(f"{kind.title:<16} {where(looked, kind.name, file) if credential is not None else _nowhere(kind)}")
    print(f"{'keychain':<16} {'there' if looked.has_keychain else 'none on this machine'}")
    for fault in looked.unread:
        print(f"{'fault':<16} {fault}")
    if looked.tokens() is None:
        return _fail(f"not logged in: agent-intercom slack login{'' if looked.has_keychain else ' --file'}")
    return 0


def _nowhere(kind: Kind) -> str:
    return "nowhere" if kind.needed else "nowhere, and not needed"


def where(looked: Looked, name: str, file: Path) -> str:
    """Say where a found credential comes from."""
    credential = looked.found[name]
    match credential.source:
        case Source.KEYCHAIN:
            return "in the keychain"
        case Source.FILE:
            return f"in {file}"
    return f"in this environment ({credential.kind.variable}); a server that an agent starts does not see it"


def _say(proof: Proof) -> None:
    print(f"{proof.outcome:<8} {proof.subject.removeprefix('slack ')}: {proof.text}")
    if proof.advice:
        print(f"         -> {proof.advice}")


def _fail(what: str, code: int = 1) -> int:
    print(f"agent-intercom: {what}", file=sys.stderr)
    return code
