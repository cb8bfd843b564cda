"""MCP servers from PyPI: installed once into an environment of their own, beside the clients from npm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clients import npm

#: At the versions of the releases that npm's packages of the same project are from.
PACKAGES = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")


def program(name: str) -> str:
    """The path of a package's command; installs all packages if that was not done. Raises what pip's end raises."""
    where = npm.directory() / "python"
    found = where / "bin" / name
    if not found.exists():
        _install(where)
    return str(found)


def _install(where: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", where], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([where / "bin" / "python", "-m", "pip", "install", *quiet, *PACKAGES], check=True)
