"""Agents over HTTP: streamable HTTP at /mcp, and /sse with /message for older clients."""
