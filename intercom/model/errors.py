"""Errors with messages for people and agents.

Each error has a stable code (docs/reference/errors.md) and a sentence. The sentence says what was wrong and what to do,
in lower case without a full stop. The actor that raises one does not crash: for `actors` these are refusals.
"""

from __future__ import annotations

from typing import ClassVar

#: Every code that a client can get, and its meaning.
ERROR_CODES: dict[str, str] = {
    "config": "the configuration file, or a setting in it, is not usable",
    "db": "the database could not be opened, read or written",
    "slack": "Slack is not set up, or did not answer",
    "mcp": "the request does not fit the protocol or the tool",
    "diff": "the proposal is neither a usable patch nor clearly a whole file",
    "policy": "the workspace policy could not be read or evaluated",
    "ipc": "the local socket or what was sent over it is not usable",
    "file_error": "a file could not be read or written: permission, no space, or not a regular file",
    "path_violation": "a path leads outside the workspace, or through a link out of it",
    "record_mismatch": "what would be done is not what a person saw and approved; nothing was done",
    "patch_conflict": "the file has changed since the proposal, or a hunk does not fit it",
    "not_found": "nothing by that name or id exists",
    "unauthorized": "the caller may not do this",
    "signature_required": "there is an operator key, and the decision is not signed with it as required",
    "already_consumed": "the approved change has been applied before",
    "request_not_found": "no request has this id",
    "task_not_found": "no task has this id",
    "task_cancelled": "the task was cancelled by its client, and has no result",
    "not_approved": "the request is not in the approved state",
    "invalid_arguments": "an argument is missing, unknown, of the wrong type or out of range",
    "unknown_tool": "no tool has this name",
    "ambiguous": "the id or prefix fits more than one thing",
    "already_decided": "another decision came first, or the request is no longer open",
    "invalid_state": "the session or request is in a state that does not allow this",
    "apply_stuck": "an apply stopped half-way because files changed meanwhile; an operator must decide",
    "workspace_refused": "the directory cannot serve as a workspace",
    "paused": "an operator has paused the session; nothing was done",
    "steer_queue_full": "too many messages wait for this agent already, or they are too long together",
    "too_many_pending": "too many requests wait for a person already",
    "busy": "too much is queued; try again shortly",
    "unavailable": "a part of the server is restarting; try again",
    "version_mismatch": "shim, server or database have incompatible versions",
    "too_many_sessions": "people have started the maximum number of agents already",
    "spawn_failed": "the agent's program could not be started",
    "config_mismatch": "the shim was started with another configuration than the running server",
    "host_refused": "a request over HTTP calls the server by a name that is not its own",
    "origin_refused": "a request over HTTP comes from a web page that may not call the server",
    "method_not_allowed": "the path exists, and takes other HTTP methods",
    "request_too_large": "a request over HTTP is larger than the server takes",
    "request_too_slow": "a request over HTTP did not come in time",
    "no_rooms": "this server has no rooms",
    "permission_denied": "the agent's role does not allow this call of a downstream's tool",
    "operator_denied": "a person has rejected this call of a downstream's tool",
    "rate_limited": "a budget of the downstream is used up for now",
    "circuit_open": "the downstream does not work now, and the call was not sent",
    "disabled": "a person has disabled the downstream",
    "timeout": "the downstream did not answer in time",
    "downstream_failed": "the downstream did not answer, or broke the protocol",
    "interrupted": "the server ended while the call ran; it is not sent a second time",
    "no_gateway": "this server has no gateway",
}


class IntercomError(Exception):
    """A refusal with a code and a sentence. `details` holds further data for programs."""

    code: ClassVar[str] = "mcp"

    def __init__(self, message: str, *, code: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code or self.code
        self.details = details

    def __str__(self) -> str:
        return self.message


class ConfigError(IntercomError):
    code = "config"


class DatabaseError(IntercomError):
    code = "db"


class SlackError(IntercomError):
    code = "slack"


class DiffError(IntercomError):
    code = "diff"


class IpcError(IntercomError):
    code = "ipc"


class FileError(IntercomError):
    code = "file_error"


class PathViolation(IntercomError):
    code = "path_violation"


class PatchConflict(IntercomError):
    code = "patch_conflict"


class RecordMismatch(IntercomError):
    code = "record_mismatch"


class NotFound(IntercomError):
    code = "not_found"


class Unauthorized(IntercomError):
    code = "unauthorized"


class SignatureRefused(Unauthorized):
    """An operator key exists, but the decision is not signed, or not by a valid key."""

    code = "signature_required"


class AlreadyConsumed(IntercomError):
    code = "already_consumed"


class InvalidArguments(IntercomError):
    code = "invalid_arguments"


class InvalidState(IntercomError):
    code = "invalid_state"


class Ambiguous(IntercomError):
    code = "ambiguous"


class AlreadyDecided(IntercomError):
    code = "already_decided"


class Paused(IntercomError):
    code = "paused"


class SteerQueueFull(IntercomError):
    code = "steer_queue_full"


class TooManyPending(IntercomError):
    code = "too_many_pending"


class ApplyStuck(IntercomError):
    code = "apply_stuck"


class WorkspaceRefused(IntercomError):
    code = "workspace_refused"


class NotStarted(IntercomError):
    """The actors of a session do not start. Other sessions are not affected."""

    code = "unavailable"


class SpawnFailed(IntercomError):
    code = "spawn_failed"


class VersionMismatch(IntercomError):
    code = "version_mismatch"
