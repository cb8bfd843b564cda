"""`key`: manages operator keys, which sign a person's decisions. `intercom.local.operator_keys` defines them."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import re
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intercom.cli import key_agent
from intercom.cli.ctl_sign import key_fields, unlock_minutes
from intercom.cli.ctl_text import clean, count, one_line
from intercom.cli.key_agent import ask_pin, has_terminal, say
from intercom.local import config_file, operator_keys, passkeys
from intercom.local.daemon import keep_private
from intercom.local.operator_keys import Allowed, KeyFile, PublicKey, WrongPin
from intercom.local.places import SYSTEM_OPERATOR_KEYS, Places
from intercom.model.clock import from_text, to_text
from intercom.model.errors import Ambiguous, ConfigError, InvalidArguments, NotFound, Unauthorized
from intercom.model.json_types import Json, JsonObject
from intercom.operators.ctl.client import NoServer, request

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The id of a passkey, which the page shows.
_CODE = re.compile(r"[0-9a-f]{16}")
#: How often a command asks for a PIN before it gives up.
TRIES = 3


def key(where: Places, options: argparse.Namespace) -> int:
    """Run `key ACT`. Returns the exit code. Raises IntercomError if it cannot be done."""
    match options.act:
        case "create":
            return create(where, options.name, as_json=options.json)
        case "list":
            return _list(where, as_json=options.json)
        case "unlock":
            return _unlock(where, options.id)
        case "lock":
            print(f"locked the key in {count(key_agent.lock(where), 'terminal')}")
            return 0
        case "enrol":
            kept = named_key(where, options.id)
            _enrol(where, kept, unlock(kept, f"PIN of key {kept.key.id}, to enrol it"))
            print(f"operator key {kept.key.id} counts: decisions are signed with it from now on")
            _say_unsigned(where, "unsigned_settings", "unsigned_policies")
            return 0
        case "add":
            return _add(where, options.id)
        case "revoke":
            return _revoke(where, options.id)
        case "change-pin":
            return _change_pin(where, options.id)
        case "settings":
            return _settings(where, options.id, options.config)
    raise AssertionError(f"key {options.act} is declared and not carried out")


def install_line(where: Places) -> str:
    """Return the command with which root makes the listed keys the only ones that count."""
    return f"sudo install -D -o root -g root -m 0644 {where.operator_keys_file} {SYSTEM_OPERATOR_KEYS}"


def named_key(where: Places, prefix: str | None) -> KeyFile:
    """Return the private key with this prefix, or the only one. Raises NotFound, Ambiguous and ConfigError."""
    found = operator_keys.private_keys(where)
    if not found:
        raise NotFound("there is no operator key on this machine: make one with agent-intercom-ctl key create")
    fitting = [each for each in found if prefix is None or each.key.id.startswith(prefix)]
    if not fitting:
        raise NotFound(
            f"no operator key on this machine has an id that begins with {(prefix or '')[:40]!r}; see key list"
        )
    if len(fitting) > 1:
        ids = ", ".join(each.key.id for each in fitting)
        raise Ambiguous(f"there are {len(fitting)} operator keys ({ids}): name one")
    return fitting[0]


def unlock(kept: KeyFile, prompt: str) -> Ed25519PrivateKey:
    """Ask for the PIN on the terminal and return the private key. `prompt` says which PIN, and what it is for. Raises
    WrongPin after three wrong PINs, and what `ask_pin` raises."""
    keep_private()
    prompt = f"{prompt} (esc to leave): "
    for _ in range(TRIES - 1):
        try:
            return operator_keys.unlock(kept, ask_pin(prompt))
        except WrongPin:
            prompt = "That PIN does not open the key; try again: "
    return operator_keys.unlock(kept, ask_pin(prompt))


def create(where: Places, name: str | None, *, as_json: bool = False) -> int:
    """Make a key under a PIN that is typed twice, and enrol it if a server runs. The server's directories are recorded
    as the user's own, so that the key also protects servers that use other directories."""
    if not has_terminal():
        # Raises NoTerminal at once: a PIN can be typed on a terminal only.
        ask_pin("")
    _check_can_count(where)
    keep_private()
    pin = _new_pin("Choose a PIN for the new key: ")
    before = operator_keys.private_keys(where)
    made = operator_keys.create(where, pin, name or _own_name(), to_text(datetime.now(UTC)))
    if not_recorded := _record_directories(where):
        say(not_recorded)
    enrolled = _enrol_new(where, made, pin, before)
    if as_json:
        print(json.dumps({**_entry(made.key, made), "enrolled": enrolled}))
        return 0
    print(f"created operator key {made.key.id} ({clean(made.key.name)})")
    print(f"  private half, under your PIN: {made.path}")
    print(f"  public half: {where.operator_keys_file}")
    print("  it counts from now on" if enrolled else "  it counts from your first signed decision on")
    print("to let only root change which keys count, run once:")
    print(f"  {install_line(where)}")
    with contextlib.suppress(ConfigError):
        if (asked := _allowed(where)) != operator_keys.NOTHING:
            print("these settings of yours do not count until you run agent-intercom-ctl key settings:")
            print("\n".join(_indented(asked)))
    _say_unsigned(where, "unsigned_policies")
    print("a forgotten PIN cannot be recovered: keep it where you keep passwords")
    return 0


