"""Agents that people start: their processes, what they write, and what becomes of their sessions."""
