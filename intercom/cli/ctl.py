"""The `agent-intercom-ctl` command: shows what waits for a person and sends the person's answers.

The module starts on the standard library alone. It imports the drawing code only if there is something to draw.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intercom.local.places import Places

PROGRAM = "agent-intercom-ctl"

#: Exit codes.
DONE, REFUSED, USAGE, NO_SERVER = 0, 1, 2, 3

#: Options that are allowed anywhere on the line, and whether each takes a value.
ANYWHERE = {"--json": False, "--ipc-name": True, "--session": True, "--config": True}

#: Verbs that end with a text, and the number of words before it: the verb, and what it applies to.
TEXT_AT = {"start": 1, "task": 1, "resume": 1, "checkpoint": 1, "steer": 2, "nudge": 2, "answer": 3}
#: Those of them that accept --session. `VALUED` are the verbs' own options that take a value.
OF_A_SESSION = frozenset({"task", "resume", "checkpoint"})
VALUED = frozenset({"--workspace", "--label"})

#: All verbs that accept --session. Any other verb refuses it, because it would have no effect there.
TAKES_SESSION = OF_A_SESSION | {
    *("pending", "log", "logs", "tasks", "mode", "pause", "unpause", "steer", "steering", "clear", "checkpoints"),
}

#: Verbs whose answer is drawn. The others print one line and skip the slow import of the drawing code.
DRAWN = frozenset({"list", "pending", "show", "steering", "tasks", "checkpoints", "tree", "slack", "log"})


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, or one JSON value if the line has `--json`."""

    json = False

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += " (put -- before a text that begins with or holds an option)"
        if Parser.json:
            print(json.dumps({"ok": False, "error": message, "error_code": "invalid_arguments"}))
        else:
            self.print_usage(sys.stderr)
            print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 if done, 1 if the server refused, 2 for wrong usage, 3 for no server, 130 on ^C."""
    words = hoist(sys.argv[1:] if argv is None else argv)
    Parser.json = "--json" in words[: words.index("--") if "--" in words else None]
    # Characters that the terminal's encoding lacks are written as escapes instead of raising an error.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = parser().parse_args(words)
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def hoist(words: Sequence[str]) -> list[str]:
    """Move the options that are allowed anywhere to the front of the words. Nothing after `--` moves. Nothing inside a
    text moves either: it may be part of the text, and the parser refuses it there."""
    front: list[str] = []
    rest: list[str] = []
    line = list(words)
    end = line.index("--") if "--" in line else len(line)
    free = [at for at, is_free in enumerate(_free(line[:end])) if is_free]
    # The positions of the text's first and last word.
    begins = TEXT_AT.get(line[free[0]]) if free else None
    first = free[begins] if begins is not None and begins < len(free) else end
    last = free[-1] if free else -1
    at = 0
    while at < end:
        name, equals, _ = line[at].partition("=")
        size = 2 if ANYWHERE.get(name) and not equals else 1
        amid = first < at < last or (first < at and name == "--session" and line[free[0]] not in OF_A_SESSION)
        (front if name in ANYWHERE and not amid else rest).extend(line[at : min(at + size, end)])
        at += size
    return front + rest + line[end:]


def _free(line: Sequence[str]) -> list[bool]:
    """Tell for each word whether it is neither an option nor an option's value."""
    found: list[bool] = []
    is_value = False
    for word in line:
        found.append(not is_value and not word.startswith("-"))
        is_value = not is_value and (ANYWHERE.get(word, False) or word in VALUED)
    return found


