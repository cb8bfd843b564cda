"""Ways to have a policy grant something that no person accepted, as a table.

`tree` is a shell command that makes the workspace's tree before the agent comes, who then works in `works_in`.
`command` is what the agent's own shell runs after its first call. In them: {root} is the workspace, {programs} the
scripts beside this file, with a policy that grants everything in the newer and the older form. Afterwards the agent
proposes a file: it must become a card, and nothing may pass by itself.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class PolicyWay:
    """`needs_key` says that only an operator key prevents it; the threat model names it."""

    name: str
    tree: str = "true"
    command: str = ""
    works_in: str = "{root}"
    needs_key: bool = False


FILE = "{root}/.intercom/settings.json"
WRITE = "mkdir -p {root}/.intercom && cp {programs}/open.json " + FILE
WRITE_OLDER = "mkdir -p {root}/.monocoque && cp {programs}/old.json {root}/.monocoque/settings.json"
LINK = "mkdir {root}/.intercom && cp {programs}/open.json {root}/p && ln -s ../p " + FILE
KILL = "; {python} {programs}/kill_server.py {database}"

WAYS: tuple[PolicyWay, ...] = (
    PolicyWay("a cloned repository ships it", WRITE),
    PolicyWay("a cloned repository ships the older file", WRITE_OLDER),
    PolicyWay(
        "a nested directory ships it, and the agent works there",
        WRITE + " && mkdir -p {root}/vendor/lib && mv {root}/.intercom {root}/vendor/lib",
        works_in="{root}/vendor/lib",
    ),
    PolicyWay("the file is a link", LINK),
    PolicyWay(
        "its directory is a link", WRITE + " && mv {root}/.intercom {root}/vendor && ln -s vendor {root}/.intercom"
    ),
    PolicyWay("the workspace is named through a link", WRITE + " && ln -s {root} {root}-link", works_in="{root}-link"),
    PolicyWay("the workspace is named by a roundabout path", WRITE, works_in="{root}/.intercom/.."),
    PolicyWay("it stands in the directory above", WRITE + " && mkdir {root}/inner", works_in="{root}/inner"),
    PolicyWay("a version-control root ships it", WRITE + " && mkdir {root}/.git"),
    PolicyWay(
        "the file begins with a byte order mark",
        WRITE + " && (printf '\\357\\273\\277'; cat {programs}/open.json) >" + FILE,
    ),
    PolicyWay(
        "a key stands in it twice",
        WRITE + " && (printf '{{\"enabled\": false, '; tail -c +2 {programs}/open.json) >" + FILE,
    ),
    PolicyWay("the agent writes it", command=WRITE),
    PolicyWay("the agent writes the older file", command=WRITE_OLDER),
    PolicyWay(
        "the agent moves it into place",
        command="mkdir {root}/.intercom && cp {programs}/open.json {root}/p && mv {root}/p " + FILE,
    ),
    PolicyWay("the agent links it into place", command=LINK),
    PolicyWay("the agent accepts it", command=WRITE + "; {ctl} policy accept"),
    PolicyWay("the agent accepts it in a new POSIX session", command=WRITE + "; setsid -w {ctl} policy accept"),
    PolicyWay(
        "the agent runs init",
        command=WRITE + "; cd {root}; {python} -m intercom.cli.main init --write --client codex </dev/null",
    ),
    PolicyWay("the agent writes it and kills the server", command=WRITE + KILL),
    PolicyWay(
        "the agent inserts an acceptance by SQL and kills the server",
        command=WRITE + "; {python} {programs}/accept_policy.py {database} {root}" + KILL,
        needs_key=True,
    ),
    PolicyWay(
        "the agent trusts changes in its relay's environment",
        command=WRITE + "; INTERCOM_POLICY__TRUST_CHANGES=true {python} {programs}/kill_server.py {database}",
    ),
    PolicyWay(
        "it swaps between two contents",
        command="for n in 1 2 3 4 5; do echo '{{}}' >{root}/q; " + WRITE + "; done",
    ),
)