def _check_can_count(where: Places) -> None:
    """Refuse to make a key that the running server could not accept, because no key that counts could sign for it."""
    known = _known(where)
    others = [f"{each['key_id']}: {each['why']}" for each in known["keys"] if not each["counts"]]
    if known.get("required") and others and len(others) == len(known["keys"]):
        raise Unauthorized(f"no operator key counts that could sign for a new one ({'; '.join(others)})")


def _record_directories(where: Places) -> str:
    """Record the server's directories as the user's own. Returns a message for people if that failed."""
    from intercom.cli.server_settings import record_or_explain

    try:
        config = config_file.load(Path(where.config_file), required=False)
    except ConfigError:
        # The configuration may name another database, but the default one also lists agents' processes.
        return record_or_explain(where)
    return record_or_explain(where, config_file.database_path(config, where))


def _enrol_new(where: Places, made: KeyFile, pin: str, before: tuple[KeyFile, ...]) -> bool:
    """Enrol a new key if a server runs, signed by a key that already counts, if any. Returns whether it was."""
    try:
        known = request(where, "keys", {})
    except (NoServer, OSError):
        return False
    counting = {each["key_id"] for each in known["keys"] if each["counts"]}
    signer = next((each for each in before if each.key.id in counting), None)
    if signer is not None:
        _enrol(where, made, unlock(signer, f"PIN of key {signer.key.id}, which has to sign for the new one"), signer)
    else:
        _enrol(where, made, operator_keys.unlock(made, pin))
    return True


def _enrol(where: Places, kept: KeyFile, private: Ed25519PrivateKey, signer: KeyFile | None = None) -> None:
    """Enrol a key on the server. `private` is the private half of `signer`, or of the key itself without one."""
    by = (signer or kept).key.id
    operator_keys.add_public(where, kept.key)
    signature = key_fields("add", kept.key.public, kept.key.name, by, private.sign)
    request(where, "key-add", {"public": kept.key.public, "name": kept.key.name, "signature": signature})


def _say_unsigned(where: Places, *names: str) -> None:
    """Print what the running server says was accepted or set without a signature, and does not count or soon will
    not. `names` are fields of its answer."""
    known = _known(where)
    for name in names:
        if said := known.get(name):
            print(one_line(said))


def _add(where: Places, code: str) -> int:
    """Enrol a passkey that was made on the page. `code` is its whole id, which the page shows: the server, or another
    process, cannot put another passkey in its place."""
    id = code.replace("-", "").replace(" ", "").lower()
    if not _CODE.fullmatch(id):
        raise InvalidArguments(
            f"{code[:40]!r} is not what the page shows: give all of it, 16 digits and letters a to f"
        )
    offered = request(where, "passkeys", {})["passkeys"]
    offer = next((each for each in offered if each["key_id"] == id), None)
    found = None if offer is None else PublicKey.of(offer["public"], offer["name"])
    passkey = None if found is None else passkeys.read(found.public)
    if offer is None or found is None or passkey is None or found.id != id:
        raise NotFound(
            f"no passkey {id} waits for this: make one on the page, and give what it shows within some minutes"
        )
    reply = request(where, "keys", {})
    counting = _counting_here(where, reply["keys"])
    kept = counting[0] if counting else _first_key(where, reply)
    # Everybody who may decide proposes passkeys: the person with the PIN has to know whose it is. Its name was
    # written by the one who made it, so it stands on a line of its own.
    say(one_line(f"passkey {id} was made by {offer['by']}, who signs decisions with it from now on"))
    say(one_line(f"  on the page at {passkey.origin}"))
    say(one_line(f"  its name there: {found.name}"))
    if not counting:
        say(one_line(f"operator key {kept.key.id} ({kept.key.name}) counts from now on too: all decisions are signed"))
    private = unlock(kept, f"PIN of key {kept.key.id}, to add passkey {id}")
    if not counting:
        _enrol(where, kept, private)
    operator_keys.add_public(where, found)
    signature = key_fields("add", found.public, found.name, kept.key.id, private.sign)
    request(where, "key-add", {"public": found.public, "name": found.name, "signature": signature})
    print(f"added passkey {id}")
    if not counting:
        _say_unsigned(where, "unsigned_settings", "unsigned_policies")
    return 0


