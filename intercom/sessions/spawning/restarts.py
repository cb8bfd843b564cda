"""Whether an agent whose process ended runs again, and when. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import evolve, frozen

from intercom.model.child import Exit
from intercom.model.config import SpawnRestart, SpawnSettings

#: A run that lasted so many seconds was a good one: what failed before it counts no more.
STEADY_SECONDS = 600.0
#: The longest pause before a restart, in seconds.
LONGEST_PAUSE = 300.0


class Then(StrEnum):
    """What is to be done with a process that has ended."""

    AGAIN = "again"
    OVER = "over"


@frozen
class Runs:
    """The runs of one agent so far: `began` is when the last one did, `restarts` how many in a row were restarts."""

    began: datetime
    restarts: int = 0


@frozen
class Decision:
    """What is to be done, and when it is to run again."""

    then: Then
    at: datetime | None = None


def step(
    runs: Runs, ended: Exit, now: datetime, settings: SpawnSettings, words_at: datetime | None = None
) -> tuple[Runs, Decision]:
    """What follows from this end of a run at `now`, and the runs as they count from then on. `words_at` is when the
    newest words were given that wait for the agent; None when there are none."""
    if words_at is not None and ended.is_success and settings.resume_args:
        return _resume(runs, now, settings, is_news=words_at >= runs.began)
    if (now - runs.began).total_seconds() >= STEADY_SECONDS:
        runs = evolve(runs, restarts=0)
    if not _wanted(ended, settings.restart) or runs.restarts >= settings.max_restarts:
        return runs, Decision(Then.OVER)
    # Past 30 doublings any pause is the longest.
    pause = min(LONGEST_PAUSE, settings.restart_backoff_seconds * 2.0 ** min(runs.restarts, 30))
    return evolve(runs, restarts=runs.restarts + 1), Decision(Then.AGAIN, now + timedelta(seconds=pause))


def _resume(runs: Runs, now: datetime, settings: SpawnSettings, *, is_news: bool) -> tuple[Runs, Decision]:
    """Words wait that the agent did not hear of before its turn was over. One that does not ask for them, however often
    it is woken, is let go."""
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
