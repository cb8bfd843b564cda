"""`restore`: requests a restore, puts the server's question to the person, and waits for the result."""

from __future__ import annotations

import json
import sys
import time

from intercom.cli.ctl_sign import send
from intercom.cli.ctl_text import agreed, clean, one_line
from intercom.local.places import Places
from intercom.model.checkpoint import UNDER_WAY, DivergenceSummary, Files, Restore, RestoreState
from intercom.model.json_types import JsonObject
from intercom.operators.commands.json_forms import read_divergence, read_restore
from intercom.operators.ctl.client import Refusal, request

#: Seconds between two checks of a restore's status.
_PAUSE = 0.2
#: How often a restore is asked again because files changed meanwhile.
_TRIES = 5

_WORDS = {
    RestoreState.DONE: "restored",
    RestoreState.CANCELLED: "cancelled; nothing was changed",
    RestoreState.EXPIRED: "nobody answered in time; nothing was changed",
    RestoreState.STUCK: "stopped half-way",
    RestoreState.GIVEN_UP: "given up",
    RestoreState.OUTDATED: "files have changed since",
}
_FILES = {
    Files.LEAVE: "the files stay as they are",
    Files.BACK: "modified and deleted files are put back, added ones stay",
    Files.EXACT: "modified and deleted files are put back, added ones are removed",
}


def restore(where: Places, fields: JsonObject, *, yes: bool, as_json: bool) -> int:
    """Request a restore, put the server's question to the person (not with `yes`), and wait for the result. Returns 0
    if it was restored, or if the question stays open because no person can be asked. Returns 1 otherwise, also if
    another person's request replaced this one. Raises what `request` raises."""
    try:
        entry = request(where, "restore", fields)
    except Refusal as refusal:
        if isinstance(refusal.details, dict) and "diverged" in refusal.details and not as_json:
            _compare(refusal.details, read_divergence(refusal.details))
            if "files" not in fields:
                print("add --files to put back what was modified or deleted, --exact to remove what was added as well")
        raise
    found = read_restore(entry)
    wanted = found.checkpoint_id, found.files
    for _ in range(_TRIES):
        if not yes:
            if as_json:
                print(json.dumps(entry))
                return 0
            _compare(entry, found.divergence)
            print(
                f"{_FILES[found.files]}; session {found.session_id[:8]} ends, a new one continues from the checkpoint"
            )
            if not sys.stdin.isatty():
                print(f"nothing was changed yet: agent-intercom-ctl answer {found.id} proceed | cancel")
                return 0
        decision = "proceed" if yes or agreed("proceed?") else "cancel"
        try:
            send(where, "answer", {"id": found.id, "decision": decision})
        except Refusal as refusal:
            # Another channel decided first; its result is reported below.
            if refusal.code != "already_decided":
                raise
        while (found := read_restore(entry := request(where, "restoring", {"id": found.id}))).state in UNDER_WAY:
            time.sleep(_PAUSE)
        again = _asked_again(found)
        if again is None:
            break
        found = read_restore(entry := request(where, "restoring", {"id": again}))
        if (found.checkpoint_id, found.files) != wanted:
            # This is a different question: neither the person nor `yes` answered it.
            _tell_of_other(found, entry, as_json=as_json)
            return 1
        if not as_json:
            print("files have changed in between; this is how it is now:")
    if as_json:
        print(json.dumps(entry))
    else:
        _tell(found)
    return 0 if found.state is RestoreState.DONE else 1


def _asked_again(found: Restore) -> str | None:
    """Return the id of the restore that replaced this one, or None."""
    if found.state is not RestoreState.OUTDATED:
        return None
    return (found.note or "").rpartition("asked again as ")[2] or None


def _tell_of_other(found: Restore, entry: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(entry))
        return
    who = f"{found.asked_by} ({found.asked_via})"
    name = found.label or found.checkpoint_id
    print(one_line(f"nothing was changed: {who} has asked to restore {name} instead, files: {found.files}"))
    print(one_line(f"to answer that: agent-intercom-ctl answer {found.id} proceed | cancel"))


def _compare(about: JsonObject, found: DivergenceSummary) -> None:
    """Print what differs from the checkpoint that `about` names."""
    name = about["label"] or about["checkpoint_id"]
    counts = f"{found.modified} modified, {found.deleted} deleted, {found.added} added"
    print(one_line(f"checkpoint {name} of {about['workspace_root']}: {counts} since"))
    for each in found.first:
        print(f"  {each.kind:<9}{one_line(each.path)}")
    if (rest := found.total - len(found.first)) > 0:
        print(f"  and {rest} more")
    for remark in found.remarks:
        print(f"  {clean(remark)}")


def _tell(found: Restore) -> None:
    words = _WORDS.get(found.state, "")
    is_whole = found.state in (RestoreState.DONE, RestoreState.FAILED)
    told = found.note or words if is_whole else f"{words}: {found.note or ''}"
    print(one_line(told.rstrip(": ")))
    if found.state is RestoreState.DONE:
        print(f"to go back: agent-intercom-ctl restore {found.safety_id[:8]} --exact")
