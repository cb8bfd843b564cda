"""MCP servers from PyPI: installed once into environments of their own, beside the clients from npm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.clients import npm

#: At the versions of the releases that npm's packages of the same project are from.
PACKAGES = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
#: Needs other versions of the libraries that those need.
FASTMCP = ("fastmcp==4.2.3",)
#: Agent frameworks and model providers' libraries, at the versions that docs/reference/clients.md names.
FRAMEWORKS = (
    "google-genai==2.34.0",
    "openai-agents==0.24.0",
    "pydantic-ai-slim[google,mcp,openai]==2.68.0",
)
#: Its adapter needs an older SDK of MCP.
LANGGRAPH = ("langchain-mcp-adapters==0.3.2", "langgraph==1.2.24")
#: MCP's own SDK for Python, at the oldest and the newest version of 1.x that docs/reference/clients.md names.
OLDER_SDKS = {
    # It imports a private name of pydantic that is gone in 2.12.
    "1.9": ("mcp==1.9.4", "pydantic==2.11.10"),
    "1.30": ("mcp==1.30.0",),
}
#: Between a client that speaks HTTP and a server that speaks stdio.
BRIDGE = ("mcp-proxy==0.13.0",)


def mcp_proxy() -> str:
    """The path of mcp-proxy; installs it if that was not done. Raises what pip's end raises."""
    return _program("bridges", "mcp-proxy", BRIDGE)


def program(name: str) -> str:
    """The path of a package's command; installs all packages if that was not done. Raises what pip's end raises."""
    return _program("python", name, PACKAGES)


def fastmcp_python() -> str:
    """The path of a Python that has FastMCP; installs it if that was not done. Raises what pip's end raises."""
    return _python("fastmcp", "fastmcp", FASTMCP)


def frameworks_python() -> str:
    """The path of a Python that has the agent frameworks; installs them as `fastmcp_python` does."""
    return _python("frameworks", "pai", FRAMEWORKS)


def langgraph_python() -> str:
    """The path of a Python that has LangGraph and its adapter; installs them as `fastmcp_python` does."""
    return _python("langgraph", "mcp", LANGGRAPH)


def sdk_python(version: str) -> str:
    """The path of a Python that has one of OLDER_SDKS; installs it as `fastmcp_python` does."""
    return _python(f"sdk-{version}", "mcp", OLDER_SDKS[version])


def _python(environment: str, command: str, packages: Sequence[str]) -> str:
    # The command is there as soon as the packages are.
    return str(Path(_program(environment, command, packages)).with_name("python"))


def _program(environment: str, name: str, packages: Sequence[str]) -> str:
    where = npm.directory() / environment
    found = where / "bin" / name
    if not found.exists():
        _install(where, packages)
    return str(found)


def _install(where: Path, packages: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", where], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([where / "bin" / "python", "-m", "pip", "install", *quiet, *packages], check=True)
