"""What is in each bundle: files by their path, made from the package's own metadata and the clients' entries. Pure,
except that it reads the package's files.

A bundle never names a package on an index to run: `.mcpb` has our code in it, and the plugin and the extension start
the `agent-intercom` that is installed. Only `server.json` names PyPI, where the registry checks that the name is ours.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Final
from urllib.parse import quote

from intercom._version import __version__
from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import A_DAY_SECONDS, SERVER_NAME
from intercom.cli import init_instructions
from intercom.model.json_types import Json, JsonObject
from intercom.sessions.tools.tool_table import TOOLS

ROOT: Final = Path(__file__).parents[2]
#: The namespace in the MCP registry: a placeholder that nobody owns. Publishing needs proof that one owns it.
NAMESPACE: Final = "io.github.agent-intercom"
REGISTRY_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
#: The longest description that the registry takes, in characters.
DESCRIPTION_LIMIT: Final = 100
#: What of the source tree an installation is built from.
_SOURCES: Final = ("pyproject.toml", "setup.cfg", "LICENSE", "README.md")
_PACKAGES: Final = ("actors", "intercom")
_PAGE: Final = (".html", ".js", ".css", ".svg", ".png", ".txt", ".webmanifest")
_SUFFIXES: Final = frozenset({".py", ".json", ".typed", *_PAGE})
#: The time in all archives: the same files give the same bytes.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

_PLUGIN_README: Final = """\
# Intercom for Claude Code

{description}.

With this plugin Claude Code starts `agent-intercom` as an MCP server. Claude asks with `check_clearance` before it
changes files, the call waits, and you answer with `agent-intercom-ctl` from a terminal of your own, or in Slack. What
you approved is what is written. The slash commands `away`, `back`, `status`, `checkpoint` and `ask` come with it.

Install the program first, so that `agent-intercom` is on the PATH, and check with `agent-intercom doctor`. The plugin
has no permission hooks, because a hook denies while its program cannot start:
`agent-intercom init --write --client claude-code --hooks` installs them.
"""

Files = Mapping[str, bytes]


def metadata() -> Mapping[str, str]:
    """Return the package's metadata."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return dict(parser["metadata"])


def registry_name(namespace: str = NAMESPACE) -> str:
    return f"{namespace}/{SERVER_NAME}"


def fault_of_release(namespace: str) -> str | None:
    """Say why the registry would refuse a release under this namespace; None if it would not for what is known here.
    It asks whoever publishes to prove that the namespace is theirs."""
    if namespace == NAMESPACE:
        return f"{NAMESPACE} is a placeholder: name the namespace that you own with --namespace io.github.NAME"
    line = f"<!-- mcp-name: {registry_name(namespace)} -->"
    if line not in (ROOT / "README.md").read_text():
        return f"the registry looks for the name in the package's description: write {line} in README.md first"
    return None


def server_json(namespace: str = NAMESPACE, release: tuple[str, str] | None = None) -> JsonObject:
    """Return the entry in the MCP registry. `release` is the address of the published .mcpb and its SHA-256."""
    packages: list[Json] = [
        {
            "registryType": "pypi",
            "identifier": metadata()["name"],
            "version": __version__,
            "runtimeHint": "uvx",
            "transport": {"type": "stdio"},
        }
    ]
    if release is not None:
        address, digest = release
        packages.append(
            {"registryType": "mcpb", "identifier": address, "fileSha256": digest, "transport": {"type": "stdio"}}
        )
    return {
        "$schema": REGISTRY_SCHEMA,
        "name": registry_name(namespace),
        "title": "Intercom",
        "description": metadata()["description"],
        "version": __version__,
        "packages": packages,
    }


