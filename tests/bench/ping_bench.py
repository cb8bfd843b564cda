"""ping through the shim against a bare SDK server's echo, and from ctl's verdict to the agent's reply; medians.

Both ways: call upon call, which keeps every process warm, and one call every 20 ms, as calls come in life.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable

from intercom.local.places import places
from intercom.operators.ctl.client import Watch, request
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
    time.sleep(pause)
    act = threading.Thread(target=request, args=(places(), "approve", {"id": id}))
    began = time.perf_counter()
    act.start()
    answer = agent.receive(asked)
    took = time.perf_counter() - began
    act.join()
    assert answer["result"]["structuredContent"]["status"] == "approved", answer
    return took


def card(watch: Watch, title: str) -> str:
    while True:
        for event in watch.read():
            if event["event"] == "card" and event["data"]["title"] == title:
                id: str = event["data"]["request_id"]
                return id


if __name__ == "__main__":
    main()
