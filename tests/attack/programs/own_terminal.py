"""Runs a command on a pseudo-terminal of its own, as a child: `own_terminal.py COMMAND...`."""

import os
import pty
import sys

sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
