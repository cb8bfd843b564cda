"""The `/intercom` command: the table of commands and their handlers."""
