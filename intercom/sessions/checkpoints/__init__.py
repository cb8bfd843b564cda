"""Checkpoints of a session and its files: taking, comparing, restoring, and the session that follows."""
