"""The judge: holds what agents and operators were told against the database and the files, when all is over."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.chaos.rig import Rig

#: What an operator's word becomes in the database, by the kind of request.
_STANDBY_WORD = {"continue": "resume", "refine": "resume", "stop": "stop"}


@define
class Report:
    """`faults` are broken promises, in words; `counts` what happened, for the table."""

    faults: list[str] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)


#: What carried something to an agent: its how-manieth shim; over HTTP connection and life of the server.
Road = tuple[int, int]


@define
class Told:
    """One verdict as an agent was told it, `late` when it rode on a result."""

    agent: str
    road: Road
    late: bool
    answer: dict[str, Any]


@define
class Started:
    """The agents that people started: their sessions, and the names of those that were ended before they were done."""

    sessions: frozenset[str] = frozenset()
    cleared: frozenset[str] = frozenset()

    @staticmethod
    def read(rig: Rig, db: sqlite3.Connection) -> Started:
        """Who was started, as the database has it: an answer may have been lost."""
        if rig.starter is None:
            return Started()
        return Started(
            frozenset(id for (id,) in db.execute("select session_id from child")), frozenset(rig.starter.cleared)
        )


@define
class Roads:
    """Which of its roads brought an agent what. Whoever stands at its end says what has arrived: a shim outlives the
    server, and over HTTP it is the agent's next call, which a server's death may forestall."""

    starts: list[float]

    @staticmethod
    def read(rig: Rig) -> Roads:
        """When the server was started, as its log has it."""
        words = "".join(file.read_text() for file in Path(rig.places.state_dir, "log").glob("*"))
        times = re.findall(r"^(\S+ \S+),(\d+) INFO +intercom: MCP server ready", words, re.MULTILINE)
        return Roads(sorted(datetime.fromisoformat(f"{second}.{rest}").timestamp() for second, rest in times))

    def of(self, line: dict[str, Any]) -> Road:
        """The road by which what an agent notes in this line has come."""
        return line["life"], bisect(self.starts, line["at"]) if line["http"] else 0


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
    _operators(report, rig, rows, started)
    _slack(report, rig, rows)
    _verdicts(report, logs, rows, started, roads)
    _records(report, db, rows, logs)
    _nudges(report, rig, logs, db, started, roads)
    _files(report, rig, db)
    _log(report, rig)
    report.counts["server kills, at random instants"] = rig.killed_servers
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


def _agents(report: Report, rig: Rig, logs: dict[str, list[dict[str, Any]]], started: Started) -> None:
    died = 0
    for agent, lines in logs.items():
        report.counts["connections over HTTP that broke"] += sum(line["what"] == "connection_broke" for line in lines)
        if agent in started.cleared:
            continue
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


def _operators(report: Report, rig: Rig, rows: dict[str, dict[str, Any]], started: Started) -> None:
    report.faults += [f"an operator saw: {card}" for card in rig.operators.stuck]
    report.faults += [f"an operator was refused: {why}" for why in rig.operators.refusals]
    for given in rig.operators.given:
        report.counts[f"verdicts {given.outcome}"] += 1
        row = rows[given.request_id]
        won = row["verdict_id"] == given.verdict_id
        if given.outcome == "recorded" and not won:
            report.faults.append(f"a recorded verdict is lost: {given}, and the database has {row['verdict_id']}")
        if given.outcome == "refused" and won:
            report.faults.append(f"a verdict was refused and won all the same: {given}")
        if won:
            word = _STANDBY_WORD[given.decision] if row["kind"] == "standby" else given.decision
            if (row["verdict"], row["decided_text"]) != (word, given.text):
                report.faults.append(f"the database has another verdict than was given: {given}, {dict(row)}")
    for row in rows.values():
        report.counts[f"{row['kind']}s {row['status']}"] += 1
        if row["status"] == "pending":
            report.faults.append(f"{row['kind']} {row['id']} is still pending")
        if row["status"] == "interrupted" and row["session_id"] not in started.sessions:
            report.faults.append(f"{row['kind']} {row['id']} was interrupted")


def _slack(report: Report, rig: Rig, rows: dict[str, dict[str, Any]]) -> None:
    """What people tapped in Slack is on record where Slack was told so, and Slack shows what is on record."""
    if rig.slack is None or rig.shown is None:
        return
    report.faults += [f"in Slack: {fault}" for fault in rig.shown.faults]
    report.counts["cards in Slack"] = len(rig.shown.cards)
    report.counts["calls of Slack's Web API"] = rig.slack.calls
    for tap in rig.slack.taps:
        report.counts["taps in Slack"] += 1
        row = rows[tap.card_id]
        if row["verdict_id"] == tap.verdict_id:
            report.counts["verdicts by taps in Slack"] += 1
            if row["verdict"] != tap.word:
                report.faults.append(f"the database has another verdict than was tapped: {tap}, {row}")
        elif tap.acknowledged and row["status"] == "pending":
            report.faults.append(f"a tap was acknowledged and is lost: {tap}")


def _verdicts(
    report: Report,
    logs: dict[str, list[dict[str, Any]]],
    rows: dict[str, dict[str, Any]],
    started: Started,
    roads: Roads,
) -> None:
    told: dict[str, list[Told]] = defaultdict(list)
    by_title = defaultdict(list)
    for row in rows.values():
        by_title[row.get("prompt_text") or row.get("message") or row.get("title")].append(row["id"])
    finished: dict[str, float] = {}
    cancelled = set()
    nameless: list[tuple[str, Told]] = []
    for agent, lines in logs.items():
        finished[agent] = lines[-1]["at"] if lines else 0.0
        asked: dict[str, Any] = {}
        titles: dict[str, str] = {}
        for line in lines:
            if line["what"] == "called":
                asked = line["arguments"]
            elif line["what"] == "cancelled":
                # A round that waits for a second only says so behind its name.
                cancelled |= {f"{agent} round {line['plan']}", f"{agent} round {line['plan']} brief"}
            elif line["what"] == "answered" and not line["error"]:
                answer = line["answer"]
                for late in answer.get("late_verdicts", ()):
                    told[late["request_id"]].append(Told(agent, roads.of(line), True, late["answer"]))
                if line["tool"] not in ("check_clearance", "transmit", "standby"):
                    continue
                id = answer.get("request_id") or asked.get("request_id")
                title = asked.get("title") or asked.get("prompt_text") or asked.get("message")
                if id and title:
                    titles[id] = title
                if answer.get("status") in ("pending", "paused"):
                    continue
                verdict = Told(agent, roads.of(line), False, answer)
                if id:
                    told[id].append(verdict)
                else:
                    nameless.append((title, verdict))
    for title, verdict in nameless:
        # Such an answer does not say which request it is about; a cancelled call may have left another of its title.
        fitting = [id for id in by_title[title] if _agrees(verdict.answer, rows[id])]
        if not fitting:
            report.faults.append(f"{verdict.agent} was told {verdict.answer} of {title}, which no record says")
            continue
        told[next((id for id in fitting if id not in told), fitting[0])].append(verdict)
    for id, each in told.items():
        _told_once(report, id, each, rows.get(id))
    for id, row in rows.items():
        title = row.get("prompt_text") or row.get("message") or row.get("title")
        agent = str(title).split()[0]
        if agent in started.cleared or logs[agent][-1]["what"] == "crashed":
            continue
        if id not in told and title not in cancelled and not _after(row, finished[agent]):
            report.faults.append(f"a verdict never reached {agent}: {row['kind']} {id} ({title}) {row['status']}")


def _told_once(report: Report, id: str, each: list[Told], row: dict[str, Any] | None) -> None:
    if row is None:
        report.faults.append(f"an agent was told of request {id}, which is not in the database")
        return
    report.counts["verdicts delivered"] += 1
    report.counts["of them late, on another call's result"] += any(one.late for one in each)
    for one in each:
        if not _agrees(one.answer, row):
            report.faults.append(f"{one.agent} was told {one.answer}, and the record says {row}")
    for before, after in pairwise(each):
        if after.late:
            if after.road == before.road:
                report.faults.append(f"{after.agent} was told twice of {id} on one road: {before}, {after}")
            else:
                who = "server" if after.road[0] == before.road[0] else "shim"
                report.counts[f"verdicts told again after a {who} died"] += 1


def _agrees(answer: dict[str, Any], row: dict[str, Any]) -> bool:
    status, verdict, text = row["status"], row["verdict"], row["decided_text"]
    match row["kind"]:
        case "approval":
            if answer["status"] == "timeout":
                return status == "expired"
            if answer["status"] == "approved":
                # One that was told, and whose agent ended before it applied the change, is interrupted.
                ended = status == "interrupted" and row["delivered_at"] is not None
                return verdict == "approve" and (status in ("approved", "consumed") or ended)
            return verdict == "reject" and answer.get("reason") == text
        case "prompt":
            return answer.get("decision") == verdict and answer.get("instruction") == text
        case _:
            if answer["status"] == "timeout":
                return status == "expired"
            return status == "decided" and answer.get("instruction") == ("stop" if verdict == "stop" else text)


def _after(row: dict[str, Any], at: float) -> bool:
    ended = row["decided_at"] or row["closed_at"] or row["created_at"]
    return datetime.fromisoformat(ended).timestamp() > at - 0.5


def _records(
    report: Report,
    db: sqlite3.Connection,
    rows: dict[str, dict[str, Any]],
    logs: dict[str, list[dict[str, Any]]],
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
    asked = Counter(
        line["arguments"]["message"]
        for lines in logs.values()
        for line in lines
        if line["what"] == "called" and line["tool"] == "broadcast"
    )
    for text, count in asked.items():
        if not 1 <= broadcasts[text] <= count:
            report.faults.append(f"{text!r} was asked for {count} times and posted {broadcasts[text]} times")
    report.counts["broadcasts"] = sum(broadcasts.values())


def _nudges(
    report: Report,
    rig: Rig,
    logs: dict[str, list[dict[str, Any]]],
    db: sqlite3.Connection,
    started: Started,
    roads: Roads,
) -> None:
    written = dict(db.execute("select text, delivered_at from instruction"))
    cancelled = any(line["what"] == "cancelled" for lines in logs.values() for line in lines)
    heard: dict[str, list[tuple[str, Road]]] = defaultdict(list)
    for agent, lines in logs.items():
        for line in lines:
            if line["what"] == "answered":
                for word in line["answer"].get("instructions", ()):
                    heard[word["text"]].append((agent, roads.of(line)))
    for words, outcome in rig.operators.nudges.items():
        times = heard.get(words, [])
        report.counts["nudges delivered"] += bool(times)
        if len(set(times)) != len(times):
            report.faults.append(f"{words!r} was told twice on one road: {times}")
        if rig.operators.nudged[words] in started.sessions:
            continue  # whose agent may have left
        if outcome == "recorded" and not times and not (written[words] and cancelled):
            # (A client drops the answer of a call it has just cancelled, and what rode on it.)
            report.faults.append(f"{words!r} never reached its agent")


def _files(report: Report, rig: Rig, db: sqlite3.Connection) -> None:
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
    rig.witness.look()
    report.faults += ["the witness could not keep up"] * rig.witness.missed
    report.counts["writes witnessed"] = sum(count for file, count in rig.witness.written.items() if file in times)
    for file, count in rig.witness.written.items():
        if file in times and count != times[file]:
            report.faults.append(f"{file} was written {count} times, for {times[file]} applies")
    there = {file for root in rig.workspaces() for file in root.rglob("*") if file.is_file()}
    report.counts["files written"] = len(wanted)
    report.faults += [f"{file} is left over" for file in sorted(there - wanted.keys())]
    report.faults += [f"{file} is missing" for file in sorted(wanted.keys() - there)]
    for file in there & wanted.keys():
        if hashlib.sha256(file.read_bytes()).hexdigest() not in wanted[file]:
            report.faults.append(f"{file} does not hold what was approved last")


def _log(report: Report, rig: Rig) -> None:
    """Nothing in the server's log but what was asked for."""
    for file in sorted(Path(rig.places.state_dir, "log").glob("*")):
        for entry in re.split(r"\n(?=\d{4}-\d\d-\d\d )", file.read_text()):
            if "Traceback" in entry and "InjectedCrash" not in entry:
                report.faults.append(f"in the log: {entry[-1500:]}")
            elif " ERROR " in entry.splitlines()[0] and "InjectedCrash" not in entry:
                report.faults.append(f"in the log: {entry[:300]}")
    for file in sorted(rig.root.glob("driver-*.err")):
        if (text := file.read_text().strip()) and "Traceback" in text:
            report.faults.append(f"{file.name}: {text[-1500:]}")