def _first_key(where: Places, reply: Mapping[str, Any]) -> KeyFile:
    """Return the key of this machine that enrols itself as the first one: it was made while no server ran. `reply` is
    what the server says of its keys. Raises NotFound, Ambiguous and Unauthorized."""
    known = {each["key_id"]: each for each in reply["keys"]}
    here = operator_keys.private_keys(where)
    if not here or any(each["counts"] for each in known.values()):
        raise NotFound(
            "to add a passkey, an operator key that counts has to be on this machine, and none is; see"
            " agent-intercom-ctl key list"
        )
    if len(here) > 1:
        # None is chosen: another program may have put one there.
        ids = ", ".join(each.key.id for each in here)
        raise Ambiguous(
            f"there are {len(here)} operator keys ({ids}), and none counts: run agent-intercom-ctl key enrol KEY first,"
            " with the one that is yours"
        )
    status = known.get(here[0].key.id)
    if status is None and reply["required"]:
        raise Unauthorized(
            f"operator key {here[0].key.id} does not count, and is not listed: see agent-intercom-ctl key list"
        )
    if status is not None and not status["can_be_first"]:
        raise Unauthorized(f"operator key {here[0].key.id} does not count: {status['why']}")
    return here[0]


def _counting_here(where: Places, known: Iterable[JsonObject]) -> list[KeyFile]:
    """Return the private keys of this machine that count on the server, which has said this of its keys."""
    counting = {each["key_id"] for each in known if each["counts"]}
    return [each for each in operator_keys.private_keys(where) if each.key.id in counting]


def _revoke(where: Places, prefix: str) -> int:
    known = request(where, "keys", {})["keys"]
    fitting = [each for each in known if each["key_id"].startswith(prefix)]
    if len(fitting) != 1:
        raise NotFound(
            f"{len(fitting)} operator keys of the server have an id that begins with {prefix[:40]!r}; see key list"
        )
    key = PublicKey.of(fitting[0]["public"], fitting[0]["name"])
    counting = {each["key_id"] for each in known if each["counts"]}
    mine = _counting_here(where, known)
    if not mine:
        raise NotFound("to revoke a key, one that counts has to be on this machine, and none is")
    signer = next((each for each in mine if each.key.id != key.id), mine[0])
    named = f"{key.id} ({clean(key.name)})"
    what = "it" if signer.key.id == key.id else f"key {named}"
    private = unlock(signer, f"PIN of key {signer.key.id}, to revoke {what}")
    signature = key_fields("revoke", key.public, key.name, signer.key.id, private.sign)
    request(where, "key-revoke", {"id": key.id, "signature": signature})
    operator_keys.forget(where, key.id)
    key_agent.lock(where)
    print(one_line(f"revoked operator key {named}"))
    left = [each for each in request(where, "keys", {})["keys"] if each["counts"]]
    for id in sorted(counting - {each["key_id"] for each in left} - {key.id}):
        # The revoked key had signed for this passkey.
        operator_keys.forget(where, id)
        print(f"passkey {id}, which it had added, does not count any more")
    rest = [f"{each['key_id']} ({each['name']})" for each in left]
    if not rest:
        print("no operator key is left: decisions are not signed any more, and count by the terminal they come from")
        return 0
    print(one_line(f"decisions are signed with {' or '.join(rest)} from now on"))
    print("what was decided with the revoked key and is not carried out yet does not count any more")
    return 0


def _list(where: Places, *, as_json: bool) -> int:
    reply = _known(where)
    known = {each["key_id"]: each for each in reply["keys"]}
    private = {each.key.id: each for each in operator_keys.private_keys(where)}
    listed = operator_keys.read_public(Path(where.operator_keys_file))
    keys = {**{each.key.id: each.key for each in private.values()}, **listed}
    entries = [{**_entry(each, private.get(each.id)), **known.get(each.id, {})} for each in keys.values()]
    if as_json:
        print(json.dumps({"keys": entries, "unsigned_settings": reply.get("unsigned_settings")}))
        return 0
    if reply.get("required") and not any(entry.get("counts") for entry in entries):
        print("the running server requires signed decisions, and no key counts there: see agent-intercom doctor")
    elif not entries:
        print("no operator key: decisions are not signed; make one with agent-intercom-ctl key create")
    for entry in entries:
        print(one_line(f"{entry['key_id']}  {entry['name'] or '-'}  {_private_half(entry)}  {_counts(entry)}"))
    if unsigned := reply.get("unsigned_settings"):
        print(one_line(unsigned))
    return 0


