"""The judge: holds what agents and operators were told against the database and the files, when all is over."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import define, field

from tests.chaos.rig import Rig
from tests.chaos.slack_people import Tap

#: What an agent noted, line by line, by the names of agents.
Logs = dict[str, list[dict[str, Any]]]
#: A row of any of the three tables of requests, with its `kind`.
Row = dict[str, Any]
#: From when until when, in seconds since the epoch.
Times = list[tuple[float, float]]


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
    at: float
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
            frozenset(id for (id,) in db.execute("select session_id from spawned_agent")),
            frozenset(rig.starter.cleared),
        )


@define
class Roads:
    """Which of its roads brought an agent what. Whoever stands at its end says what has arrived: a shim outlives the
    server, and over HTTP it is the agent's next call, which the death of the server, or of its HTTP listener, may
    forestall."""

    #: When servers were started, and when they opened their HTTP port: in each start, and after a fall of the listener.
    starts: list[float]
    openings: list[float]

    @staticmethod
    def read(rig: Rig) -> Roads:
        """When that was, as the servers' log has it."""
        words = "".join(file.read_text() for file in server_logs(rig))
        return Roads(_logged(words, "intercom: MCP server ready"), _logged(words, "intercom.http: MCP over HTTP at"))

    def of(self, line: dict[str, Any]) -> Road:
        """The road by which what an agent notes in this line has come."""
        return line["life"], bisect(self.openings, line["at"]) if line["http"] else 0


def _logged(words: str, entry: str) -> list[float]:
    """The instants of the entries that begin so, in seconds since the epoch."""
    times = re.findall(rf"^(\S+ \S+),(\d+) INFO +{re.escape(entry)}", words, re.MULTILINE)
    return sorted(datetime.fromisoformat(f"{second}.{rest}").timestamp() for second, rest in times)


def server_logs(rig: Rig) -> list[Path]:
    """Where servers have logged: in the background to a file, in the foreground to where their errors go."""
    kept = [rig.errors] if rig.errors.exists() else []
    return [*sorted(Path(rig.places.state_dir, "log").glob("*")), *kept]


def title_of(row: Row) -> str:
    """What its agent called a request."""
    return str(row.get("prompt_text") or row.get("message") or row.get("title"))


def agent_of(row: Row) -> str:
    """Whose request it is: agents begin all that they ask with their names."""
    return title_of(row).split()[0]


