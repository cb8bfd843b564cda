"""Signatures: whether a new or stored decision is signed with a key that counts.

A decision is checked twice by the same rules: when it is made, and when it takes effect. It takes effect when the agent
gets the answer, files are written, or a restore is carried out. In between it is a row in a database that any process
of this user can write.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from attrs import define, evolve, field

from intercom.local import operator_keys as key_files
from intercom.local.operator_keys import PublicKey
from intercom.local.places import Places
from intercom.model import clock, signing
from intercom.model.card import Card, CardKind, subject
from intercom.model.checkpoint import Restore, RestoreState
from intercom.model.config import Config
from intercom.model.decision import Decided, Decision, Signature, SignedCommand, Verdict, signature_from_data
from intercom.model.errors import InvalidArguments, SignatureRefused
from intercom.model.grant import GRANT, Grant, grant_of_rule, seconds_of, uses_of
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    InstructionWait,
    RiskLevel,
    WaitStatus,
)
from intercom.model.session import Instruction, Kind, id_of_act
from intercom.sessions import request_kinds
from intercom.sessions.request_kinds import Asked, is_ended_by_instructions
from intercom.sessions.trusted_keys import Keyring, is_fresh
from intercom.store import audit, instructions, requests, sessions
from intercom.store.writer_messages import Database

#: The risk of cards that have none of their own.
_RISK = {CardKind.RESTORE: RiskLevel.HIGH, CardKind.POLICY: RiskLevel.HIGH}

_APPROVAL = {
    ApprovalStatus.APPROVED: Decision.APPROVE,
    ApprovalStatus.CONSUMED: Decision.APPROVE,
    ApprovalStatus.REJECTED: Decision.REJECT,
}

#: The command that takes a decision back.
TAKE_BACK = "take-back"
#: What is signed of it.
_OF_TAKE_BACK = {"id", "decision_id"}

UNSIGNED = (
    "this server takes only decisions signed with an operator key, and this one is not: decide it with"
    " agent-intercom-ctl in a terminal of your own, where the key's PIN is asked for, or with a passkey on the page"
)


@define
class Signatures:
    """The checks of signatures, by the keys that count. All methods may be called from any thread."""

    keyring: Keyring
    _uses: dict[str, datetime] = field(factory=dict)
    _ended_by_instructions: set[str] = field(factory=set)
    _grant_uses: dict[str, set[str]] = field(factory=dict)
    _grants_ended: set[str] = field(factory=set)
    _taken_back: set[str] = field(factory=set)

    @property
    def required(self) -> bool:
        """Whether decisions have to be signed."""
        return self.keyring.required

    # --- decisions when they are made --------------------------------------------------------------------------------

    def admit(self, verdict: Verdict, card: Card, now: datetime) -> Signature | None:
        """Return the signature to store with a decision about this card; None if signatures are not required. Raises
        SignatureRefused if the decision may not be made this way."""
        if not self.required:
            return None
        if verdict.channel in signing.SIGNED_HERE:
            self.check_level(verdict.channel, _risk(card))
            return self._sign(verdict, card, now)
        signature = verdict.signature
        if signature is None:
            raise SignatureRefused(UNSIGNED)
        if not is_fresh(signature.at, now):
            raise SignatureRefused(
                "the decision was signed too long ago, or by a clock that is wrong: look at it and sign it again"
            )
        decided = Decided.of(verdict, now, signature)
        fault = self._fault(decided, card)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return signature

    def admit_command(
        self,
        command: str,
        act_id: str | None,
        subject: str,
        signature: Signature | None,
        now: datetime,
        channel: str = "ctl",
    ) -> None:
        """Check the signature of a command that answers no card: it is for exactly this act. Raises SignatureRefused.

        A signature covers the act's id, so another act cannot use it. The same act again is safe, because its effect is
        recorded under that id."""
        if not self.required:
            return
        if signature is None:
            raise SignatureRefused(UNSIGNED)
        if not _is_of_command(signature, command, act_id, subject):
            raise SignatureRefused(f"the signature is not for this {command}; nothing was changed")
        if not signing.is_of_channel(signature.method, channel):
            raise SignatureRefused(f"the signature is of no kind that counts on {channel}; nothing was changed")
        if not is_fresh(signature.at, now):
            raise SignatureRefused(f"the {command} was signed too long ago, or by a clock that is wrong; sign it again")
        fault = self._not_genuine(signature)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")

    def proves_command(self, command: str, act_id: str | None, subject: str, signature: Signature | None) -> bool:
        """Return whether this command was signed with a PIN typed for it; then any process may send it. `admit_command`
        does the full check."""
        return (
            signature is not None and _is_of_command(signature, command, act_id, subject) and self._is_typed(signature)
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
        return self.keyring.has_keys and signature.method == signing.PIN and not self._not_genuine(signature)

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
            case InstructionWait():
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

    # --- decisions that were taken back ------------------------------------------------------------------------------

    def admit_taking_back(
        self, card: Card, decided: Decided, signed: SignedCommand | None, channel: str, act_id: str, now: datetime
    ) -> Signature | None:
        """Return the signature to record with the act that takes back this decision about this card; None if signatures
        are not required. The rules are those of a decision about it. Raises SignatureRefused."""
        decision_id = decided.verdict_id
        if not self.required:
            return None
        if channel in signing.SIGNED_HERE:
            self.check_level(channel, _risk(card))
            return self._signed_for(
                channel, _command(TAKE_BACK, {"id": card.id, "decision_id": decision_id}, act_id, now)
            )
        if signed is None:
            raise SignatureRefused(UNSIGNED)
        signature, named = signed.signature, signed.fields.get("id", "")
        subject = signing.command_subject(TAKE_BACK, signed.fields)
        if not _is_of_command(signature, TAKE_BACK, signature.decision_id, subject) or not (
            named and card.id.startswith(named) and signed.fields.get("decision_id", decision_id) == decision_id
        ):
            raise SignatureRefused("the signature is not for this decision; nothing was changed")
        if not signed.fields.keys() <= _OF_TAKE_BACK:
            # The audit log has only these, and `audit verify` compares what was signed with it.
            raise SignatureRefused("what was signed says more than which decision is meant; nothing was changed")
        if "decision_id" not in signed.fields and not _is_made_by(signature.at, decided):
            # It was refused for an earlier decision, or was late. A process that saw it could send it again.
            raise SignatureRefused(
                "the decision was made after this was signed: look at the request again, and sign again or name the"
                " decision; nothing was changed"
            )
        if not signing.is_of_channel(signature.method, channel):
            raise SignatureRefused(f"the signature is of no kind that counts on {channel}; nothing was changed")
        if signature.decision_id in self._taken_back:
            raise SignatureRefused(f"the signature does not count: {_USED}; nothing was changed")
        if card.risk is RiskLevel.CRITICAL and signature.method == signing.TICKET:
            raise SignatureRefused("a decision about a critical change has to be taken back with the PIN itself")
        fault = self._not_genuine(signature)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return signature

    def note_taken_back(self, *ids: str) -> None:
        """Note the ids of decisions that were taken back, and of the acts that did so, after the commit. Their
        signatures stay genuine, so somebody could write one back into its row, or send it again."""
        self._taken_back.update(ids)

    # --- instructions for agents -------------------------------------------------------------------------------------

    def admit_instruction(
        self, db: Database, instruction: Instruction, signed: SignedCommand | None, now: datetime
    ) -> SignedCommand | None:
        """Return the signed command to store with a new instruction; None if signatures are not required. The command
        itself was checked before. Raises SignatureRefused."""
        if not self.required or instruction.channel == request_kinds.AUTOMATIC:
            return None
        channel = _channel_of(instruction)
        if channel in signing.SIGNED_HERE:
            self.check_level(channel, RiskLevel.LOW)
            return self._sign_instruction(instruction, channel, now)
        if signed is None:
            raise SignatureRefused(UNSIGNED)
        fault = self._fault_of_instruction(db, evolve(instruction, signed=signed))
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return signed

    def fault_of_instruction(self, db: Database, instruction: Instruction) -> str | None:
        """Return why a queued instruction is not delivered, as half a sentence; None if it is."""
        if not self.required or instruction.channel == request_kinds.AUTOMATIC:
            return None
        fault = self._fault_of_instruction(db, instruction)
        if fault is None and (instruction.id in self._uses or audit.instruction_end(db, instruction.id) is not None):
            return _USED
        return fault

    def trusted_instructions(self, db: Database, found: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """Return those instructions that count, as their agent is told them. The server's own nudges get the configured
        text, whatever their row says."""
        if not self.required:
            return found
        return tuple(self._as_said(each) for each in found if self.fault_of_instruction(db, each) is None)

    def note_ended(self, db: Database, wait: InstructionWait) -> None:
        """Check whether instructions or decisions ended a standby, if it says so. Call it before `fault`."""
        if not self.required or not is_ended_by_instructions(wait) or wait.id in self._ended_by_instructions:
            return
        behind = audit.standby_end(db, wait.id)
        if behind is None:
            return
        entry, told, decided = behind
        if any(self._was_open(db, id, entry) for id in told) or any(self._was_late(db, id, wait) for id in decided):
            self._ended_by_instructions.add(wait.id)

    def _was_open(self, db: Database, id: str, entry: int) -> bool:
        """Return whether this instruction counted, and was still open, when this entry was written."""
        instruction, over = instructions.get(db, id), audit.instruction_end(db, id)
        if instruction is None or (over is not None and over < entry):
            return False
        return instruction.channel == request_kinds.AUTOMATIC or self._fault_of_instruction(db, instruction) is None

    def _was_late(self, db: Database, request_id: str, wait: InstructionWait) -> bool:
        """Return whether this request has a decision that counts, and that the agent did not have before it stood
        by."""
        request = requests.find(db, request_id)
        if (
            request is None
            or request.session_id != wait.session_id
            or request.status.value in ("pending", "interrupted")
        ):
            return False
        if isinstance(request, InstructionWait) and is_ended_by_instructions(request):
            return request.id in self._ended_by_instructions
        session = sessions.get(db, request.session_id)
        is_untold = request.delivered_at is None or request.delivered_at >= wait.created_at
        return session is not None and is_untold and self.fault(request, session.workspace_root) is None

    def _as_said(self, instruction: Instruction) -> Instruction:
        if instruction.channel == request_kinds.AUTOMATIC:
            return evolve(
                instruction,
                kind=Kind.NUDGE,
                by=request_kinds.INTERCOM,
                text=self.keyring.config.stall.default_nudge_message,
            )
        return instruction

    def _fault_of_instruction(self, db: Database, instruction: Instruction) -> str | None:
        """Return why no signature covers this instruction for this agent; None if one does."""
        signed = instruction.signed
        if signed is None:
            return _MISSING
        signature, fields, channel = signed.signature, signed.fields, _channel_of(instruction)
        if signature.subject != signing.command_subject(signature.decision, fields):
            return _OTHER_TEXT
        if (signature.request_id, signature.risk, signature.text, signature.decision) != (
            "",
            None,
            None,
            instruction.kind,
        ):
            return _OTHER_TEXT
        if "text" not in fields and instruction.kind is Kind.NUDGE:
            return _NO_TEXT
        if fields.get("text") != instruction.text:
            return _OTHER_TEXT
        act = signature.decision_id
        if instruction.id != (act if signature.method == signing.CHANNEL else id_of_act(f"{channel}/{act}")):
            return "the signature is for another text, and counts once"
        if not self._is_for(db, instruction, fields):
            return "the signature is for the agent of another session or workspace"
        if not signing.is_of_channel(signature.method, channel):
            return "the signature is not of the channel that it came from"
        if signature.method == signing.CHANNEL:
            return self._fault_of_channel(channel, signature, RiskLevel.LOW)
        return self._not_genuine(signature)

    def _is_for(self, db: Database, instruction: Instruction, fields: Mapping[str, str]) -> bool:
        session, directory = fields.get("session"), fields.get("workspace")
        if session is None:
            # A task for any agent of the workspace, also after one has taken it.
            taken = None if instruction.session_id is None else sessions.get(db, instruction.session_id)
            roots = {instruction.workspace_root, directory if taken is None else taken.workspace_root}
            return instruction.kind is Kind.TASK and directory is not None and roots == {directory}
        if directory is not None or instruction.workspace_root is not None or instruction.session_id is None:
            return False
        # Or for a session whose agent continued in this one.
        return audit.was_adopted(db, session, instruction.session_id)

    # --- grants ------------------------------------------------------------------------------------------------------

    def admit_grant(self, grant: Grant, signed: SignedCommand | None, now: datetime) -> Grant:
        """Return a new grant as it is stored: with its signature, and from the time when it was signed. Without an
        operator key it stays as it is. The command itself was checked before. Raises SignatureRefused."""
        if not self.required:
            return grant
        if grant.channel in signing.SIGNED_HERE:
            self.check_level(grant.channel, grant.scope.risk)
            signed = self._sign_grant(grant, now)
        if signed is None:
            raise SignatureRefused(UNSIGNED)
        try:
            admitted = evolve(grant, signed=signed, at=clock.from_text(signed.signature.at))
        except ValueError:
            raise SignatureRefused("the signature has no time; nothing was changed") from None
        fault = self.fault_of_grant(admitted)
        if fault:
            raise SignatureRefused(f"{fault}; nothing was changed")
        return admitted

    def fault_of_grant(self, grant: Grant) -> str | None:
        """Return why no signature covers this grant as it is recorded, as half a sentence. None if one does, or if
        signatures are not required."""
        if not self.required:
            return None
        if grant.signed is None:
            return _MISSING
        signature, fields = grant.signed.signature, grant.signed.fields
        if not _is_of_command(
            signature, GRANT, signature.decision_id, signing.command_subject(GRANT, fields)
        ) or not _is_granted(grant, fields):
            return "the signature is for another grant"
        if signature.at != clock.to_text(grant.at):
            return "the signature is for another time"
        act = signature.decision_id
        if grant.id != (act if signature.method == signing.CHANNEL else id_of_act(f"{grant.channel}/{act}")):
            return "the signature is for another grant, and counts once"
        if not signing.is_of_channel(signature.method, grant.channel):
            return "the signature is not of the channel that it came from"
        if signature.method == signing.CHANNEL:
            return self._fault_of_channel(grant.channel, signature, grant.scope.risk)
        if signature.method not in signing.EACH_TIME:
            return "a grant has to be signed with the PIN itself"
        return self._not_genuine(signature)

    def note_grant_uses(self, grant_id: str, uses: Collection[str]) -> None:
        """Note the uses of a grant, after their commit: the audit log might be edited while the server runs."""
        self._grant_uses.setdefault(grant_id, set()).update(uses)

    def note_grant_end(self, grant_id: str) -> None:
        """Note that a grant was revoked, after the commit."""
        self._grants_ended.add(grant_id)

    def grant_uses(self, grant_id: str) -> frozenset[str]:
        """Return the uses of a grant that this server run has noted."""
        return frozenset(self._grant_uses.get(grant_id, ()))

    def is_grant_ended(self, grant_id: str) -> bool:
        """Return whether this server run has noted that a grant was revoked."""
        return grant_id in self._grants_ended

    def _sign_grant(self, grant: Grant, now: datetime) -> SignedCommand:
        fields = _fields_of_grant(grant)
        return SignedCommand(self._signed_for(grant.channel, _command(GRANT, fields, grant.id, now)), fields)

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
        if decided.channel == request_kinds.GRANTED and expected is Decision.APPROVE:
            # The grant is checked again when the change is applied.
            return None if grant_of_rule(request.auto_rule) is not None and request.tool is None else _MISSING
        return self._fault(decided, request_kinds.card_of(request, root))

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
            return None if decided.text is None else "a text is recorded as a person's that nobody wrote"
        return self._fault(decided, request_kinds.card_of(request, root))

    def _fault_of_wait(self, request: InstructionWait, root: str) -> str | None:
        if request.status is not WaitStatus.DECIDED:
            return None
        decided = request.decided
        if decided is None:
            return _MISSING
        if request.instruction != requests.standby_instruction(decided):
            return _CONTRADICTION
        if is_ended_by_instructions(request) and decided.text is None:
            # Ended by queued instructions, which are delivered on their own.
            is_so = decided.decision == Decision.RESUME and request.id in self._ended_by_instructions
            return None if is_so else "no operator's message is recorded that would have ended it"
        return self._fault(decided, request_kinds.card_of(request, root))

    # --- the one check of all signatures -----------------------------------------------------------------------------

    def _fault(self, decided: Decided, card: Card) -> str | None:
        """Return why this decision about this card does not count; None if it counts. This is the only place that
        verifies signatures of decisions: when they are made, delivered and applied."""
        signature = decided.signature
        if signature is None:
            return _MISSING
        if decided.verdict_id in self._taken_back:
            return "it was taken back"
        if signature.subject != subject(card) or signature.risk != _risk_text(card):
            return "what was signed is not what the request says now: it was changed, or another was shown"
        said = (signature.request_id, signature.decision, signature.text, signature.decision_id)
        if said != (card.id, decided.decision, decided.text, decided.verdict_id):
            return "the signature is for another decision"
        if not signing.is_of_channel(signature.method, decided.channel):
            return "the signature is not of the channel that it was decided on"
        if signature.method == signing.CHANNEL:
            return self._fault_of_channel(decided.channel, signature, _risk(card))
        # Any decision that accepts a policy.
        is_policy = card.kind is CardKind.POLICY and signature.decision != Decision.REJECT
        needs_pin = card.risk is RiskLevel.CRITICAL or is_policy or signature.decision in signing.WITH_PIN
        if signature.method == signing.TICKET and needs_pin:
            return "this decision has to be signed with the PIN itself"
        return self._not_genuine(signature)

    def is_genuine(self, data: Mapping[str, object]) -> bool:
        """Whether the signature in the data of an audit entry is genuine; True if decisions need none. It says nothing
        of what was signed: the caller compares that."""
        if not self.required:
            return True
        signature, channel = signature_from_data(data.get("signature")), data.get("channel")
        if signature is None:
            return False
        # What enables a downstream names no channel: there a person's signature counts, whichever kind it is.
        if channel is not None and not signing.is_of_channel(signature.method, str(channel)):
            return False
        if signature.method == signing.CHANNEL:
            return channel is not None and self._fault_of_channel(str(channel), signature, RiskLevel.LOW) is None
        return self._not_genuine(signature) is None

    def _not_genuine(self, signature: Signature) -> str | None:
        if signature.method not in (signing.PIN, signing.TICKET, signing.PASSKEY):
            return "the signature is of no kind that counts"
        key = self.keyring.trusted().get(signature.key_id)
        if key is None:
            return (
                f"it is signed with key {signature.key_id[:40]}, which does not count (see agent-intercom-ctl key list)"
            )
        if not key_files.verifies_decision(key.public, signature.method, signature.value, signature.statement()):
            return "the signature is not genuine"
        return None

    def _fault_of_channel(self, channel: str, signature: Signature, risk: RiskLevel) -> str | None:
        try:
            self.check_level(channel, risk)
        except SignatureRefused as refused:
            return refused.message
        private = self.keyring.channel_key(channel)
        public = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii"))
        if signature.key_id != f"{channel}:{public.id}":
            return f"it is signed with another key than that of {channel}"
        if not key_files.verifies(public.public, signature.value, signature.statement()):
            return "the signature is not genuine"
        return None

    # --- channels ----------------------------------------------------------------------------------------------------

    def check_level(self, channel: str, risk: RiskLevel) -> None:
        """Raise SignatureRefused if a decision of this risk cannot be made by this channel, with an operator key."""
        if self.keyring.highest(channel).rank < risk.rank:
            raise SignatureRefused(
                f"with an operator key, a decision of {risk.value} risk cannot be made by {channel}: decide it with"
                f" agent-intercom-ctl in a terminal, or allow it with [decisions] {channel} and agent-intercom-ctl key"
                " settings"
            )

    def _sign_instruction(self, instruction: Instruction, channel: str, now: datetime) -> SignedCommand:
        fields = {"session": instruction.session_id, "workspace": instruction.workspace_root, "text": instruction.text}
        said = {name: part for name, part in fields.items() if part is not None}
        unsigned = _command(instruction.kind.value, said, instruction.id, now)
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
        private = self.keyring.channel_key(channel)
        public = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii"))
        named = evolve(unsigned, key_id=f"{channel}:{public.id}")
        return evolve(named, value=private.sign(named.statement()).hex())


def without_keys() -> Signatures:
    """Return signatures without operator keys, now and later: for sessions that run by themselves."""
    keyring = Keyring(Places("agent-intercom", "/dev/null/config.toml", "/dev/null", "/dev/null"), Config())
    keyring.pin_nothing()
    return Signatures(keyring)


_MISSING = "no operator's signature is recorded for it"
_CONTRADICTION = "what is recorded contradicts itself"
_USED = "it was used before, and counts once"
_OTHER_TEXT = "the signature is for another text"
_NO_TEXT = "the signature does not cover what the nudge says: nudge again, with a text or this version's ctl"


def _command(command: str, fields: Mapping[str, str], id: str, now: datetime) -> Signature:
    """Return what a channel signs for a person's command, without the signature."""
    return Signature(
        request_id="",
        subject=signing.command_subject(command, fields),
        risk=None,
        decision=command,
        text=None,
        at=clock.to_text(now),
        decision_id=id,
        key_id="",
        method=signing.CHANNEL,
        value="",
    )


