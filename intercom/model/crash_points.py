"""Named places in the code where a crash must lose nothing.

Production code calls `reach("journal.committed")` there. Nothing happens without a hook. Only the chaos runs set one,
and kill the process there.
"""

from __future__ import annotations

from collections.abc import Callable

#: Every crash point, and what has just happened there or will happen next. The chaos runs kill a server at each.
NAMES: dict[str, str] = {
    "store.before_commit": "a group of changes is written and not committed",
    "store.after_commit": "it is committed, and nobody has been told",
    "session.opened": "an agent's new session is on record, and its actors do not run",
    "session.adopted": "a session is bound to another shim, which has not been told",
    "sessions.brought_back": "a new server has started the sessions its predecessor left",
    "request.recorded": "a request is on record, and neither shown nor waited for",
    "request.waiting": "its call waits, and nobody has seen it",
    "verdict.recorded": "a verdict is on record, and neither its operator nor the agent has been told",
    "verdict.answered": "the waiting calls have their answer inside the server",
    "answer.leaving": "an answer is about to be sent to the shim, or over HTTP",
    "answer.left": "it was sent",
    "reply.leaving": "an operator's reply is about to be sent",
    "reply.left": "it was sent",
    "delivery.told": "the shim has said that an answer reached the client",
    "delivery.recorded": "that is on record",
    "expiry.recorded": "a request has run out of time, and nobody has been told",
    "instruction.recorded": "words for an agent are on record, and ride on nothing yet",
    "instruction.taken": "a session has taken words or tasks, and its agent has not been told",
    "session.paused": "a session is paused on record, and neither its operator nor its agent has been told",
    "session.unpaused": "it is paused no more on record, and who waited for that has not been told",
    "broadcast.recorded": "a line to people is on record with its call's answer, and not shown",
    "journal.begun": "the journal knows of an apply, and nothing is staged",
    "apply.staged_one": "one of the new contents is staged",
    "apply.staged_all": "all of them are, and the journal has not committed to them",
    "journal.committed": "the journal has committed, and no file has changed",
    "apply.renamed_one": "one of the files has its new content, or is gone",
    "apply.renamed_all": "all have, and that is not on record",
    "journal.finished": "it is on record, and the agent has not been told",
}

#: Crash points on the way to Slack, for runs with Slack.
SLACK_NAMES: dict[str, str] = {
    "outbox.before_post": "it is on record that a message is about to be posted, and it is not",
    "outbox.after_post": "Slack has it, and that is not on record",
    "outbox.recorded": "that is on record, and nobody has been told",
}

#: Crash points of agents that people start, for runs with such agents.
SPAWN_NAMES: dict[str, str] = {
    "child.recorded": "an agent that a person started is on record, and nothing runs",
    "child.kept": "its keeper is there, and neither on record nor told what to run",
    "child.keeper_recorded": "its keeper is on record, and has not been told what to run",
    "child.told": "it has been told, and the agent runs, which is not on record",
    "child.running": "that is on record, and nobody has been told",
    "child.cleared": "its end is on record, and its processes live",
    "child.ended": "its own end is on record, and nothing that hangs on it is settled",
    "child.processes_gone": "nothing of it is left, and its session does not know",
    "child.interrupted": "its session and its requests are interrupted, and nobody has been told",
    "child.settled": "its session is settled, and its process not yet over on record",
    "child.over": "that is on record",
    "child.brought_back": "a new server looks after the agents its predecessor started",
}

#: Crash points of checkpoints and restores, for runs with those.
CHECKPOINT_NAMES: dict[str, str] = {
    "contents.kept": "contents of files are kept, and no checkpoint names them",
    "checkpoint.recorded": "a checkpoint is on record, and nobody has been told",
    "restore.asked": "a restore is on record, and nobody has seen its question",
    "restore.accepted": "a person has said to proceed, and nothing is done",
    "restore.staged_one": "one of the files to be put back is staged",
    "restore.staged_all": "all of them are, and it is not committed to them",
    "restore.committed": "the restore will be carried through, and nothing has changed",
    "restore.handed_over": "the old session has ended and the new one is on record, and no file has changed",
    "restore.placed_one": "one of the files is put back, or removed",
    "restore.placed_all": "all are, and that is not on record",
    "restore.finished": "it is on record, and nobody has been told",
}

#: Crash points of permission hooks. The chaos runs have none; `tests/hooks` covers these.
HOOK_NAMES: dict[str, str] = {
    "permission.used": "leave was spent on a hook's question, and the hook has not been told",
}

#: Crash points of MCP tasks. The chaos runs have none; `tests/agents/test_tasks.py` covers these.
TASK_NAMES: dict[str, str] = {
    "task.recorded": "a task is on record beside its request, and its client has not been told",
    "task.cancelled": "a task is given up on record, and its client has not been told",
}

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Pass a crash point, one of NAMES, SLACK_NAMES, SPAWN_NAMES, CHECKPOINT_NAMES, HOOK_NAMES or TASK_NAMES."""
    if hook is not None:
        hook(name)
