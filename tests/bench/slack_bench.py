"""From a tap in Slack to the agent's reply against a verdict by ctl of the same run; medians."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from intercom.local.places import places
from intercom.local.wire import connect
from intercom.operators.ctl.client import Watch
from tests.bench.bench_rig import SHIM, Peer, home, row
from tests.bench.ping_bench import card

VERDICTS = 60


class Slack:
    """The stand-in, in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.slack_peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        told = self.receive()
        self.environ: dict[str, str] = told["environ"]
        self.channel: str = told["channel"]

    def send(self, **wish: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wish) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, **wish: str) -> Any:
        self.send(**wish)
        return self.receive()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def main() -> None:
    with home() as root, slack_of(root) as slack, serving(root):
        agent = Peer([*SHIM, "--workspace", str(root / "w")])
        agent.greet()
        for number in range(10):
            by_tap(agent, slack, f"first {number}", 0.0)
            by_ctl(agent, slack, f"then {number}", 0.0)
        for pause, how in ((0.0, "call upon call"), (0.02, "every 20 ms")):
            taps, acks, verdicts = [], [], []
            # In turns, so that both meet the same noise.
            for number in range(VERDICTS):
                took, acked = by_tap(agent, slack, f"tap {how} {number}", pause)
                taps.append(took)
                acks.append(acked)
                verdicts.append(by_ctl(agent, slack, f"ctl {how} {number}", pause))
            verdict = statistics.median(verdicts)
            row(f"ctl's verdict to the agent's reply, {how}", verdict)
            row(f"a tap in Slack to the agent's reply, {how}", statistics.median(taps), verdict, "to reach: <= 2x")
            row(f"a tap in Slack to its acknowledgement, {how}", statistics.median(acks), verdict)
        agent.close()


@contextmanager
def slack_of(root: Path) -> Iterator[Slack]:
    """The stand-in, and a configuration that names it."""
    slack = Slack()
    os.environ.update(slack.environ)
    with (root / "c" / "agent-intercom" / "config.toml").open("a") as config:
        config.write(f'\n[slack]\nchannel_id = "{slack.channel}"\n')
    try:
        yield slack
    finally:
        slack.close()


@contextmanager
def serving(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in the foreground: with Slack on it is nobody's background server."""
    hear, tell = os.pipe()
    server = subprocess.Popen(
        [*SHIM, "serve", "--ready-fd", str(tell)], pass_fds=[tell], stderr=(root / "server.log").open("ab")
    )
    os.close(tell)
    with os.fdopen(hear) as news:
        assert json.loads(news.readline() or "{}") == {"ready": True}, (root / "server.log").read_text()
    try:
        yield server
    finally:
        server.terminate()
        server.wait(20)


def by_tap(agent: Peer, slack: Slack, name: str, pause: float) -> tuple[float, float]:
    """Seconds from the tap's envelope leaving Slack to the agent having its answer, and to Slack having the ack."""
    asked = agent.send("tools/call", proposal(name))
    ts = slack.ask(card=name)
    time.sleep(pause)
    slack.send(tap=ts)
    answer = agent.receive(asked)
    came = time.monotonic()
    assert answer["result"]["structuredContent"]["status"] == "approved", answer
    told = slack.ask(over=ts)
    return came - told["left"], told["acked"] - told["left"]


def by_ctl(agent: Peer, slack: Slack, name: str, pause: float) -> float:
    """Seconds from ctl sending `approve` to the agent having its answer; the card is in Slack as well."""
    where = places()
    with Watch(where) as watch:
        asked = agent.send("tools/call", proposal(name))
        id = card(watch, name)
    ts = slack.ask(card=name)
    with connect(where.ctl_socket) as ctl, open(where.token_file, encoding="ascii") as token:
        wish = {"command": "approve", "id": id, "verdict_id": uuid.uuid4().hex, "auth_token": token.read().strip()}
        line = json.dumps(wish).encode() + b"\n"
        time.sleep(pause)
        began = time.monotonic()
        ctl.sendall(line)
        answer = agent.receive(asked)
        took = time.monotonic() - began
        assert json.loads(ctl.makefile("rb").readline())["ok"] is True
    assert answer["result"]["structuredContent"]["status"] == "approved", answer
    slack.ask(over=ts)
    return took


def proposal(name: str) -> dict[str, Any]:
    return {"name": "check_clearance", "arguments": {"title": name, "diff": f"{name}\n", "file_path": f"{name}.txt"}}


if __name__ == "__main__":
    main()