def moment(text: str) -> float:
    """An instant of the database, in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


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
    taken_back, decided = decisions_taken_back(db), times_decided(db)
    operators(report, rig, rows, taken_back, decided)
    slack(report, rig, rows, taken_back, decided)
    verdicts(report, logs, rows, started, roads)
    _records(report, db, rows, logs, started)
    nudges(report, rig, logs, db, started, roads)
    files(report, rig, db)
    log(report, rig, roads)
    report.counts["server kills, at random instants"] = rig.random_server_kills
    report.counts["server kills, to let a fault come about"] = rig.killed_servers - rig.random_server_kills
    report.counts["server kills, at crash points"] = sum(each.startswith("kill:") for each in rig.struck())
    report.counts["actors crashed"] = sum(not each.startswith("kill:") for each in rig.struck())
    report.counts["shim kills"] = rig.killed_shims
    report.counts["agents"] = len(logs)
    return report


def decisions_taken_back(db: sqlite3.Connection) -> frozenset[str]:
    """The verdicts that people took back: the request was open again, and another one may have decided it."""
    found = db.execute("select data from audit where kind = 'decision_taken_back'")
    return frozenset(json.loads(data)["verdict_id"] for (data,) in found)


def times_decided(db: sqlite3.Connection) -> dict[str, Times]:
    """From when until when each request was decided, in seconds since the epoch, where that was taken back."""
    times: dict[str, Times] = defaultdict(list)
    since: dict[str, float] = {}
    entries = "select kind, at, data from audit where kind in ('decided', 'decision_taken_back') order by id"
    for kind, at, data in db.execute(entries):
        id = json.loads(data)["request_id"]
        if kind == "decided":
            since[id] = moment(at)
        elif id in since:
            times[id].append((since.pop(id), moment(at)))
    return dict(times)


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
    for state, count in db.execute("select state, count(*) from spawned_agent group by state"):
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
        took = [line["seconds"] for line in lines if line["what"] == "answered"]
        report.counts["seconds of the longest call"] = max(
            report.counts["seconds of the longest call"], *map(round, took), 0
        )
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
    # One decision more than were taken back.
    again = {"decided": happened["decision_taken_back"], "applied": Counter[str]()}
    for kind in ("decided", "applied"):
        twice = [id for id, count in happened[kind].items() if count > 1 + again[kind][id]]
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


# --- people ----------------------------------------------------------------------------------------------------------

#: What an operator's word becomes in the database, by the kind of request.
_STANDBY_WORD = {"continue": "resume", "refine": "resume", "stop": "stop"}
#: What the statuses of a request are called that only a verdict brings about, and those that an approval needs.
_DECIDED = frozenset({"approved", "consumed", "rejected", "decided"})
_ALLOWED = frozenset({"approved", "consumed"})
#: Seconds that what happens in two processes may seem to have happened the other way round.
_BLUR_SECONDS = 0.1


def operators(
    report: Report,
    rig: Rig,
    rows: dict[str, Row],
    taken_back: frozenset[str] = frozenset(),
    decided: Mapping[str, Times] = MappingProxyType({}),
) -> None:
    """What operators were told of their verdicts is so; and nothing is decided but by them, and by people in Slack."""
    report.faults += [f"an operator saw: {card}" for card in rig.operators.stuck]
    report.faults += [f"an operator was refused: {why}" for why in rig.operators.refusals]
    recorded = rig.operators.taken_back.count("recorded")
    report.counts["verdicts taken back"] = len(taken_back)
    if recorded > len(taken_back):
        report.faults.append(f"{recorded} verdicts were taken back, and {len(taken_back)} on record")
    accepted = {given.verdict_id for given in rig.operators.given if given.outcome != "refused"}
    for given in rig.operators.given:
        report.counts[f"verdicts {given.outcome}"] += 1
        row = rows[given.request_id]
        won = row["verdict_id"] == given.verdict_id
        if given.outcome == "recorded" and not won and given.verdict_id not in taken_back:
            report.faults.append(f"a recorded verdict is lost: {given}, and the database has {row['verdict_id']}")
        # Refused while another decision stood, it may be given again when that was taken back.
        again = given.request_id in decided and given.verdict_id in accepted
        if given.outcome == "refused" and won and not again:
            report.faults.append(f"a verdict was refused and won all the same: {given}")
        if won and given.verdict_id in taken_back:
            report.faults.append(f"a verdict was taken back and counts all the same: {given}")
        if won:
            word = _STANDBY_WORD[given.decision] if row["kind"] == "standby" else given.decision
            if (row["verdict"], row["decided_text"]) != (word, given.text):
                report.faults.append(f"the database has another verdict than was given: {given}, {dict(row)}")
    given_to = {(given.request_id, given.verdict_id) for given in rig.operators.given}
    if rig.slack is not None:
        given_to |= {(tap.card_id, tap.verdict_id) for tap in rig.slack.taps}
    for row in rows.values():
        if not _by_itself(row) and _must_be_given(row) and (row["id"], row["verdict_id"]) not in given_to:
            report.faults.append(f"nobody gave the verdict of {row}")
        if row["status"] in _ALLOWED and row["verdict"] != "approve":
            report.faults.append(f"nobody approved what is {row['status']}: {row}")


def _must_be_given(row: Row) -> bool:
    return row["verdict_id"] is not None or row["status"] in _DECIDED


def _by_itself(row: Row) -> bool:
    """Whether words for its agent ended a standby, or time a question. (No workspace here has a policy.)"""
    match row["kind"]:
        case "standby":
            return bool(row["verdict_id"] == f"steer/{row['id']}" and row["verdict"] == "resume")
        case "prompt":
            return bool(row["verdict_id"] == f"timeout/{row['id']}" and row["status"] == "expired")
    return False


def slack(
    report: Report,
    rig: Rig,
    rows: dict[str, Row],
    taken_back: frozenset[str] = frozenset(),
    decided: Mapping[str, Times] = MappingProxyType({}),
) -> None:
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
        elif tap.verdict_id not in taken_back and _is_lost(tap, row, decided.get(tap.card_id, [])):
            times = decided.get(tap.card_id)
            report.faults.append(f"a tap was acknowledged and is lost: {tap}, taken back: {times}, {row}")


def _is_lost(tap: Tap, row: Row, decided: Times) -> bool:
    """Whether the card was open from this tap until Slack was told that it is dealt with. (One whose time is up takes
    no verdict any more, though it may be closed a little later. One that was decided meanwhile took none either,
    whatever came of that.)"""
    if tap.acknowledged is None or row["status"] == "expired":
        return False
    # The first delivery may have come too late, and all later ones get the same answer.
    made = tap.acknowledged if tap.made is None else tap.made
    if any(since <= tap.acknowledged + _BLUR_SECONDS and made - _BLUR_SECONDS <= until for since, until in decided):
        return False
    ended = row["decided_at"] or row["closed_at"]
    return ended is None or moment(ended) > tap.acknowledged + _BLUR_SECONDS


# --- what agents were told -------------------------------------------------------------------------------------------

#: Seconds around an agent's last answer in which something may have come too late for it.
_LAST_SECONDS = 0.5
#: Seconds by which a client may hear of an answer, or a server of what its client has cancelled, later than the other.
_CROSSING_SECONDS = 2.0


def verdicts(report: Report, logs: Logs, rows: dict[str, Row], started: Started, roads: Roads) -> None:
    """Every verdict reached the agent that had asked, which was told it as it is on record."""
    told: dict[str, list[Told]] = defaultdict(list)
    by_title = defaultdict(list)
    for row in rows.values():
        by_title[title_of(row)].append(row["id"])
    cancelled = set()
    anonymous: list[tuple[str, Told]] = []
    for agent, lines in logs.items():
        asked: dict[str, Any] = {}
        for line in lines:
            if line["what"] == "called":
                asked = line["arguments"]
            elif line["what"] == "cancelled":
                # A round that waits for a second only says so behind its name.
                cancelled |= {f"{agent} round {line['plan']}", f"{agent} round {line['plan']} brief"}
            elif line["what"] == "answered" and not line["error"]:
                answer, road = line["answer"], roads.of(line)
                for late in answer.get("late_verdicts", ()):
                    told[late["request_id"]].append(Told(agent, line["at"], road, True, late["answer"]))
                if line["tool"] not in ("check_clearance", "transmit", "standby"):
                    continue
                if answer.get("status") in ("pending", "paused"):
                    continue
                verdict = Told(agent, line["at"], road, False, answer)
                if id := answer.get("request_id") or asked.get("request_id"):
                    told[id].append(verdict)
                else:
                    title = asked.get("title") or asked.get("prompt_text") or asked.get("message")
                    anonymous.append((str(title), verdict))
    for title, verdict in anonymous:
        # Such an answer does not say which request it is about; a cancelled call may have left another of its title.
        gone = _is_gone(verdict.agent, logs, started)
        fitting = [id for id in by_title[title] if _agrees(verdict.answer, rows[id], gone)]
        if not fitting:
            report.faults.append(f"{verdict.agent} was told {verdict.answer} of {title}, which no record says")
            continue
        told[min(fitting, key=lambda id: (_repeats(verdict, told.get(id, [])), id in told))].append(verdict)
    for id, each in told.items():
        _told_once(report, id, each, rows.get(id), {one.agent for one in each if _is_gone(one.agent, logs, started)})
    for id, row in rows.items():
        title, agent = title_of(row), agent_of(row)
        lines = logs.get(agent, [])
        if not lines:
            report.faults.append(f"nobody is called {agent}, who asked {title}")
        elif _is_gone(agent, logs, started):
            continue
        elif (
            not any(one.agent == agent for one in told.get(id, ()))
            and title not in cancelled
            and not _ended(row) > _last_answer(lines) - _LAST_SECONDS
        ):
            report.faults.append(f"a verdict never reached {agent}: {row['kind']} {id} ({title}) {row['status']}")


def _repeats(one: Told, told: list[Told]) -> bool:
    """Whether this, too, would make what was told later the same once more on one road."""
    return any(other.late and other.road == one.road and other.at > one.at for other in told)


def _is_gone(agent: str, logs: Logs, started: Started) -> bool:
    """Whether this agent crashed, or was ended, before it was done."""
    return agent in started.cleared or logs[agent][-1]["what"] == "crashed"


def _told_once(report: Report, id: str, each: list[Told], row: Row | None, gone: set[str]) -> None:
    if row is None:
        report.faults.append(f"an agent was told of request {id}, which is not in the database")
        return
    report.counts["verdicts delivered"] += 1
    report.counts["of them late, on another call's result"] += any(one.late for one in each)
    for one in each:
        if one.agent != agent_of(row):
            report.faults.append(f"{one.agent} was told {one.answer}, which {agent_of(row)} had asked: {row}")
        if not _agrees(one.answer, row, one.agent in gone):
            report.faults.append(f"{one.agent} was told {one.answer}, and the record says {row}")
    # Answers that do not name their request were found last.
    for before, after in pairwise(sorted(each, key=lambda one: one.at)):
        if after.late:
            if after.road == before.road:
                report.faults.append(f"{after.agent} was told twice of {id} on one road: {before}, {after}")
            else:
                who = "server" if after.road[0] == before.road[0] else "shim"
                report.counts[f"verdicts told again after a {who} died"] += 1


def _agrees(answer: dict[str, Any], row: Row, gone: bool) -> bool:
    status, verdict, text = row["status"], row["verdict"], row["decided_text"]
    match row["kind"]:
        case "approval":
            if answer["status"] == "timeout":
                return bool(status == "expired")
            if answer["status"] == "approved":
                # One that was told, and whose agent ended before it applied the change, is interrupted. That it was
                # told is on record, unless its agent was gone before it could be.
                ended = status == "interrupted" and (gone or row["delivered_at"] is not None)
                return verdict == "approve" and (status in ("approved", "consumed") or ended)
            return bool(verdict == "reject" and answer.get("reason") == text)
        case "prompt":
            return bool(answer.get("decision") == verdict and answer.get("instruction") == text)
        case _:
            if answer["status"] == "timeout":
                return bool(status == "expired")
            return status == "decided" and bool(answer.get("instruction") == ("stop" if verdict == "stop" else text))


def _ended(row: Row) -> float:
    return moment(row["decided_at"] or row["closed_at"] or row["created_at"])


def _last_answer(lines: list[dict[str, Any]]) -> float:
    """When this agent was told something for the last time."""
    times = [line["at"] for line in lines if line["what"] == "answered"]
    return float(times[-1] if times else lines[-1]["at"])


def nudges(
    report: Report,
    rig: Rig,
    logs: Logs,
    db: sqlite3.Connection,
    started: Started,
    roads: Roads,
) -> None:
    """What people said to an agent reached it, once on each road, and nobody else."""
    written = {word["text"]: word for word in db.execute("select text, created_at, delivered_at from instruction")}
    agents: dict[str, str] = {}
    heard: dict[str, list[tuple[str, Road]]] = defaultdict(list)
    for agent, lines in logs.items():
        for line in lines:
            if line["what"] == "answered":
                for word in line["answer"].get("instructions", ()):
                    heard[word["text"]].append((agent, roads.of(line)))
                if line["tool"] == "ping" and "session_id" in line["answer"]:
                    agents[line["answer"]["session_id"]] = agent
    for words, outcome in rig.operators.nudges.items():
        times, session = heard.get(words, []), rig.operators.nudged[words]
        # Not known is one that was started and ended before it had its answer to anything.
        agent = agents.get(session)
        report.counts["nudges delivered"] += bool(times)
        if len(set(times)) != len(times):
            report.faults.append(f"{words!r} was told twice on one road: {times}")
        if agent is not None and any(other != agent for other, _ in times):
            report.faults.append(f"{words!r} was said to {agent}, and told: {times}")
        if session in started.sessions:
            continue  # whose agent may have left
        if outcome == "recorded" and words not in written:
            report.faults.append(f"{words!r} was recorded and is lost")
        elif outcome == "recorded" and not times and not _may_be_missed(written[words], logs.get(agent or "", [])):
            report.faults.append(
                f"{words!r} never reached its agent, {agent} ({_when(written[words], logs.get(agent or '', []))})"
            )


def _when(word: sqlite3.Row, lines: list[dict[str, Any]]) -> str:
    """The times that decide whether these words may be missed, in seconds from when they were given."""
    given = moment(word["created_at"])
    delivered = "never" if word["delivered_at"] is None else f"at {moment(word['delivered_at']) - given:+.1f} s"
    last = f"{_last_answer(lines) - given:+.1f} s" if lines else "none"
    cancelled = sorted((line["at"] - given for line in lines if line["what"] == "cancelled"), key=abs)[:1]
    near = f"{cancelled[0]:+.1f} s" if cancelled else "none"
    return f"delivered {delivered}, its last answer {last}, the nearest cancelled call {near}"


def _may_be_missed(word: sqlite3.Row, lines: list[dict[str, Any]]) -> bool:
    """Whether these words came when their agent was about to leave, or rode on the answer of a call that it had just
    cancelled: a client drops that, and what rode on it."""
    given = moment(word["created_at"])
    if word["delivered_at"] is None:
        return not lines or given > _last_answer(lines) - _LAST_SECONDS
    since, until = given - _CROSSING_SECONDS, moment(word["delivered_at"]) + _CROSSING_SECONDS
    return any(line["what"] == "cancelled" and since <= line["at"] <= until for line in lines)


# --- files and logs --------------------------------------------------------------------------------------------------

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
