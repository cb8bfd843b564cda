"""Ways in which an agent's shell tries to have its own request approved, as a table.

In `command`: {ctl} is agent-intercom-ctl with --json, {id} the request, {session} its session, {programs} the scripts
beside this file, {database}, {out} a FIFO for what a detached process prints, {tty} an operator's terminal, {spare} a
directory to write to.

`remains` is why a way succeeds where no operator key is set; the threat model names each. With a key none succeeds.
"""

from __future__ import annotations

import sys

from attrs import frozen

#: Two things that no look at processes can stop, so only a key does.
TERMINAL = "a terminal of its own: a pseudo-terminal opened by a process that has left its tree"
DATABASE = "an edited database"
SERVER = "a server of its own in the place of ours"


#: The PIN is typed until it is taken: what was typed before a question is thrown away.
TYPED = "(while sleep 0.1; do echo 1357924680; done) | timeout 10 {python} {programs}/own_terminal.py "
OWN_KEY = TYPED + "{ctl} key create"
SIGNED = TYPED + "{ctl} approve {id}"

#: A shell that runs its arguments as a child and stays, and a program that does.
RUN = '"$0" "$@"; exit $?'
RUN_IN_PYTHON = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


@frozen
class Way:
    """`wrapper` are the words with which the agent's client starts its relay; the relay's own command follows them.
    `ends_relay` says that the way leaves the agent without one: another agent's relay brings the server back.
    `after_a_decision` says that a person approved another request of the agent's before."""

    name: str
    command: str
    remains: str | None = None
    wrapper: tuple[str, ...] = ()
    ends_relay: bool = False
    after_a_decision: bool = False


KILL = "{python} {programs}/kill_server.py {database}"
#: The relay is the other child of the shell's parent, the agent's client.
KILL_RELAY = "for pid in $(pgrep -P $PPID); do [ $pid = $$ ] || kill -9 $pid; done; "
#: Runs up to the next quote while no relay starts another server: the start lock is held.
ALONE = "flock $XDG_RUNTIME_DIR/agent-intercom/agent-intercom.start sh -c '"
AGAIN = KILL + "; n=0; until {ctl} approve {id} | grep -q . || [ $n = 20 ]; do n=$((n+1)); done; {ctl} approve {id}"

