"""The local channel: a person at this machine, over a socket only they can open."""
