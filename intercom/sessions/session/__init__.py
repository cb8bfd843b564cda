"""The session actor: what one agent asks for, what waits, what has to reach it, and the detector of its stalls."""