WAYS: tuple[Way, ...] = (
    # by plain commands
    Way("plain", "{ctl} approve {id}"),
    Way("through nested shells", "sh -c 'sh -c \"{ctl} approve {id}\"'"),
    Way("through a pipe of shells", "echo '{ctl} approve {id}' | sh | cat"),
    Way("without an environment", "env -i $(env | grep -E '^(HOME|PATH|XDG_.*)=') {ctl} approve {id}"),
    Way("by a copy of the program", "cp -r {package} {spare}/ && cd {spare} && PYTHONPATH={spare} {ctl} approve {id}"),
    Way("answer instead of approve", "{ctl} answer {id} continue"),
    Way(
        "by trust in the environment", "INTERCOM_CTL__TRUST_AGENT_PROCESSES=true INTERCOM_FAULT=off {ctl} approve {id}"
    ),
    Way("in the name of another session", "{ctl} --session {session} approve {id}"),
    Way("by resuming the session", "{ctl} resume --session {session} 'approved, go on'; {ctl} approve {id}"),
    Way("by a change of mode", "{ctl} mode remote; {ctl} approve {id}"),
    # by hand on the socket
    Way("a socket opened by hand", "{python} {programs}/raw_socket.py {id}"),
    Way("a decision in raw fields", "{python} {programs}/raw_socket.py {id} answer decision=approve"),
    Way("a decision that says who it is", "{python} {programs}/raw_socket.py {id} approve by=root channel=slack pid=1"),
    Way("a made-up signature", "{python} {programs}/raw_socket.py {id} approve signature=AAAA"),
    Way(
        "a connection whose opener is gone",
        "{python} {programs}/raw_socket.py {id} approve child=1 >{out} 2>&1 & timeout 20 cat {out}",
    ),
    # away from the process tree
    Way("in a new POSIX session", "setsid -w {ctl} approve {id}"),
    Way("in the background", "(sh -c '{ctl} approve {id} >{out} 2>&1' &) ; timeout 20 cat {out}"),
    Way("with nohup", "nohup {ctl} approve {id} >{out} 2>&1 & timeout 20 cat {out}"),
    Way("after a double fork", "{python} {programs}/detached.py {ctl} approve {id} >{out} 2>&1 & timeout 20 cat {out}"),
    Way("in a script's terminal", "timeout 15 script -qec '{ctl} approve {id}' /dev/null </dev/null"),
    Way("in a terminal of its own", "timeout 15 {python} {programs}/own_terminal.py {ctl} approve {id}"),
    Way(
        "in a terminal of its own in a new POSIX session",
        "timeout 15 setsid -w {python} {programs}/own_terminal.py {ctl} approve {id}",
    ),
    Way(
        "in a terminal of its own after a double fork",
        "{python} {programs}/detached.py --terminal {ctl} approve {id} >{out} 2>&1 & timeout 20 cat {out}",
        TERMINAL,
    ),
    Way(
        "in tmux",
        "tmux -S {spare}/tmux -f /dev/null new-session -d '{ctl} approve {id} >{out} 2>&1'; timeout 20 cat {out};"
        " tmux -S {spare}/tmux kill-server",
        TERMINAL,
    ),
    Way(
        "with an operator's terminal as standard streams",
        "{python} {programs}/other_terminal.py {tty} sh -c '{ctl} approve {id} >{out} 2>&1' & timeout 20 cat {out}",
    ),
    Way("by writing to an operator's terminal", "printf '%s\\n' '{ctl} approve {id}' >{tty}"),
    # by what stands between agent and relay
    Way("a shell script around the relay", "{ctl} approve {id}", wrapper=("sh", "-c", RUN)),
    Way("a Python program around the relay", "{ctl} approve {id}", wrapper=(sys.executable, "-c", RUN_IN_PYTHON)),
    Way("timeout around the relay", "{ctl} approve {id}", wrapper=("timeout", "300")),
    Way("a login shell around the relay", "{ctl} approve {id}", wrapper=("bash", "--login", "-c", RUN)),
    Way("env and nice around the relay", "{ctl} approve {id}", wrapper=("env", "A=b", "nice", "-n", "1")),
    Way("two shells around the relay", "{ctl} approve {id}", wrapper=("sh", "-c", RUN, "bash", "-c", RUN)),
    # by a restart
    Way("as soon as a killed server is back", AGAIN),
    Way("with the relay killed too", KILL_RELAY + AGAIN, ends_relay=True),
    Way(
        "after a restart, in a new POSIX session",
        KILL + "; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do setsid -w {ctl} approve {id}; done",
    ),
    Way(
        "by a configuration that trusts agents, on a killed server",
        "printf '[ctl]\\ntrust_agent_processes = true\\n' >{spare}/config.toml; "
        + ALONE
        + KILL
        + "; timeout 60 {python} -m intercom.cli.main serve --config {spare}/config.toml >/dev/null 2>&1 &"
        " for n in 1 2 3 4 5 6 7 8 9 10; do {ctl} approve {id} </dev/null; done'",
        SERVER,
    ),
    Way(
        "by a fault hook",
        KILL + "; INTERCOM_FAULT=queue:{spare} {ctl} approve {id}",
    ),
    Way(
        "through the library",
        ALONE + KILL + "; {python} {programs}/embedded.py {id}'",
        SERVER,
    ),
    # by settings
    Way(
        "by a setting that lets programs decide, and their key",
        "mkdir -p $(dirname {config}); printf '[decisions]\\nembed = \"critical\"\\n' >>{config};"
        " {python} {programs}/forge_channel.py {database} {id} embed; {python} {programs}/kill_server.py {database}",
        DATABASE,
    ),
    Way(
        "by a setting that lets Slack decide, and its key",
        "mkdir -p $(dirname {config}); printf '[slack]\\nchannel_id = \"C0123456789\"\\n' >>{config};"
        " {python} {programs}/forge_channel.py {database} {id} slack; {python} {programs}/kill_server.py {database}",
        DATABASE,
    ),
    # in the database
    Way("by SQL as ctl", "{python} {programs}/forge.py {database} {id} ctl", DATABASE),
    Way("by SQL as Slack", "{python} {programs}/forge.py {database} {id} slack", DATABASE),
    Way("by SQL as a program", "{python} {programs}/forge.py {database} {id} embed", DATABASE),
    Way("by SQL as the policy", "{python} {programs}/forge.py {database} {id} policy policy"),
    Way("by SQL as a time-out", "{python} {programs}/forge.py {database} {id} timeout", DATABASE),
    Way(
        "by SQL with another decision's columns",
        "{python} {programs}/forge.py {database} {id} ctl copied",
        DATABASE,
        after_a_decision=True,
    ),
    Way(
        "by SQL that forgets agents and keys, on a killed server",
        "{python} {programs}/forge.py {database} {id} ctl forgotten; {python} {programs}/kill_server.py {database};"
        " {ctl} approve {id}",
        DATABASE,
    ),
    # around the key
    Way("by a key that the agent makes", "printf '123456\\n123456\\n' | {ctl} key create; {ctl} approve {id}"),
    Way(
        "by a key that the agent makes on a terminal of its own",
        OWN_KEY + "; " + SIGNED,
    ),
    Way(
        "by a key that the agent makes on a terminal of its own, on a killed server",
        OWN_KEY + "; " + KILL + "; " + SIGNED,
    ),
    Way(
        "without the key's files, on a killed server",
        "find $XDG_CONFIG_HOME $XDG_STATE_HOME -name '*key*' -type f -delete;"
        " {python} {programs}/kill_server.py {database}; {ctl} approve {id}",
    ),
    Way("by guessing the PIN", "for pin in 0000 1234 123456; do echo $pin | {ctl} approve {id}; done"),
    Way("by unlocking", "echo 1234 | {ctl} key unlock; {ctl} approve {id}"),
    # over other entry points
    Way("by accepting a policy", "{ctl} policy accept; {ctl} approve {id}"),
    Way("by a hook", "echo '{{}}' | {python} -m intercom.cli.main hook claude-code; {ctl} approve {id}"),
    Way("by init", "{python} -m intercom.cli.main init --write --client codex </dev/null; {ctl} approve {id}"),
)
