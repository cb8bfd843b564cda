"""ping through the shim against a bare SDK server's echo, and from ctl's verdict to the agent's reply; medians."""

from __future__ import annotations

import statistics
import sys
import threading
import time

from intercom.local.places import places
from intercom.operators.ctl.client import request
from tests.bench.bench_rig import SHIM, Peer, home, row, timed

CALLS = 400
VERDICTS = 60


def main() -> None:
    with home() as root:
        ours = Peer([*SHIM, "--workspace", str(root / "w")])
        bare = Peer([sys.executable, "-m", "tests.bench.bare_server"])
        for peer, tool in ((ours, "ping"), (bare, "echo")):
            peer.greet()
            for _ in range(50):
                peer.call(tool, {})
        # In turns, so that both meet the same noise.
        pings, echoes = [], []
        for _ in range(8):
            pings.append(timed(lambda: ours.call("ping", {}), CALLS // 8))
            echoes.append(timed(lambda: bare.call("echo", {}), CALLS // 8))
        ping, echo = statistics.median(pings), statistics.median(echoes)
        verdicts = [verdict(ours, number) for number in range(VERDICTS)]
        row("bare SDK server, echo", echo)
        row("ping through the shim", ping, echo, "to reach: <= 1.5x")
        row("from ctl's verdict to the agent's reply", statistics.median(verdicts), ping, "to reach: <= 3x")
        ours.close()
        bare.close()


def verdict(agent: Peer, number: int) -> float:
    """Seconds from ctl sending `approve` to the agent having its answer."""
    asked = agent.send("tools/call", {"name": "check_clearance", "arguments": proposal(number)})
    while not (waiting := request(places(), "pending", {})):
        time.sleep(0.002)
    fields = {"id": waiting[0]["request_id"]}
    time.sleep(0.01)
    began = time.perf_counter()
    act = threading.Thread(target=request, args=(places(), "approve", fields))
    act.start()
    answer = agent.receive(asked)
    took = time.perf_counter() - began
    act.join()
    assert answer["result"]["structuredContent"]["status"] == "approved", answer
    return took


def proposal(number: int) -> dict[str, str]:
    return {"title": f"change {number}", "diff": f"{number}\n", "file_path": f"file-{number}.txt"}


if __name__ == "__main__":
    main()
