"""The titles of the known MCP clients. A client gives itself a name such as `codex-mcp-client`; people see its title.

Standard library only: hooks read these at their start.
"""

from __future__ import annotations

from typing import Final

#: The titles by the beginnings of the clients' names over MCP, in lower case.
CLIENT_TITLES: Final = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "copilot": "Copilot CLI",
    "cursor": "Cursor",
    "gemini-cli": "Gemini CLI",
    "github-copilot": "GitHub Copilot",
    "opencode": "opencode",
    "qwen-cli": "Qwen Code",
    "qwen-code": "Qwen Code",
    "visual studio code": "VS Code",
    "vscode": "VS Code",
}


def title_of(client_name: str | None) -> str | None:
    """Return how people know the client with this name over MCP: the title of a known client, else the name itself.
    The longest known beginning counts."""
    name = (client_name or "").lower()
    found = [beginning for beginning in CLIENT_TITLES if name.startswith(beginning)]
    return CLIENT_TITLES[max(found, key=len)] if found else client_name
