"""The table of operator commands: for each its name, its arguments, its help, and who may send it.

A command is one row here and one function in `command_handlers`, or beside it in the module of its subject
(`grant_handlers`, `gateway_handlers`, …). The function's arguments are checked against the row at import.
These are made from the row: ctl's parser and its page of the documentation, the fields of the request, the server's
check of the request and of who may send it, and `command` of embedding.

These are written by hand:

- under which of `SUBJECTS` ctl's help lists it.
- what the answer holds, above a function that makes it by hand. The API's document is made from that.
- a drawing of the answer in `cli.ctl_draw`, which `draws` names. Without one ctl prints one line.
- what ctl does besides sending the request. `cli.ctl` knows `answer`, `allow`, `changes`, `grant`, `logs`,
  `restore`, `tree`, `web` and the `policy`, `rooms` and `gateway` commands by name.
- the command in Slack: a function and an entry in `operators.slack.commands.builtin`. Only the summary, the arguments
  and whether it acts come from the row.
- a method of its own for embedding. `command` carries out any row.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from intercom.model.web_role import WebRole
from intercom.operators.commands.command import Access, Argument, OperatorCommand

#: The reason of a rejection on ctl that gives none.
DEFAULT_REASON = "rejected via local CLI"

#: The default length of a listing.
LISTED = 50

#: The longest request in bytes; on ctl's socket, without the newline.
MAX_REQUEST = 1024 * 1024


class Kind(Enum):
    """What a field of a request holds, and so how it is checked."""

    ID = "1 to 200 characters"
    TEXT = "any text"
    NAME = "at most 4096 characters, and no NUL"
    NUMBER = "a whole number from 1 to 10000"
    OFFSET = "a whole number from 0"
    FLAG = "true or false"


#: Every field of a request, by its name on the wire. The names never change: ctl and server may be of two versions.
FIELDS: dict[str, Kind] = {
    "id": Kind.ID,
    "session": Kind.ID,
    "reason": Kind.TEXT,
    "instruction": Kind.TEXT,
    "mode": Kind.TEXT,
    "decision": Kind.TEXT,
    "decision_id": Kind.ID,
    "text": Kind.TEXT,
    "workspace": Kind.NAME,
    "label": Kind.NAME,
    "stream": Kind.NAME,
    "files": Kind.NAME,
    "sha256": Kind.NAME,
    "public": Kind.NAME,
    "auth": Kind.NAME,
    "url": Kind.NAME,
    "format": Kind.NAME,
    "name": Kind.NAME,
    "role": Kind.NAME,
    "tool": Kind.NAME,
    "pattern": Kind.NAME,
    "risk": Kind.NAME,
    "scope": Kind.TEXT,
    "duration": Kind.NAME,
    "uses": Kind.NAME,
    "limit": Kind.NUMBER,
    "start": Kind.OFFSET,
    "before": Kind.OFFSET,
    "version": Kind.OFFSET,
    "message": Kind.OFFSET,
    "days": Kind.NUMBER,
    "diff": Kind.FLAG,
    "description": Kind.TEXT,
    "everything": Kind.FLAG,
    "interrupted": Kind.FLAG,
    "hunks": Kind.TEXT,
    "edit": Kind.TEXT,
    "comments": Kind.TEXT,
    "shown": Kind.NAME,
}


ANYONE, OPERATOR, SIGNED_CARD, SIGNED = Access


def _row(name: str, access: Access, help: str, *arguments: Argument | str, **more: Any) -> OperatorCommand:
    """Return a row. An argument that is only a name is not typed: ctl itself sends it."""
    taken = (Argument("", each) if isinstance(each, str) else each for each in arguments)
    return OperatorCommand(name, access, help, tuple(taken), **more)


def _session(help: str) -> Argument:
    return _SESSION._replace(shape="[SESSION]", help=help)


_ID = Argument("ID", "id", missing="an id; see pending")
#: One request or several. ctl sends a command for each.
_IDS = _ID._replace(shape="[ID...]")
_ALL = Argument("--all", help="all proposals that wait; with --session, those of one session")
#: The session that a command is about. On the wire it may stand in `id`, as in the older protocol.
_SESSION = Argument("SESSION", "session", sent="id", missing="a session's id; see list")
#: The same, if only --session names it.
_BY_OPTION = _SESSION._replace(shape="")
_LIMIT = Argument("--limit N", "limit", f"at most N entries (default {LISTED})")
_REASON = Argument("--reason TEXT", "reason", "what the agent is told")
_POLICY = Argument("[ID|DIR]", "id", "its card's id, or the workspace; default: the only policy that waits")
_KEY = Argument("", "id", missing="a key's id and a signature")
_PUBLIC = Argument("", "public", missing="a public key, its name, and a signature")
_ROOM = Argument("ID", "id", missing="a room's id; see rooms list")
_MESSAGE = Argument("NUMBER", "message", missing="the number of a message; see rooms tail")
_TOLD = _REASON._replace(help="what its feed says about it")
_DOWNSTREAM = Argument("NAME", "id", missing="the name of a downstream; see gateway list")
_ONLY_DOWNSTREAM = _DOWNSTREAM._replace(shape="[NAME]", help="only this downstream")
_TEXT = Argument("WORDS...", "text", missing="a text")
#: The words after `answer`.
ANSWERS = ("continue", "refine", "stop", "dismiss", "proceed", "cancel")
_FORMAT = Argument("", "format", choices=("markdown", "json"))
_MODES = ("remote", "local", "hybrid")
_TOKEN_ROLES = ("viewer", "operator")
_STREAMS = ("stdout", "stderr")
_FILES = ("leave", "back", "exact")

_PATTERN = Argument("--pattern GLOB", "pattern", "which files or commands (default: those like the card's)")
_RISK = Argument("--risk LEVEL", "risk", "up to which risk: low or high (default: the card's)", choices=("low", "high"))
_GRANT = (
    _ID._replace(help="the card whose kind is permitted"),
    Argument("--for TIME", "duration", "for how long: 20m, 2h or 90s (default: 20m)"),
    Argument("--uses N", "uses", "for how many uses (default: 10)"),
    _PATTERN,
    _RISK,
)

_ROWS = (
    _row(
        "list",
        ANYONE,
        "list sessions",
        Argument("--all", "everything", "include ended sessions"),
        draws="sessions",
        alias="sessions",
    ),
    _row(
        "pending",
        ANYONE,
        "list what waits for you, oldest first, a line each",
        Argument("--full", help="show each with its text and its diff"),
        "session",
        draws="pending",
    ),
    _row("show", ANYONE, "show one request in full; a long one, on a terminal, by $PAGER", _ID, draws="card"),
    _row(
        "approve",
        SIGNED_CARD,
        "approve proposed changes; of one, also a part, or another text of yours",
        _IDS,
        _ALL,
        Argument("--hunks N,N", "hunks", "approve only these hunks, as in 1,3-5; show numbers them"),
        Argument("--edit", help="edit the new files in $EDITOR first, and approve the result"),
        Argument("--note TEXT", "text", "what the agent is told with it"),
        "edit",
        "shown",
        decision="approve",
    ),
    _row("reject", SIGNED_CARD, "reject proposed changes", _IDS, _ALL, _REASON, decision="reject"),
    _row(
        "changes",
        SIGNED_CARD,
        "reject a proposed change, and say by line what should change",
        _ID,
        Argument(
            "--comment FILE:LINE TEXT",
            help="a comment on a line of the new file, or on a FILE; LINE alone is enough if the proposal has one file;"
            " may be repeated",
        ),
        Argument("--file FILE", help="read comments from a file (- for standard input), as FILE:LINE: TEXT"),
        Argument("--note TEXT", "text", "what else the agent is told"),
        "comments",
        decision="reject",
    ),
    # It shows whole files: the contents that can be edited, and any file of a proposal against another text.
    _row(
        "amend",
        OPERATOR,
        "show a proposal as it would be if only some hunks of it, or an edited text, were approved",
        _ID,
        "hunks",
        "edit",
        "shown",
        "text",
        "everything",
        is_typed=False,
        only_shows=True,
    ),
    _row(
        "answer",
        SIGNED_CARD,
        "answer a question, a waiting agent, an alert, a restore or an apply that stopped half-way",
        _ID,
        Argument("decision", "decision", choices=ANSWERS),
        Argument("[TEXT...]", "text", "what the agent should do (refine needs it)"),
    ),
    _row(
        "resume",
        SIGNED,
        "let a waiting or paused agent continue",
        Argument("[INSTRUCTION...]", "instruction", "what it should do"),
        _BY_OPTION,
    ),
    _row(
        "mode",
        SIGNED,
        "choose who is notified of a session's requests",
        Argument("mode", "mode", "remote: Slack, local: this machine, hybrid: both", choices=_MODES),
        _BY_OPTION,
    ),
    _row(
        "nudge",
        SIGNED,
        "remind an agent that has gone quiet",
        _ID._replace(help="the id of its alert or of its session"),
        Argument("[TEXT...]", "text", "what it is told (default: the configured message)"),
        for_agent=True,
    ),
    _row("nudge-text", ANYONE, "show what a nudge without a text says", is_typed=False),
    _row(
        "pause",
        OPERATOR,
        "pause an agent: its calls do nothing until it may continue",
        _session("which one; default: the only active one"),
    ),
    _row(
        "unpause",
        SIGNED,
        "let a paused agent continue; `resume` also answers one that stands by",
        _session("which one; default: the only paused one"),
    ),
    _row(
        "steer",
        SIGNED,
        "tell an agent something with its next result",
        _SESSION,
        Argument("TEXT...", "text", "what it is told"),
        for_agent=True,
    ),
    _row(
        "steering",
        ANYONE,
        "list what agents were told, or will be told",
        _session("only this session"),
        _LIMIT,
        draws="instructions",
    ),
    _row(
        "task",
        SIGNED,
        "leave a task for the next agent in a workspace, or for one session (--session)",
        Argument("TEXT...", "text", "what is to be done"),
        Argument("--workspace DIR", "workspace", "which workspace (default: that of this directory)", default="."),
        "session",
        for_agent=True,
    ),
    _row(
        "task-workspace",
        ANYONE,
        "show the workspace that a task left in a directory is for",
        Argument("", "workspace", missing="a directory, in workspace"),
        is_typed=False,
    ),
    _row(
        "tasks",
        ANYONE,
        "list the tasks that no agent has yet",
        Argument("--all", "everything", "include finished tasks"),
        _LIMIT._replace(help=f"look at N entries at most (default {LISTED})"),
        _BY_OPTION,
        draws="instructions",
    ),
    _row(
        "take-back",
        SIGNED,
        "take back a decision, a message or a task before an agent gets it",
        _ID._replace(missing="an id; see log, steering and tasks"),
        Argument("--decision ID", "decision_id", "only this decision about the request, and none made since"),
    ),
    _row(
        "start",
        SIGNED,
        "start an agent on a task",
        Argument("PROMPT...", "text", "the agent's task"),
        Argument("--workspace DIR", "workspace", "where it works (default: this directory)", default="."),
        Argument("--label TEXT", "label", "your name for it"),
    ),
    _row(
        "clear",
        OPERATOR,
        "end a session, and the agent that you started for it",
        _session("which one"),
        Argument("--interrupted", "interrupted", "end all sessions whose agents are away, and close their requests"),
        verb="end",
    ),
    _row(
        "logs",
        ANYONE,
        "show the output of an agent that was started here",
        _SESSION,
        Argument("-f/--follow", help="continue until the agent has ended"),
        Argument("--stderr", "stream", "what it wrote to stderr instead of stdout", choices=_STREAMS, value="stderr"),
        Argument("--lines N", "limit", "at most N lines (default 200)"),
        "start",
    ),
    _row(
        "checkpoint",
        OPERATOR,
        "record the state of a session and the files of its workspace",
        Argument("[LABEL...]", "label", "your name for it; a session's id may come first"),
        _BY_OPTION,
        draws="taken",
    ),
    _row(
        "checkpoints",
        ANYONE,
        "list the checkpoints of a session, or all",
        _session("only this session"),
        draws="checkpoints",
    ),
    _row(
        "restore",
        OPERATOR,
        "compare with a checkpoint, and go back to it if you agree",
        _ID._replace(shape="CHECKPOINT", missing="a checkpoint's id; see checkpoints"),
        Argument("--files", "files", "put back files modified or deleted since", choices=_FILES, value="back"),
        Argument("--exact", "files", "the same, and remove files added since", value="exact"),
        Argument("--yes", help="do not ask; proceed"),
    ),
    _row("restoring", ANYONE, "show the state of a restore", _ID._replace(missing="a restore's id"), is_typed=False),
    _row(
        "tree",
        ANYONE,
        "show the server's actors",
        Argument("--watch", help="draw them every second"),
        draws="tree",
    ),
    _row("server", ANYONE, "show the server: its version, its files and its ports", draws="server"),
    _row(
        "clients",
        ANYONE,
        "show what the files of agents' clients have to say so that they find this server",
        Argument("[NAME]", "id", "only this client, such as codex"),
        draws="clients",
    ),
    _row("slack", ANYONE, "show the state of the connection to Slack", draws="slack"),
    _row(
        "log",
        ANYONE,
        "show what happened, and who did it",
        Argument("[WORDS...]", "text", "only entries that contain all these words"),
        _LIMIT,
        "session",
        "before",
        draws="log",
    ),
    _row(
        "history",
        ANYONE,
        "search the requests that were answered or ended, newest first",
        Argument("[WORDS...]", "text", "only requests that contain all these words: in them, or in the answer"),
        _LIMIT,
        "session",
        "start",
        draws="history",
    ),
    # ctl's audit verify needs no server, and does the same.
    _row("audit-verify", ANYONE, "verify the audit log: its chain, decisions and signatures", is_typed=False),
    _row(
        "grant",
        SIGNED,
        "permit requests like this one in advance, in its session, for a while",
        *_GRANT,
        Argument("--yes", help="do not ask; grant"),
        "session",
        "scope",
    ),
    _row("grant-preview", ANYONE, "show what a grant would cover", *_GRANT, is_typed=False),
    _row(
        "grants",
        ANYONE,
        "list the grants that are in force, with their uses",
        Argument("--all", "everything", "include those that have ended"),
        "session",
        draws="grants",
    ),
    _row("revoke", OPERATOR, "end a grant at once", _ID._replace(missing="a grant's id; see grants")),
    # It writes a file of the workspace, and grants nothing: that needs policy-accept.
    _row(
        "allow",
        OPERATOR,
        "add a rule to the workspace's policy, so that what this card asks passes from now on",
        _ID._replace(help="the card that shows what is to pass"),
        _PATTERN._replace(help="a rule for more than the card's own files or command"),
        Argument("--risk LEVEL", "risk", "raise the policy's threshold to this risk", choices=("low", "high")),
        Argument("--yes", help="do not ask; write and accept"),
        "sha256",
    ),
    _row(
        "allow-preview",
        ANYONE,
        "show what a rule would let pass",
        _ID,
        _PATTERN,
        _RISK,
        is_typed=False,
    ),
    _row("policy-list", ANYONE, "list the policies of all workspaces"),
    _row(
        "policy-show",
        ANYONE,
        "show one policy in full",
        _POLICY._replace(help="its card's id, or the workspace (default: this directory)"),
        "workspace",
    ),
    _row(
        "policy-accept",
        SIGNED_CARD,
        "accept a policy: it counts from then on",
        _POLICY,
        Argument("--yes", help="do not ask; accept"),
        "workspace",
        "sha256",
        decision="accept",
    ),
    _row(
        "policy-reject",
        SIGNED_CARD,
        "reject a policy: this content is not asked about again",
        _POLICY,
        _REASON._replace(help="what is recorded with it"),
        "workspace",
        "sha256",
        decision="reject",
    ),
    _row(
        "rooms-list",
        ANYONE,
        "list the open rooms, newest first",
        Argument("--all", "everything", "include closed rooms"),
        _LIMIT,
        draws="rooms",
    ),
    _row("rooms-show", ANYONE, "show a room: its teams, its state and its document", _ROOM, draws="room"),
    _row(
        "rooms-tail",
        ANYONE,
        "show the newest messages of a room",
        _ROOM,
        Argument("-f/--follow", help="continue until the room is closed"),
        Argument("--lines N", "limit", f"at most N messages (default {LISTED})"),
        "start",
        "before",
    ),
    _row("rooms-search", ANYONE, "search titles, messages and documents", _TEXT, _LIMIT, draws="found"),
    _row("rooms-export", ANYONE, "print a whole room as markdown; with --json, as a bundle", _ROOM, _FORMAT),
    _row(
        "rooms-doc",
        ANYONE,
        "print a room's document",
        _ROOM,
        Argument("--version N", "version", "an earlier version; see rooms versions"),
        Argument("--diff", "diff", "only what this version changed"),
    ),
    _row("rooms-versions", ANYONE, "list the versions of a room's document, and who wrote each", _ROOM, _LIMIT),
    _row("rooms-instructions", ANYONE, "print what agents are told: how they reach the rooms, and what they do there"),
    _row("rooms-url-show", ANYONE, "show the address at which teams reach the rooms", is_typed=False),
    _row(
        "rooms-create",
        OPERATOR,
        "open a room for teams to join",
        _TEXT._replace(shape="TITLE...", missing="a title"),
        Argument("--description TEXT", "description", "what the teams should reach"),
    ),
    _row("rooms-post", OPERATOR, "write into a room's feed", _ROOM, _TEXT._replace(shape="TEXT...")),
    _row("rooms-pin", OPERATOR, "pin a message of a room, for all who read it", _ROOM, _MESSAGE),
    _row("rooms-unpin", OPERATOR, "take the pin of a message away", _ROOM, _MESSAGE),
    _row("rooms-pause", OPERATOR, "pause a room: its teams cannot post", _ROOM, _TOLD),
    _row("rooms-resume", OPERATOR, "let the teams of a paused room post again", _ROOM),
    _row(
        "rooms-conclude",
        OPERATOR,
        "close a room, with a conclusion in its document",
        _ROOM,
        _TEXT._replace(shape="SUMMARY...", help="the conclusion, as markdown", missing="a summary"),
    ),
    _row("rooms-reopen", OPERATOR, "open a closed room again", _ROOM, _TOLD),
    # The token stays good when the role of the person is taken away.
    _row("rooms-token", OPERATOR, "make a token with which you take part in a room", _ROOM, for_admins=True),
    _row(
        "rooms-url",
        OPERATOR,
        "show or change the address at which teams reach the rooms",
        Argument("[URL]", "url", "the new address, at once", missing="an address, or an empty one for the default"),
        Argument("--clear", "url", "take the address of the settings again", value=""),
        for_admins=True,
    ),
    _row("gateway-list", ANYONE, "list the MCP servers behind the gateway"),
    _row(
        "gateway-show",
        ANYONE,
        "show one of them in full, with its tools",
        _DOWNSTREAM,
        Argument("[TOOL]", "tool", "only this tool, with its whole description and its arguments"),
    ),
    # It starts a program.
    _row(
        "gateway-test",
        OPERATOR,
        "make a new connection to one, and say what is wrong; exits with 0 if it is healthy, 1 if degraded, 2 if"
        " unhealthy",
        _DOWNSTREAM,
    ),
    # Roles do not count for it, and it may change anything, as an approval does.
    _row(
        "gateway-call",
        SIGNED,
        "call a tool yourself, to try it",
        _DOWNSTREAM,
        Argument("TOOL", "tool", "its own name, without that of the downstream", missing="the name of a tool"),
        Argument("[ARGUMENTS...]", "text", "its arguments: NAME=VALUE for each, or one JSON object (default: none)"),
    ),
    # Before a person signs a call, they learn whether it can be made.
    _row(
        "gateway-check",
        ANYONE,
        "say whether a call of your own can be made, and send nothing",
        _DOWNSTREAM,
        Argument("TOOL", "tool", missing="the name of a tool"),
        "text",
        is_typed=False,
    ),
    _row("gateway-enable", SIGNED, "let agents use a disabled one again", _DOWNSTREAM),
    _row("gateway-disable", OPERATOR, "stop one, until you enable it again", _DOWNSTREAM),
    # An error's text, and which tools another agent calls, are not for every agent.
    _row(
        "gateway-tail",
        OPERATOR,
        "show the newest calls: who called what, and how it ended; works without a server, too",
        _ONLY_DOWNSTREAM,
        Argument("-f/--follow", help="continue until ^C"),
        Argument("-n/--lines N", "limit", f"at most N calls (default {LISTED})"),
        "start",
        only_shows=True,
    ),
    # Results may be private: no agent reads those of another one.
    _row(
        "gateway-evidence",
        OPERATOR,
        "list the kept results of agents' calls, newest first; with ids, show these in full",
        Argument("[ID...]", "text", "the results to show; with --json, one object, or a list of several"),
        _BY_OPTION._replace(sent="session", help="only this session's"),
        Argument("--from NAME", "name", "only those of this downstream"),
        Argument("--tool TOOL", "tool", "only those of this tool"),
        Argument("--lines N", "limit", f"at most N results (default {LISTED})"),
        only_shows=True,
    ),
    _row(
        "gateway-explain",
        ANYONE,
        "show what a role may do with all tools, or why with one",
        Argument("ROLE", "role", missing="the name of a role"),
        _ONLY_DOWNSTREAM,
        Argument("[TOOL]", "tool", "only this tool, with the rule that decides, and what would be needed"),
    ),
    _row("gateway-budgets", ANYONE, "show limits, what is used of them, also by your own calls, and what is left"),
    _row(
        "gateway-lint",
        ANYONE,
        "read the gateway's files now, and show faults and likely mistakes; exits with 1 if there are faults",
    ),
    # Its link acts for the person who asked for it.
    _row(
        "web",
        OPERATOR,
        "open the page in your browser: the inbox, the sessions and the log",
        Argument("--print", help="print the link instead: it is good for 60 seconds, once"),
        Argument("--role ROLE", "role", "what it lets people do (default: admin)", choices=tuple(WebRole)),
        Argument("--name NAME", "name", "whose link it is, with --role (default: yours)"),
        # Asks for the file that leads a browser to the link.
        Argument("", "format", choices=("file",)),
        in_terminal=True,
    ),
    # With a token a program acts. So one is made in a terminal alone, and never with an admin's role.
    _row(
        "token-add",
        OPERATOR,
        "make a token with which a program uses the API of the page",
        Argument("NAME", "name", "what the program is called", missing="a name for the program"),
        Argument("--role ROLE", "role", "see everything, or also decide and act (default: viewer)", _TOKEN_ROLES),
        Argument("--days N", "days", "for how many days it is good (default: 90)"),
        draws="token",
        in_terminal=True,
    ),
    _row("token-list", OPERATOR, "list the tokens of programs", draws="tokens", only_shows=True, for_admins=True),
    _row(
        "token-revoke",
        OPERATOR,
        "revoke a token at once: what the program has open ends",
        Argument("NAME", "name", missing="the name of a token; see token list"),
        draws="revoked_token",
        for_admins=True,
        keeps_answer=True,
    ),
    _row(
        "passkeys",
        OPERATOR,
        "list the passkeys that were made on the page, and that key add has not enrolled yet",
        is_typed=False,
        only_shows=True,
        for_admins=True,
    ),
    # Names of people are not for agents.
    _row(
        "people-list",
        OPERATOR,
        "list who may use the page, and who is signed in there",
        draws="people",
        only_shows=True,
    ),
    _row(
        "people-sign-out",
        OPERATOR,
        "sign somebody out in one browser, at once",
        _ID._replace(missing="the id of a browser; see people list"),
        draws="signed_out",
        for_admins=True,
        keeps_answer=True,
    ),
    # What a browser asks for, and sends when it is subscribed. Its endpoint is a secret.
    _row("push-key", OPERATOR, "show the key that browsers are subscribed to", is_typed=False, only_shows=True),
    _row(
        "push-subscribe",
        OPERATOR,
        "send a browser push messages about new requests",
        Argument("", "url", missing="the endpoint of a push subscription, in url"),
        Argument("", "public", missing="the key p256dh of a push subscription, in public"),
        Argument("", "auth", missing="the key auth of a push subscription, in auth"),
        "label",
        is_typed=False,
        in_browser=True,
    ),
    _row("push-list", OPERATOR, "list the browsers that get push messages", draws="subscriptions", only_shows=True),
    _row(
        "push-remove",
        OPERATOR,
        "stop sending a browser push messages",
        _ID._replace(missing="the id of a browser; see push list"),
        keeps_answer=True,
    ),
    _row("keys", ANYONE, "list the operator keys, and whether decisions must be signed", is_typed=False),
    _row("key-add", OPERATOR, "enrol an operator key", _PUBLIC, "name", is_typed=False, for_admins=True),
    _row("key-revoke", OPERATOR, "revoke an operator key", _KEY, is_typed=False, for_admins=True),
    _row("version", ANYONE, "show which server answers", is_typed=False),
)

#: The rows by name.
COMMANDS: dict[str, OperatorCommand] = {row.name: row for row in _ROWS}

#: The command that is answered with a stream instead of one reply.
WATCH = "watch"


def decision_about(kind: str, word: str) -> str:
    """Return the decision that a word of `answer` stands for: a standby is resumed, whether or not with a text, and so
    is a room."""
    is_resumed = (kind == "standby" and word in ("continue", "refine")) or (kind == "room" and word == "continue")
    return "resume" if is_resumed else word


def decisions_of(row: OperatorCommand, word: str | None) -> set[str]:
    """Return the decisions that a command about a card can make. `word` is the one typed after `answer`."""
    words = {row.decision} if row.decision else {word} & set(ANSWERS)
    return {decision_about(kind, each) for kind in ("", "standby") for each in words if each}


_GO_ON = ("answer {id} continue | refine TEXT | stop",)

#: The commands that answer each kind of card.
HOW_TO_ANSWER: dict[str, tuple[str, ...]] = {
    "approval": ("approve {id}", "reject {id} --reason TEXT"),
    "prompt": _GO_ON,
    "standby": _GO_ON,
    "stall": ("nudge {id} [TEXT]", "answer {id} stop | dismiss"),
    "policy": ("policy accept {id}", "reject {id}"),
    "apply": ("answer {id} dismiss",),
    "restore": ("answer {id} proceed | cancel",),
    "room": ("answer {id} continue | dismiss",),
    "tools": ("approve {id}", "reject {id}"),
}
#: The commands that answer a proposal with more than yes and no.
HOW_TO_AMEND = ("approve {id} --edit", "changes {id} [--comment {line} TEXT]")
#: The commands that let requests like an approval's pass in advance.
HOW_TO_PERMIT = ("grant {id}", "allow {id}")
#: The command that approves only some hunks of a proposal that has several.
HOW_TO_CHOOSE = "approve {id} --hunks {hunks}"

#: What is typed first, by what it is about, as ctl's help lists it; also commands that ctl carries out by itself.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "what waits for you": ("watch", "web", "pending", "show", "approve", "reject", "changes", "answer"),
    "sessions": ("list", "start", "logs", "pause", "unpause", "resume", "mode", "nudge", "end"),
    "what agents are told": ("steer", "steering", "task", "tasks", "take-back"),
    "what passes without you": ("grant", "grants", "revoke", "allow", "policy"),
    "checkpoints": ("checkpoint", "checkpoints", "restore"),
    "the record": ("log", "history", "audit"),
    "people and programs": ("people", "key", "token", "push"),
    "the server and the rest": ("server", "tree", "clients", "slack", "rooms", "gateway"),
}
