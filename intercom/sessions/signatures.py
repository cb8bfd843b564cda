"""Signatures: which keys count, and whether a new or stored decision is signed with one of them.

A decision is checked twice by the same rules: when it is made, and when it takes effect. It takes effect when the agent
gets the answer, files are written, or a restore is carried out. In between it is a row in a database that any process
of this user can write. A call that waits gets the approval that was admitted just now, which is not read again and so
not checked again.

The operator keys that count are pinned when the store is opened. They are listed in the user's file *and* enrolled in
the database, in a chain of signatures that begins with the first key. If root keeps a file of its own, the keys in it
count instead. A later change of the file can only remove keys. Settings that allow a decision without a key count as
far as one of these keys has signed them (`intercom.local.signed_settings`).
"""

from __future__ import annotations

import base64
import os
import stat
import threading
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from intercom.local import operator_keys as key_files
from intercom.local import own_directories, signed_settings
from intercom.local.operator_keys import PublicKey
from intercom.local.places import SYSTEM_OPERATOR_KEYS, Places, private_directory
from intercom.local.signed_settings import Allowed, SignedSettings
from intercom.model import clock, signing
from intercom.model.approval import ApprovalRequest, ApprovalStatus, RiskLevel
from intercom.model.card import Card, CardKind, subject
from intercom.model.config import Config, HighestRisk
from intercom.model.errors import ConfigError, NotFound, SignatureRefused
from intercom.model.prompt import ContinuationPrompt, Wait, WaitStatus
from intercom.model.restore import Restore, RestoreState
from intercom.model.steering import Instruction, Kind, id_of_act
from intercom.model.verdict import Decided, Decision, Signature, SignedCommand, Verdict
from intercom.sessions import cards, outcomes
from intercom.sessions.outcomes import Asked
from intercom.store import audit, instructions, sessions, waits
from intercom.store import operator_keys as enrolled_keys
from intercom.store.messages import Database
from intercom.store.operator_keys import EnrolledKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: How far a signature's time may differ from the server's. A person reads a card before they sign.
FRESH = timedelta(minutes=10)

#: The risk of cards that have none of their own.
_RISK = {CardKind.RESTORE: RiskLevel.HIGH, CardKind.POLICY: RiskLevel.HIGH}

_APPROVAL = {
    ApprovalStatus.APPROVED: Decision.APPROVE,
    ApprovalStatus.CONSUMED: Decision.APPROVE,
    ApprovalStatus.REJECTED: Decision.REJECT,
}

UNSIGNED = (
    "this server takes only decisions signed with an operator key, and this one is not: decide it with"
    " agent-intercom-ctl in a terminal of your own, where the key's PIN is asked for"
)


@frozen
class SystemKeys:
    """The file in which root may list the operator keys, and root's user id."""

    file: Path = Path(SYSTEM_OPERATOR_KEYS)
    owner: int = 0


@frozen
class KeyStatus:
    """The status of one operator key. `counts` says whether its signatures count, `why` why not."""

    key_id: str
    public: str
    name: str
    counts: bool
    why: str = ""


