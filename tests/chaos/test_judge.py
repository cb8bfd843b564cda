"""The judge sees each promise that is broken, and accuses nobody of what may be."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from intercom.local.places import places
from intercom.model.decision import Decided
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ChangeKind,
    ContinuationPrompt,
    FileChange,
    InstructionWait,
    PromptDecision,
    WaitStatus,
)
from intercom.store import audit, instructions, sessions
from intercom.store.database import Database, open_database
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals, prompts, waits
from tests.chaos.judge import Report, judge
from tests.chaos.operator_desk import Given
from tests.chaos.rig import Plan, Rig
from tests.chaos.slack_people import SlackPeople, Tap
from tests.chaos.starter import Starter
from tests.chaos.witness import Witness
from tests.operators.slack.live.truth import Found
from tests.store import cases
from tests.store.cases import NOW, after
from tests.support.server_forks import RealStarts

TEXT = "a0 round 1: one line more\n"


class Eyes(Witness):
    """A witness of one directory, on any system: it has seen what it is told."""

    def __init__(self, directory: Path) -> None:
        self.present, self.missed = True, False
        self.written: Counter[Path] = Counter()
        self._directories = {0: directory}

    def look(self) -> None:
        pass


@define
class Scene:
    """What a run has left behind: that of the agents a0 and a1, who were told one verdict each, and no more."""

    rig: Rig
    db: Database
    logs: dict[str, list[dict[str, Any]]] = field(factory=lambda: {"a0": [], "a1": []})

    @property
    def workspace(self) -> Path:
        return self.rig.root / "ws" / "0"

    def judged(self) -> Report:
        for agent, lines in self.logs.items():
            text = "".join(f"{json.dumps(line)}\n" for line in sorted(lines, key=lambda line: line["at"]))
            (self.rig.logs / f"{agent}.jsonl").write_text(text)
        return judge(self.rig)

    def faults(self) -> list[str]:
        return self.judged().faults

    def note(self, agent: str, when: float, what: str, *, life: int = 1, http: bool = False, **more: Any) -> None:
        line = {"at": after(when).timestamp(), "agent": agent, "life": life, "http": http, "what": what}
        self.logs.setdefault(agent, []).append({**line, **more})

    def call(self, agent: str, seconds: float, tool: str, asked: Any, answer: Any, **more: Any) -> None:
        self.note(agent, seconds - 0.01, "called", tool=tool, arguments=asked)
        self.note(agent, seconds, "answered", tool=tool, answer=answer, error=False, seconds=0.1, **more)

    def ping(self, agent: str, seconds: float, *, life: int = 1, http: bool = False, **riding: Any) -> None:
        """The agent, which has a session named as it is, makes a call on which this rides."""
        self.call(agent, seconds, "ping", {}, {"session_id": f"s-{agent}", **riding}, life=life, http=http)

    def propose(self, request: ApprovalRequest) -> None:
        approvals.insert(self.db, request)

    def ask(self, id: str, title: str, decided: Decided | None, **changes: Any) -> None:
        """A question of a0 on record."""
        decision = None if decided is None else PromptDecision(decided.decision)
        asked: ContinuationPrompt = cases.prompt(
            id, session_id="s-a0", prompt_text=title, status=WaitStatus.DECIDED, decided=decided, decision=decision
        )
        prompts.insert(self.db, evolve(asked, **changes))

    def stand_by(self, id: str, decided: Decided) -> None:
        """A standby of a0 on record, which was told how it ended."""
        title = f"a0 round {id}"
        wait: InstructionWait = cases.wait(
            id, session_id="s-a0", message=title, status=WaitStatus.DECIDED, decided=decided
        )
        waits.insert(self.db, wait)
        self.call("a0", 5, "standby", {"message": title}, {"status": "resumed"})

    def give(self, request_id: str, verdict: Decided) -> Decided:
        """Let an operator have given this verdict, and have it recorded."""
        given = Given(request_id, verdict.verdict_id, verdict.decision, verdict.text, "recorded")
        self.rig.operators.given.append(given)
        return verdict

    def nudge(self, agent: str, words: str, seconds: float, heard: float | None) -> None:
        """Let an operator have said these words to an agent, which are said to have arrived."""
        delivered = None if heard is None else after(heard)
        word = cases.word(
            words, session_id=f"s-{agent}", text=words, at=after(seconds), written_at=delivered, delivered_at=delivered
        )
        instructions.insert(self.db, word)
        self.rig.operators.nudged[words], self.rig.operators.nudges[words] = f"s-{agent}", "recorded"

    def write(self, path: str, text: str = TEXT) -> None:
        """Get this content into a file of the workspace, where that is seen."""
        (self.workspace / path).write_text(text)
        self.rig.witness.written[self.workspace / path] += 1


@pytest.fixture
def scene() -> Iterator[Scene]:
    # Short-named: sockets would live there.
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as root:
        yield from _scene(Path(root))


def _scene(root: Path) -> Iterator[Scene]:
    for name in ("run", "state", "cfg", "logs", "ws/0"):
        (root / name).mkdir(mode=0o700, parents=True)
    homes = {"HOME": root, "XDG_RUNTIME_DIR": root / "run", "XDG_STATE_HOME": root / "state"}
    where = places(environ={name: str(path) for name, path in homes.items()})
    made = Rig(Plan("1", 2, 1, 0, 0), root, {}, RealStarts(), where, random.Random(1), witness=Eyes(root / "ws" / "0"))
    db = open_database(made.database).db
    scene = Scene(made, db)
    for agent in ("a0", "a1"):
        sessions.insert(db, cases.session(f"s-{agent}", agent_key=agent, workspace_root=str(scene.workspace)))
    log(scene, started=0)
    file = FileChange("a0.txt", ChangeKind.CREATE, "new_file", hashlib.sha256(TEXT.encode()).hexdigest(), added=1)
    scene.propose(
        cases.approval(
            "p1",
            session_id="s-a0",
            title="a0 round 1",
            status=ApprovalStatus.CONSUMED,
            decided=scene.give("p1", cases.verdict("v1", "approve", after(1))),
            consumed_at=after(2),
            files=(file,),
        )
    )
    audit.record(db, NOW, "applied", "s-a0", "agent", "a0 round 1", {"request_id": "p1"})
    scene.write("a0.txt")
    scene.call("a0", 1.5, "check_clearance", {"title": "a0 round 1"}, {"request_id": "p1", "status": "approved"})
    rejected = scene.give("p2", cases.verdict("v2", "reject", after(1), "no"))
    scene.propose(
        cases.approval("p2", session_id="s-a1", title="a1 round 1", status=ApprovalStatus.REJECTED, decided=rejected)
    )
    scene.ping("a1", 1.5, late_verdicts=[{"request_id": "p2", "answer": {"status": "rejected", "reason": "no"}}])
    for agent in ("a0", "a1"):
        scene.ping(agent, 99)
        scene.note(agent, 100, "finished")
    try:
        yield scene
    finally:
        db.close()


def log(scene: Scene, *, started: float) -> None:
    entry(scene, started, "intercom: MCP server ready (version 1, life 1)")
    entry(scene, started, "intercom.http: MCP over HTTP at http://127.0.0.1:1/mcp")


def entry(scene: Scene, seconds: float, words: str) -> None:
    file = Path(scene.rig.places.log_file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as log:
        at = datetime.fromtimestamp(after(seconds).timestamp())
        log.write(f"{at:%Y-%m-%d %H:%M:%S},000 INFO    {words}\n")


def late(id: str, **answer: Any) -> list[dict[str, Any]]:
    """How a verdict rides on a result."""
    return [{"request_id": id, "answer": answer}]


def test_where_all_is_well_nobody_is_accused(scene: Scene) -> None:
    report = scene.judged()
    assert report.faults == []
    assert report.counts["verdicts delivered"] == 2


# What people did


def test_a_verdict_that_nobody_gave_is_seen_although_all_else_agrees(scene: Scene) -> None:
    del scene.rig.operators.given[0]
    (fault,) = scene.faults()
    assert fault.startswith("nobody gave the verdict of {'id': 'p1'")


def test_so_is_one_that_was_given_to_another_request(scene: Scene) -> None:
    scene.rig.operators.given[0] = evolve(scene.rig.operators.given[0], request_id="p2", outcome="unknown")
    (fault,) = scene.faults()
    assert fault.startswith("nobody gave the verdict of {'id': 'p1'")


def test_so_is_an_apply_of_what_was_rejected(scene: Scene) -> None:
    scene.db.execute("update approval_request set status = 'consumed' where id = 'p2'")
    assert any(fault.startswith("nobody approved what is consumed: {'id': 'p2'") for fault in scene.faults())


def test_a_verdict_that_was_taken_back_is_not_lost_and_another_may_follow(scene: Scene) -> None:
    scene.give("p1", cases.verdict("v0", "reject", after(0.5), "no"))
    [fault] = scene.faults()
    assert fault.startswith("a recorded verdict is lost: Given(request_id='p1', verdict_id='v0'")
    take_back(scene, "p1", "v0")
    assert scene.faults() == []


def test_but_it_counts_no_more_and_only_one_other_follows(scene: Scene) -> None:
    take_back(scene, "p1", "v1")
    [fault] = scene.faults()
    assert fault.startswith("a verdict was taken back and counts all the same")
    scene.db.execute("delete from audit where kind = 'decision_taken_back'")
    take_back(scene, "p1", "v0")
    for _ in range(3):
        audit.record(scene.db, NOW, "decided", "s-a0", "kim", "approve", {"request_id": "p1"})
    assert scene.faults() == ["decided is on record more than once for p1"]


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_verdict_that_was_refused_counts_only_if_it_is_given_again_after_a_take_back(
    scene: Scene, taken_back: bool
) -> None:
    [won] = (given for given in scene.rig.operators.given if given.request_id == "p1")
    scene.rig.operators.given.insert(0, evolve(won, outcome="refused", code="already_decided"))
    audit.record(scene.db, after(0.3), "decided", "s-a0", "kim", "approve", {"request_id": "p1"})
    if taken_back:
        take_back(scene, "p1", "v0", at=after(0.6))
    faults = [fault.split(":")[0] for fault in scene.faults()]
    assert faults == ["a verdict was refused and won all the same"] * (not taken_back)


def take_back(scene: Scene, id: str, verdict_id: str, *, at: datetime = NOW) -> None:
    data = {"request_id": id, "verdict_id": verdict_id}
    audit.record(scene.db, at, "decision_taken_back", "s-a0", "kim", "approve", data)


def test_words_may_end_a_standby_and_time_a_question(scene: Scene) -> None:
    scene.stand_by("2", cases.verdict("steer/2", "resume", after(4)))
    scene.ask("3", "a0 round 3", cases.verdict("timeout/3", "continue", after(4)), status=WaitStatus.EXPIRED)
    scene.call("a0", 6, "transmit", {"prompt_text": "a0 round 3"}, {"decision": "continue"})
    assert scene.faults() == []


def test_but_words_end_no_other_standby_and_time_decides_nothing_that_is_open(scene: Scene) -> None:
    scene.stand_by("2", cases.verdict("steer/1", "resume", after(4)))
    scene.ask("3", "a0 round 3", cases.verdict("timeout/3", "continue", after(4)))
    scene.call("a0", 6, "transmit", {"prompt_text": "a0 round 3"}, {"decision": "continue"})
    assert sum(fault.startswith("nobody gave the verdict of") for fault in scene.faults()) == 2


@pytest.mark.parametrize(("acknowledged", "is_lost"), [(0.9, True), (1.0, False), (None, False)])
def test_a_tap_is_lost_if_its_card_was_still_open_when_slack_was_told_otherwise(
    scene: Scene, acknowledged: float | None, is_lost: bool
) -> None:
    scene.rig.slack, scene.rig.shown = SlackPeople("1"), Found()
    at = None if acknowledged is None else after(acknowledged).timestamp() - 0.05
    scene.rig.slack.taps.append(Tap("p1", "slack/U1/1.1", "approve", at))
    assert [fault.split(":")[0] for fault in scene.faults()] == ["a tap was acknowledged and is lost"] * is_lost


@pytest.mark.parametrize(("acknowledged", "is_lost"), [(0.1, True), (0.3, False), (0.5, False), (0.8, True)])
def test_nor_if_it_was_decided_then_and_that_was_taken_back_later(
    scene: Scene, acknowledged: float, is_lost: bool
) -> None:
    scene.rig.slack, scene.rig.shown = SlackPeople("1"), Found()
    audit.record(scene.db, after(0.3), "decided", "s-a0", "kim", "approve", {"request_id": "p1"})
    take_back(scene, "p1", "v0", at=after(0.6))
    scene.rig.slack.taps.append(Tap("p1", "slack/U1/1.1", "approve", after(acknowledged).timestamp()))
    assert [fault.split(":")[0] for fault in scene.faults()] == ["a tap was acknowledged and is lost"] * is_lost


@pytest.mark.parametrize(("made", "is_lost"), [(0.5, False), (0.8, True)])
def test_nor_if_it_came_while_that_stood_and_the_word_that_it_is_too_late_came_afterwards(
    scene: Scene, made: float, is_lost: bool
) -> None:
    scene.rig.slack, scene.rig.shown = SlackPeople("1"), Found()
    audit.record(scene.db, after(0.3), "decided", "s-a0", "kim", "approve", {"request_id": "p1"})
    take_back(scene, "p1", "v0", at=after(0.6))
    tap = Tap("p1", "slack/U1/1.1", "approve", after(0.85).timestamp(), made=after(made).timestamp())
    scene.rig.slack.taps.append(tap)
    assert [fault.split(":")[0] for fault in scene.faults()] == ["a tap was acknowledged and is lost"] * is_lost


# What agents were told


def test_an_answer_that_does_not_name_its_request_is_not_to_come_late_as_well(scene: Scene) -> None:
    scene.ask("q", "a0 round 2", scene.give("q", cases.verdict("v3", "continue", after(4))))
    scene.call("a0", 5, "transmit", {"prompt_text": "a0 round 2"}, {"decision": "continue"})
    scene.ping("a0", 6, late_verdicts=late("q", decision="continue"))
    (fault,) = scene.faults()
    assert fault.startswith("a0 was told twice of q on one road")


def test_over_http_it_may_if_the_server_has_died_meanwhile(scene: Scene) -> None:
    scene.ask("q", "a0 round 2", scene.give("q", cases.verdict("v3", "continue", after(4))))
    scene.call("a0", 5, "transmit", {"prompt_text": "a0 round 2"}, {"decision": "continue"}, http=True)
    log(scene, started=6)
    scene.ping("a0", 7, late_verdicts=late("q", decision="continue"), http=True)
    report = scene.judged()
    assert report.faults == []
    assert report.counts["verdicts told again after a server died"] == 1


@pytest.mark.parametrize("http", [True, False])
def test_also_if_only_its_http_listener_has_fallen_but_not_behind_a_shim(scene: Scene, http: bool) -> None:
    scene.ask("q", "a0 round 2", scene.give("q", cases.verdict("v3", "continue", after(4))))
    scene.call("a0", 5, "transmit", {"prompt_text": "a0 round 2"}, {"decision": "continue"}, http=http)
    entry(scene, 6, "intercom.http: MCP over HTTP at http://127.0.0.1:1/mcp")
    scene.ping("a0", 7, late_verdicts=late("q", decision="continue"), http=http)
    assert [fault.split(" on one road")[0] for fault in scene.faults()] == ["a0 was told twice of q"] * (not http)


def test_also_where_that_server_logs_to_its_errors(scene: Scene) -> None:
    scene.ask("q", "a0 round 2", scene.give("q", cases.verdict("v3", "continue", after(4))))
    scene.call("a0", 5, "transmit", {"prompt_text": "a0 round 2"}, {"decision": "continue"}, http=True)
    log(scene, started=6)
    Path(scene.rig.places.log_file).rename(scene.rig.errors)
    scene.ping("a0", 7, late_verdicts=late("q", decision="continue"), http=True)
    assert scene.faults() == []


def test_two_requests_of_one_title_are_not_taken_for_one(scene: Scene) -> None:
    for id in ("q1", "q2"):
        scene.ask(id, "a0 round 2", scene.give(id, cases.verdict(f"v-{id}", "continue", after(4))))
    scene.note("a0", 3, "cancelled", tool="transmit", plan=2)
    scene.call("a0", 5, "transmit", {"prompt_text": "a0 round 2"}, {"decision": "continue"})
    scene.ping("a0", 6, late_verdicts=late("q1", decision="continue"))
    assert scene.faults() == []
    # Nor if the other was told again, by another shim.
    scene.ping("a0", 7, life=2, late_verdicts=late("q2", decision="continue"))
    assert scene.faults() == []


def test_a_verdict_told_to_another_agent_has_not_reached_its_own(scene: Scene) -> None:
    riding = [line for line in scene.logs["a1"] if "late_verdicts" in line.get("answer", {})]
    scene.logs["a1"].remove(riding[0])
    scene.logs["a0"].append({**riding[0], "agent": "a0"})
    first, second = scene.faults()
    assert first.startswith("a0 was told {'status': 'rejected', 'reason': 'no'}, which a1 had asked")
    assert second.startswith("a verdict never reached a1")


def test_words_reach_their_own_agent(scene: Scene) -> None:
    scene.nudge("a0", "go on", 3, 4)
    scene.ping("a0", 4, instructions=[{"text": "go on"}])
    assert scene.faults() == []
    scene.nudge("a0", "and on", 3, 4)
    scene.ping("a1", 4, instructions=[{"text": "and on"}])
    (fault,) = scene.faults()
    assert fault.startswith("'and on' was said to a0, and told: [('a1'")


def test_words_may_be_lost_with_a_call_that_their_own_agent_has_cancelled_just_then(scene: Scene) -> None:
    scene.nudge("a0", "go on", 10, 11)
    scene.note("a0", 9.5, "cancelled", tool="transmit", plan=7)
    assert scene.faults() == []
    # Not with another's, nor with one long ago.
    scene.nudge("a1", "and on", 10, 11)
    scene.nudge("a0", "and on and on", 30, 31)
    other, late_one = scene.faults()
    assert other.startswith("'and on' never reached its agent, a1 (delivered at +1.0 s")
    assert late_one.startswith("'and on and on' never reached its agent, a0 (delivered at +1.0 s")
    assert late_one.endswith("the nearest cancelled call -20.5 s)")


def test_words_are_to_be_told_unless_their_agent_leaves(scene: Scene) -> None:
    scene.nudge("a0", "goodbye", 98.8, None)
    assert scene.faults() == []
    scene.nudge("a0", "stay", 50, None)
    (fault,) = scene.faults()
    assert fault.startswith("'stay' never reached its agent, a0 (delivered never, its last answer ")


def test_words_that_were_recorded_are_on_record(scene: Scene) -> None:
    scene.nudge("a0", "go on", 3, None)
    scene.db.execute("delete from instruction")
    assert scene.faults() == ["'go on' was recorded and is lost"]


@pytest.mark.parametrize(("last", "faults"), [("crashed", 0), ("finished", 1)])
def test_that_it_was_told_may_not_be_on_record_if_its_agent_fell_then(scene: Scene, last: str, faults: int) -> None:
    scene.rig.starter = Starter(scene.rig.places, scene.workspace, "1", started={"c0": "s-c0"})
    sessions.insert(scene.db, cases.session("s-c0", agent_key="c0", workspace_root=str(scene.workspace)))
    agent_processes.insert(scene.db, AgentProcess("s-c0", AgentProcessState.OVER, NOW, "kim", None))
    verdict = scene.give("p3", cases.verdict("v3", "approve", after(2)))
    scene.propose(
        cases.approval("p3", session_id="s-c0", title="c0 round 1", status=ApprovalStatus.INTERRUPTED, decided=verdict)
    )
    scene.call("c0", 3, "check_clearance", {"title": "c0 round 1"}, {"request_id": "p3", "status": "approved"})
    scene.note("c0", 4, last)
    seen = scene.faults()
    assert len(seen) == faults
    assert all(fault.startswith("c0 was told {'request_id': 'p3', 'status': 'approved'}") for fault in seen)


# What they went by


@pytest.mark.parametrize("killed", [0, 1])
def test_a_connection_over_http_breaks_only_where_something_is_killed(scene: Scene, killed: int) -> None:
    scene.rig.killed_servers = killed
    scene.note("a0", 3, "connection_broke", why="500", http=True)
    assert scene.faults() == ["a0: a connection broke, and nothing was killed: 500"] * (1 - killed)


def test_or_where_its_agent_falls(scene: Scene) -> None:
    scene.note("c0", 3, "connection_broke", why="cancelled", http=True)
    scene.note("c0", 4, "crashed")
    assert scene.faults() == []


@pytest.mark.parametrize(("last", "faults"), [("crashed", 0), ("finished", 1)])
def test_a_line_may_not_be_posted_if_its_agent_fell_as_it_asked(scene: Scene, last: str, faults: int) -> None:
    scene.note("c0", 3, "called", tool="broadcast", arguments={"message": "c0 round 1 broadcast"})
    scene.note("c0", 4, last)
    told = "'c0 round 1 broadcast' was asked for 1 times and posted 0 times"
    assert scene.faults() == [told] * faults


def test_nor_if_it_was_ended_then(scene: Scene) -> None:
    scene.rig.starter = Starter(scene.rig.places, scene.workspace, "1", cleared={"c0"})
    scene.note("c0", 3, "called", tool="broadcast", arguments={"message": "c0 round 1 broadcast"})
    assert scene.faults() == []


# The files


def test_what_nobody_approved_is_seen_though_it_is_gone(scene: Scene) -> None:
    scene.write("b.txt")
    (scene.workspace / "b.txt").unlink()
    (fault,) = scene.faults()
    assert fault.endswith("b.txt was written, and nothing of it was approved and applied")


def test_a_directory_that_is_made_is_no_file(tmp_path: Path) -> None:
    witness = Witness()
    witness.watch(tmp_path)
    (tmp_path / "a0").mkdir()
    (tmp_path / ".intercom-x-0.tmp").write_text(TEXT)
    (tmp_path / ".intercom-x-0.tmp").rename(tmp_path / "a0.txt")
    witness.look()
    assert witness.written == ({tmp_path / "a0.txt": 1} if witness.present else {})
    assert witness.watches(tmp_path) is witness.present
    witness.close()


def test_what_was_applied_is_to_be_seen_being_written_as_often(scene: Scene) -> None:
    scene.write("a0.txt")
    (fault,) = scene.faults()
    assert fault.endswith("a0.txt was written 2 times, for 1 applies")
    scene.rig.witness.written.clear()
    first, second = scene.faults()
    assert first == "the witness has seen none of 1 files being written"
    assert second.endswith("a0.txt was written 0 times, for 1 applies")


def test_a_witness_that_looks_elsewhere_is_none(scene: Scene) -> None:
    scene.rig.witness._directories.clear()
    assert scene.faults() == ["the witness has seen none of 1 files being written"]


# The log


def test_what_a_server_in_the_foreground_stumbled_over_is_seen(scene: Scene) -> None:
    scene.rig.errors.write_text("2026-03-01 12:00:00,000 ERROR   x: Traceback: InjectedCrash\nTraceback: one more\n")
    assert scene.faults() == []
    scene.rig.errors.write_text("Traceback (most recent call last):\nValueError: no\n")
    (fault,) = scene.faults()
    assert fault.startswith("in the log: Traceback")


@pytest.mark.parametrize("killed", [0, 1])
def test_an_act_in_slack_may_come_again_where_something_falls(scene: Scene, killed: int) -> None:
    told = "slack's envelope (interactive) was not taken and will come again: NotRecorded in give"
    where = "intercom.operators.slack.interaction_handler"
    scene.rig.errors.write_text(f"2026-03-01 12:00:00,000 ERROR   {where}: {told}\n")
    scene.rig.killed_servers = killed
    assert len(scene.faults()) == 1 - killed


def test_a_server_that_logs_nothing_is_seen(scene: Scene) -> None:
    Path(scene.rig.places.log_file).unlink()
    assert scene.faults() == ["no server has logged that it started"]
