"""`policy`: shows, lists, accepts and rejects policies. `allow`: adds a rule to one, from a card."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from intercom.cli.ctl_grant import say_waiting
from intercom.cli.ctl_sign import policy_card, send
from intercom.cli.ctl_text import agreed, at_words, clean, one_line
from intercom.local.places import Places
from intercom.model.json_types import Json, JsonObject
from intercom.model.policy import PolicyStatus, RulePreview, RuleWritten
from intercom.operators.commands.json_forms import read
from intercom.operators.ctl.client import Refusal, request

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


def allow(where: Places, fields: JsonObject, *, yes: bool, as_json: bool) -> int:
    """Show what a rule would let pass, add it to the policy file, and accept the policy. Returns 0 if done, 1 if the
    person declined. Raises what `request` raises; if the policy is not accepted then, it waits."""
    entry = request(where, "allow-preview", fields)
    shown = read(RulePreview, entry)
    if not as_json:
        _show_rule(shown)
    if not (yes or as_json) and sys.stdin.isatty() and not agreed(f"add this to {one_line(shown.source)}?"):
        print("nothing was changed")
        return 1
    done = request(where, "allow", {**fields, "sha256": shown.sha256})
    written = read(RuleWritten, done)
    if written.policy_id is not None:
        try:
            send(where, "policy-accept", {"workspace": written.workspace_root, "sha256": shown.sha256})
        except Refusal:
            named = one_line(written.policy_id)
            print(f"the rule is in the file, and waits until you accept it: policy accept {named}", file=sys.stderr)
            raise
        done = {**done, "status": "in force", "policy_id": None}
    if as_json:
        print(json.dumps(done))
        return 0
    print(one_line(f"in force for {written.workspace_root}: {', '.join(shown.rules) or 'a higher threshold'}"))
    if written.backup is not None:
        print(one_line(f"the earlier file is kept as {written.backup}"))
    say_waiting(entry, shown.request_id)
    return 0


def _show_rule(shown: RulePreview) -> None:
    """Print what a rule changes, and what it would have let pass."""
    print(at_words(f"{shown.workspace_root}/{shown.source} would grant more, for every agent there and without end:"))
    for way in shown.ways:
        print(at_words(way, "  "))
    print(at_words(f"it {shown.trial}", "  "))
    for line in shown.diff.split("\n"):
        print(f"    {clean(line)}")


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
    return one_line(f"by {found.accepted_by} ({found.accepted_channel}) at {found.accepted_at:%Y-%m-%d %H:%M} UTC")
