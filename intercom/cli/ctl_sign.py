"""Signed commands: the subject is shown, the key is unlocked, and the signature is sent with the command.

If this machine has no operator key, a command is sent unsigned. The module starts on the standard library alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intercom.cli import key_agent
from intercom.cli.ctl_grant import GRANT, granted_fields, preview_fields
from intercom.cli.ctl_text import short
from intercom.local.places import Places, peek
from intercom.model import signing
from intercom.model.errors import IntercomError
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_table import COMMANDS, DEFAULT_REASON, decision_about
from intercom.operators.ctl.client import Refusal, request

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from intercom.local.operator_keys import KeyFile

#: The message if decisions are not signed.
NO_KEY = (
    "no operator key: decisions count by the terminal that they come from, and are not signed;"
    " agent-intercom-ctl key create changes that"
)

_SHOWN_FILES = 20
#: How the decision to reject with comments is called.
_CHANGES = "request changes to"
#: The setting's default and its maximum, in minutes.
_UNLOCK_MINUTES = 15.0
_LONGEST_MINUTES = 24 * 60

Fields = dict[str, Any]
Card = Mapping[str, Any]


def send(where: Places, verb: str, fields: Fields, *, card: Card | None = None, told: str | None = None) -> Any:
    """Send a command, signed if necessary, and return the server's answer. `card` is the card that it answers, as it
    was drawn. Without `card`, it is fetched, and shown whole before the PIN is typed. `told` is the text of the
    decision if it is composed from the fields. Raises what `request` raises, and Refusal if the command could not be
    signed."""
    return Sender(where).send(verb, fields, card=card, told=told)


class Sender:
    """Sends commands of one person, who types the PIN once for all of them, and again for each that needs it. `act`
    says to them what the PIN is for, if it is for several. If they do not type it, it is not asked for again."""

    def __init__(self, where: Places, act: str = "") -> None:
        self._where = where
        self._act = act
        self._signed: _Signed | None = None
        self._is_declined = False

    def asks_pin(self) -> bool:
        """Tell whether the PIN is asked for, because decisions are signed and this terminal keeps no key unlocked.
        Raises what `request` raises."""
        if self._signed is None and has_key(self._where):
            self._signed = _signer(self._where, self._act)
        return self._signed is not None and key_agent.key_of(self._where) is None

    def send(
        self, verb: str, fields: Fields, *, card: Card | None = None, told: str | None = None, is_shown: bool = True
    ) -> Any:
        """Do as the function `send`. With `is_shown` false neither `card` nor `told` was drawn yet."""
        where = self._where
        if COMMANDS[verb].access in (Access.ANYONE, Access.OPERATOR) or not has_key(where):
            return request(where, verb, fields)
        if self._signed is None:
            self._signed = _signer(where, self._act)
        if self._signed is None:
            return request(where, verb, fields)
        try:
            if self._is_declined:
                raise KeyboardInterrupt
            return self._signed.send(verb, fields, card, told, is_shown)
        except KeyboardInterrupt:
            self._is_declined = True
            raise _refusal("no PIN was given; nothing was changed", "signature_required") from None
        except IntercomError as fault:
            raise _refusal(fault.message, fault.error_code) from None


def _signer(where: Places, act: str) -> _Signed | None:
    """Return what signs for this server; None if the server knows of no key. `act` is as in Sender."""
    known = request(where, "keys", {})
    if not known["required"]:
        _warn(
            "this server knows of no operator key, so nothing is signed: agent-intercom-ctl key enrol makes yours count"
        )
        return None
    return _Signed(where, known, act)


def note_shown(where: Places, cards: Iterable[Card]) -> None:
    """Record which cards were shown whole in this terminal. Its unlocked key approves no other cards."""
    if has_key(where):
        key_agent.note_shown(where, [signing.card_subject(card) for card in cards])


def say_without_key(where: Places) -> None:
    """Tell a person at a terminal what it means if there is no operator key. Raises what `request` raises."""
    import sys

    if sys.stderr.isatty() and not request(where, "keys", {})["required"]:
        _warn(NO_KEY)


def has_key(where: Places) -> bool:
    """Tell whether a private key of the user is on this machine."""
    try:
        return any(name.endswith(".json") for name in os.listdir(where.keys_directory))
    except OSError:
        return False


def key_fields(action: str, public: str, name: str, by: str, sign: Callable[[bytes], bytes]) -> Fields:
    """Return the signature that enrols (`add`) or revokes a key, in the server's form."""
    at = _now()
    said = signing.key_statement(action, public=public, name=name, at=at, by=by)
    stated = dict.fromkeys(signing.STATED, "")
    return {
        **stated,
        "risk": None,
        "text": None,
        "at": at,
        "key_id": by,
        "method": signing.PIN,
        "value": sign(said).hex(),
    }


