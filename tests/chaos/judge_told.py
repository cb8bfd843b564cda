"""What agents were told: each what is its own, once on each road, and nothing else than is on record."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.chaos.report import Logs, Report, Road, Roads, Row, Started, Told, agent_of, moment, title_of
from tests.chaos.rig import Rig

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
