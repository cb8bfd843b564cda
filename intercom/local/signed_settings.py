"""Settings that allow decisions without the operator key, and the signed statement that permits them.

Any process of this user can write the configuration and restart the server. So if there is an operator key, these
settings count only as far as a person has signed them (`agent-intercom-ctl key settings`). The signed statement is in a
file beside the list of keys. Without it, or without a valid signature, nothing is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from intercom.local.operator_keys import PublicKey, read_own, replace, verifies
from intercom.local.places import Places, private_directory
from intercom.model import signing
from intercom.model.config import Config, HighestRisk
from intercom.model.errors import ConfigError


@frozen
class Allowed:
    """The highest risk for each of the two channels that the server signs for, and whether every content of a policy
    file takes effect. The defaults allow nothing."""

    slack: HighestRisk = HighestRisk.NONE
    embed: HighestRisk = HighestRisk.NONE
    trust_changes: bool = False

    @staticmethod
    def by(config: Config) -> Allowed:
        """Return what a configuration asks for. A channel that is not configured decides nothing."""
        slack = config.decisions.slack if config.slack.channel_id is not None else HighestRisk.NONE
        return Allowed(slack, config.decisions.embed, config.policy.trust_changes)

    def within(self, signed: Allowed) -> Allowed:
        """Return what both allow."""
        return Allowed(
            min(self.slack, signed.slack, key=_rank),
            min(self.embed, signed.embed, key=_rank),
            self.trust_changes and signed.trust_changes,
        )

    def beyond(self, signed: Allowed) -> tuple[str, ...]:
        """Return the settings, as lines of the file, that allow more than was signed."""
        both = self.within(signed).settings()
        return tuple(_line(name, value) for name, value in self.settings().items() if value != both[name])

    def settings(self) -> dict[str, str | bool]:
        """Return the settings by their configuration names, as JSON and TOML values."""
        return {
            "decisions.slack": self.slack.value,
            "decisions.embed": self.embed.value,
            "policy.trust_changes": self.trust_changes,
        }

    def lines(self) -> tuple[str, ...]:
        """Return the settings as lines for people."""
        return tuple(_line(name, value) for name, value in self.settings().items())


NOTHING = Allowed()


@frozen
class SignedSettings:
    """What was signed, when, and with which key."""

    allowed: Allowed
    at: str
    by: str
    signature: str

    def is_genuine(self, key: PublicKey) -> bool:
        """Whether this key signed it."""
        said = signing.settings_statement(self.allowed.settings(), at=self.at, by=self.by)
        return key.id == self.by and verifies(key.public, self.signature, said)


def sign(allowed: Allowed, at: str, by: str, private: Callable[[bytes], bytes]) -> SignedSettings:
    """Sign with the key whose id is `by`. `private` signs bytes."""
    said = signing.settings_statement(allowed.settings(), at=at, by=by)
    return SignedSettings(allowed, at, by, private(said).hex())


def write(places: Places, signed: SignedSettings) -> None:
    """Store the signed settings in place of the earlier ones."""
    file = Path(places.signed_settings_file)
    private_directory(str(file.parent))
    value = {"settings": signed.allowed.settings(), "at": signed.at, "by": signed.by, "signature": signed.signature}
    replace(file, json.dumps(value, indent=2).encode("ascii") + b"\n", 0o600)


def read(file: Path) -> SignedSettings | None:
    """Read the signed settings, not verified. None if there is no file. Raises ConfigError for a damaged one."""
    try:
        value = json.loads(read_own(file))
        settings, said = value["settings"], [value[name] for name in ("at", "by", "signature")]
        allowed = Allowed(
            HighestRisk(settings["decisions.slack"]),
            HighestRisk(settings["decisions.embed"]),
            settings["policy.trust_changes"] is True,
        )
        if settings != allowed.settings() or not all(isinstance(each, str) for each in said):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{file} is damaged: sign your settings again with agent-intercom-ctl key settings") from None
    return SignedSettings(allowed, *said)


def _rank(level: HighestRisk) -> int:
    return level.rank


def _line(name: str, value: str | bool) -> str:
    table, _, setting = name.partition(".")
    return f"[{table}] {setting} = {json.dumps(value)}"
