"""One agent's session: its actor, its stall detector, its protocol."""
