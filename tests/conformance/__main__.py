"""Run the official MCP conformance suite's server scenarios that apply to us: `tox -e conformance`.

The suite speaks to a server with tools made for it; those scenarios that need them, or features that we do not offer,
are not run. It can show no token, so the server here asks for none (docs/explanation/decisions/http.md).

Then all scenarios run against the server that has these tools, without our gateway and through it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.conformance import through_gateway
from tests.support.server_process import TRUSTING, user_home

#: What applies to any server with tools, resources and prompts.
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
VARIABLE = "INTERCOM_CONFORMANCE"
_SECONDS = 120


def main() -> int:
    where = os.environ.get(VARIABLE)
    if not where or shutil.which("npm") is None:
        print(f"{VARIABLE} says where the suite is installed, and npm installs it: run tox -e conformance, with Node")
        return 2
    programs = install(Path(where))
    failed = 0
    with user_home("") as home:
        root = home.workspace()
        home.configure(f'http_port = 0\nhttp_token_required = false\ndefault_workspace_root = "{root}"\n{TRUSTING}')
        with home.serving():
            url = address(Path(home.places.http_address_file))
            for scenario in SCENARIOS:
                failed += not passes(programs, url, scenario)
    print(f"{len(SCENARIOS) - failed} of {len(SCENARIOS)} scenarios pass")
    is_same = through_gateway.run(programs)
    return 1 if failed or not is_same else 0


def install(where: Path) -> Path:
    """Install the suite, once; the directory of its programs."""
    programs = where / "node_modules" / ".bin"
    wanted = Path(__file__).with_name("package.json")
    if not (programs / "conformance").exists() or (where / "package.json").read_text() != wanted.read_text():
        where.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, where)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        subprocess.run(["npm", "install", *quiet], cwd=where, check=True)
    return programs


def address(file: Path) -> str:
    """Where MCP is served, once it is."""
    while not file.exists():
        time.sleep(0.05)
    return f"{file.read_text().strip()}/mcp"


def passes(programs: Path, url: str, scenario: str) -> bool:
    """Run one scenario, and print how it went; in full if it failed."""
    ran = subprocess.run(
        [programs / "conformance", "server", "--url", url, "--scenario", scenario],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    print(f"{'ok    ' if not ran.returncode else 'FAILED'} {scenario}", flush=True)
    if ran.returncode:
        print(ran.stdout, ran.stderr, flush=True)
    return not ran.returncode


if __name__ == "__main__":
    sys.exit(main())
