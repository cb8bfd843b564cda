"""Rendering of cards, sessions, notices and files for Slack. Pure, and valid for any input."""
