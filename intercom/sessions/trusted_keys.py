"""The trusted keys: which operator keys count, which settings one of them has signed, and the channels' own keys.

The operator keys that count are pinned when the store is opened. They are listed in the user's file *and* enrolled in
the database, in a chain of signatures that begins with the first key. If root keeps a file of its own, the keys in it
count instead. A later change of the file can only remove keys. Settings that allow a decision without a key count as
far as one of these keys has signed them (`intercom.local.operator_keys`).

A passkey signs decisions only: neither keys nor settings. It counts as long as the operator key that has signed its
enrolment.
"""

from __future__ import annotations

import base64
import os
import stat
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from intercom.local import operator_keys as key_files
from intercom.local import own_files
from intercom.local.operator_keys import Allowed, PublicKey, SignedSettings
from intercom.local.places import SYSTEM_OPERATOR_KEYS, Places, private_directory
from intercom.model import clock, signing
from intercom.model.config import Config, HighestRisk
from intercom.model.errors import ConfigError, NotFound, SignatureRefused
from intercom.store import audit
from intercom.store.audit import KeyRevocation
from intercom.store.trust import EnrolledKey
from intercom.store.trust import operator_keys as enrolled_keys
from intercom.store.writer_messages import Database

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: How far a signature's time may differ from the server's. A person reads a card before they sign.
FRESH = timedelta(minutes=10)

_ENROL = "agent-intercom-ctl key enrol"
_RESTART = "if it is yours, run agent-intercom stop"
_FORGET = "remove its line from the list, then run agent-intercom stop"
_NO_KEY = base64.b64encode(bytes(32)).decode("ascii")


@frozen
class SystemKeys:
    """The file in which root may list the operator keys, and root's user id."""

    file: Path = Path(SYSTEM_OPERATOR_KEYS)
    owner: int = 0


@frozen
class KeyStatus:
    """The status of one operator key. `counts` says whether its signatures count, `why` why not. `can_be_first` says
    that no key is enrolled, and that this one may enrol itself now."""

    key_id: str
    public: str
    name: str
    counts: bool
    why: str = ""
    can_be_first: bool = False


@frozen
class UnsignedSettings:
    """What people are told about settings that do not count. `advice` says what to do if `text` does not."""

    text: str
    advice: str = ""

    def sentence(self) -> str:
        return f"{self.text}; {self.advice}" if self.advice else self.text


