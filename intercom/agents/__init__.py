"""The agents' side: the MCP tools, their server, and the shim in front of it."""
