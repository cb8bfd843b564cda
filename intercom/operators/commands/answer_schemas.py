"""JSON Schemas of what operator commands answer, made from the forms that make the answers.

A form of a class has the types of its attributes. The form `plain`, and a form `under` a name, have the type that the
handler returns. What a function returns stands above it. Whatever others refer to has a name: that of its class
or its shape.

Schemas are for readers who ignore properties that they do not know: later versions have more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from inspect import cleandoc
from types import FunctionType
from typing import NotRequired, get_args, get_origin, get_type_hints

from attrs import AttrsInstance, define, field, fields

from actors import Info
from intercom.model.card_hunks import HunkOfCard
from intercom.model.checkpoint import CheckpointLine
from intercom.model.decision import Decided
from intercom.model.gateway_view import BudgetView, CallLine, DownstreamView, EvidenceLine, ParameterView, ToolView
from intercom.model.policy import PolicyStatus
from intercom.model.room import Message
from intercom.model.type_schemas import NULL, Schema, of_type, one_of
from intercom.model.web import SignedIn
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.commands.json_forms import Form, Shape, Under, plain, returned_by
from intercom.sessions.trusted_keys import KeyStatus

#: Where a schema with a name stands in the document.
PLACE = "#/components/schemas/"

#: The names of schemas whose classes are called otherwise.
_NAMES: dict[type, str] = {
    BudgetView: "Budget",
    CallLine: "Call",
    CheckpointLine: "Checkpoint",
    Decided: "Decision",
    DownstreamView: "Downstream",
    EvidenceLine: "Evidence",
    HunkOfCard: "Hunk",
    Info: "Actor",
    KeyStatus: "OperatorKey",
    Message: "RoomMessage",
    ParameterView: "ToolParameter",
    PolicyStatus: "Policy",
    SignedIn: "SignedInBrowser",
    ToolView: "Tool",
}

#: What the properties of a schema are; under an empty name, what it is itself. A class that is answered whole says this
#: in its docstring.
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "Card": {
        "": "An open or a past request, as it is shown to people.",
        "request_id": "Its id. A unique start of it is enough in a command.",
        "kind": "What it asks: `approval` of a change or a use of a tool, the answer to a `prompt`, what comes next"
        " (`standby`), what to do about a quiet agent (`stall`), and so on. `steer` and `task` are messages for an"
        " agent, which need no answer.",
        "status": "`pending` waits for a person; `queued` is a message that waits for its agent.",
        "session_id": "The session whose agent asks; empty if it is of no session.",
        "workspace_root": "The directory in which that agent works.",
        "expires_at": "When it ends without an answer; null if it waits without a limit.",
        "description": "The text for the person. An agent wrote it, so it may say anything.",
        "detail": "More about it, from the server.",
        "risk_level": "The risk of what is to be approved.",
        "files": "The files of a proposed change.",
        "diff": "The change as a unified diff; null if there is none, or if `diff_omitted`.",
        "diff_from_agent": "Whether the diff is the agent's own text, which nobody has checked.",
        "diff_omitted": "Whether a listing left the diff out: `show` has it.",
        "remarks": "What the diff does not show clearly.",
        "decided": "The decision that counts; null if there is none.",
        "away": "Whether no call of the agent waits for the answer any more.",
        "note": "One more line, such as the rule of an automatic approval.",
        "proposal_hash": "Identifies the change: send it as `shown` if you approve only a part of it.",
        "prompt_type": "What kind of question a prompt is.",
        "amendable": "Whether a part of it can be approved, or it can be edited first.",
        "amended": "Whether a person approved a part of it, or edited it first.",
        "delivered": "Whether the answer, or the message, has reached the agent.",
        "file_path": "The path of its first file.",
        "choices": "The decisions that answer it; none if it waits for none.",
    },
    "Decision": {
        "": "The decision about a request that counts: the first one.",
        "verdict_id": "Its id. `take-back` takes it as `decision_id`.",
        "by": "The name of who decided, in their channel.",
        "channel": "`ctl`, `web`, `slack`, `embed`, `elicitation` (a dialog of the agent's own client), `policy` or"
        " `timeout`.",
        "text": "What the agent is told with it.",
        "origin": "The process that it came from; null if no person decided.",
        "signature": "The operator key's signature, if there is one.",
    },
    "Notice": {
        "": "A line for people.",
        "level": "`info`, `success`, `warning` or `error`.",
        "session_id": "The session that it is about; null if it is about none.",
        "event": "`grant_made` or `grant_revoked` if it tells what a person did with a grant, `grant_used` if a grant"
        " let something pass, `auto_approved` if a policy did; null otherwise.",
        "grant_id": "The grant that it is about; null if it is about none.",
        "by": "Who made or revoked the grant; null otherwise.",
    },
    "Session": {
        "": "The tracked work of one agent.",
        "mode": "Who is notified of its requests: `remote` is Slack, `local` this machine, `hybrid` both.",
        "workspace_root": "The directory in which the agent works.",
        "last_tool": "The tool that the agent called last.",
        "client_name": "What the agent's client calls itself.",
        "prompt": "The task with which a person has started the agent.",
        "paused_by": "Who paused it; null if it is not paused.",
        "progress_snapshot": "The agent's own list of its tasks, as it last sent it.",
        "process": "The process of an agent that was started with `start`; null for any other.",
        "waiting": "How many of its requests wait for people.",
    },
    "AgentProcess": {
        "": "The process of an agent that a person has started.",
        "state": "`waiting` is restarted soon, `ending` is being ended, and `over` is settled.",
        "label": "The person's name for it.",
        "run": "How often it was started.",
        "exit": "How it ended; null if it has not.",
    },
    "Checkpoint": {
        "": "The state of a session and of the files in its workspace at one instant.",
        "label": "The person's name for it.",
        "files": "How many files the workspace had.",
        "bytes": "How large they were together.",
        "kept": "How many of them can be put back.",
    },
    "Restore": {
        "": "The wish to go back to a checkpoint.",
        "state": "`asked` waits for a person. `committed` will be carried out, and nothing has changed yet. In"
        " `handed_over` the new session exists, and files are being put back. `stuck` waits for a person again."
        " `outdated` was asked again because files had changed, `failed` changed nothing, and `given_up` left the files"
        " as they were found.",
        "session_id": "The session that it ends.",
        "successor_id": "The session that follows, from `handed_over` on.",
        "files": "What it does with the files: `leave` them, put them `back`, or make them `exact`, without those added"
        " since.",
        "safety_checkpoint_id": "The checkpoint of the state before it.",
        "asked_via": "The channel over which it was asked.",
        "modified": "How many files were modified since the checkpoint.",
        "deleted": "How many were deleted.",
        "added": "How many were added.",
        "diverged": "The first of these files.",
        "remarks": "What cannot be compared or put back.",
    },
    "Instruction": {
        "": "A message of a person for an agent, or a task.",
        "kind": "`nudge` reminds a quiet agent, `steer` tells one at work something, `task` is new work.",
        "by": "Who wrote it.",
        "channel": "The channel over which it came.",
        "session_id": "The session whose agent gets it; null for a task that no agent has taken.",
        "workspace_root": "The workspace that a task is for, if it is for no session.",
        "taken_at": "When a session took the task.",
        "delivered_at": "When it was written to the agent.",
        "closed_at": "When it was closed without being delivered.",
        "status": "`queued`, `delivered` or `closed`.",
    },
    "Hunk": {
        "": "One part of a proposed change, which can be approved by itself.",
        "number": "Its number, as `hunks` takes it.",
        "range": "Its line of the diff, `@@ -1,3 +1,4 @@`; null if the file is one part as a whole.",
        "line": "The index of its first line in the diff.",
    },
    "Room": {
        "": "A session in which teams of agents work together.",
        "closed_at": "When it was closed; null while it is open.",
        "messages": "The number of its newest message.",
        "document_version": "The version of its document; 0 if it was never written.",
        "paused_by": "Who paused it; null if it is not paused. Teams cannot post in a paused room.",
        "messages_since_progress": "How many messages teams wrote since a person did, or the document changed.",
        "has_concluder": "Whether the server starts an agent that concludes it.",
    },
    "RoomMessage": {
        "": "One message of a room.",
        "cursor": "Its number in the room, from 1.",
        "author": "Who wrote it; null for the server.",
        "role": "The role of its author; null for the server.",
        "content": "`text` of a message of a team or a person. Of the server's own, the `event` and more about it.",
        "acks": "The teams that say that they have read it and all before it.",
    },
    "Team": {
        "": "A team in a room.",
        "role": "A reader joined a closed room, an operator is a person, a concluder was started by the server.",
        "cursor": "The number of the last message that it has read.",
        "status": "How recently it has asked for messages.",
        "unread": "How many messages it has not read.",
    },
    "DocumentVersion": {
        "": "One version of a room's document.",
        "written_by_team_id": "The team that wrote it; null for the server.",
    },
    "RoomMatch": {
        "": "A place where a search found its words.",
        "cursor": "The number of the message; null if it is in the document or the title.",
    },
    "Grant": {
        "": "A permission in advance for requests of one kind, for a while.",
        "covers": "What it permits, in words.",
        "tool": "The tool whose uses it permits; null for proposed changes.",
        "patterns": "Which files or commands it permits.",
        "risk_level": "Up to which risk it permits them.",
        "uses": "How many uses it permits.",
        "used": "How many of these are used.",
        "request_id": "The card that it was made from.",
        "over": "Why it permits nothing any more; null while it is in force.",
        "is_away": "Whether its session has no agent now.",
    },
    "Command": {
        "": "A command that the role may send.",
        "access": "Whether a person must send it, and what their signature covers if there is an operator key.",
    },
    "CommandField": {
        "": "A field of a command.",
        "choices": "The values that it takes; none if it takes others too.",
        "required": "Whether it must be sent.",
    },
    "Passkey": {"": "A passkey that signs decisions on this page."},
    "PasskeyProposal": {"": "A passkey that was made on this page, and that nobody has enrolled yet."},
    "ApiToken": {"": "A token with which a program uses this API."},
    "SignedInBrowser": {
        "": "A browser in which somebody has signed in with a link.",
        "browser_id": "Its id, for `people-sign-out`. It signs nobody in.",
    },
    "PushSubscription": {
        "": "A browser that is sent push messages.",
        "by": "Whose browser it is.",
        "label": "What the browser calls itself.",
        "service": "The host of its push service.",
    },
}

#: What stands for JSON in annotations refers to itself.
_ALIASES: dict[str, object] = {"Json": object, "JsonObject": dict[str, object]}


@functools.cache
def _hints(annotated: Callable[..., object]) -> dict[str, object]:
    return get_type_hints(annotated, localns=_ALIASES)


def _type_of(kind: type, attribute: str) -> object:
    """Return the type of an attribute or a property of a class."""
    found = _hints(kind).get(attribute)
    return found if found is not None else _return_type(getattr(kind, attribute).fget)


def _return_type(function: Callable[..., object]) -> object:
    """Return the type of what a function returns. Raises TypeError if it does not say."""
    found = _hints(function).get("return")
    if found is None:
        raise TypeError(f"{function.__name__} does not say what it returns")
    return found


@define(eq=False)
class AnswerSchemas:
    """Makes schemas that refer to each other. `named` collects those with a name, which stand at `PLACE`."""

    named: dict[str, Schema] = field(factory=dict, init=False)
    _sources: dict[str, object] = field(factory=dict, init=False)

    def of_command(self, name: str) -> Schema:
        """Return the schema of the data that this command answers. Raises TypeError if its form says not enough."""
        handler = handler_of(name)
        if handler.entry is plain:
            return self.of(_return_type(handler.work))
        if isinstance(handler.entry, Under):
            return _object({handler.entry.name: self.of(_return_type(handler.work))})
        # Nothing refers to an answer that is a form of its own.
        return self._of_properties(handler.entry) if isinstance(handler.entry, Form) else self.of(handler.entry)

    def of(self, part: object) -> Schema:
        """Return the schema of whatever may stand in a shape. Raises TypeError if it says not enough."""
        match part:
            case Shape():
                return self._named(part.name, part, lambda: self._of_properties(part))
            case Form():
                return self._named(_name(part.kind), part, lambda: self._of_properties(part))
            case FunctionType():
                return self.of(returned_by(part))
            case [each]:
                return {"type": "array", "items": self.of(each)}
            case tuple():
                return one_of([self.of(each) for each in part])
            case None:
                return NULL
            case str():
                return {"type": "string", "const": part}
            case Mapping():
                return dict(part)
        if get_origin(part) is NotRequired:
            (part,) = get_args(part)
        return of_type(part, self._of_class)

    def _of_class(self, kind: type[AttrsInstance]) -> Schema:
        """Return the schema of a value of which `plain` makes JSON, with all its attributes."""

        def make() -> Schema:
            hints = _hints(kind)
            properties = {each.name: self.of(hints[each.name]) for each in fields(kind)}
            for each in fields(kind):
                if (said := each.metadata.get("doc")) is not None:
                    properties[each.name] = {**properties[each.name], "description": said}
            # A class that adds to another one says only what it adds.
            docs = [above.__doc__ for above in reversed(kind.__mro__[:-1]) if above.__doc__]
            described = {"description": " ".join(map(_one_line, docs))} if docs else {}
            return {**described, **_object(properties)}

        return self._named(_name(kind), kind, make)

    def _of_properties(self, part: object) -> Schema:
        properties, absent = self._properties(part)
        return _object(properties, absent)

    def _properties(self, part: object) -> tuple[dict[str, Schema], frozenset[str]]:
        """Return the properties of a shape or a form, and the names of those that may be absent."""
        match part:
            case FunctionType():
                return self._properties(returned_by(part))
            case Form():
                found = {name: self.of(_type_of(part.kind, each)) for name, each in part.attributes.items()}
                return found | {name: self.of(text) for name, text in part.constants.items()}, frozenset()
            case Shape():
                merged = [self._properties(each) for each in part.merged]
                absent = frozenset(name for _, names in merged for name in names)
                absent |= {name for name, each in part.properties.items() if get_origin(each) is NotRequired}
                own = {name: self.of(each) for name, each in part.properties.items()}
                return {name: each for found, _ in merged for name, each in found.items()} | own, absent
        raise TypeError(f"{part} is no form of an object")

    def _named(self, name: str, source: object, make: Callable[[], Schema]) -> Schema:
        """Return a reference to the schema with this name, which is made once; without a name, the schema itself."""
        if not name:
            return make()
        if self._sources.setdefault(name, source) is not source:
            raise TypeError(f"two schemas are called {name}: {source} and {self._sources[name]}")
        if name not in self.named:
            # It may refer to itself.
            self.named[name] = {}
            self.named[name] = _described(name, make())
        return {"$ref": PLACE + name}


def _name(kind: type) -> str:
    return _NAMES.get(kind, kind.__name__)


def _object(properties: dict[str, Schema], absent: frozenset[str] = frozenset()) -> Schema:
    required = [name for name in properties if name not in absent]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _described(name: str, schema: Schema) -> Schema:
    said = DESCRIPTIONS.get(name, {})
    properties = {
        each: {**found, "description": said[each]} if each in said else found
        for each, found in schema["properties"].items()
    }
    return {**schema, **({"description": said[""]} if "" in said else {}), "properties": properties}


def _one_line(doc: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(cleandoc(doc).split()))
