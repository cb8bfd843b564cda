"""The gateway: agents reach other MCP servers through it, checked, metered and recorded."""
