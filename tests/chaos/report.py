"""What the judge reads and what it writes: the report, what agents were told, and by which road it came."""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.chaos.rig import Rig

#: What an agent noted, line by line, by the names of agents.
Logs = dict[str, list[dict[str, Any]]]
#: A row of any of the three tables of requests, with its `kind`.
Row = dict[str, Any]


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
        words = "".join(file.read_text() for file in server_logs(rig))
        times = re.findall(r"^(\S+ \S+),(\d+) INFO +intercom: MCP server ready", words, re.MULTILINE)
        return Roads(sorted(datetime.fromisoformat(f"{second}.{rest}").timestamp() for second, rest in times))

    def of(self, line: dict[str, Any]) -> Road:
        """The road by which what an agent notes in this line has come."""
        return line["life"], bisect(self.starts, line["at"]) if line["http"] else 0


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