def parser() -> argparse.ArgumentParser:
    """Build the whole command line."""
    top = Parser(
        prog=PROGRAM,
        description="See what your coding agents ask, and answer them.",
        epilog="The options above may also follow the command; put -- before a text that holds one. "
        "The shortest unique start of an id will do. "
        "Exit codes: 0 done, 1 refused by the server, 2 wrong usage, 3 no server.",
        allow_abbrev=False,
    )
    top.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
    top.add_argument("--ipc-name", metavar="NAME", help="which server: its ipc_name (default: the configured one)")
    top.add_argument("--config", metavar="FILE", help="read ipc_name from this configuration file")
    top.add_argument(
        "--session",
        metavar="ID",
        help="only this session (pending, log, tasks), or which one (resume, mode, task, checkpoint, pause, unpause)",
    )
    verbs = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def verb(name: str, summary: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False)

    verb("list", "list sessions").add_argument("--all", action="store_true", help="ended ones too")
    verb("pending", "what waits for you, oldest first, with its diff")
    verb("show", "one request, whole").add_argument("id", metavar="ID")
    verb("approve", "approve a proposed change").add_argument("id", metavar="ID")
    reject = verb("reject", "reject a proposed change")
    reject.add_argument("id", metavar="ID")
    reject.add_argument("--reason", metavar="TEXT", help="what the agent is told")
    answer = verb("answer", "answer a prompt or a waiting agent")
    answer.add_argument("id", metavar="ID")
    answer.add_argument("decision", choices=("continue", "refine", "stop", "dismiss", "proceed", "cancel"))
    answer.add_argument("text", metavar="TEXT", nargs="*", help="what the agent should go by (refine needs it)")
    resume = verb("resume", "set a waiting or paused agent to work")
    resume.add_argument("instruction", metavar="INSTRUCTION", nargs="*", help="what it should do")
    verb("mode", "say who is notified of a session's requests").add_argument(
        "mode", choices=("remote", "local", "hybrid"), help="remote: Slack, local: this machine, hybrid: both"
    )
    nudge = verb("nudge", "prod an agent that has gone quiet")
    nudge.add_argument("id", metavar="ID", help="of its alert or session")
    nudge.add_argument("text", metavar="TEXT", nargs="*", help="what it is told")
    pause = verb("pause", "hold an agent up: none of its calls does anything until unpause")
    pause.add_argument("id", metavar="SESSION", nargs="?", help="which one; the only active one if left out")
    unpause = verb("unpause", "let a paused agent go on")
    unpause.add_argument("id", metavar="SESSION", nargs="?", help="which one; the only paused one if left out")
    steer = verb("steer", "tell an agent something with its next result")
    steer.add_argument("id", metavar="SESSION")
    steer.add_argument("text", metavar="TEXT", nargs="+", help="what it is told")
    steering = verb("steering", "what agents were told or are to be told")
    steering.add_argument("id", metavar="SESSION", nargs="?", help="only this session")
    steering.add_argument("--limit", metavar="N", type=_limit, help="at most so many entries (default 50)")
    task = verb("task", "leave a task for the next agent in a workspace, or for a session's (--session)")
    task.add_argument("text", metavar="TEXT", nargs="+", help="what is to be done")
    task.add_argument("--workspace", metavar="DIR", help="which workspace (default: the one of this directory)")
    tasks = verb("tasks", "the tasks that no agent has yet")
    tasks.add_argument("--all", action="store_true", help="those that are done with, too")
    tasks.add_argument("--limit", metavar="N", type=_limit, help="look at so many entries at most (default 50)")
    verb("take-back", "let words or a task never reach an agent").add_argument("id", metavar="ID")
    start = verb("start", "start an agent on a task")
    start.add_argument("prompt", metavar="PROMPT", nargs="+", help="what it is to do, its one argument")
    start.add_argument("--workspace", metavar="DIR", help="where it works (default: the configured workspace)")
    start.add_argument("--label", metavar="TEXT", help="what you call it")
    verb("clear", "end a session, and the agent you started for it").add_argument("id", metavar="SESSION")
    logs = verb("logs", "what an agent wrote that was started here")
    logs.add_argument("id", metavar="SESSION")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the agent has ended")
    logs.add_argument("--stderr", action="store_true", help="what it wrote to stderr, rather than to stdout")
    logs.add_argument("--lines", metavar="N", type=_limit, help="at most so many lines of it (default 200)")
    taken = verb("checkpoint", "record how a session and the files of its workspace stand")
    taken.add_argument("label", metavar="LABEL", nargs="*", help="what you call it; a session's id may stand before it")
    listed = verb("checkpoints", "the checkpoints of a session, or all")
    listed.add_argument("id", metavar="SESSION", nargs="?", help="whose")
    restore = verb("restore", "compare with a checkpoint, and go back to it if you say so")
    restore.add_argument("id", metavar="CHECKPOINT")
    files = restore.add_mutually_exclusive_group()
    files.add_argument("--files", action="store_true", help="put back files that were modified or deleted since")
    files.add_argument("--exact", action="store_true", help="the same, and remove files that were added since")
    restore.add_argument("--yes", action="store_true", help="do not ask; proceed")
    verb("watch", "show requests as they come and answer with a key")
    verb("tree", "the server's actors, live").add_argument("--watch", action="store_true", help="draw it every second")
    verb("slack", "how the connection to Slack fares")
    log = verb("log", "what happened, who did it")
    log.add_argument("--limit", metavar="N", type=_limit, help="at most so many entries (default 50)")
    _add_audit(verbs)
    policy = verb("policy", "the workspaces' policies, and what was accepted of them").add_subparsers(
        dest="act", metavar="list|show|accept|reject", required=True, parser_class=Parser
    )
    policy.add_parser("list", help="how they stand", allow_abbrev=False)
    shown = policy.add_parser("show", help="one policy, whole", allow_abbrev=False)
    shown.add_argument(
        "id", metavar="ID|DIR", nargs="?", help="of its card, or the workspace (default: this directory)"
    )
    accept = policy.add_parser("accept", help="accept a policy: only then does it count", allow_abbrev=False)
    accept.add_argument(
        "id", metavar="ID|DIR", nargs="?", help="of its card, or the workspace; the only one that waits if left out"
    )
    accept.add_argument("--yes", action="store_true", help="do not ask; accept")
    reject = policy.add_parser("reject", help="reject a policy: its content is not asked again", allow_abbrev=False)
    reject.add_argument(
        "id", metavar="ID|DIR", nargs="?", help="of its card, or the workspace; the only one that waits if left out"
    )
    reject.add_argument("--reason", metavar="TEXT", help="what is put on record with it")
    _add_key(verbs)
    return top


