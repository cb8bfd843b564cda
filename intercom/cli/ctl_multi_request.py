"""The commands of ctl that take more than one request: `logs`, `policy` and `restore`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from intercom.cli.ctl_sign import policy_card, send
from intercom.cli.ctl_text import agreed, clean, one_line
from intercom.local.places import Places
from intercom.model.checkpoint import UNDER_WAY, DivergenceSummary, Files, Restore, RestoreState
from intercom.model.json_types import Json, JsonObject
from intercom.model.policy import PolicyStatus
from intercom.operators.commands.json_forms import read, read_divergence, read_restore
from intercom.operators.ctl.client import Refusal, request

#: Seconds between two requests for more output.
_OUTPUT_PAUSE = 0.25


def logs(where: Places, fields: JsonObject, *, follow: bool, as_json: bool) -> int:
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


def _print_output(piece: JsonObject, as_json: bool) -> None:
    if as_json:
        print(json.dumps(piece), flush=True)
        return
    # An agent wrote this; it must not control the terminal.
    sys.stdout.write(clean(str(piece["text"]).replace("\r\n", "\n")))
    sys.stdout.flush()


#: How many characters of a hash a list shows.
_SHORT = 12


def policy_subject(named: Json) -> dict[str, str]:
    """Return the request field that names a policy: a card's id, or a workspace's path."""
    if not isinstance(named, str):
        return {}
    if named.startswith("policy-") and os.sep not in named:
        return {"id": named}
    return {"workspace": os.path.abspath(named)} if os.sep in named or os.path.isdir(named) else {"id": named}


def policy(where: Places, act: str, fields: JsonObject, *, yes: bool, as_json: bool) -> int:
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
        _show_policy(read(PolicyStatus, data))
    else:
        _list_policies(read(list[PolicyStatus], data, "policies"))
    return 0


def _accept_policy(where: Places, fields: JsonObject, *, yes: bool, as_json: bool) -> int:
    shown = None
    if not fields and not yes and sys.stdin.isatty():
        # The only waiting policy is shown before it is accepted, like a named one.
        waiting = [each for each in request(where, "pending", {}) if each["kind"] == "policy"]
        fields = {"id": waiting[0]["request_id"]} if len(waiting) == 1 else {}
    if "workspace" in fields or ("id" in fields and not yes and sys.stdin.isatty()):
        # The hash makes sure that the shown text is accepted, even if the file changes meanwhile.
        entry = request(where, "policy-show", fields)
        found = read(PolicyStatus, entry)
        if not yes and sys.stdin.isatty():
            _show_policy(found)
            shown = policy_card(entry)
            if found.request_id is not None and not agreed(f"accept this policy for {one_line(found.workspace_root)}?"):
                print("nothing was changed")
                return 1
        fields = {**fields, "sha256": found.sha256} if found.sha256 is not None else fields
    data = send(where, "policy-accept", fields, card=shown)
    if as_json:
        print(json.dumps(data))
    else:
        print(one_line(f"accepted {data['request_id']}: the policy of {data['workspace_root']}"))
    return 0


def _show_policy(found: PolicyStatus) -> None:
    """Print the status and the text of one policy."""
    where = f"{found.workspace_root}/{found.source}" if found.source else found.workspace_root
    print(one_line(f"{where}: {found.status}"))
    if found.fault is not None:
        print(f"  fault: {one_line(found.fault)}")
    print(f"  lets pass now: {one_line(found.grants)}")
    if found.accepted_sha256 is not None:
        print(f"  accepted: {_accepted(found)}, sha256 {found.accepted_sha256}")
    if found.request_id is None:
        return
    print(f"  {found.status}: {found.request_id}, sha256 {found.sha256}")
    for way in found.ways:
        print(f"    {one_line(way)}")
    print(f"  it {one_line(found.trial or '')}")
    for line in (found.text or "").removeprefix("\ufeff").split("\n"):
        print(f"    {clean(line)}")


def _list_policies(policies: Sequence[PolicyStatus]) -> None:
    if not policies:
        print("no policy yet: agent-intercom-ctl policy show DIR looks at the one of a workspace")
    for each in policies:
        print(one_line(f"{each.workspace_root}: {each.status}"))
        print(f"  lets pass: {one_line(each.grants)}")
        if each.sha256 is not None:
            print(f"  sha256 {each.sha256[:_SHORT]}")
        if each.accepted_sha256 is not None:
            print(f"  accepted: {_accepted(each)}, sha256 {each.accepted_sha256[:_SHORT]}")
        if each.fault is not None:
            print(f"  fault: {one_line(each.fault)}")
        if each.request_id is not None:
            print(f"  agent-intercom-ctl policy show {each.request_id}")


def _accepted(found: PolicyStatus) -> str:
    return one_line(f"by {found.accepted_by} ({found.accepted_channel}) at {found.accepted_at:%Y-%m-%d %H:%M}")


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
