"""`restore`: shows what changed since a checkpoint, asks, and reports the result, with the standard library alone."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from intercom.cli.ctl_sign import send
from intercom.cli.ctl_text import clean, one_line
from intercom.local.places import Places
from intercom.operators.ctl.client import Refusal, request

#: Seconds between two checks of a restore's status.
_PAUSE = 0.2
#: How often a restore is asked again because files changed meanwhile.
_TRIES = 5

_GOING = frozenset({"accepted", "committed", "handed_over"})
_WORDS = {
    "done": "restored",
    "cancelled": "cancelled; nothing was changed",
    "expired": "nobody answered in time; nothing was changed",
    "stuck": "stopped half-way",
    "given_up": "given up",
    "outdated": "files have changed since",
}


def restore(where: Places, fields: dict[str, Any], *, yes: bool, as_json: bool) -> int:
    """Request a restore, put the server's question to the person (not with `yes`), and wait for the result. Returns 0
    if it was restored, or if the question stays open because no person can be asked. Returns 1 otherwise, also if
    another person's request replaced this one. Raises what `request` raises."""
    try:
        entry = request(where, "restore", fields)
    except Refusal as refusal:
        if isinstance(refusal.details, dict) and "diverged" in refusal.details and not as_json:
            _compare(refusal.details)
            if "files" not in fields:
                print("add --files to put back what was modified or deleted, --exact to remove what was added as well")
        raise
    wanted = _wanted(entry)
    for _ in range(_TRIES):
        if not yes:
            if as_json:
                print(json.dumps(entry))
                return 0
            _show(entry)
            if not sys.stdin.isatty():
                print(f"nothing was changed yet: agent-intercom-ctl answer {entry['restore_id']} proceed | cancel")
                return 0
        decision = "proceed" if yes or _agreed() else "cancel"
        try:
            send(where, "answer", {"id": entry["restore_id"], "decision": decision})
        except Refusal as refusal:
            # Another channel decided first; its result is reported below.
            if refusal.code != "already_decided":
                raise
        entry = _end(where, entry["restore_id"])
        again = _asked_again(entry)
        if again is None:
            break
        entry = request(where, "restoring", {"id": again})
        if _wanted(entry) != wanted:
            # This is a different question: neither the person nor `yes` answered it.
            _tell_of_other(entry, as_json=as_json)
            return 1
        if not as_json:
            print("files have changed in between; this is how it is now:")
    if as_json:
        print(json.dumps(entry))
    else:
        _tell(entry)
    return 0 if entry["state"] == "done" else 1


def _end(where: Places, id: str) -> dict[str, Any]:
    while True:
        entry: dict[str, Any] = request(where, "restoring", {"id": id})
        if entry["state"] not in _GOING:
            return entry
        time.sleep(_PAUSE)


def _asked_again(entry: dict[str, Any]) -> str | None:
    """Return the id of the restore that replaced this one, or None."""
    if entry["state"] != "outdated" or not entry["note"]:
        return None
    return str(entry["note"]).rpartition("asked again as ")[2] or None


def _wanted(entry: dict[str, Any]) -> tuple[Any, Any]:
    """Return what a restore would do: its checkpoint, and how it treats the files."""
    return entry["checkpoint_id"], entry["files"]


def _tell_of_other(entry: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(entry))
        return
    who = f"{entry['asked_by']} ({entry['asked_via']})"
    name = entry["label"] or entry["checkpoint_id"]
    print(one_line(f"nothing was changed: {who} has asked to restore {name} instead, files: {entry['files']}"))
    print(one_line(f"to answer that: agent-intercom-ctl answer {entry['restore_id']} proceed | cancel"))


def _show(entry: dict[str, Any]) -> None:
    _compare(entry)
    files = {
        "leave": "the files stay as they are",
        "back": "modified and deleted files are put back, added ones stay",
        "exact": "modified and deleted files are put back, added ones are removed",
    }
    print(f"{files[entry['files']]}; session {entry['session_id'][:8]} ends, and another goes on from the checkpoint")


def _compare(entry: dict[str, Any]) -> None:
    name = entry["label"] or entry["checkpoint_id"]
    counts = f"{entry['modified']} modified, {entry['deleted']} deleted, {entry['added']} added"
    print(one_line(f"checkpoint {name} of {entry['workspace_root']}: {counts} since"))
    for each in entry["diverged"]:
        print(f"  {each['kind']:<9}{one_line(each['path'])}")
    rest = entry["modified"] + entry["deleted"] + entry["added"] - len(entry["diverged"])
    if rest > 0:
        print(f"  and {rest} more")
    for remark in entry["remarks"]:
        print(f"  {clean(remark)}")


def _agreed() -> bool:
    try:
        return input("proceed? [y/N] ").strip().casefold() in ("y", "yes")
    except EOFError:
        print()
        return False


def _tell(entry: dict[str, Any]) -> None:
    words = _WORDS.get(entry["state"], "")
    told = entry["note"] or words if entry["state"] in ("done", "failed") else f"{words}: {entry['note'] or ''}"
    print(one_line(told.rstrip(": ")))
    if entry["state"] == "done":
        print(f"to go back: agent-intercom-ctl restore {entry['safety_checkpoint_id'][:8]} --exact")