def mcpb_manifest() -> JsonObject:
    """Return the manifest of the MCP bundle. Its host installs our code from the bundle's own directory with uv."""
    about = metadata()
    start: list[Json] = [
        "tool",
        "run",
        "--from",
        "${__dirname}",
        SERVER_NAME,
        "--workspace",
        "${user_config.workspace}",
    ]
    return {
        "manifest_version": "0.4",
        "name": SERVER_NAME,
        "display_name": "Intercom",
        "version": __version__,
        "description": about["description"],
        "author": {"name": about["author"]},
        "license": about["license"],
        "keywords": _keywords(),
        "server": {
            "type": "uv",
            "entry_point": "intercom/cli/main.py",
            "mcp_config": {"command": "uv", "args": start},
        },
        "tools": [{"name": tool.name, "description": tool.title} for tool in TOOLS],
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
        "user_config": {
            "workspace": {
                "type": "directory",
                "title": "Workspace",
                "description": "The directory in which the agent may propose changes.",
                "required": True,
            }
        },
    }


def mcpb_files() -> Files:
    """Return the files of the MCP bundle: its manifest and the source tree."""
    files = {"manifest.json": text(mcpb_manifest())}
    files |= {name: (ROOT / name).read_bytes() for name in _SOURCES}
    for package in _PACKAGES:
        for file in sorted((ROOT / package).rglob("*")):
            if file.is_file() and not file.is_symlink() and file.suffix in _SUFFIXES:
                files[file.relative_to(ROOT).as_posix()] = file.read_bytes()
    return files


def plugin_files() -> Files:
    """Return the Claude Code plugin, inside a marketplace that lists only this plugin."""
    about = metadata()
    plugin: JsonObject = {
        "name": SERVER_NAME,
        "version": __version__,
        "description": about["description"],
        "author": {"name": about["author"]},
        "license": about["license"],
        "keywords": _keywords(),
    }
    listed: JsonObject = {
        "name": SERVER_NAME,
        "source": f"./{SERVER_NAME}",
        "description": about["description"],
    }
    marketplace: JsonObject = {
        "name": "intercom",
        "owner": {"name": about["author"]},
        "metadata": {"description": "Intercom for Claude Code"},
        "plugins": [listed],
    }
    servers: JsonObject = {"mcpServers": {SERVER_NAME: entry("claude-code")}}
    readme = _PLUGIN_README.format(description=about["description"])
    return {
        ".claude-plugin/marketplace.json": text(marketplace),
        f"{SERVER_NAME}/.claude-plugin/plugin.json": text(plugin),
        f"{SERVER_NAME}/.mcp.json": text(servers),
        f"{SERVER_NAME}/README.md": readme.encode(),
    }


def extension_files() -> Files:
    """Return the Gemini CLI extension. Its context file has the instructions that `init` writes."""
    server: JsonObject = {"command": SERVER_NAME, "args": [], "timeout": A_DAY_SECONDS * 1000}
    extension: JsonObject = {
        "name": SERVER_NAME,
        "version": __version__,
        "description": metadata()["description"],
        "mcpServers": {SERVER_NAME: server},
        "contextFileName": "GEMINI.md",
    }
    return {
        "gemini-extension.json": text(extension),
        "GEMINI.md": init_instructions.TEXT.encode(),
    }


def entry(client: str) -> JsonObject:
    """Return the client's entry that starts the installed program over stdio, found on the PATH."""
    return CLIENTS[client].entry.stdio([SERVER_NAME])


def vscode_link() -> str:
    """Return the link that has VS Code offer to install the server."""
    said = json.dumps({"name": SERVER_NAME, **entry("vscode")}, separators=(",", ":"))
    return f"vscode:mcp/install?{quote(said, safe='')}"


def cursor_link() -> str:
    """Return the link that has Cursor offer to install the server."""
    said = json.dumps(entry("cursor"), separators=(",", ":")).encode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={SERVER_NAME}&config={quote(b64encode(said), safe='')}"


def archive(files: Files) -> bytes:
    """Return a zip archive of these files. The same files give the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archived:
        for name in sorted(files):
            about = zipfile.ZipInfo(name, _EPOCH)
            about.external_attr = 0o644 << 16
            archived.writestr(about, files[name], zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _keywords() -> list[Json]:
    return [*re.split(r",\s*", metadata()["keywords"])]


def text(value: JsonObject) -> bytes:
    """Return a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
