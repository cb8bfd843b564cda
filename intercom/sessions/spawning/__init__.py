"""Agents that people start: their processes, their output, and the effects on their sessions."""
