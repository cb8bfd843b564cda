"""Slack's credentials: from the environment, the keychain or a private file.

The sources, in this order, are the keychain, the environment, and the file that `slack login --file` wrote. The
configuration never holds them. A shim's environment is ignored (`intercom.local.daemon` drops them).

The keychain may wait for a password: see `intercom.local.keychain`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from intercom.local import keychain, own_files
from intercom.local.places import private_directory
from intercom.model.config import Config
from intercom.model.errors import SlackError
from intercom.operators.slack.web_api import SlackTokens


def read_file(path: Path) -> dict[str, str]:
    """Return the credentials by name; empty if there is no file. Raises SlackError if the file is a link, belongs to
    another user, is open to others, or has other content."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SlackError(f"{path} cannot be read ({(error.strerror or '').lower()}): log in to Slack again") from None
    try:
        _judge(path, os.fstat(handle))
        with open(handle, "rb", closefd=False) as stream:
            held = json.load(stream)
    except ValueError:
        held = None
    finally:
        os.close(handle)
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        raise SlackError(f"{path} holds no credentials: remove it, and log in to Slack again")
    return held


def write_file(path: Path, values: Mapping[str, str]) -> None:
    """Write the file with mode 0600, atomically. Empty values are omitted. Raises IpcError if its directory is not
    private to the user, OSError if it cannot be written."""
    private_directory(str(path.parent))
    kept = {name: value for name, value in values.items() if value}
    own_files.replace(path, json.dumps(kept, indent=1).encode())


def remove(path: Path) -> bool:
    """Delete the file and return whether it existed. Raises OSError if it cannot be deleted."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _judge(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise SlackError(f"{path} is not a file of yours: remove it, and log in to Slack again")
    if found.st_mode & 0o077:
        # Credentials that others could read must count as known to them.
        raise SlackError(
            f"{path} is open to other users (mode {found.st_mode & 0o777:o}): run chmod 600 on it, and if others"
            " use this machine, make new tokens"
        )


def read_keychain(names: Iterable[str], *, patience: float) -> dict[str, str] | None:
    """Do as `keychain.read`. Raises SlackError."""
    with _as_slack_error():
        return keychain.read(names, patience=patience)


def write_keychain(values: Mapping[str, str], *, patience: float) -> str | None:
    """Do as `keychain.write`. Raises SlackError."""
    with _as_slack_error():
        return keychain.write(values, patience=patience)


def forget(names: Iterable[str], *, patience: float) -> tuple[str, ...] | None:
    """Do as `keychain.forget`. Raises SlackError."""
    with _as_slack_error():
        return keychain.forget(names, patience=patience)


@contextmanager
def _as_slack_error() -> Iterator[None]:
    try:
        yield
    except keychain.KeychainError as fault:
        raise SlackError(f"{fault.message}, or use agent-intercom slack login --file") from None


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
        kept = read_keychain([kind.name for kind in KINDS], patience=patience)
    except SlackError as fault:
        unread.append(fault.message)
    try:
        filed = read_file(file) if file is not None else {}
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
