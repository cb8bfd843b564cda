"""Decides whether an agent whose process ended is started again, and when. All functions are pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import evolve, frozen

from intercom.model.child import Exit
from intercom.model.config import SpawnRestart, SpawnSettings

#: After a run of this many seconds, earlier restarts do not count any more.
STEADY_SECONDS = 600.0
#: The longest pause before a restart, in seconds.
LONGEST_PAUSE = 300.0


class Then(StrEnum):
    """What to do after a process has ended."""

    AGAIN = "again"
    OVER = "over"


@frozen
class Runs:
    """The runs of one agent so far: when the last one `began`, and how many `restarts` there were in a row."""

    began: datetime
    restarts: int = 0


@frozen
class Decision:
    """What to do, and when the agent runs again."""

    then: Then
    at: datetime | None = None


def step(
    runs: Runs, ended: Exit, now: datetime, settings: SpawnSettings, words_at: datetime | None = None
) -> tuple[Runs, Decision]:
    """Return the runs as they count from now on, and what to do after a run that ended at `now`. `words_at` is when the
    newest waiting instruction was given; None if there is none."""
    if words_at is not None and ended.is_success and settings.resume_args:
        return _resume(runs, now, settings, is_news=words_at >= runs.began)
    if (now - runs.began).total_seconds() >= STEADY_SECONDS:
        runs = evolve(runs, restarts=0)
    if not _wanted(ended, settings.restart) or runs.restarts >= settings.max_restarts:
        return runs, Decision(Then.OVER)
    # After 30 doublings any pause is the longest.
    pause = min(LONGEST_PAUSE, settings.restart_backoff_seconds * 2.0 ** min(runs.restarts, 30))
    return evolve(runs, restarts=runs.restarts + 1), Decision(Then.AGAIN, now + timedelta(seconds=pause))


def _resume(runs: Runs, now: datetime, settings: SpawnSettings, *, is_news: bool) -> tuple[Runs, Decision]:
    """Decide whether to wake an agent for waiting instructions. If it does not fetch them, it is woken at most
    `max_restarts` times in a row."""
    if is_news:
        runs = evolve(runs, restarts=0)
    elif runs.restarts >= settings.max_restarts:
        return runs, Decision(Then.OVER)
    return evolve(runs, restarts=runs.restarts + 1), Decision(Then.AGAIN, now)


def _wanted(ended: Exit, policy: SpawnRestart) -> bool:
    match policy:
        case SpawnRestart.NEVER:
            return False
        case SpawnRestart.ON_FAILURE:
            return not ended.is_success
        case SpawnRestart.ALWAYS:
            return True
