"""Slack's credentials: where each is looked up, and its format.

The sources, in this order, are the keychain, the environment, and the file that `slack login --file` wrote. The
configuration never holds them. A shim's environment is ignored (`intercom.local.daemon` drops them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from intercom.model.config import Config
from intercom.model.errors import SlackError
from intercom.operators.slack import credential_file, keychain
from intercom.operators.slack.web import SlackTokens

#: Seconds the server's start waits for the keychain, which may be asking an absent user for its password.
PATIENCE = 3.0

MEMBERS = "SLACK_MEMBER_IDS"


class Source(StrEnum):
    KEYCHAIN = "keychain"
    ENVIRONMENT = "environment"
    FILE = "file"


@frozen
class Kind:
    """A kind of credential: its name in keychain and file, its environment variable, and its texts for people."""

    name: str
    variable: str
    title: str
    begins: str
    where: str
    needed: bool = True


APP = Kind(
    "slack_app_token",
    "SLACK_APP_TOKEN",
    "app-level token",
    "xapp-",
    "Basic Information > App-Level Tokens, with the scope connections:write",
)
BOT = Kind("slack_bot_token", "SLACK_BOT_TOKEN", "bot token", "xoxb-", "OAuth & Permissions, once the app is installed")
TEAM = Kind("slack_team_id", "SLACK_TEAM_ID", "team id", "T", "the address of Slack in a browser", needed=False)
KINDS = (APP, BOT, TEAM)

#: Wrong credentials that people paste, by prefix.
_STRANGERS = {
    "xapp-": "the app-level token",
    "xoxb-": "the bot token",
    "xoxp-": "a user's token",
    "xoxe.": "a token that expires: set the app up without token rotation",
    "xoxe-": "a refresh token: set the app up without token rotation",
    "http": "an address",
}


@frozen
class Credential:
    """One value and its source."""

    kind: Kind
    value: str = field(repr=False)
    source: Source


@frozen
class Looked:
    """The result of a look-up in all sources. `unread` has a sentence for each source that could not be read; a missing
    keychain is not one."""

    found: Mapping[str, Credential]
    has_keychain: bool
    unread: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in KINDS if kind.needed and kind.name not in self.found)

    def value(self, kind: Kind) -> str:
        credential = self.found.get(kind.name)
        return credential.value if credential is not None else ""

    def tokens(self) -> SlackTokens | None:
        """Return the tokens; None if a needed one is missing. Raises SlackError if one is malformed."""
        if self.missing:
            return None
        for credential in self.found.values():
            check(credential.kind, credential.value)
        return SlackTokens(self.value(APP), self.value(BOT), self.value(TEAM))


def load(env: Mapping[str, str], *, file: Path | None = None, patience: float = PATIENCE) -> SlackTokens | None:
    """Return the tokens of this user; None if the app-level or the bot token is missing. Blocks for at most `patience`
    seconds. Raises SlackError if a token is malformed, or if one is missing and a source could not be read."""
    looked = look(env, file=file, patience=patience)
    if looked.missing and looked.unread:
        raise SlackError("; ".join(looked.unread))
    return looked.tokens()


def look(env: Mapping[str, str], *, file: Path | None = None, patience: float = PATIENCE) -> Looked:
    """Look up every credential. Blocks for at most `patience` seconds; raises nothing."""
    unread: list[str] = []
    kept: Mapping[str, str] | None = None
    filed: Mapping[str, str] = {}
    try:
        kept = keychain.read([kind.name for kind in KINDS], patience=patience)
    except SlackError as fault:
        unread.append(fault.message)
    try:
        filed = credential_file.read(file) if file is not None else {}
    except SlackError as fault:
        unread.append(fault.message)
    found = {}
    for kind in KINDS:
        for source, value in (
            (Source.KEYCHAIN, (kept or {}).get(kind.name)),
            (Source.ENVIRONMENT, env.get(kind.variable)),
            (Source.FILE, filed.get(kind.name)),
        ):
            if value is not None and value.strip():
                found[kind.name] = Credential(kind, value.strip(), source)
                break
    return Looked(found, kept is not None, tuple(unread))


def check(kind: Kind, value: str) -> None:
    """Raise SlackError if the value is malformed; the error does not contain the value."""
    if kind is TEAM:
        if not re.fullmatch(r"[TE][A-Z0-9]{2,}", value):
            raise SlackError(f"the {TEAM.title} ({TEAM.variable}) must look like T0123456789")
        return
    if not value.startswith(kind.begins):
        what = next((what for begins, what in _STRANGERS.items() if value.startswith(begins)), "")
        fault = f"must begin with {kind.begins}, {f'but it is {what}' if what else 'and it does not'}"
    elif len(value) < 10 or not re.fullmatch(r"[\x21-\x7e]+", value):
        fault = "is cut off, or has something else in it"
    else:
        return
    raise SlackError(f"the {kind.title} ({kind.variable}) {fault}; copy it from {kind.where}")


def authorized(config: Config, env: Mapping[str, str]) -> frozenset[str]:
    """Return the ids of people who may answer from Slack: those of the configuration, otherwise `SLACK_MEMBER_IDS`."""
    members = (each.strip() for each in env.get(MEMBERS, "").split(","))
    return frozenset(config.slack.authorized_user_ids or (each for each in members if each))


def file_in(state_dir: str) -> Path:
    """Return the path of the credentials file of `slack login --file`."""
    # Not beside the configuration, which people keep under version control.
    return Path(state_dir) / "slack-credentials.json"
