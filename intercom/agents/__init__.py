"""The agents' side: the MCP server, its transports, and the shim in front of it. The tools are in `sessions/tools`."""