def _private_half(entry: Mapping[str, Json]) -> str:
    """Say where a key's private half is, and how long ago it was made."""
    if (passkey := passkeys.read(str(entry["public"]))) is not None:
        return f"passkey at {passkey.origin}"
    if not entry["private"]:
        return "private half elsewhere"
    from intercom.cli.ctl_draw import now
    from intercom.cli.ctl_table import age

    try:
        made = f", made {age(from_text(str(entry['created_at'])), now())} ago"
    except ValueError:
        # The user may have changed the file.
        made = ""
    return f"private half here{made}"


def _counts(entry: Mapping[str, Json]) -> str:
    if "counts" not in entry:
        return "no server runs"
    return "counts" if entry["counts"] else f"does not count: {entry['why']}"


def _known(where: Places) -> dict[str, Any]:
    """Return what the running server says about its keys; no keys if no server runs."""
    try:
        reply: dict[str, Any] = request(where, "keys", {}, patience=0.0)
    except (NoServer, OSError):
        return {"keys": []}
    return reply


def _unlock(where: Places, prefix: str | None) -> int:
    kept = named_key(where, prefix)
    terminal, minutes = key_agent.own_terminal(), unlock_minutes(where)
    why = key_agent.why_none(terminal)
    if minutes == 0:
        why = "[decisions] unlock_minutes is 0"
    if why or terminal is None:
        raise Unauthorized(f"no key is kept unlocked here: {why}; the PIN is asked for with each decision")
    private = unlock(kept, f"PIN of key {kept.key.id}, to keep it unlocked in this terminal")
    key_agent.start(where, terminal, kept.key.id, private, minutes * 60)
    print(f"unlocked key {kept.key.id} in this terminal, until it is not used for {minutes:g} min")
    return 0


def _change_pin(where: Places, prefix: str | None) -> int:
    kept = named_key(where, prefix)
    private = unlock(kept, f"Present PIN of key {kept.key.id}")
    operator_keys.change_pin(kept, private, _new_pin("New PIN: "))
    print(f"changed the PIN of key {kept.key.id}")
    return 0


def _settings(where: Places, prefix: str | None, config: str | None) -> int:
    """Sign what the configuration allows without a key, after its owner has seen it."""
    kept = named_key(where, prefix)
    allowed = _allowed(where, config)
    say("\n".join(["you allow what can be decided without this key, as your settings say:", *_indented(allowed)]))
    private = unlock(kept, f"PIN of key {kept.key.id}, to sign these settings")
    signed = operator_keys.sign(allowed, to_text(datetime.now(UTC)), kept.key.id, private.sign)
    operator_keys.write(where, signed)
    print(f"signed your settings with key {kept.key.id}: {where.signed_settings_file}")
    # This request makes a running server read the new signature; from then on it accepts no older one.
    if unsigned := _known(where).get("unsigned_settings"):
        print(one_line(unsigned))
    return 0


def _indented(allowed: Allowed) -> list[str]:
    return [f"  {line}" for line in allowed.lines()]


def _allowed(where: Places, config: str | None = None) -> Allowed:
    """Return what a configuration file allows (default: the user's own file). Raises ConfigError."""
    file = Path(where.config_file if config is None else config)
    return Allowed.by(config_file.load(file if config is not None or file.exists() else None))


def _new_pin(prompt: str) -> str:
    """Ask for a new PIN, twice alike. Raises Unauthorized and ConfigError after three tries."""
    pin = ""
    least, of_digits = operator_keys.SHORTEST_PIN, operator_keys.SHORTEST_OF_DIGITS
    prompt = f"A PIN has at least {least} characters, or {of_digits} if all are digits.\n{prompt}"
    for _ in range(TRIES):
        pin = ask_pin(prompt)
        try:
            operator_keys.check_pin(pin)
        except ConfigError as fault:
            prompt = f"{fault.message}\nAnother PIN: "
            continue
        if ask_pin("The same again: ") == pin:
            return pin
        prompt = "The two differ. Choose a PIN: "
    operator_keys.check_pin(pin)
    raise Unauthorized("no PIN was given twice alike; nothing was made or changed")


def _own_name() -> str:
    name = f"{getpass.getuser()}@{socket.gethostname()}"
    return name if name.isprintable() and len(name) <= operator_keys.NAME_CHARACTERS else "operator"


def _entry(key: PublicKey, private: KeyFile | None) -> JsonObject:
    return {
        "key_id": key.id,
        "public": key.public,
        "name": key.name,
        "private": private is not None,
        "created_at": None if private is None else private.created_at,
    }
