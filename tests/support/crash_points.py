"""The places in the code where a crash must lose nothing.

`intercom.model.crash_points.reach` marks them. Each follows something durable, and each has a recovery of its own:
what a crash elsewhere leaves is like what it leaves at the place before. `test_crash_points.py` of the chaos runs
compares the tables with the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from intercom.model import crash_points

#: What has just happened at each, or will happen next. The chaos runs kill a server at each.
NAMES: dict[str, str] = {
    "store.before_commit": "a group of changes is written and not committed",
    "store.after_commit": "it is committed, and nobody has been told",
    "session.opened": "an agent's new session is on record, and the agent has not been told",
    "session.adopted": "a session is bound to another shim, which has not been told",
    "request.recorded": "a request is on record, and neither shown nor waited for",
    "verdict.recorded": "a decision is on record, and neither its operator nor the agent has been told",
    "answer.left": "an answer was sent to the shim, or over HTTP, and nobody knows whether it arrived",
    "reply.left": "an operator's reply was sent",
    "delivery.recorded": "it is on record that an answer reached the client, and the shim has not been told",
    "instruction.recorded": "an instruction for an agent is on record, and attached to nothing yet",
    "session.paused": "a session is paused on record, and neither its operator nor its agent has been told",
    "files.staged": "the new contents are staged, and the journal has not committed to them",
    "journal.committed": "the journal has committed, and no file has changed",
    "files.placed_one": "one of the files has its new content, or is gone; all have, and that is not on record",
}

#: Those on the way to Slack, for runs with Slack.
SLACK_NAMES: dict[str, str] = {
    "outbox.before_post": "it is on record that a message is about to be posted, and it is not",
    "outbox.after_post": "Slack has it, and that is not on record",
}

#: Those of agents that people start, for runs with such agents.
SPAWN_NAMES: dict[str, str] = {
    "agent_process.recorded": "an agent that a person started is on record, and nothing runs",
    "agent_process.monitor_recorded": "its monitor runs and is on record, and has not been told what to run",
    "agent_process.told": "it has been told, and the agent runs, which is not on record",
    "agent_process.cleared": "its end is on record, and its processes live",
    "agent_process.ended": "its own end is on record, and nothing that depends on it is settled",
    "agent_process.settled": "its session has recorded its end, and its process is not yet over on record",
}

#: Those of checkpoints and restores (`tests/sessions/test_restores.py`).
CHECKPOINT_NAMES: dict[str, str] = {
    "contents.kept": "contents of files are kept, and no checkpoint names them",
    "files.staged": "the files to be put back are staged, and it is not committed to them",
    "restore.handed_over": "the old session has ended and the new one is on record, and no file has changed",
    "files.placed_one": "one of the files is put back, or removed",
}

#: That of permission hooks (`tests/hooks`).
HOOK_NAMES: dict[str, str] = {
    "permission.used": "permission was spent on a hook's question, and the hook has not been told"
}

#: That of rules that people make from cards (`tests/sessions/test_rules_from_cards.py`).
POLICY_NAMES: dict[str, str] = {
    "policy.written": "a rule is in the policy file, and nobody has accepted the file's content"
}

#: Those of decisions that people take back (`tests/sessions/test_retraction.py`).
TAKE_BACK_NAMES: dict[str, str] = {
    "verdict.taken_back": "a decision is taken back on record, and neither its operator nor any channel has been told",
    "verdict.may_be_sent": "it is on record that results may carry a session's decisions, and none has yet",
}


@contextmanager
def calling(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook` with the name of each place that is passed."""
    before, crash_points.hook = crash_points.hook, hook
    try:
        yield
    finally:
        crash_points.hook = before
