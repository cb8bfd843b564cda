"""Agents' sessions: their registry, actors and tools, and what people do with them (`operator_service`)."""
