"""ping through the shim against a bare SDK server's echo, and from ctl's verdict to the agent's reply; medians.

Both ways: call upon call, which keeps every process warm, and one call every 20 ms, as calls come in life.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable

from intercom.local.places import places
from intercom.local.wire import connect
from intercom.operators.ctl.client import Watch
from tests.bench.bench_rig import SHIM, Peer, home, row

ROUNDS = 10
CALLS = 40
VERDICTS = 60


def main() -> None:
    with home() as root:
        ours = Peer([*SHIM, "--workspace", str(root / "w")])
        bare = Peer([sys.executable, "-m", "tests.bench.bare_server"])
        for peer, tool in ((ours, "ping"), (bare, "echo")):
            peer.greet()
            for _ in range(50):
                peer.call(tool, {})
        for pause, how in ((0.0, "call upon call"), (0.02, "every 20 ms")):
            pings, echoes, verdicts = [], [], []
            # In turns, so that all meet the same noise.
            for turn in range(ROUNDS):
                pings.append(median(lambda: ours.call("ping", {}), CALLS, pause))
                echoes.append(median(lambda: bare.call("echo", {}), CALLS, pause))
                for number in range(VERDICTS // ROUNDS):
                    verdicts.append(verdict(ours, f"{how} {turn} {number}", pause))
            ping, echo = statistics.median(pings), statistics.median(echoes)
            row(f"bare SDK server, echo, {how}", echo)
            row(f"ping through the shim, {how}", ping, echo, "to reach: <= 1.5x")
            row(f"ctl's verdict to the agent's reply, {how}", statistics.median(verdicts), ping, "to reach: <= 3x")
        ours.close()
        bare.close()


def median(work: Callable[[], object], count: int, pause: float) -> float:
    times = []
    for _ in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def verdict(agent: Peer, name: str, pause: float) -> float:
    """Seconds from ctl sending `approve` to the agent having its answer."""
    proposal = {"title": name, "diff": f"{name}\n", "file_path": f"{name}.txt"}
    with Watch(places()) as watch:
        asked = agent.send("tools/call", {"name": "check_clearance", "arguments": proposal})
        id = card(watch, name)
    where = places()
    with connect(where.ctl_socket) as ctl, open(where.token_file, encoding="ascii") as token:
        wish = {"command": "approve", "id": id, "verdict_id": uuid.uuid4().hex, "auth_token": token.read().strip()}
        line = json.dumps(wish).encode() + b"\n"
        time.sleep(pause)
        began = time.perf_counter()
        ctl.sendall(line)
        answer = agent.receive(asked)
        took = time.perf_counter() - began
        assert json.loads(ctl.makefile("rb").readline())["ok"] is True
    assert answer["result"]["structuredContent"]["status"] == "approved", answer
    return took


def card(watch: Watch, title: str) -> str:
    while True:
        for event in watch.read():
            if event.name == "card" and event.data["title"] == title:
                return str(event.data["request_id"])


if __name__ == "__main__":
    main()