def _add_audit(verbs: Any) -> None:
    summary = "the audit log: whether it was tampered with, and all of it as JSON lines"
    acts = verbs.add_parser("audit", help=summary, description=summary, allow_abbrev=False).add_subparsers(
        dest="act", metavar="verify|export", required=True, parser_class=Parser
    )
    told = "verify that nothing was changed, removed or put in; works without a server"
    verify = acts.add_parser("verify", help=told, description=told, allow_abbrev=False)
    verify.add_argument("file", metavar="FILE", nargs="?", help="what audit export wrote (default: the database)")
    told = "print every entry as a JSON line, and the head as the last one; works without a server"
    acts.add_parser("export", help=told, description=told, allow_abbrev=False)


def _add_key(verbs: Any) -> None:
    summary = "operator keys, with which you sign your decisions"
    acts = verbs.add_parser("key", help=summary, description=summary, allow_abbrev=False).add_subparsers(
        dest="act", metavar="ACT", required=True, parser_class=Parser
    )

    def act(name: str, summary: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = acts.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        return added

    create = act("create", "make a key, under a PIN that you choose")
    create.add_argument("--name", metavar="TEXT", help="what it is called (default: you and this machine)")
    act("list", "the keys there are")
    act("unlock", "let this terminal keep a key unlocked, until it is not used for a while").add_argument(
        "id", metavar="KEY", nargs="?", help="which one; the only one if left out"
    )
    act("lock", "let every terminal forget its key")
    act("enrol", "let this machine's key count for the running server").add_argument(
        "id", metavar="KEY", nargs="?", help="which one; the only one if left out"
    )
    act("revoke", "let a key count no more").add_argument("id", metavar="KEY")
    settings = act("settings", "let your settings count that allow decisions without the key")
    settings.add_argument("id", metavar="KEY", nargs="?", help="which key signs; the only one if left out")
    change = act("change-pin", "choose another PIN for a key")
    change.add_argument("id", metavar="KEY", nargs="?", help="which one; the only one if left out")


def fields_of(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Translate a parsed command line into the request's verb and fields."""
    given = vars(options)
    verb = f"policy-{options.act}" if options.command == "policy" else str(options.command)
    text = " ".join(given.get("text") or given.get("prompt") or ())
    workspace = given.get("workspace")
    if verb == "task" and workspace is None and given.get("session") is None:
        workspace = "."
    fields = {
        "id": given.get("id"),
        "session": given.get("session"),
        "reason": given.get("reason"),
        "instruction": " ".join(given.get("instruction") or ()) or None,
        "mode": given.get("mode"),
        "decision": given.get("decision"),
        "text": text or None,
        "limit": given.get("limit") or given.get("lines"),
        "workspace": None if workspace is None else os.path.abspath(workspace),
        "label": " ".join(given["label"]) or None if isinstance(given.get("label"), list) else given.get("label"),
        "files": "exact" if given.get("exact") else "back" if given.get("files") else None,
        "stream": "stderr" if given.get("stderr") else None,
        "everything": given.get("all") or None,
    }
    if options.command == "policy":
        from intercom.cli.ctl_policy import subject

        fields = {**fields, "id": None, **subject(given.get("id"))}
    return verb, {name: value for name, value in fields.items() if value is not None}


def _run(options: argparse.Namespace) -> int:
    from intercom.cli.ctl_sign import send
    from intercom.model.errors import IntercomError
    from intercom.operators.ctl.client import NoServer, Refusal

    if options.session is not None and options.command not in TAKES_SESSION:
        sentence = f"--session is not for {options.command}; it is for {', '.join(sorted(TAKES_SESSION))}"
        return _complain(options, sentence, "invalid_arguments", USAGE)
    try:
        where = _places(options)
    except IntercomError as error:
        return _complain(options, error.message, error.error_code, USAGE)
    try:
        if options.command == "audit":
            from intercom.cli.ctl_audit import audit

            return _local(audit, where, options)
        if options.command == "key":
            from intercom.cli.ctl_key import key

            return _local(key, where, options)
        if options.command == "answer" and options.decision == "refine" and not options.text:
            return _complain(options, "refine needs the text the agent should go by", "invalid_arguments", USAGE)
        if options.command == "watch":
            from intercom.cli.ctl_watch import watch

            return watch(where, as_json=options.json)
        if options.command == "tree" and options.watch:
            from intercom.cli.ctl_watch import watch_tree

            return watch_tree(where, as_json=options.json)
        verb, fields = fields_of(options)
        if verb == "logs":
            from intercom.cli.ctl_logs import logs

            return logs(where, fields, follow=options.follow, as_json=options.json)
        if verb == "restore":
            from intercom.cli.ctl_restore import restore

            return restore(where, fields, yes=options.yes, as_json=options.json)
        if options.command == "policy":
            from intercom.cli import ctl_policy

            yes = options.act == "accept" and options.yes
            return ctl_policy.run(where, options.act, fields, yes=yes, as_json=options.json)
        data = send(where, verb, fields)
    except NoServer:
        sentence = (
            f"no server answers at {where.ctl_socket}; start one with 'agent-intercom serve', "
            "or start an agent that uses it"
        )
        return _complain(options, sentence, "ipc", NO_SERVER)
    except Refusal as refusal:
        return _complain(options, str(refusal), refusal.code, REFUSED, refusal.details)
    except IntercomError as error:
        # The process that listens there is not this user's server, or no server at all.
        return _complain(options, error.message, error.error_code, NO_SERVER)
    except OSError as error:
        return _complain(options, f"the socket failed: {error.strerror or error}", "ipc", NO_SERVER)
    if options.json:
        print(json.dumps(data))
        return DONE
    if verb == "pending" and data:
        from intercom.cli.ctl_sign import say_without_key

        with contextlib.suppress(NoServer, Refusal):
            say_without_key(where)
    if verb not in DRAWN:
        from intercom.cli.ctl_text import done_line

        print(done_line(data))
        return DONE
    from intercom.cli import ctl_draw

    ctl_draw.show(verb, data)
    if verb in ("show", "pending") and sys.stdout.isatty():
        from intercom.cli.ctl_sign import note_shown

        lines = ctl_draw.PENDING_LINES if verb == "pending" else None
        cards = data if verb == "pending" else [data]
        note_shown(where, [card for card in cards if ctl_draw.is_whole(card, lines)])
    return DONE


def _local(act: Callable[[Places, argparse.Namespace], int], where: Places, options: argparse.Namespace) -> int:
    from intercom.model.errors import IntercomError
    from intercom.operators.ctl.client import NoServer, Refusal

    try:
        return act(where, options)
    except Refusal as refusal:
        return _complain(options, str(refusal), refusal.code, REFUSED, refusal.details)
    except NoServer:
        return _complain(options, f"no server answers at {where.ctl_socket}; start one first", "ipc", NO_SERVER)
    except IntercomError as error:
        # Most errors here do not come from a server.
        return _complain(options, error.message, error.error_code, REFUSED)


def _places(options: argparse.Namespace) -> Places:
    from intercom.local.places import ipc_name_in, places

    if options.ipc_name is not None:
        return places(options.ipc_name)
    if options.config is not None and not os.path.exists(options.config):
        from intercom.model.errors import ConfigError

        raise ConfigError(f"there is no configuration file at {options.config}")
    return places(ipc_name_in(options.config or places().config_file))


def _complain(options: argparse.Namespace, sentence: str, code: str, exit_code: int, details: Any = None) -> int:
    if options.json:
        reply = {"ok": False, "error": sentence, "error_code": code}
        print(json.dumps(reply if details is None else {**reply, "details": details}))
        return exit_code
    from intercom.cli.ctl_text import clean

    print(f"{PROGRAM}: {clean(sentence)}", file=sys.stderr)
    return exit_code


def _limit(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError("must be from 1 to 10000")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