def unlock_minutes(where: Places) -> float:
    """Return how many minutes a terminal keeps an unused key unlocked, from the configuration file."""
    settings = peek(where.config_file).get("decisions")
    minutes = settings.get("unlock_minutes") if isinstance(settings, dict) else None
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes <= _LONGEST_MINUTES:
        return _UNLOCK_MINUTES
    return float(minutes)


class _NotWithTicket(Exception):
    """Raised if the PIN must be asked for."""


class _Signed:
    """One command of a person, for which the key is unlocked once. `known` is the server's answer about its keys, and
    `act` as in Sender."""

    def __init__(self, where: Places, known: Mapping[str, Any], act: str) -> None:
        self._where = where
        self._act = act
        self._known = {each["key_id"]: each for each in known["keys"]}
        self._key: tuple[KeyFile, Ed25519PrivateKey] | None = None

    def send(self, verb: str, fields: Fields, card: Card | None, told: str | None, is_shown: bool) -> Any:
        if verb == "resume":
            return self._resume(fields)
        if COMMANDS[verb].access is Access.SIGNED_CARD:
            return self._answer(verb, fields, card, told, is_shown)
        return self._command(verb, fields)

    def _answer(
        self, verb: str, fields: Fields, card: Card | None, told: str | None = None, is_shown: bool = True
    ) -> object:
        was_shown = is_shown and card is not None and not card.get("diff_omitted")
        if card is None or card.get("diff_omitted"):
            card = self._card(verb, fields)
        decision, fields = _decision(verb, fields, str(card["kind"]))
        if decision not in card["choices"]:
            # The server explains the refusal; there is nothing to sign.
            return request(self._where, verb, fields)
        if card["kind"] == "policy" and decision != "reject" and not _is_its_text(card):
            # The card shows a policy's changes, but the whole text is what is accepted.
            card, was_shown = self._policy(card), False
        subject = signing.card_subject(card)
        if was_shown:
            key_agent.note_shown(self._where, [subject])
        _say(summary(_CHANGES if verb == "changes" else decision, card))
        text = told or fields.get("reason" if verb in ("reject", "policy-reject") else "text")
        if text and not (told and is_shown):
            # It is signed with the decision.
            _say("\n".join(f"  {_one_line(line)}" for line in ("the agent is told:", *str(text).split("\n"))))
        said = {
            "request_id": card["request_id"],
            "subject": subject,
            "risk": card["risk_level"],
            "decision": decision,
            "text": text,
        }
        to_show = None if was_shown or decision not in signing.LETS_PASS else card
        return self._signed(verb, {**fields, "id": card["request_id"]}, said, to_show)

    def _policy(self, card: Card) -> Card:
        """Return the card of a policy with its text. Raises IntercomError if another text would be accepted."""
        found = policy_card(request(self._where, "policy-show", {"id": card["request_id"]}))
        if found["detail"] != card["detail"] or not _is_its_text(found):
            raise IntercomError(
                "the policy that was shown is not the one that would be accepted: look at the file itself"
            )
        return {**card, "diff": found["diff"]}

    def _card(self, verb: str, fields: Fields) -> Card:
        if verb not in ("policy-accept", "policy-reject"):
            return dict(request(self._where, "show", {"id": fields["id"]}))
        named = {name: fields[name] for name in ("id", "workspace") if fields.get(name)}
        if not named:
            waiting = [each for each in request(self._where, "pending", {}) if each["kind"] == "policy"]
            if len(waiting) != 1:
                # The server explains what is wrong when it gets the unsigned command.
                return {"kind": "policy", "choices": ()}
            named = {"id": waiting[0]["request_id"]}
        return policy_card(request(self._where, "policy-show", named))

    def _command(self, verb: str, fields: Fields) -> Any:
        if COMMANDS[verb].for_agent:
            fields = self._addressed(verb, fields)
        covers = ""
        if verb == GRANT:
            shown = request(self._where, "grant-preview", preview_fields(fields))
            fields, covers = granted_fields(shown, fields), str(shown["covers"])
        is_typed = True
        if verb == "nudge":
            typed = str(fields.get("text") or "").strip()
            fields, is_typed = {**fields, "text": typed or self._nudge_text()}, bool(typed)
        about = next((fields[name] for name in ("id", "session", "workspace") if fields.get(name)), "")
        about = f"{about} {fields['tool']}" if fields.get("tool") else about
        text = fields.get("text") or fields.get("mode") or covers
        _say(_one_line(f"{verb} from {short(about)}: {text}" if verb == GRANT else f"{verb} {about} {text}".rstrip()))
        said = {
            "request_id": "",
            "subject": signing.command_subject(verb, fields),
            "risk": None,
            "decision": verb,
            "text": None,
        }
        # A text that the person did not type needs the PIN, so that they read it before it is signed.
        return self._signed(verb, fields, said, with_pin=not is_typed)

    def _nudge_text(self) -> str:
        """Return the default text of a nudge, from the server's settings: another process might change those."""
        return str(request(self._where, "nudge-text", {})["text"]).strip()

    def _addressed(self, verb: str, fields: Fields) -> Fields:
        """Return the fields with the whole id of the session or workspace that the message is for: the signature is for
        that agent alone. A nudge keeps the id of its alert. Raises IntercomError if not exactly one session matches."""
        if verb == "task" and fields.get("session") is None:
            return {**fields, "workspace": self._workspace_of(os.path.realpath(fields.get("workspace") or "."))}
        named = fields.get("session") or fields.get("id")
        found = {str(each["session_id"]): str(each["session_id"]) for each in self._sessions()}
        if verb == "nudge":
            waiting = request(self._where, "pending", {})
            found |= {str(each["request_id"]): str(each["session_id"]) for each in waiting if each["kind"] == "stall"}
        fitting = [id for id in found if id == named] or [id for id in found if named is None or id.startswith(named)]
        if len(fitting) != 1:
            what = f"no session is called {named}" if not fitting else f"{named or 'this'} fits {len(fitting)} sessions"
            code = "not_found" if not fitting else "ambiguous"
            raise IntercomError(f"{what}, and nothing was signed; see agent-intercom-ctl list", code=code)
        sent = {**fields, "session": found[fitting[0]]}
        sent.pop("id", None)
        return {**sent, "id": fitting[0]} if verb == "nudge" else sent

    def _workspace_of(self, directory: str) -> str:
        """Return the root of the workspace for a task in this directory; the root is what is signed. Raises
        IntercomError if the directory is not below that root."""
        root = str(request(self._where, "task-workspace", {"workspace": directory})["workspace_root"])
        if directory != root and not directory.startswith(os.path.join(root, "")):
            raise IntercomError(f"the server named {root}, which {directory} is not in; nothing was signed")
        return root

    def _sessions(self) -> list[Mapping[str, Any]]:
        return list(request(self._where, "list", {})["sessions"])

    def _resume(self, fields: Fields) -> Any:
        """Resume an agent: end its pause, and answer its standby request. Each command is signed separately."""
        named, text = fields.get("session"), fields.get("instruction")
        waiting = [each for each in request(self._where, "pending", {}) if each["kind"] == "standby"]
        paused = [each["session_id"] for each in self._sessions() if each["paused_by"]]
        ids = sorted({*paused, *(each["session_id"] for each in waiting)})
        fitting = [id for id in ids if named is None or id.startswith(named)]
        if len(fitting) != 1:
            what = "nothing to resume: no session stands by or is paused" if not fitting else "several could be meant"
            raise IntercomError(f"{what}; see list and pending", code="invalid_state" if not fitting else "ambiguous")
        session = fitting[0]
        standby = next((each for each in waiting if each["session_id"] == session), None)
        if session in paused:
            self._command("unpause", {"session": session})
        if standby is not None:
            self._answer("answer", {"id": standby["request_id"], "decision": "continue", "text": text}, None)
        elif text:
            self._command("steer", {"session": session, "text": text})
        return {"session_id": session, "status": "resumed"}

    def _signed(
        self, verb: str, fields: Fields, said: Fields, to_show: Card | None = None, *, with_pin: bool = False
    ) -> Any:
        """Sign and send. `to_show` is a card that was not shown here yet, if the decision lets something pass.
        `with_pin` asks for the PIN even if this terminal keeps the key unlocked."""
        sent = {name: part for name, part in fields.items() if part is not None}
        with_pin = with_pin or said["risk"] == "critical" or said["decision"] in signing.WITH_PIN
        if with_pin or to_show is not None:
            # It is typed for this decision and those that follow, and not for one before it.
            if self._key is not None or said["risk"] == "critical":
                self._act = ""
            self._key = None
        if self._key is None and not with_pin:
            with contextlib.suppress(_NotWithTicket):
                return self._with_ticket(verb, sent, said)
        if to_show is not None:
            _say(_whole(to_show))
        kept, private = self._unlocked(self._act or _act(verb, sent, said))
        stated = _stated(said, kept.key.id, signing.PIN)
        value = private.sign(signing.statement(stated)).hex()
        done = request(self._where, verb, _with_signature(sent, stated, value))
        self._keep_unlocked(kept, private)
        return done

    def _with_ticket(self, verb: str, sent: Fields, said: Fields) -> Any:
        """Send the command, signed by this terminal's unlocked key. Raises _NotWithTicket if the PIN is needed."""
        key_id = key_agent.key_of(self._where)
        if key_id is None or not self._known.get(key_id, {}).get("counts"):
            raise _NotWithTicket
        stated = _stated(said, key_id, signing.TICKET)
        value = key_agent.sign(self._where, stated)
        if value is None:
            raise _NotWithTicket
        try:
            return request(self._where, verb, _with_signature(sent, stated, value))
        except Refusal as refused:
            if refused.code in ("unauthorized", "signature_required"):
                raise _NotWithTicket from None
            raise

    def _keep_unlocked(self, kept: KeyFile, private: Ed25519PrivateKey) -> None:
        """Keep the key unlocked in this terminal for a while, if no other program can type there."""
        minutes = unlock_minutes(self._where)
        terminal = key_agent.own_terminal()
        if minutes > 0 and terminal is not None and not key_agent.why_none(terminal):
            with contextlib.suppress(OSError):
                key_agent.start(self._where, terminal, kept.key.id, private, minutes * 60)
                _say(f"this terminal keeps the key unlocked until it is not used for {minutes:g} min")

    def _unlocked(self, act: str) -> tuple[KeyFile, Ed25519PrivateKey]:
        """Return the unlocked key; the PIN is asked for if necessary. `act` says to the person what it is for."""
        if self._key is None:
            from intercom.cli.ctl_key import unlock
            from intercom.local import operator_keys

            mine = operator_keys.private_keys(self._where)
            counting = [each for each in mine if self._known.get(each.key.id, {}).get("counts")]
            kept = (counting or list(mine))[0]
            private = unlock(kept, f"PIN of key {kept.key.id}, to {act}")
            if not counting:
                self._enrol(kept, private)
            self._key = kept, private
        return self._key

    def _enrol(self, kept: KeyFile, private: Ed25519PrivateKey) -> None:
        """Enrol a key that was created while no server ran. Raises IntercomError if other keys count already."""
        if any(each["counts"] for each in self._known.values()):
            raise IntercomError(
                "none of the operator keys on this machine counts for this server; see agent-intercom-ctl key list",
                code="signature_required",
            )
        signature = key_fields("add", kept.key.public, kept.key.name, kept.key.id, private.sign)
        request(self._where, "key-add", {"public": kept.key.public, "name": kept.key.name, "signature": signature})


