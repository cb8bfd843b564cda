"""A thousand sessions in one server, each with a clearance pending: memory of each, and the time to answer them all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from typing import Any

import psutil

from intercom.agents.shim.launch import Options
from intercom.agents.shim.link import hello
from intercom.local.daemon import server_environment
from intercom.local.places import Places, places
from intercom.operators.ctl.client import request
from tests.bench.bench_rig import CLIENT, SHIM, home

SESSIONS = int(os.environ.get("HELD", "1000"))


class Agent:
    """An agent's connection as its shim holds it, without a process of its own."""

    def __init__(self, number: int, workspace: str, where: Places | None = None) -> None:
        where = where or places()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(where.mcp_socket)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(hello(f"{number:032x}", Options(workspace=workspace), where, []))
        self._lines.readline()
        self.ask(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tell(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def send(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.tell({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def receive(self, number: int) -> dict[str, Any]:
        while True:
            said: dict[str, Any] = json.loads(self._lines.readline())
            if said.get("id") == number:
                return said

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.send(number, method, params)
        return self.receive(number)

    def call(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        meta = {"intercom/call": f"held/{id(self)}/{number}"}
        self.send(number, "tools/call", {"name": tool, "arguments": arguments, "_meta": meta})


def main() -> None:
    with home() as root:
        # With the allocator's settings, as a relay or a service manager starts it.
        environ = {**os.environ, "GLIBC_TUNABLES": server_environment({})["GLIBC_TUNABLES"]}
        server = subprocess.Popen([*SHIM, "serve"], stderr=subprocess.DEVNULL, env=environ)
        while not os.path.exists(places().mcp_socket):
            time.sleep(0.05)
        one = Agent(0, str(root / "w"))
        one.call(1, "ping", {})
        one.receive(1)
        memory = psutil.Process(server.pid)
        before = memory.memory_info().rss
        began = time.perf_counter()
        agents = [Agent(number + 1, str(root / "w")) for number in range(SESSIONS)]
        for number, agent in enumerate(agents):
            proposal = {"title": f"change {number}", "diff": f"{number}\n", "file_path": f"f{number}.txt"}
            agent.call(1, "check_clearance", proposal)
        while len(waiting := request(places(), "pending", {})) < SESSIONS:
            time.sleep(0.1)
        opened = time.perf_counter() - began
        held = memory.memory_info().rss
        began = time.perf_counter()
        for card in waiting:
            request(places(), "approve", {"id": card["request_id"]})
        for agent in agents:
            answer = agent.receive(1)
            assert answer["result"]["structuredContent"]["status"] == "approved", answer
        answered = time.perf_counter() - began
        print(f"{SESSIONS} sessions, each with one pending clearance")
        print(
            f"  memory per session     {(held - before) / SESSIONS / 1024:8.1f} KiB   (server {held / 2**20:.0f} MiB)"
            "  to reach: <= 92"
        )
        print(f"  opening and asking     {opened:8.2f} s     ({SESSIONS / opened:.0f}/s)")
        print(f"  answering all          {answered:8.2f} s     ({SESSIONS / answered:.0f}/s)")
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