def _fields_of_grant(grant: Grant) -> dict[str, str]:
    """Return the fields of the command that makes this grant."""
    return {
        "id": grant.request_id,
        "session": grant.session_id,
        "scope": grant.scope.to_text(),
        "duration": f"{grant.seconds}s",
        "uses": str(grant.uses),
    }


def _is_granted(grant: Grant, fields: Mapping[str, str]) -> bool:
    """Return whether the fields of a command say what the grant says."""
    try:
        lasts = seconds_of(fields.get("duration")), uses_of(fields.get("uses"))
    except InvalidArguments:
        return False
    named = (fields.get("id"), fields.get("session"), fields.get("scope"))
    return (*named, *lasts) == (
        grant.request_id,
        grant.session_id,
        grant.scope.to_text(),
        grant.seconds,
        grant.uses,
    )


def _channel_of(instruction: Instruction) -> str:
    """Return the channel on which a person gave this instruction, also for one given to an alert."""
    return instruction.channel.removeprefix(request_kinds.ON_ALERT)


def _risk(card: Card) -> RiskLevel:
    return card.risk or _RISK.get(card.kind, RiskLevel.LOW)


def _risk_text(card: Card) -> str | None:
    return None if card.risk is None else card.risk.value


def _is_of_command(signature: Signature, command: str, act_id: str | None, subject: str) -> bool:
    said = (signature.request_id, signature.subject, signature.risk, signature.decision, signature.text)
    return said == ("", subject, None, command, None) and signature.decision_id == act_id


def _is_made_by(signed_at: str, decided: Decided) -> bool:
    """Whether a decision was made when this was signed. Another program may have changed the time in its row, but not
    the one that was signed."""
    try:
        made = decided.at if decided.signature is None else clock.from_text(decided.signature.at)
        return made <= clock.from_text(signed_at)
    except ValueError:
        return False


#: How long a repeated refusal is not reported again, and how many refusals are remembered.
_AGAIN = timedelta(minutes=1)
_REMEMBERED = 1000


@define
class RecentRefusals:
    """Recently reported refusals, so that a process that retries again and again does not flood every channel."""

    _at: OrderedDict[str, datetime] = field(factory=OrderedDict)

    def is_new(self, text: str, now: datetime) -> bool:
        """Return whether this was not reported within the last minute."""
        last = self._at.get(text)
        if last is not None and abs(now - last) < _AGAIN:
            return False
        self._at[text] = now
        self._at.move_to_end(text)
        while len(self._at) > _REMEMBERED:
            self._at.popitem(last=False)
        return True
