"""Runs a command with somebody else's terminal as its standard streams: `other_terminal.py TTY COMMAND...`."""

import os
import sys

if os.fork():
    os._exit(0)
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)  # a session leader without one takes a free terminal by opening it
for stream in (0, 2):
    os.dup2(terminal, stream)
os.execvp(sys.argv[2], sys.argv[2:])
