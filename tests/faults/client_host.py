"""A coding agent's host process: it launches the shim as its child, passes lines on, and has a shell.

A line `! COMMAND` on standard input is run by the shell, as an agent runs what its model wants; its output comes back
as one line of JSON. Every other line goes to the shim, whose lines come back as they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading


def main(command: list[str]) -> None:
    shim = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    threading.Thread(target=_pass_on, args=(shim,), daemon=True).start()
    for line in sys.stdin.buffer:
        if line.startswith(b"! "):
            done = subprocess.run(line[2:].decode(), shell=True, capture_output=True, text=True, check=False)
            said = {"shell": {"code": done.returncode, "out": done.stdout, "err": done.stderr}}
            sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            shim.stdin.write(line)
            shim.stdin.flush()
    shim.stdin.close()
    shim.wait()


def _pass_on(shim: subprocess.Popen[bytes]) -> None:
    assert shim.stdout is not None
    for line in shim.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
