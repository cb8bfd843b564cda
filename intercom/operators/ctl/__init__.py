"""The local channel: a Unix socket that only the user of the server can open."""
