"""Rooms for agents on any machine: MCP at /api/mcp, plain HTTP below /api/sessions, and instructions at /agents.md."""
