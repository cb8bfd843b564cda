"""The files: each holds what was approved, and was written as often as that; and what servers and agents logged."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import Counter
from pathlib import Path

from tests.chaos.report import Report, Roads, server_logs
from tests.chaos.rig import Rig

#: What a server says of an act in Slack that it could not put on record just then, and that is delivered to it again.
_COMES_AGAIN = re.compile(r"slack.s envelope .* (will come again|was not handled within)")


def files(report: Report, rig: Rig, db: sqlite3.Connection) -> None:
    """What is there, and what a witness has seen being written, is what was approved and applied."""
    wanted: dict[Path, str] = {}
    times: Counter[Path] = Counter()
    query = (
        "select session.workspace_root, approval_file.path, approval_file.after_hash from approval_file"
        " join approval_request on approval_request.id = request_id"
        " join session on session.id = approval_request.session_id"
        " where approval_request.status = 'consumed' order by consumed_at"
    )
    for root, path, after in db.execute(query):
        wanted[Path(root) / path] = after
        times[Path(root) / path] += 1
    _writes(report, rig, times)
    there = {file for root in rig.workspaces() for file in root.rglob("*") if file.is_file()}
    report.counts["files written"] = len(wanted)
    report.faults += [f"{file} is left over" for file in sorted(there - wanted.keys())]
    report.faults += [f"{file} is missing" for file in sorted(wanted.keys() - there)]
    for file in there & wanted.keys():
        if hashlib.sha256(file.read_bytes()).hexdigest() not in wanted[file]:
            report.faults.append(f"{file} does not hold what was approved last")


def _writes(report: Report, rig: Rig, times: Counter[Path]) -> None:
    """In the directories that are watched, each file was written as often as it was applied, and no other ever."""
    witness = rig.witness
    witness.look()
    report.faults += ["the witness could not keep up"] * witness.missed
    seen = {file for file in times if witness.watches(file.parent)}
    report.counts["writes witnessed"] = sum(witness.written[file] for file in seen)
    if not witness.present:
        return
    if times and not report.counts["writes witnessed"]:
        report.faults.append(f"the witness has seen none of {len(times)} files being written")
    for file in sorted(seen):
        if witness.written[file] != times[file]:
            report.faults.append(f"{file} was written {witness.written[file]} times, for {times[file]} applies")
    for file in sorted(witness.written.keys() - times.keys()):
        report.faults.append(f"{file} was written, and nothing of it was approved and applied")


def log(report: Report, rig: Rig, roads: Roads) -> None:
    """Nothing in the servers' logs but what was asked for, and nothing that agents stumbled over."""
    if not roads.starts:
        report.faults.append("no server has logged that it started")
    for file in server_logs(rig):
        for entry in re.split(r"\n(?=\d{4}-\d\d-\d\d )", file.read_text()):
            if _may_be_logged(rig, entry):
                continue
            if "Traceback" in entry:
                report.faults.append(f"in the log: {entry[-1500:]}")
            elif " ERROR " in entry.partition("\n")[0]:
                report.faults.append(f"in the log: {entry[:300]}")
    for file in sorted(rig.root.glob("driver-*.err")):
        if (text := file.read_text().strip()) and "Traceback" in text:
            report.faults.append(f"{file.name}: {text[-1500:]}")


def _may_be_logged(rig: Rig, entry: str) -> bool:
    is_disturbed = bool(rig.killed_servers or rig.struck())
    return "InjectedCrash" in entry or (is_disturbed and _COMES_AGAIN.search(entry) is not None)
