"""The judge: holds what agents and operators were told against the database and the files, when all is over."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.chaos import judge_files, judge_people, judge_told
from tests.chaos.report import Logs, Report, Roads, Row, Started
from tests.chaos.rig import Rig


def judge(rig: Rig) -> Report:
    """Look at everything the rig left behind. The server must have stopped."""
    report = Report()
    logs = {file.stem: [json.loads(line) for line in file.open()] for file in sorted(rig.logs.glob("*.jsonl"))}
    db = sqlite3.connect(f"file:{rig.database}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    rows = {row["id"]: {**row, "kind": kind} for kind, row in _requests(db)}
    started = Started.read(rig, db)
    roads = Roads.read(rig)
    _children(report, rig, db, started)
    _agents(report, rig, logs, started)
    _requests_ended(report, rows, started)
    judge_people.operators(report, rig, rows)
    judge_people.slack(report, rig, rows)
    judge_told.verdicts(report, logs, rows, started, roads)
    _records(report, db, rows, logs, started)
    judge_told.nudges(report, rig, logs, db, started, roads)
    judge_files.files(report, rig, db)
    judge_files.log(report, rig, roads)
    report.counts["server kills, at random instants"] = rig.random_server_kills
    report.counts["server kills, to let a fault come about"] = rig.killed_servers - rig.random_server_kills
    report.counts["server kills, at crash points"] = sum(each.startswith("kill:") for each in rig.struck())
    report.counts["actors crashed"] = sum(not each.startswith("kill:") for each in rig.struck())
    report.counts["shim kills"] = rig.killed_shims
    report.counts["agents"] = len(logs)
    return report


def _requests(db: sqlite3.Connection) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, table in (("approval", "approval_request"), ("prompt", "continuation_prompt"), ("standby", "wait")):
        for row in db.execute(f"select * from {table}"):
            yield kind, dict(row)


def _children(report: Report, rig: Rig, db: sqlite3.Connection, started: Started) -> None:
    """Each start that was answered is on record, none is on record that nobody asked for, and all are over."""
    if rig.starter is None:
        return
    asked = {id for id in rig.starter.started.values() if id is not None}
    report.faults += [f"somebody who started agents was refused: {why}" for why in rig.starter.refusals]
    report.faults += [f"session {id} was started and is not on record" for id in sorted(asked - started.sessions)]
    if len(started.sessions) > len(rig.starter.started):
        report.faults.append(f"{len(rig.starter.started)} agents were started, and {len(started.sessions)} on record")
    report.faults += [f"still runs when all is over: {command}" for command in rig.left_running]
    report.counts["agents started by people"] = len(started.sessions)
    report.counts["of them ended before they were done"] = len(started.cleared)
    for state, count in db.execute("select state, count(*) from child group by state"):
        if state != "over":
            report.faults.append(f"{count} agents that were started are {state}")


def _agents(report: Report, rig: Rig, logs: Logs, started: Started) -> None:
    died = 0
    # Where something is killed, nobody can say of a connection that broke whether that was why.
    undisturbed = not rig.killed_servers and not rig.struck()
    for agent, lines in logs.items():
        broken = [line for line in lines if line["what"] == "connection_broke"]
        report.counts["connections over HTTP that broke"] += len(broken)
        if agent in started.cleared:
            continue
        # One that fell on purpose let go of its connection as it did.
        if undisturbed and not (lines and lines[-1]["what"] == "crashed"):
            report.faults += [f"{agent}: a connection broke, and nothing was killed: {line['why']}" for line in broken]
        report.faults += [
            f"{agent}: {line['why']} {line.get('answer', '')}" for line in lines if line["what"] == "fault"
        ]
        if not lines:
            report.faults.append(f"{agent} has said nothing")
        elif lines[-1]["what"] not in ("finished", "crashed"):
            report.faults.append(f"{agent} did not finish; its last line: {lines[-1]}")
        died += sum(line["what"] == "shim_died" for line in lines)
        report.counts["calls answered"] += sum(line["what"] == "answered" for line in lines)
        report.counts["calls cancelled"] += sum(line["what"] == "cancelled" for line in lines)
    if died > rig.killed_shims:
        report.faults.append(f"{died} connections broke, and {rig.killed_shims} shims were killed")


def _requests_ended(report: Report, rows: dict[str, Row], started: Started) -> None:
    for row in rows.values():
        report.counts[f"{row['kind']}s {row['status']}"] += 1
        if row["status"] == "pending":
            report.faults.append(f"{row['kind']} {row['id']} is still pending")
        if row["status"] == "interrupted" and row["session_id"] not in started.sessions:
            report.faults.append(f"{row['kind']} {row['id']} was interrupted")


def _records(
    report: Report,
    db: sqlite3.Connection,
    rows: dict[str, Row],
    logs: Logs,
    started: Started,
) -> None:
    if (sound := db.execute("pragma integrity_check").fetchone()[0]) != "ok":
        report.faults.append(f"the database is damaged: {sound}")
    for state, count in db.execute("select state, count(*) from apply_journal group by state"):
        report.counts[f"applies {state}"] = count
        if state not in ("done", "abandoned"):
            report.faults.append(f"{count} applies are {state}")
    happened: dict[str, Counter[str]] = defaultdict(Counter)
    broadcasts: Counter[str] = Counter()
    for kind, summary, data in db.execute("select kind, summary, data from audit"):
        if kind == "broadcast":
            broadcasts[summary] += 1
        elif data and (id := json.loads(data).get("request_id")):
            happened[kind][id] += 1
    for kind in ("decided", "applied"):
        twice = [id for id, count in happened[kind].items() if count > 1]
        report.faults += [f"{kind} is on record more than once for {id}" for id in twice]
    for id, row in rows.items():
        if (row["status"] == "consumed") != (id in happened["applied"]):
            report.faults.append(f"{id} is {row['status']}, and applied {happened['applied'][id]} times")
        if row["status"] == "approved":
            report.counts["approved and not applied, the agent being done"] += 1
    _broadcasts(report, broadcasts, logs, started)


def _broadcasts(report: Report, posted: Counter[str], logs: Logs, started: Started) -> None:
    """Each line that was asked for was posted, and not more often than that; by an agent that fell, perhaps never: it
    notes that it calls before it does."""
    asked: Counter[str] = Counter()
    surely: set[str] = set()
    for agent, lines in logs.items():
        calls = [line for line in lines if line["what"] == "called" and line["tool"] == "broadcast"]
        asked.update(line["arguments"]["message"] for line in calls)
        if agent not in started.cleared and not any(line["what"] == "crashed" for line in lines):
            surely |= {line["arguments"]["message"] for line in calls}
    for text, count in asked.items():
        if not (text in surely) <= posted[text] <= count:
            report.faults.append(f"{text!r} was asked for {count} times and posted {posted[text]} times")
    report.counts["broadcasts"] = sum(posted.values())
