"""The `agent-intercom` command: the shim that an MCP client launches, and the commands around it.

The module starts on the standard library alone. What a command needs is imported when the command runs.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intercom._version import __version__
from intercom.agents.clients import HOOKED, NAMES
from intercom.cli.command_examples import MAIN_EXAMPLES, examples
from intercom.cli.parser import SHELLS, Parser, asks_help, complete, completion_script

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "agent-intercom"

#: Seconds that a server has to stop.
_STOP_SECONDS = 15.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 1 failed, 2 usage or configuration, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    line = parser()
    complete(line)
    options = line.parse_args(asks_help(words))
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case None if options.in_process:
            options.session_id, options.agent = session_id(options), agent_name(options)
            return int(load_server().in_process(options))
        case None:
            from intercom.agents.shim.launch import Options
            from intercom.agents.shim.main import main as relay

            return relay(
                Options(
                    config=options.config,
                    workspace=options.workspace,
                    ipc_name=options.ipc_name,
                    channel=options.channel,
                    session_id=session_id(options),
                    agent=agent_name(options),
                )
            )
        case "serve":
            if options.replace:
                _say_what_is_replaced(options)
            return int(load_server().serve(options))
        case "rooms":
            load_server()
            from intercom.cli import rooms_server

            return rooms_server.run(options)
        case "gateway":
            from intercom.cli import gateway

            return gateway.run(options)
        case "hook":
            from intercom.agents.hook_process import Order
            from intercom.agents.hook_process import main as answer
            from intercom.agents.shim.launch import Options

            settings = Options(config=options.config, ipc_name=options.ipc_name)
            return answer(Order(options.client, options.event, options.wait, settings))
        case "stop":
            return _stop(options)
        case "init":
            from pathlib import Path

            from intercom.cli import init

            options.config = None if options.config is None else Path(options.config)
            options.workspace = None if options.workspace is None else Path(options.workspace)
            return init.run(options)
        case "doctor":
            from intercom.cli import doctor

            return doctor.run(options)
        case "slack":
            from intercom.cli import slack

            return slack.run(options)
        case "completion":
            print(completion_script(options.shell, (PROGRAM, f"{PROGRAM}-ctl")))
            return 0
        case _:
            from intercom.cli import demo

            return demo.run(options)


def load_server() -> Any:
    """Import `intercom.cli.serve` without garbage collection: the imported objects stay, and scanning them again and
    again takes a tenth of the server's start time."""
    gc.disable()
    try:
        from intercom.cli import serve
    finally:
        gc.enable()
    return serve


def _database(options: argparse.Namespace) -> Path:
    """Return the path of the database that the configuration names. Raises ConfigError and IpcError."""
    from pathlib import Path

    from intercom.local import config_file
    from intercom.local.places import places

    path = Path(options.config) if options.config else Path(places().config_file)
    config = config_file.load(path if options.config or path.exists() else None)
    return config_file.database_path(config, places(options.ipc_name or config.ipc_name))


def _say_what_is_replaced(options: argparse.Namespace) -> None:
    """Say at once which server will be replaced: loading the new one takes seconds. Faults are left to `serve`, which
    reports them, and a closed stderr stops nothing."""
    from contextlib import suppress

    from intercom.local import lock
    from intercom.model.errors import IntercomError

    with suppress(IntercomError, OSError, ValueError):
        if (found := lock.holder(_database(options))) is not None and found.pid is not None:
            text = f"loading; then process {found.pid} (version {found.version}) is asked to stop"
            print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def _stop(options: argparse.Namespace) -> int:
    """Ask the server to stop and wait. Returns 0 if none runs any more, 1 if it did not stop, 2 for a faulty setup."""
    from intercom.local import lock
    from intercom.model.errors import IntercomError

    try:
        ended = lock.end_holder(_database(options), seconds=_STOP_SECONDS)
    except lock.DatabaseLocked as error:
        print(f"agent-intercom: {error}", file=sys.stderr)
        return 1
    except IntercomError as error:
        print(f"agent-intercom: {error}", file=sys.stderr)
        return 2
    if ended is None:
        print("no server is running")
    else:
        print(f"stopped the server (process {ended.pid}); pending requests are kept, and agents start it again")
    return 0


def _operators_commands() -> list[str]:
    """Return the commands of ctl. Imported lazily: only a wrong line needs them."""
    from intercom.cli.ctl import TYPED

    return [" ".join(words) for words in TYPED]