@define
class Keyring:
    """The operator keys. `config` says what channels may decide. `is_foreign` says that an agent's client chose the
    server's directories. Then the user's own keys also make signatures required, and the first key must be one of them.
    No key counts before `load`. All methods may be called from any thread."""

    places: Places
    config: Config
    system: SystemKeys = SystemKeys()
    is_foreign: bool = False
    _loaded: bool = False
    _from_system: bool = False
    _pinned: dict[str, PublicKey] = field(factory=dict)
    _enrolled: dict[str, PublicKey] = field(factory=dict)
    #: The ids in the database, also of keys that do not count any more. None of them is enrolled a second time.
    _stored: set[str] = field(factory=set)
    _seen: tuple[object, dict[str, PublicKey], str] | None = None
    _seen_system: tuple[object, dict[str, PublicKey], str] | None = None
    _seen_settings: tuple[object, SignedSettings | None, str] | None = None
    _channels: dict[str, Ed25519PrivateKey] = field(factory=dict, repr=False)
    _lock: threading.RLock = field(factory=threading.RLock, repr=False)
    _listed_at_start: bool = False
    _roots: frozenset[str] = frozenset()
    #: When the newest known settings were signed, in this server run or by the audit log.
    _settings_signed_at: str = ""

    # --- which keys count --------------------------------------------------------------------------------------------

    def load(self, db: Database, now: datetime) -> tuple[tuple[str, ...], UnsignedSettings | None]:
        """Pin the keys, once. Returns what people must be told: faults, and `unsigned_settings`, which may be none."""
        with self._lock:
            if self._loaded:
                return (), None
            faults = self._load(db)
            if self.required:
                # Load the library now, so that the first decision need not wait for it.
                key_files.verifies(_NO_KEY, "00" * 64, b"")
                self._settings_signed_at = audit.settings_signed_at(db, now + FRESH)
            self._loaded = True
            return tuple(faults), self.unsigned_settings()

    def pin_nothing(self) -> None:
        """Behave as if loaded from a database without keys."""
        self._loaded = True

    def _load(self, db: Database) -> list[str]:
        stored = enrolled_keys.every(db)
        self._stored = {row.id for row in stored}
        self._enrolled, faults = _chained(stored, audit.key_revocations(db))
        system, fault = self._system_file()
        if fault:
            faults.append(fault)
        self._from_system = system is not None
        listed, fault = self._listed()
        if fault:
            faults.append(fault)
        elsewhere = self._elsewhere() if self.is_foreign else {}
        # A list that cannot be read counts as listing a key that nobody has.
        self._roots = frozenset(elsewhere or listed or ([""] if fault else ()))
        self._listed_at_start = bool(self._roots)
        if system is not None:
            self._pinned = dict(system)
            return faults
        self._pinned = {id: key for id, key in self._enrolled.items() if id in listed}
        for id in self._enrolled.keys() - listed.keys():
            faults.append(
                f"operator key {id} is enrolled here, and {self.places.operator_keys_file} does not list it: its"
                " decisions do not count; restore that file if it was not you who changed it"
            )
        for id in listed.keys() - self._enrolled.keys():
            then = f"until you run {_ENROL}"
            if listed[id].is_passkey:
                then = "and it cannot be enrolled now: remove its line, and make a new one on the page"
            elif id in self._stored:
                then = f"and it cannot be enrolled again: {_FORGET}"
            faults.append(
                f"operator key {id} is listed in {self.places.operator_keys_file} and not enrolled: its decisions do"
                f" not count {then}"
            )
        return faults

    @property
    def required(self) -> bool:
        """Whether decisions have to be signed. Until the keys are known, they have to."""
        return not self._loaded or self._from_system or bool(self._enrolled) or self._listed_at_start

    @property
    def has_keys(self) -> bool:
        """Whether there is an operator key. Unlike `required`, it is False until the keys are known."""
        return self._loaded and self.required

    def trusted(self) -> Mapping[str, PublicKey]:
        """Return the keys whose signatures count now: those that were pinned and are still listed."""
        with self._lock:
            if not self._loaded:
                return {}
            listed = (self._system_file()[0] or {}) if self._from_system else self._listed()[0]
            if self._pinned.keys() <= listed.keys():
                return self._pinned
            return {id: key for id, key in self._pinned.items() if id in listed}

    def status(self) -> tuple[KeyStatus, ...]:
        """Return every known key, from any source."""
        counting = self.trusted()
        listed, _ = self._listed()
        known = {**listed, **self._enrolled, **self._pinned}
        return tuple(
            KeyStatus(id, key.public, key.name, counts=True)
            if id in counting
            else KeyStatus(
                id, key.public, key.name, counts=False, why=self._why_not(id, listed), can_be_first=self._may_begin(key)
            )
            for id, key in known.items()
        )

    def _may_begin(self, key: PublicKey) -> bool:
        """Whether `add` accepts this key by its own signature, as the first one."""
        if self._from_system or self._enrolled or key.is_passkey or key.id in self._stored:
            return False
        return not self._roots or key.id in self._roots

    def _why_not(self, id: str, listed: Mapping[str, PublicKey]) -> str:
        if self._from_system:
            return f"not listed in {self.system.file}"
        if id not in self._enrolled:
            if id in listed and listed[id].is_passkey:
                return "not enrolled, or the key that signed it was revoked"
            if id in self._stored:
                return f"not enrolled, and it cannot be enrolled again: {_FORGET}"
            if not self._enrolled and self._roots and id not in self._roots:
                return f"not listed when the server started: {_RESTART}"
            return f"not enrolled: run {_ENROL}"
        return f"not listed in {self.places.operator_keys_file}" if id not in listed else "pinned at the next start"

    def add(self, db: Database, key: PublicKey, at: str, by: str, signature: str, now: datetime) -> bool:
        """Enrol a key, in the caller's transaction; False if it is enrolled already. The first key signs for itself,
        and must have been listed at the start if any key was. Every other one needs the signature of a key that counts.
        Raises SignatureRefused."""
        with self._lock:
            self._refuse_system("added")
            if key.id in self._enrolled:
                return False
            if not self._enrolled and self._roots and key.id not in self._roots:
                raise SignatureRefused(
                    f"operator key {key.id} was not listed when the server started, and others were: let one of those"
                    " count first with agent-intercom-ctl key enrol, see agent-intercom-ctl key list"
                )
            first = key if by == key.id else None
            signer = self.trusted().get(by) if self._enrolled else first
            self._check_key_act("add", key, at, by, signature, signer, now)
            if not enrolled_keys.insert(db, EnrolledKey(key.id, key.public, key.name, at, by, signature)):
                raise SignatureRefused(f"operator key {key.id} was enrolled before, and revoked: make another one")
            self._enrolled[key.id] = self._pinned[key.id] = key
            self._stored.add(key.id)
            return True

    def revoke(self, db: Database, id: str, at: str, by: str, signature: str, now: datetime) -> PublicKey:
        """Revoke a key, by the signature of a key that counts (its own suffices), in the caller's transaction. Raises
        SignatureRefused and NotFound."""
        with self._lock:
            self._refuse_system("revoked")
            key = self._enrolled.get(id)
            if key is None:
                raise NotFound(f"no operator key {id[:40]!r} is enrolled here; see agent-intercom-ctl key list")
            self._check_key_act("revoke", key, at, by, signature, self.trusted().get(by), now)
            enrolled_keys.revoke(db, id, at, by, signature)
            del self._enrolled[id]
            # The passkeys that it has signed go with it.
            counting, _ = _chained(enrolled_keys.every(db), ())
            self._enrolled = {id: key for id, key in self._enrolled.items() if id in counting}
            self._pinned = {id: key for id, key in self._pinned.items() if id in self._enrolled}
            if not self._enrolled:
                # Its owner may remove it from the file, which protects nothing any more.
                self._listed_at_start = False
                if not self.is_foreign:
                    self._roots = frozenset()
            return key

    def _refuse_system(self, what: str) -> None:
        if self._from_system:
            raise SignatureRefused(
                f"only root says which operator keys count here: keys are {what} in"
                f" {self.system.file}, and the server restarted with agent-intercom stop"
            )

    def _check_key_act(
        self, action: str, key: PublicKey, at: str, by: str, signature: str, signer: PublicKey | None, now: datetime
    ) -> None:
        if signer is None or signer.is_passkey:
            raise SignatureRefused(
                f"to {action} key {key.id} needs the signature of an operator key that counts here, and {by[:40]} is"
                " none; see agent-intercom-ctl key list"
            )
        said = signing.key_statement(action, public=key.public, name=key.name, at=at, by=by)
        if not is_fresh(at, now) or not key_files.verifies(signer.public, signature, said):
            raise SignatureRefused(f"the signature that was to {action} key {key.id} is not in order; try again")

    def _listed(self) -> tuple[dict[str, PublicKey], str]:
        """Return the keys in the user's file, read again if it has changed, and what is wrong with it."""
        file = self.places.operator_keys_file
        stamp = _stamp(file)
        if self._seen is None or self._seen[0] != stamp:
            try:
                self._seen = (stamp, key_files.read_public(Path(file)), "")
            except ConfigError as fault:
                self._seen = (stamp, {}, f"no operator key counts: {fault.message}")
        return self._seen[1], self._seen[2]

    def _elsewhere(self) -> dict[str, PublicKey]:
        """Return the keys that the user's own directories list, wherever this server was told to look. A file that
        cannot be read counts as listing a key that nobody has."""
        found: dict[str, PublicKey] = {}
        for file in own_files.operator_keys_files():
            try:
                found.update(key_files.read_public(file))
            except ConfigError:
                found[""] = PublicKey(_NO_KEY)
        return found

    def _system_file(self) -> tuple[dict[str, PublicKey] | None, str]:
        """Return the keys in root's file, None if there is no file, and what is wrong with it. If others may write the
        file or its directory, it lists nothing."""
        file = self.system.file
        try:
            stats = [os.stat(file, follow_symlinks=False), os.stat(file.parent)]
        except OSError:
            return None, ""
        if any(each.st_uid != self.system.owner or each.st_mode & 0o022 for each in stats) or not stat.S_ISREG(
            stats[0].st_mode
        ):
            return {}, f"no operator key counts: {file} and its directory must be root's, and writable by nobody else"
        stamp = tuple(_stamp_of(each) for each in stats)
        if self._seen_system is None or self._seen_system[0] != stamp:
            try:
                self._seen_system = (stamp, key_files.read_public(file), "")
            except ConfigError as fault:
                self._seen_system = (stamp, {}, f"no operator key counts: {fault.message}")
        return self._seen_system[1], self._seen_system[2]

    # --- settings that allow a decision without a key ----------------------------------------------------------------

    def allowed(self) -> Allowed:
        """Return what may be decided without a key: what the configuration allows and, if required, was signed."""
        asked = Allowed.by(self.config)
        return asked.within(self._signed_settings()[0]) if self.required else asked

    def unsigned_settings(self) -> UnsignedSettings | None:
        """Return what to tell people about settings that do not count; None if all count."""
        if not self.required:
            return None
        signed, fault = self._signed_settings()
        asked = Allowed.by(self.config).beyond(signed)
        if not asked:
            return UnsignedSettings(fault) if fault else None
        if fault:
            return UnsignedSettings(f"{', '.join(asked)} does not count: {fault}")
        text = (
            f"{', and '.join(self._holding())}: your operator key has not signed {', '.join(asked)} (defaults have to"
            " be signed too)"
        )
        return UnsignedSettings(text, "if you want it, run agent-intercom-ctl key settings")

    def _holding(self) -> list[str]:
        """Return what holds, as phrases, while settings are not signed."""
        asked, now = Allowed.by(self.config), self.allowed()
        places: dict[str, list[str]] = {}
        if asked.slack is not now.slack:
            places.setdefault(_deciding(now.slack), []).append("in Slack")
        if asked.embed is not now.embed:
            places.setdefault(_deciding(now.embed), []).append("in programs that embed Intercom")
        told = [f"{' and '.join(where)}, {what}" for what, where in places.items()]
        if asked.trust_changes and not now.trust_changes:
            told.append("a changed policy file has to be accepted by a person first")
        return told

    @property
    def has_new_settings(self) -> bool:
        """Whether settings were signed that `note_settings` has not recorded."""
        signed = self._genuine_settings()[0] if self.required else None
        return signed is not None and signed.at > self._settings_signed_at

    def note_settings(self, db: Database, now: datetime) -> SignedSettings | None:
        """Record which settings are signed, in the caller's transaction, if they are newer than the recorded ones.
        Returns what was recorded. Older ones then do not count. Settings signed by a clock that is ahead would block
        later ones, and are ignored."""
        with self._lock:
            logged = audit.settings_signed_at(db, now + FRESH)
            signed = self._genuine_settings()[0]
            if signed is not None and logged < signed.at <= clock.to_text(now + FRESH):
                data = {
                    "settings": signed.allowed.settings(),
                    "at": signed.at,
                    "by": signed.by,
                    "signature": signed.signature,
                }
                text = ", ".join(signed.allowed.lines())
                audit.record(db, now, audit.SETTINGS_SIGNED, None, signed.by, text, data)
                self._settings_signed_at = max(self._settings_signed_at, signed.at)
                return signed
            self._settings_signed_at = max(self._settings_signed_at, logged)
            return None

    def new_settings(self, signed: SignedSettings) -> str:
        """Return the message that settings were signed."""
        lines = ", ".join(self.allowed().lines())
        return f"operator key {signed.by} has signed the settings; what may be decided without it from now on: {lines}"

    def _signed_settings(self) -> tuple[Allowed, str]:
        """Return the settings last signed by a key that counts, or none; and what is wrong with the file."""
        signed, fault = self._genuine_settings()
        if signed is None:
            return key_files.NOTHING, fault
        if signed.at < self._settings_signed_at:
            return key_files.NOTHING, (
                f"{self.places.signed_settings_file} was signed at {signed.at}, and others were at"
                f" {self._settings_signed_at}: sign your settings again with agent-intercom-ctl key settings, and look"
                " at what ran if you did not put the file back yourself"
            )
        return signed.allowed, ""

    def _genuine_settings(self) -> tuple[SignedSettings | None, str]:
        """Return the file's settings if a key that counts has signed them, or None; and the file's fault."""
        file = self.places.signed_settings_file
        with self._lock:
            stamp = _stamp(file)
            if self._seen_settings is None or self._seen_settings[0] != stamp:
                try:
                    self._seen_settings = (stamp, key_files.read(Path(file)), "")
                except ConfigError as fault:
                    self._seen_settings = (stamp, None, fault.message)
            _, signed, damaged = self._seen_settings
            key = None if signed is None else self.trusted().get(signed.by)
        if signed is None or key is None or not signed.is_genuine(key):
            return None, damaged
        return signed, ""

    def highest(self, channel: str) -> HighestRisk:
        """Return the highest risk that may be decided on a channel for which the server signs."""
        allowed = self.allowed()
        return allowed.slack if channel == "slack" else allowed.embed

    def channel_key(self, channel: str) -> Ed25519PrivateKey:
        """Return the channel's key, created when it is first needed. This user can read it in the state directory. It
        marks what a channel decided, but stops nobody who can read that directory."""
        with self._lock:
            if channel not in self._channels:
                self._channels[channel] = _stored_key(key_files.channel_file(self.places, channel))
            return self._channels[channel]


