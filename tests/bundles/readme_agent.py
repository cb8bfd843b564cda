"""An agent for a shell: `python readme_agent.py FILE TEXT`, in a project.

It starts the MCP server that `init --client codex` wrote down, as Codex does, proposes to add the file, waits for the
answer, and applies what was approved.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from pathlib import Path

#: What Codex passes on of its own environment, besides what the entry names.
PASSED_ON = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")


def main(name: str, text: str) -> None:
    from intercom.agents.clients.client import SERVER_NAME
    from tests.bench.bench_rig import Peer

    config = tomllib.loads(Path.home().joinpath(".codex/config.toml").read_text())
    entry = config["mcp_servers"][SERVER_NAME]
    for variable in {*os.environ} - {*PASSED_ON, *entry["env_vars"]}:
        del os.environ[variable]
    peer = Peer([entry["command"], *entry["args"]])
    peer.greet()
    lines = difflib.unified_diff([], [f"{text}\n"], "/dev/null", f"b/{name}")
    asked = {"title": f"Add {name}", "file_path": name, "diff": "".join(lines), "description": "It says hello."}
    number = peer.send("tools/call", {"name": "check_clearance", "arguments": asked})
    print("the agent waits", flush=True)
    answer = peer.receive(number)["result"]["structuredContent"]
    while answer["status"] == "pending":
        answer = peer.call("check_clearance", {"request_id": answer["request_id"]})["structuredContent"]
    print(f"the agent was told: {answer['status']}, {answer.get('rejection_reason')}")
    if answer["status"] == "approved":
        done = peer.call("check_diff", {"request_id": answer["request_id"]})["structuredContent"]
        print(f"check_diff said: {done['status']}")
    peer.close()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    main(*sys.argv[1:])