def parser() -> argparse.ArgumentParser:
    """Build the whole command line."""
    common = _common(defaults=True)
    top = Parser(
        PROGRAM,
        description="The switchboard between coding agents and the people responsible for them. Without a command it"
        " is what an MCP client launches: it speaks MCP on stdin and stdout, and starts the server if none runs.",
        parents=[common],
    )
    top.elsewhere = (f"{PROGRAM}-ctl", _operators_commands)
    top.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    top.add_argument(
        "--workspace", metavar="DIR", help="the directory that the agent may change (default: its project)"
    )
    top.add_argument(
        "--channel",
        metavar="ID",
        type=_channel,
        help="the Slack channel for this agent (default: as configured)",
    )
    top.add_argument(
        "--session-id",
        metavar="ID",
        help="the session that this agent was started for (default: INTERCOM_SESSION_ID, else a new one)",
    )
    top.add_argument(
        "--agent",
        metavar="KEY",
        type=_agent,
        help="a permanent name: all processes with this key in one workspace are one agent with one session"
        " (default: INTERCOM_AGENT, else each process is an agent of its own)",
    )
    top.add_argument("--in-process", action="store_true", help="serve MCP in this process, without a background server")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    again = _common(defaults=False)

    serve = commands.add_parser("serve", parents=[again], help="run the server in the foreground (systemd, containers)")
    serve.add_argument(
        "--workspace",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="the directory of agents that name none (default: default_workspace_root in the configuration)",
    )
    serve.add_argument(
        "--replace",
        action="store_true",
        help="end the server that runs, in order, and take its place: pending requests and connected agents are kept",
    )
    serve.add_argument("--background", action="store_true", help=argparse.SUPPRESS)
    serve.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--claim-fd", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--started-by", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--private-fd", type=int, help=argparse.SUPPRESS)

    _rooms(
        commands.add_parser(
            "rooms", parents=[again], help="run a server of rooms, in which teams of agents work together"
        )
    )

    _gateway(
        commands.add_parser(
            "gateway",
            parents=[again],
            help="move the MCP servers that your coding agents have behind Intercom, and back; sign in to remote ones",
        )
    )

    hook = commands.add_parser(
        "hook", parents=[again], help="answer a coding agent's permission hook (what init --hooks installs)"
    )
    hook.add_argument("client", choices=HOOKED, help="the client that runs the hook")
    hook.add_argument("--event", metavar="NAME", help="the hook's event, if the client does not name it")
    hook.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        help="how long a person may take (default: a little less than an hour)",
    )

    commands.add_parser("stop", parents=[again], help="stop the background server; pending requests are kept")

    init = commands.add_parser(
        "init", parents=[again], help="write a configuration, and connect your coding agents to Intercom"
    )
    init.add_argument(
        "--client",
        action="append",
        metavar="NAME",
        help=f"only this client: {', '.join(NAMES)} or all (may be given several times)",
    )
    init.add_argument(
        "--http",
        nargs="?",
        type=_port,
        const=0,
        metavar="PORT",
        help="connect over HTTP: open this port of 127.0.0.1 (default: the configured one, or 3000)",
    )
    init.add_argument(
        "--write",
        action="store_true",
        help="write the configuration, and merge into the clients' own files; their old texts are kept in the"
        " state directory (default: only show it)",
    )
    hooks = init.add_mutually_exclusive_group()
    hooks.add_argument(
        "--hooks",
        action="store_true",
        help="install the clients' permission hooks too, which deny if agent-intercom cannot be started (default: ask"
        " on a terminal, and install none elsewhere)",
    )
    hooks.add_argument("--no-hooks", action="store_true", help="install no permission hooks, and do not ask")
    instructions = init.add_mutually_exclusive_group()
    instructions.add_argument(
        "--instructions",
        action="store_true",
        help="write how to use Intercom into a section of the client's permanent instructions too, as AGENTS.md,"
        " GEMINI.md or QWEN.md (default: ask on a terminal, and write none elsewhere)",
    )
    instructions.add_argument("--no-instructions", action="store_true", help="write no instructions, and do not ask")
    init.add_argument("--no-key", action="store_true", help="do not offer an operator key on a terminal")
    init.add_argument(
        "--policy",
        action="store_true",
        help="write a cautious policy if the project has none, and accept the project's policy",
    )
    init.add_argument(
        "--remove",
        action="store_true",
        help="remove what init wrote from the clients' files (of all clients, or those named by --client)",
    )
    init.add_argument("--force", action="store_true", help="replace an existing configuration (a backup is kept)")
    init.add_argument("--workspace", metavar="DIR", default=argparse.SUPPRESS, help="the project to connect")
    init.add_argument(
        "--agent",
        metavar="KEY",
        type=_agent,
        default=argparse.SUPPRESS,
        help="write this permanent name into the entries, for clients that start a process for each call",
    )

    doctor = commands.add_parser(
        "doctor", parents=[again], help="check the installation, and say what to do about each fault"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
    doctor.add_argument("--workspace", metavar="DIR", default=argparse.SUPPRESS, help="the project to check")
    doctor.add_argument("--client", metavar="NAME", help="check only how long this client lets a call wait")
    doctor.add_argument(
        "--probe",
        metavar="SECONDS",
        type=_seconds,
        help="run the client, with a script in place of its model, to see when it ends a call; wait at most so long",
    )

    _slack(commands.add_parser("slack", parents=[again], help="set Slack up: the app's manifest, and its tokens"))

    completion = commands.add_parser(
        "completion",
        parents=[again],
        help="print what your shell reads to complete these commands and the ids of what waits",
        description="Print what a shell reads to complete both commands, also with the ids of what waits. Add the line"
        " for your shell to the end of the file that it reads at its start",
        epilog="examples:\n" + "\n".join(f"  {line}  # {file}" for file, line in SHELLS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=SHELLS, help="your shell")

    demo = commands.add_parser("demo", parents=[again], help="see an approval from end to end, in this terminal")
    demo.add_argument("--yes", action="store_true", help="approve everything, ask nothing")
    _add_examples(top, ())
    return top


def _add_examples(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
    """End the help of each command below `parser` with its examples; `words` are what stands before the command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                _add_examples(command, (*words, word))
                own = examples(PROGRAM, MAIN_EXAMPLES, " ".join((*words, word)))
                if own and not any(isinstance(each, argparse._SubParsersAction) for each in command._actions):
                    command.epilog, command.formatter_class = own, argparse.RawDescriptionHelpFormatter


def _rooms(rooms: argparse.ArgumentParser) -> None:
    rooms.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        help="the address to listen on; 0.0.0.0 is every one of this machine (default: 127.0.0.1)",
    )
    rooms.add_argument(
        "--port", type=_port_or_any, default=7423, help="the port to listen on; 0 takes a free one (default: 7423)"
    )
    rooms.add_argument(
        "--database",
        metavar="URL",
        help="a PostgreSQL database (postgresql://...), which several servers may share, or an SQLite file (default:"
        " DATABASE_URL in the environment, which keeps a password off the command line, or a file of its own)",
    )
    rooms.add_argument(
        "--public-url",
        metavar="URL",
        type=_base_url,
        help="the address at which teams reach this server (default: that on which it listens)",
    )
    rooms.add_argument(
        "--web-port",
        metavar="PORT",
        type=_port_or_any,
        default=0,
        help="the port on 127.0.0.1 of its page for people, another one than that of [web] (default: 0, a free one)",
    )


def _gateway(gateway: Parser) -> None:
    gateway.elsewhere = (
        f"{PROGRAM}-ctl gateway",
        lambda: [words.partition(" ")[2] for words in _operators_commands() if words.startswith("gateway ")],
    )
    actions = gateway.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    take = actions.add_parser(
        "import", help="show which servers can be moved, and what would change; with --apply, do it"
    )
    take.add_argument(
        "--client",
        action="append",
        metavar="NAME",
        help="only from this client: claude-code, cursor, vscode, codex, opencode, gemini-cli or qwen-code (may be"
        " given several times)",
    )
    take.add_argument("--server", action="append", metavar="NAME", help="only this server (may be given several times)")
    take.add_argument("--apply", action="store_true", help="do it, after a question; the old files are kept")
    take.add_argument(
        "--project", action="store_true", help="also the servers of the project's own files, after a question for each"
    )
    take.add_argument(
        "--yes",
        action="store_true",
        help="do not ask about your own servers; those of a project are always asked about",
    )
    take.add_argument(
        "--workspace",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="the project whose files are read (default: this directory)",
    )
    undo = actions.add_parser("undo", help="put back what the last import changed")
    undo.add_argument("--yes", action="store_true", help="do not ask")
    enter = actions.add_parser("sign-in", help="sign in to a remote MCP server behind the gateway, in a browser")
    enter.add_argument("name", metavar="NAME", help="the MCP server, as agent-intercom-ctl gateway list has it")
    enter.add_argument("--no-browser", action="store_true", help="only print the address, and open no browser")
    enter.add_argument(
        "--register", action="store_true", help="register a new client there, if the page refuses the one from before"
    )
    enter.add_argument(
        "--wait", metavar="SECONDS", type=_seconds, help="how long you may take in the browser (default: 300)"
    )
    secret = actions.add_parser("secret", help="store a secret of an MCP server in the keychain, or delete it")
    acts = secret.add_subparsers(dest="secret_action", metavar="ACTION", required=True, parser_class=Parser)
    for act, does in (("set", "store it; its value is asked for, or read from a pipe"), ("delete", "delete it")):
        acts.add_parser(act, help=does).add_argument(
            "name", metavar="SERVER/NAME", help="the MCP server, and a name: its file has ${keychain:SERVER/NAME}"
        )
    leave = actions.add_parser("sign-out", help="remove what sign-in stored, and end the token where that is offered")
    leave.add_argument("name", metavar="NAME", help="the MCP server")


def _slack(slack: argparse.ArgumentParser) -> None:
    actions = slack.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    manifest = actions.add_parser("manifest", help="print the manifest to make the Slack app from (JSON)")
    manifest.add_argument("--name", default="Intercom", help="what the app is called in Slack")
    manifest.add_argument("--link", action="store_true", help="print an address that opens Slack with it filled in")
    login = actions.add_parser("login", help="check the app's two tokens, and store them in the keychain")
    login.add_argument(
        "--from-env", action="store_true", help="take them from SLACK_APP_TOKEN and SLACK_BOT_TOKEN, ask nothing"
    )
    login.add_argument(
        "--file", action="store_true", help="store them in a private file, on a machine without a keychain"
    )
    actions.add_parser("logout", help="remove what login stored")
    actions.add_parser("status", help="say where each credential is found")


def agent_name(options: argparse.Namespace) -> str | None:
    """Return the permanent name of the agent. The server refuses one that is not valid."""
    import os

    return options.agent or os.environ.get("INTERCOM_AGENT") or None


def session_id(options: argparse.Namespace) -> str | None:
    """Return the session that the agent was started for. A server sets it in its agents' environment."""
    return options.session_id or os.environ.get("INTERCOM_SESSION_ID") or None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, at most 86400, not {text!r}")
    return seconds


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to 65535, not {text!r}")
    return int(text)


def _port_or_any(text: str) -> int:
    return 0 if text == "0" else _port(text)


def _address(text: str) -> str:
    from intercom.model.setting_checks import address

    try:
        address(None, None, text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
    return text


def _base_url(text: str) -> str:
    from intercom.model.limits import BASE_URL_FORM, is_base_url

    if not is_base_url(text):
        raise argparse.ArgumentTypeError(f"must be {BASE_URL_FORM}, not {text!r}")
    return text


def _channel(text: str) -> str:
    from intercom.model.limits import LOOKS_LIKE, is_channel_id

    if not is_channel_id(text):
        raise argparse.ArgumentTypeError(f"must be {LOOKS_LIKE}, not {text!r}")
    return text


def _agent(text: str) -> str:
    from intercom.model.limits import AGENT_NAME_FORM, is_agent_name

    if not is_agent_name(text):
        raise argparse.ArgumentTypeError(f"must be {AGENT_NAME_FORM}; not {text[:80]!r}")
    return text


def _common(*, defaults: bool) -> Parser:
    """Build the options allowed before and after the command; after it, their defaults must not overwrite values."""

    def default(value: str | None) -> object:
        return value if defaults else argparse.SUPPRESS

    common = Parser(add_help=False)
    # A client starts this without a shell, and a shared file names the home directory by `~`.
    common.add_argument(
        "--config",
        metavar="FILE",
        type=os.path.expanduser,
        default=default(None),
        help="the configuration file",
    )
    common.add_argument(
        "--ipc-name", metavar="NAME", default=default(None), help="the name of the server, if several run"
    )
    common.add_argument(
        "--log-format", choices=("text", "json"), default=default("text"), help="how log lines are written"
    )
    return common


if __name__ == "__main__":
    sys.exit(main())
