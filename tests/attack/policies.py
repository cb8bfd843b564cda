"""Ways to have a policy grant something that no person accepted, as a table.

`before` makes the workspace's tree before the agent's first call, `after` acts between its first call and its proposal.
Both get the workspace, and `after` the agent's shell too. A way that returns a path names another directory for the
agent to work in. Afterwards the agent proposes `path`: it must become a card, and nothing may pass by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

OPEN = json.dumps({"enabled": True, "file_patterns": {"write": ["**/*"]}, "tools": ["*"], "commands": ["*"]})
OLD = json.dumps({"autoApprove": {"enabled": True, "filePatterns": {"write": ["**/*"]}, "tools": ["*"]}})
NARROW = json.dumps({"enabled": True, "file_patterns": {"write": ["docs/**"]}})


@frozen
class PolicyWay:
    """`command` is what the agent's shell runs after its first call; {root} and {python} stand in it. `needs_key`
    says that only an operator key prevents it; the threat model names it."""

    name: str
    before: Callable[[Path], Path | None] | None = None
    command: str | None = None
    path: str = "src/main.py"
    needs_key: bool = False


def write(root: Path, text: str = OPEN, place: str = ".intercom/settings.json") -> None:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _cloned(root: Path) -> None:
    write(root)


def _cloned_old(root: Path) -> None:
    write(root, OLD, ".monocoque/settings.json")


def _nested(root: Path) -> Path:
    write(root / "vendor/lib")
    return root / "vendor/lib"


def _linked_file(root: Path) -> None:
    write(root, OPEN, "vendor/policy.json")
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").symlink_to("../vendor/policy.json")


def _linked_directory(root: Path) -> None:
    write(root, OPEN, "vendor/settings.json")
    (root / ".intercom").symlink_to("vendor")


def _linked_root(root: Path) -> Path:
    write(root)
    link = root.with_name(root.name + "-link")
    link.symlink_to(root)
    return link


def _dotted_root(root: Path) -> Path:
    write(root)
    return root / "." / ".." / root.name


def _above(root: Path) -> Path:
    write(root)
    (root / "inner").mkdir()
    return root / "inner"


def _git_root(root: Path) -> None:
    write(root)
    (root / ".git").mkdir()


def _fifo(root: Path) -> None:
    (root / ".intercom").mkdir()
    os.mkfifo(root / ".intercom/settings.json")


def _with_bom(root: Path) -> None:
    write(root, "\ufeff" + OPEN)


def _twice_a_key(root: Path) -> None:
    write(root, '{"enabled": false, ' + OPEN[1:])


def _quoted(text: str) -> str:
    """`text` as a shell's word in a command that is formatted once."""
    return "'" + text.replace("{", "{{").replace("}", "}}") + "'"


SETTINGS = "{root}/.intercom/settings.json"
WRITE = f"mkdir -p {{root}}/.intercom && printf '%s' {_quoted(OPEN)} >{SETTINGS}"

WAYS: tuple[PolicyWay, ...] = (
    PolicyWay("a cloned repository ships it", _cloned),
    PolicyWay("a cloned repository ships the older file", _cloned_old),
    PolicyWay("a nested directory ships it, and the agent works there", _nested),
    PolicyWay("the file is a link", _linked_file),
    PolicyWay("its directory is a link", _linked_directory),
    PolicyWay("the workspace is named through a link", _linked_root),
    PolicyWay("the workspace is named by a roundabout path", _dotted_root),
    PolicyWay("it stands in the directory above", _above),
    PolicyWay("a version-control root ships it", _git_root),
    PolicyWay("the file begins with a byte order mark", _with_bom),
    PolicyWay("a key stands in it twice", _twice_a_key),
    PolicyWay("the agent writes it", None, WRITE),
    PolicyWay(
        "the agent writes the older file",
        None,
        "mkdir {root}/.monocoque && echo " + _quoted(OLD) + " >{root}/.monocoque/settings.json",
    ),
    PolicyWay(
        "the agent moves it into place",
        None,
        "mkdir {root}/.intercom && echo " + _quoted(OPEN) + " >{root}/p && mv {root}/p " + SETTINGS,
    ),
    PolicyWay(
        "the agent links it into place",
        None,
        "mkdir {root}/.intercom && echo " + _quoted(OPEN) + " >{root}/p && ln -s ../p " + SETTINGS,
    ),
    PolicyWay("the agent accepts it", None, WRITE + "; {python} -m intercom.cli.ctl policy accept"),
    PolicyWay(
        "the agent accepts it in a new POSIX session",
        None,
        WRITE + "; setsid -w {python} -m intercom.cli.ctl policy accept",
    ),
    PolicyWay(
        "the agent runs init",
        None,
        WRITE + "; cd {root}; {python} -m intercom.cli.main init --write --client codex </dev/null",
    ),
    PolicyWay(
        "the agent writes it and kills the server", None, WRITE + "; {python} {programs}/kill_server.py {database}"
    ),
    PolicyWay(
        "the agent inserts an acceptance by SQL and kills the server",
        None,
        WRITE
        + "; {python} {programs}/accept_policy.py {database} {root}; {python} {programs}/kill_server.py {database}",
        needs_key=True,
    ),
    PolicyWay(
        "the agent trusts changes in its relay's environment",
        None,
        WRITE + "; INTERCOM_POLICY__TRUST_CHANGES=true {python} {programs}/kill_server.py {database}",
    ),
    PolicyWay(
        "it swaps between two contents", None, "for n in 1 2 3 4 5; do echo '{{}}' >{root}/q; " + WRITE + "; done"
    ),
)
