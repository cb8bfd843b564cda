"""The `/intercom` command: one table of commands, and what each does."""
