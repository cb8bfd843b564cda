"""`policy list`, `show`, `accept` and `reject`: what a workspace's policy grants, and who accepted it.

It uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from intercom.cli.ctl_sign import policy_card, send
from intercom.cli.ctl_text import clean, one_line
from intercom.local.places import Places
from intercom.operators.ctl.client import request

#: How many characters of a hash a list shows.
_SHORT = 12


def subject(named: str | None) -> dict[str, str]:
    """Return the request field that names a policy: a card's id, or a workspace's path."""
    if named is None:
        return {}
    if named.startswith("policy-") and os.sep not in named:
        return {"id": named}
    return {"workspace": os.path.abspath(named)} if os.sep in named or os.path.isdir(named) else {"id": named}


def run(where: Places, act: str, fields: dict[str, Any], *, yes: bool, as_json: bool) -> int:
    """Run one of the four commands. Returns 0 if done, 1 if the person declined. Raises what `request` raises."""
    if act == "accept":
        return _accept(where, fields, yes=yes or as_json, as_json=as_json)
    if act == "show" and not fields:
        fields = {"workspace": os.getcwd()}
    data = send(where, "policy-reject", fields) if act == "reject" else request(where, f"policy-{act}", fields)
    if as_json:
        print(json.dumps(data))
    elif act == "reject":
        print(one_line(f"rejected {data['request_id']}: the policy of {data['workspace_root']}"))
    elif act == "show":
        show(data)
    else:
        _list(data["policies"])
    return 0


def _accept(where: Places, fields: dict[str, Any], *, yes: bool, as_json: bool) -> int:
    shown: Mapping[str, Any] | None = None
    if not fields and not yes and sys.stdin.isatty():
        # The only waiting policy is shown before it is accepted, like a named one.
        waiting = [each for each in request(where, "pending", {}) if each["kind"] == "policy"]
        fields = {"id": waiting[0]["request_id"]} if len(waiting) == 1 else {}
    if "workspace" in fields or ("id" in fields and not yes and sys.stdin.isatty()):
        # The hash makes sure that the shown text is accepted, even if the file changes meanwhile.
        entry = request(where, "policy-show", fields)
        if not yes and sys.stdin.isatty():
            show(entry)
            shown = policy_card(entry)
            if entry["request_id"] is not None and not _agreed(entry["workspace_root"]):
                print("nothing was changed")
                return 1
        fields = {**fields, "sha256": entry["sha256"]} if entry["sha256"] is not None else fields
    data = send(where, "policy-accept", fields, card=shown)
    if as_json:
        print(json.dumps(data))
    else:
        print(one_line(f"accepted {data['request_id']}: the policy of {data['workspace_root']}"))
    return 0


def show(entry: dict[str, Any]) -> None:
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


def _list(entries: list[dict[str, Any]]) -> None:
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


def _agreed(root: str) -> bool:
    try:
        return input(f"accept this policy for {one_line(root)}? [y/N] ").strip().casefold() in ("y", "yes")
    except EOFError:
        print()
        return False
