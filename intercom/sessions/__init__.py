"""One agent's session: its actor, its stall detector and its protocol."""
