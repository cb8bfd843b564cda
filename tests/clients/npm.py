"""The clients from npm: where they are installed, and how. `python -m tests.clients.npm` installs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = HERE / "package.json"
#: The oldest Node that npm and the clients' launchers start on. What needs a newer one is run with the one installed.
NODE = 20
VARIABLE = "INTERCOM_CLIENTS"


class Missing(Exception):
    """What the clients need is not on this machine; the message says what to do."""


def directory() -> Path:
    """Where the packages are installed. Raises Missing when nothing has said where."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise Missing(f"{VARIABLE} is not set: run these tests with tox -e clients")
    return Path(named)


def program(name: str) -> str:
    """The path of a package's command. Raises Missing when it is not installed."""
    found = directory() / "node_modules" / ".bin" / name
    if not found.exists():
        raise Missing(f"{found} is not there: run tox -e clients, which installs it")
    return str(found)


def version(package: str) -> str:
    """The version of a package that is installed."""
    described: dict[str, Any] = json.loads((directory() / "node_modules" / package / "package.json").read_text())
    return str(described["version"])


def install(where: Path, packages: Path = PACKAGES) -> None:
    """Install what this package.json names, and put the drivers beside it, where their imports are found.

    Does nothing when that is done. Raises Missing without Node and npm.
    """
    _require_node()
    where.mkdir(parents=True, exist_ok=True)
    for driver in packages.parent.glob("*.mjs"):
        shutil.copy(driver, where)
    wanted = packages.read_text()
    done = where / "installed.json"
    if done.exists() and done.read_text() == wanted:
        return
    shutil.copy(packages, where)
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    subprocess.run(["npm", "install", *quiet], cwd=where, check=True)
    done.write_text(wanted)


def _require_node() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Missing(f"node and npm are not on the PATH: install Node {NODE} or newer to run the clients")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"v(\d+)", said)
    if found is None or int(found[1]) < NODE:
        raise Missing(f"node is {said.strip()}, and the clients need {NODE} or newer: put one first on the PATH")


if __name__ == "__main__":
    try:
        install(directory())
    except Missing as fault:
        sys.exit(str(fault))
