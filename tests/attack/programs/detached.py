"""Runs a command far from its parent: `detached.py [--terminal] COMMAND...`. Double fork, new POSIX session; with
--terminal on a pseudo-terminal of its own, whose master stays with the detached process, for a minute at most."""

import os
import pty
import signal
import sys

words = sys.argv[1:]
terminal = words[:1] == ["--terminal"]
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
if terminal:
    signal.alarm(60)  # its end hangs the terminal up, and a command that still asks for a PIN ends
    os._exit(os.waitstatus_to_exitcode(pty.spawn(words[1:])))
os.execvp(words[0], words)
