"""Says one decision on the local socket by hand: `raw_socket.py ID [COMMAND] [FIELD=VALUE ...]`."""

import json
import os
import socket
import sys

directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
with open(os.path.join(directory, "agent-intercom.token")) as file:
    token = file.read().strip()
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.connect(os.path.join(directory, "agent-intercom.sock"))
command = sys.argv[2] if len(sys.argv) > 2 else "approve"
fields = dict(each.split("=", 1) for each in sys.argv[3:])
if "child" in fields:
    # The connection is used by a grandchild in a POSIX session of its own, when the process that made it is gone.
    del fields["child"]
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
link.sendall(json.dumps({"command": command, "id": sys.argv[1], "auth_token": token, **fields}).encode() + b"\n")
print(link.makefile().readline().strip(), flush=True)
