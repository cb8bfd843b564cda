"""The commands of ctl that take more than one request: `logs`, `policy` and `restore`.

It uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from intercom.cli.ctl_sign import policy_card, send
from intercom.cli.ctl_text import agreed, clean, one_line
from intercom.local.places import Places
from intercom.operators.ctl.client import Refusal, request

#: Seconds between two requests for more output.
_OUTPUT_PAUSE = 0.25


def logs(where: Places, fields: dict[str, Any], *, follow: bool, as_json: bool) -> int:
    """Print an agent's output, with `follow` until the agent has ended. If the server goes away, each request waits for
    it as usual. Raises what `request` raises."""
    piece = request(where, "logs", fields)
    _print_output(piece, as_json)
    while follow and (piece["is_going"] or piece["text"]):
        if not piece["text"]:
            time.sleep(_OUTPUT_PAUSE)
        rest = {name: value for name, value in fields.items() if name != "limit"}
        before, piece = piece["end"], request(where, "logs", {**rest, "start": piece["end"]})
        if piece["start"] > before and not as_json:
            print(f"[{piece['start'] - before} bytes are gone: more was written than is kept]", file=sys.stderr)
        if piece["text"]:
            _print_output(piece, as_json)
    if follow and not as_json and piece["exit"] is not None:
        print(f"[ended: {piece['exit']}]", file=sys.stderr)
    return 0


def _print_output(piece: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(piece), flush=True)
        return
    # An agent wrote this; it must not control the terminal.
    sys.stdout.write(clean(piece["text"].replace("\r\n", "\n")))
    sys.stdout.flush()


#: How many characters of a hash a list shows.
_SHORT = 12


def policy_subject(named: str | None) -> dict[str, str]:
    """Return the request field that names a policy: a card's id, or a workspace's path."""
    if named is None:
        return {}
    if named.startswith("policy-") and os.sep not in named:
        return {"id": named}
    return {"workspace": os.path.abspath(named)} if os.sep in named or os.path.isdir(named) else {"id": named}


def policy(where: Places, act: str, fields: dict[str, Any], *, yes: bool, as_json: bool) -> int:
    """Run one of the four commands. Returns 0 if done, 1 if the person declined. Raises what `request` raises."""
    if act == "accept":
        return _accept_policy(where, fields, yes=yes or as_json, as_json=as_json)
    if act == "show" and not fields:
        fields = {"workspace": os.getcwd()}
    data = send(where, "policy-reject", fields) if act == "reject" else request(where, f"policy-{act}", fields)
    if as_json:
        print(json.dumps(data))
    elif act == "reject":
        print(one_line(f"rejected {data['request_id']}: the policy of {data['workspace_root']}"))
    elif act == "show":
        _show_policy(data)
    else:
        _list_policies(data["policies"])
    return 0


def _accept_policy(where: Places, fields: dict[str, Any], *, yes: bool, as_json: bool) -> int:
    shown: Mapping[str, Any] | None = None
    if not fields and not yes and sys.stdin.isatty():
        # The only waiting policy is shown before it is accepted, like a named one.
        waiting = [each for each in request(where, "pending", {}) if each["kind"] == "policy"]
        fields = {"id": waiting[0]["request_id"]} if len(waiting) == 1 else {}
    if "workspace" in fields or ("id" in fields and not yes and sys.stdin.isatty()):
        # The hash makes sure that the shown text is accepted, even if the file changes meanwhile.
        entry = request(where, "policy-show", fields)
        if not yes and sys.stdin.isatty():
            _show_policy(entry)
            shown = policy_card(entry)
            if entry["request_id"] is not None and not agreed(
                f"accept this policy for {one_line(entry['workspace_root'])}?"
            ):
                print("nothing was changed")
                return 1
        fields = {**fields, "sha256": entry["sha256"]} if entry["sha256"] is not None else fields
    data = send(where, "policy-accept", fields, card=shown)
    if as_json:
        print(json.dumps(data))
    else:
        print(one_line(f"accepted {data['request_id']}: the policy of {data['workspace_root']}"))
    return 0


def _show_policy(entry: dict[str, Any]) -> None:
    """Print the status and the text of one policy."""
    where = f"{entry['workspace_root']}/{entry['source']}" if entry["source"] else entry["workspace_root"]
    print(one_line(f"{where}: {entry['status']}"))
    if entry["fault"] is not None:
        print(f"  fault: {one_line(entry['fault'])}")
    print(f"  lets pass now: {one_line(entry['grants'])}")
    if entry["accepted_sha256"] is not None:
        print(f"  accepted: {_accepted(entry)}, sha256 {entry['accepted_sha256']}")
    if entry["request_id"] is None:
        return
    print(f"  {entry['status']}: {entry['request_id']}, sha256 {entry['sha256']}")
    for way in entry["ways"]:
        print(f"    {one_line(way)}")
    print(f"  it {one_line(entry['trial'] or '')}")
    for line in (entry["text"] or "").removeprefix("\ufeff").split("\n"):
        print(f"    {clean(line)}")


def _list_policies(entries: list[dict[str, Any]]) -> None:
    if not entries:
        print("no policy yet: agent-intercom-ctl policy show DIR looks at the one of a workspace")
    for entry in entries:
        print(one_line(f"{entry['workspace_root']}: {entry['status']}"))
        print(f"  lets pass: {one_line(entry['grants'])}")
        if entry["sha256"] is not None:
            print(f"  sha256 {entry['sha256'][:_SHORT]}")
        if entry["accepted_sha256"] is not None:
            print(f"  accepted: {_accepted(entry)}, sha256 {entry['accepted_sha256'][:_SHORT]}")
        if entry["fault"] is not None:
            print(f"  fault: {one_line(entry['fault'])}")
        if entry["request_id"] is not None:
            print(f"  agent-intercom-ctl policy show {entry['request_id']}")


def _accepted(entry: dict[str, Any]) -> str:
    at = str(entry["accepted_at"])[:16].replace("T", " ")
    return one_line(f"by {entry['accepted_by']} ({entry['accepted_channel']}) at {at}")


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
            _ask_about(entry)
            if not sys.stdin.isatty():
                print(f"nothing was changed yet: agent-intercom-ctl answer {entry['restore_id']} proceed | cancel")
                return 0
        decision = "proceed" if yes or agreed("proceed?") else "cancel"
        try:
            send(where, "answer", {"id": entry["restore_id"], "decision": decision})
        except Refusal as refusal:
            # Another channel decided first; its result is reported below.
            if refusal.code != "already_decided":
                raise
        entry = _wait_for_end(where, entry["restore_id"])
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


def _wait_for_end(where: Places, id: str) -> dict[str, Any]:
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


def _ask_about(entry: dict[str, Any]) -> None:
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


def _tell(entry: dict[str, Any]) -> None:
    words = _WORDS.get(entry["state"], "")
    told = entry["note"] or words if entry["state"] in ("done", "failed") else f"{words}: {entry['note'] or ''}"
    print(one_line(told.rstrip(": ")))
    if entry["state"] == "done":
        print(f"to go back: agent-intercom-ctl restore {entry['safety_checkpoint_id'][:8]} --exact")
