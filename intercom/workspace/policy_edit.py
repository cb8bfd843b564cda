"""Adds rules to the text of a policy file, and leaves everything else of it as it is.

Order, line breaks and indentation of the file stay. The result is parsed again: it has to state exactly the earlier
policy with the new rules, or nothing is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from intercom.model.errors import IntercomError, InvalidState
from intercom.model.json_types import Json
from intercom.model.policy import POLICY_FILE, PolicyRule, RuleKind, WorkspacePolicy, with_rules
from intercom.model.request import RiskLevel
from intercom.workspace import transaction
from intercom.workspace.files import (
    ABSENT,
    file_fingerprint,
    lexical,
    opened_parent,
    opened_root,
    relative,
)
from intercom.workspace.policy_file import MAX_POLICY_BYTES, is_nested, members, parse, skip
from intercom.workspace.transaction import Step

_FLAT = {
    RuleKind.COMMAND: ("commands",),
    RuleKind.TOOL: ("tools",),
    RuleKind.WRITE: ("file_patterns", "write"),
    RuleKind.READ: ("file_patterns", "read"),
}
_NESTED = {
    RuleKind.COMMAND: ("autoApprove", "commands"),
    RuleKind.TOOL: ("autoApprove", "tools"),
    RuleKind.WRITE: ("autoApprove", "filePatterns", "write"),
    RuleKind.READ: ("autoApprove", "filePatterns", "read"),
}
_BOM = "\ufeff"
_decoder = json.JSONDecoder()


def edited(text: str | None, rules: Sequence[PolicyRule], threshold: RiskLevel) -> str:
    """Return the text of a policy file with these rules and this threshold, and switched on. None stands for no file.

    Raises InvalidState if the text has a fault, or if the change cannot be made in it.
    """
    before, fault = parse("{}" if text is None else text)
    if fault is not None:
        raise InvalidState(f"the policy file has a fault, so nothing is added to it: {fault}")
    wanted = with_rules(before, rules, threshold)
    if text is None:
        new = f"{_fresh(wanted)}\n"
    else:
        mark = _BOM if text.startswith(_BOM) else ""
        new = mark + _edited(text.removeprefix(_BOM), before, rules, threshold)
    after, fault = parse(new)
    if fault is not None or after != wanted:
        why = fault or "its form is unusual"
        raise InvalidState(f"this cannot be added to the policy file ({why}): edit it yourself")
    if len(new.encode("utf-8", "surrogatepass")) > MAX_POLICY_BYTES:
        raise InvalidState(f"the policy file would be larger than {MAX_POLICY_BYTES} bytes: remove rules first")
    return new


def _fresh(policy: WorkspacePolicy) -> str:
    patterns = {"write": list(policy.file_patterns.write), "read": list(policy.file_patterns.read)}
    said: dict[str, Json] = {
        "enabled": True,
        "commands": list(policy.commands),
        "tools": list(policy.tools),
        "file_patterns": {name: found for name, found in patterns.items() if found},
        "risk_level_threshold": policy.risk_level_threshold.value,
    }
    return json.dumps({name: part for name, part in said.items() if part}, indent=2)


def _edited(text: str, before: WorkspacePolicy, rules: Sequence[PolicyRule], threshold: RiskLevel) -> str:
    nested = is_nested(json.loads(text))
    places = _NESTED if nested else _FLAT
    for rule in rules:
        text = _add(text, places[rule.kind], rule.text)
    above = ("autoApprove",) if nested else ()
    if not before.enabled:
        text = _set(text, (*above, "enabled"), True)
    if threshold is not before.risk_level_threshold:
        name = "riskLevelThreshold" if nested else "risk_level_threshold"
        text = _set(text, (*above, name), threshold.value)
    return text


def _add(text: str, path: Sequence[str], entry: str) -> str:
    """Add an entry to the list at `path`, which is made if it is missing."""
    at, missing = _find(text, path)
    if missing:
        return _insert(text, at, json.dumps(missing[0]), _nest(missing[1:], [entry]))
    return _insert(text, at, None, [entry][0])


def _set(text: str, path: Sequence[str], value: Json) -> str:
    at, missing = _find(text, path)
    if missing:
        return _insert(text, at, json.dumps(missing[0]), _nest(missing[1:], value))
    return f"{text[:at]}{json.dumps(value)}{text[_end(text, at) :]}"


def _nest(names: Sequence[str], value: Json) -> Json:
    for name in reversed(names):
        value = {name: value}
    return value


def _find(text: str, path: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return the index of the value at `path`, and no names; or that of the innermost object that is there, and the
    names that are missing in it."""
    at = skip(text, 0)
    for number, step in enumerate(path):
        found = next((value for name, _, value in members(text, at) if name == step), None)
        if found is None:
            return at, path[number:]
        at = found
    return at, ()


def _insert(text: str, at: int, key: str | None, value: Json) -> str:
    """Insert a member at the end of the object, or list, that begins at `at`, spaced like the one before it."""
    said = json.dumps(value) if key is None else f"{key}: {json.dumps(value)}"
    found = [(start, value_at) for _, start, value_at in members(text, at)]
    if not found:
        return f"{text[: at + 1]}{said}{text[_end(text, at) - 1 :]}"
    end = _end(text, found[-1][1])
    if len(found) > 1:
        # What separates the last two, without the comma.
        gap = text[_end(text, found[-2][1]) : found[-1][0]].replace(",", "", 1)
    else:
        gap = text[at + 1 : found[0][0]]
    return f"{text[:end]},{gap or ' '}{said}{text[end:]}"


def _end(text: str, at: int) -> int:
    _, end = _decoder.raw_decode(text, at)
    return end


# --- the file --------------------------------------------------------------------------------------------------------


def write(root: Path, source: str | None, base_sha256: str | None, text: str) -> None:
    """Replace the policy file of the workspace `root` by this text, whole or not at all. `base_sha256` is the hash of
    the present file, None if there is none: any other file is left as it is, and InvalidState raised. Also raises
    FileError and PathViolation."""
    data = text.encode("utf-8", "surrogatepass")
    path = relative(root, source or POLICY_FILE)
    if lexical(path).split("/")[0] not in (".intercom", ".monocoque"):
        raise InvalidState("the policy file is a symbolic link that leads out of its directory; nothing was written")
    sha = hashlib.sha256(data).hexdigest()
    before = ABSENT if base_sha256 is None else file_fingerprint(base_sha256)
    step = Step(path, before, file_fingerprint(sha), _mode(root, path), size=len(data))
    steps = transaction.prepare(root, f"policy-{sha[:32]}", (step,), None)
    # An earlier attempt may have been killed.
    transaction.discard(root, steps)
    try:
        transaction.stage(root, steps, {sha: data}.get)
        transaction.roll_forward(root, steps)
    except (IntercomError, OSError) as failed:
        transaction.discard(root, steps)
        raise InvalidState(f"the policy file was not written: {failed}") from failed


def _mode(root: Path, path: str) -> int:
    """Return the permission bits of the file, or those of a new one."""
    try:
        with opened_root(root) as top, opened_parent(top, path) as parent:
            return stat.S_IMODE(os.lstat(path.rpartition("/")[2], dir_fd=parent).st_mode)
    except OSError:
        return 0o644
