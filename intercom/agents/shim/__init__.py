"""The relay that an MCP client launches: it finds or starts the server and survives it. Standard library only."""
