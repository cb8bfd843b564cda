"""Says one decision on the local socket by hand: `raw_socket.py ID [COMMAND] [FIELD=VALUE ...]`.

`signature=NAME` says a signed decision, with every field that one has, of the key NAME.
"""

import json
import os
import socket
import sys
from datetime import UTC, datetime

directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
with open(os.path.join(directory, "agent-intercom.token")) as file:
    token = file.read().strip()
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.connect(os.path.join(directory, "agent-intercom.sock"))
command = sys.argv[2] if len(sys.argv) > 2 else "approve"
fields: dict[str, object] = dict(each.split("=", 1) for each in sys.argv[3:])
if "signature" in fields:
    signed = dict.fromkeys(("subject", "decision_id", "method", "value"), "AAAA")
    said = {"request_id": sys.argv[1], "decision": command, "at": datetime.now(UTC).isoformat(), "risk": "low"}
    fields["signature"] = {**signed, **said, "text": None, "key_id": fields["signature"]}
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