def _deciding(highest: HighestRisk) -> str:
    if highest is HighestRisk.NONE:
        return "nothing can be decided yet"
    return f"only requests of {highest.value} risk{'' if highest is HighestRisk.LOW else ' or less'} can be decided"


def _stamp(file: str) -> object:
    """Return a value that changes when the file does; None if there is no file."""
    try:
        return _stamp_of(os.stat(file, follow_symlinks=False))
    except OSError:
        return None


def _stamp_of(found: os.stat_result) -> object:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_fresh(at: str, now: datetime) -> bool:
    """Return whether a signature was made about now."""
    try:
        return abs(clock.from_text(at) - now) <= FRESH
    except ValueError:
        return False


def _chained(
    rows: tuple[EnrolledKey, ...], logged: tuple[KeyRevocation, ...]
) -> tuple[dict[str, PublicKey], list[str]]:
    """Return the enrolled keys, each signed by an earlier one, and what is wrong with the others. After the last key
    was revoked, the next one signs for itself. A revocation that no key signed does not count. Those in `logged` count,
    also if the table does not have them any more."""
    known: dict[str, PublicKey] = {}
    signing_keys: list[EnrolledKey] = []
    faults: list[str] = []
    for row in rows:
        key = PublicKey(row.public, row.name)
        is_first = all(_was_revoked(each, row.added_at, known) for each in signing_keys)
        signer = key if is_first else known.get(row.added_by)
        said = signing.key_statement("add", public=row.public, name=row.name, at=row.added_at, by=row.added_by)
        genuine = (
            signer is not None
            and (signer.id, key.id) == (row.added_by, row.id)
            and key_files.verifies(signer.public, row.added_signature, said)
        )
        if genuine:
            known[key.id] = key
            if not key.is_passkey:
                signing_keys.append(row)
        else:
            faults.append(
                f"operator key {row.id[:40]} was put into the database without a signature: it does not count"
            )
    revoked = {row.id for row in rows if row.revoked_at is not None and _is_revoked(row, known, faults)}
    by_log = {each.id: each for each in logged}
    for row in rows:
        if row.id in known and row.id not in revoked and (found := by_log.get(row.id)) is not None:
            again = evolve(row, revoked_at=found.at, revoked_by=found.by, revoked_signature=found.signature)
            if _is_revoked(again, known, []):
                revoked.add(row.id)
                faults.append(f"operator key {row.id} was revoked, and the database had lost that: it does not count")
    counting = {id: key for id, key in known.items() if id not in revoked}
    # A passkey goes with the key that signed it: a thief of a revoked key could date a new passkey back.
    signers = {row.id: row.added_by for row in rows}
    return {id: key for id, key in counting.items() if not key.is_passkey or signers[id] in counting}, faults


def _was_revoked(row: EnrolledKey, at: str, known: Mapping[str, PublicKey]) -> bool:
    """Whether a key was revoked already at this time."""
    return row.revoked_at is not None and row.revoked_at <= at and _is_revoked(row, known, [])


def _is_revoked(row: EnrolledKey, known: Mapping[str, PublicKey], faults: list[str]) -> bool:
    signer = known.get(row.revoked_by or "")
    said = signing.key_statement(
        "revoke", public=row.public, name=row.name, at=row.revoked_at or "", by=row.revoked_by or ""
    )
    if signer is not None and key_files.verifies(signer.public, row.revoked_signature or "", said):
        return True
    faults.append(f"operator key {row.id[:40]} is marked as revoked without a signature: it still counts")
    return False


def _stored_key(file: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private_directory(str(file.parent))
    try:
        secret = key_files.read_secret(file)
    except FileNotFoundError:
        secret = os.urandom(32)
        key_files.write_secret(file, secret)
    return Ed25519PrivateKey.from_private_bytes(secret)