def _act(verb: str, sent: Fields, said: Fields) -> str:
    """Name what is signed, in a few words for the question for the PIN."""
    named = said["request_id"] or next((sent[name] for name in ("id", "session") if sent.get(name)), "")
    did = _CHANGES if verb == "changes" else said["decision"] or verb
    return _one_line(f"{did} {short(str(named))}".rstrip())


def _stated(said: Fields, key_id: str, method: str) -> Fields:
    return {**said, "at": _now(), "decision_id": os.urandom(16).hex(), "key_id": key_id, "method": method}


def _with_signature(sent: Fields, stated: Fields, value: str) -> Fields:
    return {**sent, "verdict_id": stated["decision_id"], "signature": {**stated, "value": value}}


def _decision(verb: str, fields: Fields, kind: str) -> tuple[str, Fields]:
    """Return the decision that a command makes about a card of this kind, and the fields with its text."""
    decision = COMMANDS[verb].decision
    if verb in ("approve", "changes"):
        return decision, {**fields, "text": (fields.get("text") or "").strip() or None}
    if decision == "reject":
        return decision, {**fields, "reason": fields.get("reason") or DEFAULT_REASON}
    if decision:
        return decision, {**fields, "text": None}
    return decision_about(kind, fields["decision"]), {**fields, "text": (fields.get("text") or "").strip() or None}


