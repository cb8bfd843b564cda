"""The agents' side: MCP tools, the server they talk to and the shim in front of it."""
