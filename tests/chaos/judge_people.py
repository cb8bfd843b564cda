"""What people did: all that is decided was decided by somebody, and what they were told of it is true."""

from __future__ import annotations

from tests.chaos.report import Report, Row, moment
from tests.chaos.rig import Rig
from tests.chaos.slack_people import Tap

#: What an operator's word becomes in the database, by the kind of request.
_STANDBY_WORD = {"continue": "resume", "refine": "resume", "stop": "stop"}
#: What the statuses of a request are called that only a verdict brings about, and those that an approval needs.
_DECIDED = frozenset({"approved", "consumed", "rejected", "decided"})
_ALLOWED = frozenset({"approved", "consumed"})
#: Seconds that what happens in two processes may seem to have happened the other way round.
_BLUR_SECONDS = 0.1


def operators(report: Report, rig: Rig, rows: dict[str, Row]) -> None:
    """What operators were told of their verdicts is so; and nothing is decided but by them, and by people in Slack."""
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


def slack(report: Report, rig: Rig, rows: dict[str, Row]) -> None:
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
        elif _is_lost(tap, row):
            report.faults.append(f"a tap was acknowledged and is lost: {tap}, {row}")


def _is_lost(tap: Tap, row: Row) -> bool:
    """Whether the card was still open when Slack was told that this tap is dealt with. (One whose time is up takes no
    verdict any more, though it may be closed a little later.)"""
    if tap.acknowledged is None or row["status"] == "expired":
        return False
    ended = row["decided_at"] or row["closed_at"]
    return ended is None or moment(ended) > tap.acknowledged + _BLUR_SECONDS