def policy_card(entry: Mapping[str, Any]) -> Card:
    """Return the card for a policy. It has no choices if no request is open."""
    return {
        "kind": "policy",
        "request_id": entry["request_id"],
        "workspace_root": entry["workspace_root"],
        "title": f"the policy of {entry['workspace_root']}",
        "detail": entry["sha256"],
        "diff": entry["text"],
        "risk_level": None,
        "files": (),
        "choices": () if entry["request_id"] is None else ("accept", "reject"),
    }


def _is_its_text(card: Card) -> bool:
    """Tell whether the card of a policy shows the text whose hash would be accepted."""
    text = str(card["diff"] or "").encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest() == str(card["detail"])


def _whole(card: Card) -> str:
    """Return everything that a card says, as it is shown before it is signed."""
    from intercom.cli.ctl_draw import card_lines, now
    from intercom.cli.ctl_text import clean
    from intercom.model import card as model_card
    from intercom.operators.commands.json_forms import read

    if card["kind"] == "policy":
        return "\n".join(f"  {line}" for line in clean(str(card["diff"] or "")).split("\n"))
    return "\n".join(line.plain for line in card_lines(read(model_card.Card, card), now()))


def summary(decision: str, card: Card) -> str:
    """Return what a decision does: the card's id, risk and title, and its files."""
    risk = f" [{card['risk_level'].upper()}]" if card["risk_level"] else ""
    lines = [_one_line(f"{decision} {short(str(card['request_id']))}{risk}: {card['title']}")]
    files = card["files"] or ()
    for each in files[:_SHOWN_FILES]:
        name = f"{each['old_path']} -> {each['path']}" if each.get("old_path") else each["path"]
        lines.append(_one_line(f"  {each['kind']:<7}{name}  +{each['added']} -{each['removed']}"))
    if len(files) > _SHOWN_FILES:
        from intercom.cli.ctl_text import count

        lines.append(f"  and {count(len(files) - _SHOWN_FILES, 'more file')}")
    return "\n".join(lines)


def _say(text: str) -> None:
    from intercom.cli.key_agent import say

    say(text)


def _warn(text: str) -> None:
    import sys

    print(f"agent-intercom-ctl: {text}", file=sys.stderr)


def _one_line(text: str) -> str:
    from intercom.cli.ctl_text import one_line

    return one_line(text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _refusal(sentence: str, code: str) -> Refusal:
    return Refusal({"error": sentence, "error_code": code})