@define
class Signatures:
    """The operator keys and the checks of signatures. `config` says what channels may decide. `is_foreign` says that an
    agent's client chose the server's directories. Then the user's own keys also make signatures required, and the first
    key must be one of them. Nothing can be decided before `load`. All methods may be called from any thread."""

    places: Places
    config: Config
    system: SystemKeys = SystemKeys()
    is_foreign: bool = False
    _loaded: bool = False
    _from_system: bool = False
    _pinned: dict[str, PublicKey] = field(factory=dict)
    _enrolled: dict[str, PublicKey] = field(factory=dict)
    _seen: tuple[object, dict[str, PublicKey], str] | None = None
    _seen_system: tuple[object, dict[str, PublicKey], str] | None = None
    _seen_settings: tuple[object, SignedSettings | None, str] | None = None
    _channels: dict[str, Ed25519PrivateKey] = field(factory=dict, repr=False)
    _lock: threading.RLock = field(factory=threading.RLock, repr=False)
    _listed_at_start: bool = False
    _roots: frozenset[str] = frozenset()
    #: When the newest known settings were signed, in this server run or by the audit log.
    _settings_signed_at: str = ""
    _uses: dict[str, datetime] = field(factory=dict)
    _ended_by_words: set[str] = field(factory=set)

    # --- which keys count --------------------------------------------------------------------------------------------

    def load(self, db: Database, now: datetime) -> tuple[str, ...]:
        """Pin the keys, once. Returns what people must be told about them."""
        with self._lock:
            if self._loaded:
                return ()
            faults = self._load(db)
            if self.required:
                # Load the library now, so that the first decision need not wait for it.
                key_files.verifies(_NO_KEY, "00" * 64, b"")
                self._settings_signed_at = audit.settings_signed_at(db, now + FRESH)
            self._loaded = True
            if (unsigned := self.unsigned_settings()) is not None:
                faults.append(unsigned)
            return tuple(faults)

    def pin_nothing(self) -> None:
        """Behave as if loaded from a database without keys."""
        self._loaded = True

    def _load(self, db: Database) -> list[str]:
        self._enrolled, faults = _chained(enrolled_keys.every(db))
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
            faults.append(
                f"operator key {id} is listed in {self.places.operator_keys_file} and not enrolled: its decisions do"
                " not count until you run agent-intercom-ctl key enrol"
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
            KeyStatus(id, key.public, key.name, id in counting, "" if id in counting else self._why_not(id, listed))
            for id, key in known.items()
        )

    def _why_not(self, id: str, listed: Mapping[str, PublicKey]) -> str:
        if self._from_system:
            return f"not listed in {self.system.file}"
        if id not in self._enrolled:
            return "not enrolled: run agent-intercom-ctl key enrol"
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
            enrolled_keys.add(db, EnrolledKey(key.id, key.public, key.name, at, by, signature))
            self._enrolled[key.id] = self._pinned[key.id] = key
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
            self._pinned.pop(id, None)
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
        if signer is None:
            raise SignatureRefused(
                f"to {action} key {key.id} needs the signature of an operator key that counts here, and {by[:40]} is"
                " none; see agent-intercom-ctl key list"
            )
        said = signing.key_statement(action, public=key.public, name=key.name, at=at, by=by)
        if not _is_fresh(at, now) or not key_files.verifies(signer.public, signature, said):
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
        for file in own_directories.operator_keys_files():
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

    def unsigned_settings(self) -> str | None:
        """Return a message about settings that do not count; None if all count."""
        if not self.required:
            return None
        signed, fault = self._signed_settings()
        asked = Allowed.by(self.config).beyond(signed)
        if not asked:
            return fault or None
        why = fault or "no operator key that counts has signed it; if you set it, run agent-intercom-ctl key settings"
        return f"{', '.join(asked)} does not count: {why}"

    @property
    def has_new_settings(self) -> bool:
        """Whether settings were signed that `note_settings` has not recorded."""
        signed = self._genuine_settings()[0] if self.required else None
        return signed is not None and signed.at > self._settings_signed_at

    def note_settings(self, db: Database, now: datetime) -> None:
        """Record which settings are signed, in the caller's transaction, if they are newer than the recorded ones.
        Older ones then do not count. Settings signed by a clock that is ahead would block later ones, and are
        ignored."""
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
                logged = signed.at
            self._settings_signed_at = max(self._settings_signed_at, logged)

    def _signed_settings(self) -> tuple[Allowed, str]:
        """Return the settings last signed by a key that counts, or none; and what is wrong with the file."""
        signed, fault = self._genuine_settings()
        if signed is None:
            return signed_settings.NOTHING, fault
        if signed.at < self._settings_signed_at:
            return signed_settings.NOTHING, (
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
                    self._seen_settings = (stamp, signed_settings.read(Path(file)), "")
                except ConfigError as fault:
                    self._seen_settings = (stamp, None, fault.message)
            _, signed, damaged = self._seen_settings
            key = None if signed is None else self.trusted().get(signed.by)
        if signed is None or key is None or not signed.is_genuine(key):
            return None, damaged
        return signed, ""

    # --- decisions when they are made --------------------------------------------------------------------------------

    def admit(self, verdict: Verdict, card: Card, now: datetime) -> Signature | None:
        """Return the signature to store with a decision about this card; None if signatures are not required. Raises
        SignatureRefused if the decision may not be made this way."""
        if not self.required:
            return None
        if verdict.channel in signing.SIGNED_HERE:
            self._check_level(verdict.channel, _risk(card))
            return self._sign(verdict, card, now)
        signature = verdict.signature
        if signature is None:
            raise SignatureRefused(UNSIGNED)
        if not _is_fresh(signature.at, now):
            raise SignatureRefused(
                "the decision was signed too long ago, or by a clock that is wrong: look at it and sign it again"
            )
        decided = Decided.of(verdict, now, signature)
        fault = self._fault(decided, card)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return signature

    def admit_command(
        self, db: Database, command: str, act_id: str | None, subject: str, signature: Signature | None, now: datetime
    ) -> None:
        """Check the signature of a command that answers no card, and record its use. Raises SignatureRefused."""
        if not self.required:
            return
        if signature is None:
            raise SignatureRefused(UNSIGNED)
        if not _is_of_command(signature, command, act_id, subject):
            raise SignatureRefused(f"the signature is not for this {command}; nothing was changed")
        if not _is_fresh(signature.at, now):
            raise SignatureRefused(f"the {command} was signed too long ago, or by a clock that is wrong; sign it again")
        fault = self._not_genuine(signature)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        enrolled_keys.forget_commands(db, now - 2 * FRESH)
        if not enrolled_keys.carried_out(db, signature.decision_id, now) and command in signing.USED_ONCE:
            raise SignatureRefused(f"this signature of {command} was used before; nothing was changed")

    def proves_command(self, command: str, act_id: str | None, subject: str, signature: Signature | None) -> bool:
        """Return whether this command was signed with a PIN typed for it; then any process may send it. `admit_command`
        does the full check, and uses the signature."""
        return (
            signature is not None
            and command not in signing.UNSIGNED
            and _is_of_command(signature, command, act_id, subject)
            and self._is_typed(signature)
        )

    def proves_decision(
        self, request_id: str | None, decisions: Collection[Decision], act_id: str | None, signature: Signature | None
    ) -> bool:
        """Return whether one of these decisions about this card was signed with a PIN typed for it. `admit` checks what
        the card shows."""
        return (
            signature is not None
            and signature.request_id == request_id
            and signature.decision in decisions
            and signature.decision_id == act_id
            and self._is_typed(signature)
        )

    def _is_typed(self, signature: Signature) -> bool:
        return self.has_keys and signature.method == signing.PIN and not self._not_genuine(signature)

    # --- decisions when they take effect -----------------------------------------------------------------------------

    def fault(self, request: Asked, workspace_root: str) -> str | None:
        """Return why the stored decision about a request does not count, as half a sentence. None if it counts, or if
        there is no decision to check."""
        if not self.required:
            return None
        match request:
            case ApprovalRequest():
                return self._fault_of_approval(request, workspace_root)
            case ContinuationPrompt():
                return self._fault_of_prompt(request, workspace_root)
            case Wait():
                return self._fault_of_wait(request, workspace_root)

    def fault_of_card(self, decided: Decided | None, card: Card, *expected: Decision) -> str | None:
        """Return why a decision that is stored elsewhere does not count, judged by its card; None if it counts.
        `expected` are the decisions that could explain the record."""
        if not self.required:
            return None
        if decided is None:
            return _MISSING
        return self._fault(decided, card) if decided.decision in expected else _CONTRADICTION

    # --- decisions count once ----------------------------------------------------------------------------------------

    def note_use(self, id: str, at: datetime) -> None:
        """Note that the decision under this id has taken effect. Call it after the commit. A signature stays genuine if
        its row is reset to an earlier state, so uses are kept outside the row: here, and in the audit log. Does nothing
        if signatures are not required."""
        if self.required:
            self._uses.setdefault(id, at)

    def first_use(self, db: Database, session_id: str, id: str) -> datetime | None:
        """Return when the approval of a request first took effect; None if it has not."""
        noted, recorded = self._uses.get(id), audit.first_use(db, session_id, id)
        return min((at for at in (noted, recorded) if at is not None), default=None)

    def fault_of_use(self, db: Database, request: ApprovalRequest) -> str | None:
        """Return why an approval may not take effect now, as half a sentence; None if it may."""
        if not self.required or request.status is not ApprovalStatus.APPROVED:
            return None
        return None if self.first_use(db, request.session_id, request.id) is None else _USED

    def fault_of_restore(self, db: Database, restore: Restore, later: frozenset[RestoreState]) -> str | None:
        """Return why a restore may not take effect: it was used, or has reached a `later` state. None if it may."""
        if not self.required:
            return None
        was_in = audit.restore_states(db, restore.session_id, restore.id)
        return _USED if restore.id in self._uses or was_in & {state.value for state in later} else None

    # --- instructions for agents -------------------------------------------------------------------------------------

    def admit_words(
        self, db: Database, word: Instruction, signed: SignedCommand | None, now: datetime
    ) -> SignedCommand | None:
        """Return the signed command to store with a new instruction; None if signatures are not required. The command
        itself was checked before. Raises SignatureRefused."""
        if not self.required or word.channel == cards.AUTOMATIC:
            return None
        channel = _channel_of(word)
        if channel in signing.SIGNED_HERE:
            self._check_level(channel, RiskLevel.LOW)
            return self._sign_words(word, channel, now)
        if signed is None:
            raise SignatureRefused(UNSIGNED)
        fault = self._fault_of_words(db, evolve(word, signed=signed))
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return signed

    def fault_of_words(self, db: Database, word: Instruction) -> str | None:
        """Return why a queued instruction is not delivered, as half a sentence; None if it is."""
        if not self.required or word.channel == cards.AUTOMATIC:
            return None
        fault = self._fault_of_words(db, word)
        if fault is None and (word.id in self._uses or audit.words_over(db, word.id) is not None):
            return _USED
        return fault

    def trusted_words(self, db: Database, words: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """Return those instructions that count, as their agent is told them. The server's own nudges get the configured
        text, whatever their row says."""
        if not self.required:
            return words
        return tuple(self._as_said(word) for word in words if self.fault_of_words(db, word) is None)

    def note_ended(self, db: Database, wait: Wait) -> None:
        """Check whether instructions ended a standby, if it says so. Call it before `fault`."""
        if not self.required or not _is_ended_by_words(wait) or wait.id in self._ended_by_words:
            return
        behind = audit.words_behind(db, wait.id)
        if behind is not None and any(self._was_open(db, id, behind[0]) for id in behind[1]):
            self._ended_by_words.add(wait.id)

    def _was_open(self, db: Database, id: str, entry: int) -> bool:
        """Return whether this instruction counted, and was still open, when this entry was written."""
        word, over = instructions.get(db, id), audit.words_over(db, id)
        if word is None or (over is not None and over < entry):
            return False
        return word.channel == cards.AUTOMATIC or self._fault_of_words(db, word) is None

    def _as_said(self, word: Instruction) -> Instruction:
        if word.channel == cards.AUTOMATIC:
            return evolve(word, kind=Kind.NUDGE, by=cards.INTERCOM, text=self.config.stall.default_nudge_message)
        return word

    def _fault_of_words(self, db: Database, word: Instruction) -> str | None:
        """Return why no signature covers this instruction for this agent; None if one does."""
        signed = word.signed
        if signed is None:
            return _MISSING
        signature, fields, channel = signed.signature, signed.fields, _channel_of(word)
        if signature.subject != signing.command_subject(signature.decision, fields):
            return _OTHER_WORDS
        if (signature.request_id, signature.risk, signature.text, signature.decision) != ("", None, None, word.kind):
            return _OTHER_WORDS
        if "text" not in fields and word.kind is Kind.NUDGE:
            return _NO_WORDS
        if fields.get("text") != word.text:
            return _OTHER_WORDS
        act = signature.decision_id
        if word.id != (act if signature.method == signing.CHANNEL else id_of_act(f"{channel}/{act}")):
            return "the signature is for other words, and counts once"
        if not self._is_for(db, word, fields):
            return "the signature is for the agent of another session or workspace"
        if (signature.method == signing.CHANNEL) != (channel in signing.SIGNED_HERE):
            return "the signature is not of the channel that they came by"
        if signature.method == signing.CHANNEL:
            return self._fault_of_channel(channel, signature, RiskLevel.LOW)
        return self._not_genuine(signature)

    def _is_for(self, db: Database, word: Instruction, fields: Mapping[str, str]) -> bool:
        session, directory = fields.get("session"), fields.get("workspace")
        if session is None:
            # A task for any agent of the workspace, also after one has taken it.
            taken = None if word.session_id is None else sessions.get(db, word.session_id)
            roots = {word.workspace_root, directory if taken is None else taken.workspace_root}
            return word.kind is Kind.TASK and directory is not None and roots == {directory}
        if directory is not None or word.workspace_root is not None or word.session_id is None:
            return False
        # Or for a session whose agent continued in this one.
        return audit.was_adopted(db, session, word.session_id)

    def _fault_of_approval(self, request: ApprovalRequest, root: str) -> str | None:
        expected = _APPROVAL.get(request.status)
        if expected is None:
            return None
        decided = request.decided
        if decided is None:
            return _MISSING
        if decided.decision != expected or request.hash_of_record(root) != request.proposal_hash:
            return _CONTRADICTION
        if decided.channel == "policy" and expected is Decision.APPROVE:
            # A policy's rule: the policy is asked again when the change is applied.
            return None if request.auto_rule is not None and request.tool is None else _MISSING
        return self._fault(decided, cards.of_request(request, root))

    def _fault_of_prompt(self, request: ContinuationPrompt, root: str) -> str | None:
        if request.status not in (WaitStatus.DECIDED, WaitStatus.EXPIRED):
            return None
        decided = request.decided
        if decided is None or request.decision is None:
            return _MISSING
        if (decided.decision, decided.text) != (request.decision.value, request.instruction):
            return _CONTRADICTION
        if (decided.channel == "timeout") != (request.status is WaitStatus.EXPIRED):
            # A time-out is told as such. So the channel and the status must agree.
            return _CONTRADICTION
        if decided.channel in ("policy", "timeout"):
            if decided.channel == "policy" and decided.decision != Decision.CONTINUE:
                return _CONTRADICTION
            # The policy is asked again when the agent is told.
            return None if decided.text is None else "nobody's words are recorded as a person's"
        return self._fault(decided, cards.of_request(request, root))

    def _fault_of_wait(self, request: Wait, root: str) -> str | None:
        if request.status is not WaitStatus.DECIDED:
            return None
        decided = request.decided
        if decided is None:
            return _MISSING
        if request.instruction != waits.instruction(decided):
            return _CONTRADICTION
        if _is_ended_by_words(request) and decided.text is None:
            # Ended by queued instructions, which are delivered on their own.
            is_so = decided.decision == Decision.RESUME and request.id in self._ended_by_words
            return None if is_so else "no operator's words are recorded that would have ended it"
        return self._fault(decided, cards.of_request(request, root))

    # --- the one check of all signatures -----------------------------------------------------------------------------

    def _fault(self, decided: Decided, card: Card) -> str | None:
        """Return why this decision about this card does not count; None if it counts. This is the only place that
        verifies signatures of decisions: when they are made, delivered and applied."""
        signature = decided.signature
        if signature is None:
            return _MISSING
        if signature.subject != subject(card) or signature.risk != _risk_text(card):
            return "what was signed is not what the request says now: it was changed, or another was shown"
        said = (signature.request_id, signature.decision, signature.text, signature.decision_id)
        if said != (card.id, decided.decision, decided.text, decided.verdict_id):
            return "the signature is for another decision"
        if (signature.method == signing.CHANNEL) != (decided.channel in signing.SIGNED_HERE):
            return "the signature is not of the channel that it was decided on"
        if signature.method == signing.CHANNEL:
            return self._fault_of_channel(decided.channel, signature, _risk(card))
        # Any decision that accepts a policy.
        is_policy = card.kind is CardKind.POLICY and signature.decision != Decision.REJECT
        needs_pin = card.risk is RiskLevel.CRITICAL or is_policy or signature.decision in signing.WITH_PIN
        if signature.method == signing.TICKET and needs_pin:
            return "this decision has to be signed with the PIN itself"
        return self._not_genuine(signature)

    def _not_genuine(self, signature: Signature) -> str | None:
        if signature.method not in (signing.PIN, signing.TICKET):
            return "the signature is of no kind that counts"
        key = self.trusted().get(signature.key_id)
        if key is None:
            return (
                f"it is signed with key {signature.key_id[:40]}, which does not count (see agent-intercom-ctl key list)"
            )
        if not key_files.verifies(key.public, signature.value, signature.statement()):
            return "the signature is not genuine"
        return None

    def _fault_of_channel(self, channel: str, signature: Signature, risk: RiskLevel) -> str | None:
        try:
            self._check_level(channel, risk)
        except SignatureRefused as refused:
            return refused.message
        private = self._channel_key(channel)
        public = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii"))
        if signature.key_id != f"{channel}:{public.id}":
            return f"it is signed with another key than that of {channel}"
        if not key_files.verifies(public.public, signature.value, signature.statement()):
            return "the signature is not genuine"
        return None

    # --- channels ----------------------------------------------------------------------------------------------------

    def highest(self, channel: str) -> HighestRisk:
        """Return the highest risk that may be decided on a channel for which the server signs."""
        allowed = self.allowed()
        return allowed.slack if channel == "slack" else allowed.embed

    def _check_level(self, channel: str, risk: RiskLevel) -> None:
        if self.highest(channel).rank < risk.rank:
            raise SignatureRefused(
                f"with an operator key, a decision of {risk.value} risk can not be made by {channel}: decide it with"
                f" agent-intercom-ctl in a terminal, or allow it with [decisions] {channel} and agent-intercom-ctl key"
                " settings"
            )

    def _sign_words(self, word: Instruction, channel: str, now: datetime) -> SignedCommand:
        fields = {"session": word.session_id, "workspace": word.workspace_root, "text": word.text}
        said = {name: part for name, part in fields.items() if part is not None}
        unsigned = Signature(
            request_id="",
            subject=signing.command_subject(word.kind.value, said),
            risk=None,
            decision=word.kind.value,
            text=None,
            at=clock.to_text(now),
            decision_id=word.id,
            key_id="",
            method=signing.CHANNEL,
            value="",
        )
        return SignedCommand(self._signed_for(channel, unsigned), said)

    def _sign(self, verdict: Verdict, card: Card, now: datetime) -> Signature:
        unsigned = Signature(
            request_id=card.id,
            subject=subject(card),
            risk=_risk_text(card),
            decision=verdict.decision.value,
            text=verdict.text,
            at=clock.to_text(now),
            decision_id=verdict.id,
            key_id="",
            method=signing.CHANNEL,
            value="",
        )
        return self._signed_for(verdict.channel, unsigned)

    def _signed_for(self, channel: str, unsigned: Signature) -> Signature:
        """Return the same signature, signed with the channel's key."""
        private = self._channel_key(channel)
        public = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii"))
        named = evolve(unsigned, key_id=f"{channel}:{public.id}")
        return evolve(named, value=private.sign(named.statement()).hex())

    def _channel_key(self, channel: str) -> Ed25519PrivateKey:
        """Return the channel's key, created when it is first needed. This user can read it in the state directory. It
        marks what a channel decided, but stops nobody who can read that directory."""
        with self._lock:
            if channel not in self._channels:
                self._channels[channel] = _kept_key(key_files.channel_file(self.places, channel))
            return self._channels[channel]


def without_keys() -> Signatures:
    """Return signatures without operator keys, now and later: for sessions that run by themselves."""
    made = Signatures(Places("agent-intercom", "/dev/null/config.toml", "/dev/null", "/dev/null"), Config())
    made.pin_nothing()
    return made


_NO_KEY = base64.b64encode(bytes(32)).decode("ascii")
_MISSING = "no operator's signature is recorded for it"
_CONTRADICTION = "what is recorded contradicts itself"
_USED = "it was used before, and counts once"
_OTHER_WORDS = "the signature is for other words"
_NO_WORDS = "the signature does not cover what the nudge says: nudge again, with words or this version's ctl"


def _channel_of(word: Instruction) -> str:
    """Return the channel on which a person gave this instruction, also for one given to an alert."""
    return word.channel.removeprefix(cards.ON_ALERT)


def _is_ended_by_words(wait: Wait) -> bool:
    return wait.decided is not None and wait.decided.verdict_id == outcomes.ended_by_words(wait.id)


def _risk(card: Card) -> RiskLevel:
    return card.risk or _RISK.get(card.kind, RiskLevel.LOW)


def _risk_text(card: Card) -> str | None:
    return None if card.risk is None else card.risk.value


def _stamp(file: str) -> object:
    """Return a value that changes when the file does; None if there is no file."""
    try:
        return _stamp_of(os.stat(file, follow_symlinks=False))
    except OSError:
        return None


def _stamp_of(found: os.stat_result) -> object:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_of_command(signature: Signature, command: str, act_id: str | None, subject: str) -> bool:
    said = (signature.request_id, signature.subject, signature.risk, signature.decision, signature.text)
    return said == ("", subject, None, command, None) and signature.decision_id == act_id


def _is_fresh(at: str, now: datetime) -> bool:
    try:
        return abs(clock.from_text(at) - now) <= FRESH
    except ValueError:
        return False


def _chained(rows: tuple[EnrolledKey, ...]) -> tuple[dict[str, PublicKey], list[str]]:
    """Return the enrolled keys, each signed by an earlier one, and what is wrong with the others. A revocation that no
    key signed does not count."""
    known: dict[str, PublicKey] = {}
    faults: list[str] = []
    for row in rows:
        key = PublicKey(row.public, row.name)
        signer = known.get(row.added_by) if known else key
        said = signing.key_statement("add", public=row.public, name=row.name, at=row.added_at, by=row.added_by)
        genuine = (
            signer is not None
            and (signer.id, key.id) == (row.added_by, row.id)
            and key_files.verifies(signer.public, row.added_signature, said)
        )
        if genuine:
            known[key.id] = key
        else:
            faults.append(
                f"operator key {row.id[:40]} was put into the database without a signature: it does not count"
            )
    revoked = {row.id for row in rows if row.revoked_at is not None and _is_revoked(row, known, faults)}
    return {id: key for id, key in known.items() if id not in revoked}, faults


def _is_revoked(row: EnrolledKey, known: Mapping[str, PublicKey], faults: list[str]) -> bool:
    signer = known.get(row.revoked_by or "")
    said = signing.key_statement(
        "revoke", public=row.public, name=row.name, at=row.revoked_at or "", by=row.revoked_by or ""
    )
    if signer is not None and key_files.verifies(signer.public, row.revoked_signature or "", said):
        return True
    faults.append(f"operator key {row.id[:40]} is marked as revoked without a signature: it still counts")
    return False


def _kept_key(file: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private_directory(str(file.parent))
    try:
        secret = key_files.read_secret(file)
    except FileNotFoundError:
        secret = os.urandom(32)
        key_files.write_secret(file, secret)
    return Ed25519PrivateKey.from_private_bytes(secret)
