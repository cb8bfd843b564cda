"""Ends the server at once, and with --wait comes back when its socket answers nobody: `kill_server.py DATABASE`."""

import json
import os
import signal
import sys

with open(sys.argv[1] + ".lock") as file:
    os.kill(int(json.loads(file.readline())["pid"]), signal.SIGKILL)
