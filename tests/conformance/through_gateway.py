"""The conformance suite before the gateway: each scenario gives the same result through it as without it.

The downstream is the server that the suite's authors test the suite with. All scenarios pass against it directly, over
HTTP. Then it is the only downstream of a server with a gateway, under its tools' own names, and the same scenarios run
against that server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.support.person_shell import the_person
from tests.support.server_process import CTL, TRUSTING, Home, user_home

#: The downstream. It is a copy, because the suite's package does not have it. Its imports are found beside the suite.
EVERYTHING = Path(__file__).with_name("everything-server.ts")
NAME = "everything"
CONFIG = f"http_port = 0\nhttp_token_required = false\n{TRUSTING}\n[gateway]\nenabled = true\n"
ROLES: Mapping[str, Any] = {"roles": [{"role": "all", "capabilities": ["*.*"]}], "defaultRole": "all"}
#: What our server does otherwise than the downstream by its own decision, by scenario, with the reason.
OURS: Mapping[str, str] = {}
_SUITE_SECONDS = 300
_START_SECONDS = 60
_SAVED = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class Grade(IntEnum):
    """How a scenario went: by its worst check, `ABSENT` if it did not even end."""

    PASSED = 0
    WARNED = 1
    FAILED = 2
    ABSENT = 3

    def __str__(self) -> str:
        return self.name.lower()


@frozen
class Result:
    """The result of one scenario. `reasons` are the checks that did not pass, with what they say."""

    grade: Grade
    checks: int = 0
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.grade} ({self.checks})"


NOTHING = Result(Grade.ABSENT)
_GRADES: Mapping[str, Grade] = {"WARNING": Grade.WARNED, "FAILURE": Grade.FAILED}


@frozen
class Comparison:
    """One scenario: without the gateway, and through it."""

    scenario: str
    direct: Result
    through: Result

    @property
    def is_worse(self) -> bool:
        """Whether the gateway makes a difference that is not our server's own decision."""
        return self.scenario not in OURS and (
            self.through.grade > self.direct.grade or self.through.checks < self.direct.checks
        )

    @property
    def remark(self) -> str:
        if self.direct == self.through:
            return ""
        return OURS.get(self.scenario, "THE GATEWAY MAKES IT WORSE" if self.is_worse else "")


def run(programs: Path) -> bool:
    """Run all scenarios both ways and print a table. Returns whether the gateway makes none worse."""
    with user_home(CONFIG) as home, everything(programs, home.root / "everything.log") as url:
        direct = results(programs, url, home.root / "direct")
        configure(home, url)
        with home.serving():
            wait_until_ready(home)
            through = results(programs, own_url(home), home.root / "through")
    return show([Comparison(each, direct.get(each, NOTHING), through.get(each, NOTHING)) for each in direct])


def show(compared: list[Comparison]) -> bool:
    """Print the table, and what failed through the gateway. Returns whether the gateway makes nothing worse."""
    print(f"\n{'scenario':32}{'direct':14}{'through':14}")
    for each in compared:
        print(f"{each.scenario:32}{each.direct!s:14}{each.through!s:14}{each.remark}")
    worse = [each for each in compared if each.is_worse]
    for each in worse:
        print(f"\n{each.scenario}:", *each.through.reasons, sep="\n  ")
    passed = sum(each.direct.grade is Grade.PASSED for each in compared)
    print(f"{passed} of {len(compared)} scenarios pass directly; the gateway makes {len(worse)} worse")
    return bool(passed) and not worse


# --- the downstream --------------------------------------------------------------------------------------------------


@contextmanager
def everything(programs: Path, log: Path) -> Iterator[str]:
    """The downstream, running; its address."""
    where = programs.parent.parent
    shutil.copy(EVERYTHING, where)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    with log.open("wb") as said:
        process = subprocess.Popen(
            # Symbolic links are kept: the packages may be another directory's.
            [programs / "node", "--preserve-symlinks", "--preserve-symlinks-main", EVERYTHING.name],
            cwd=where,
            env={**os.environ, "PORT": str(port)},
            stdout=said,
            stderr=said,
        )
        try:
            until = time.monotonic() + _START_SECONDS
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{EVERYTHING.name} does not start:\n{log.read_text()}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


# --- our server ------------------------------------------------------------------------------------------------------


def configure(home: Home, url: str) -> None:
    """Put the downstream behind the gateway of this user's server, as the only one, under its tools' own names."""
    home.configure(f'default_workspace_root = "{home.workspace()}"\n{CONFIG}')
    directory = Path(home.places.gateway_directory)
    directory.mkdir(parents=True)
    settings = {
        "name": NAME,
        "transport": "http",
        "baseURL": url,
        "capabilities": [f"{NAME}.*"],
        "prefix": False,
        "schemaVersion": "1.0.0",
    }
    (directory / f"{NAME}.json").write_text(json.dumps(settings))
    (directory / "roles.json").write_text(json.dumps(ROLES))


def wait_until_ready(home: Home) -> None:
    """Wait until the downstream's tools are known."""
    until = time.monotonic() + _START_SECONDS
    while True:
        done = the_person().run([*CTL, "gateway", "list"], home.environ)
        found = json.loads(done.stdout or "{}").get("downstreams") or [{}]
        if found[0].get("tools"):
            return
        if time.monotonic() > until:
            raise SystemExit(f"the gateway does not reach {NAME}: {done.stdout} {done.stderr}")
        time.sleep(0.1)


def own_url(home: Home) -> str:
    """Where agents reach our server."""
    return f"{Path(home.places.http_address_file).read_text().strip()}/mcp"


# --- the suite -------------------------------------------------------------------------------------------------------


def results(programs: Path, url: str, into: Path) -> dict[str, Result]:
    """Run all scenarios for servers against this address. What the checks say is kept below `into`."""
    ran = subprocess.run(
        [programs / "conformance", "server", "--url", url, "--suite", "all", "--output-dir", into],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=_SUITE_SECONDS,
        check=False,
    )
    named = re.findall(r"^=== Running scenario: (.+) ===$", ran.stdout, re.MULTILINE)
    if not named:
        raise SystemExit(f"the suite ran no scenario against {url}:\n{ran.stdout}{ran.stderr}")
    found = dict.fromkeys(named, NOTHING)
    for directory in sorted(into.iterdir()):
        saved = _SAVED.fullmatch(directory.name)
        if saved is not None:
            found[saved["scenario"]] = result_of(json.loads((directory / "checks.json").read_text()))
    return found


def result_of(checks: list[dict[str, Any]]) -> Result:
    """Grade a scenario by its checks. What only informs does not count."""
    counted = [each for each in checks if each["status"] not in ("INFO", "SKIPPED")]
    reasons = [each for each in counted if each["status"] != "SUCCESS"]
    grade = max((_GRADES.get(each["status"], Grade.PASSED) for each in counted), default=Grade.PASSED)
    said = tuple(f"{each['id']}: {each.get('errorMessage') or each['description']}" for each in reasons)
    return Result(grade, len(counted), said)
