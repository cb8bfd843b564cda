"""From a decision to the agent's reply, turn by turn: without an operator key, with one (signing included), and, where
DECISION_PEER names another checkout of this project, there. `to reach`: at most 1.1 times the peer."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROUNDS = 150
TURNS = 4


def side(how: str) -> list[float]:
    """Milliseconds from each decision to its reply, in a server of its own. Imports what PYTHONPATH names first."""
    from intercom.local.places import places
    from intercom.operators.ctl.client import request
    from tests.bench.bench_rig import home
    from tests.bench.held_bench import Agent

    taken: list[float] = []
    with home() as root:
        key = _key() if how == "key" else None
        server = subprocess.Popen(
            [sys.executable, "-m", "intercom.cli.main", "serve"], stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        while not os.path.exists(places().mcp_socket):
            time.sleep(0.05)
        if key is not None:
            _enrol(key)
        agent = Agent(1, str(root / "w"))
        for number in range(1, ROUNDS + 1):
            proposal = {"title": f"change {number}", "diff": f"{number}\n", "file_path": f"f{number}.txt"}
            agent.call(number, "check_clearance", proposal)
            while not (waiting := request(places(), "pending", {})):
                time.sleep(0.001)
            card = waiting[0]
            began = time.perf_counter()
            request(places(), "approve", {"id": card["request_id"], **(_signed(key, card) if key else {})})
            answer = agent.receive(number)
            taken.append((time.perf_counter() - began) * 1000)
            assert answer["result"]["structuredContent"]["status"] == "approved", answer
        server.terminate()
        server.wait(30)
    return taken[ROUNDS // 10 :]


def _key() -> Any:
    from intercom.local import operator_keys
    from intercom.local.places import places

    kept = operator_keys.create(places(), "correct horse", "bench", "2026-11-23T08:00:00.000000+00:00")
    return kept.key, operator_keys.unlock(kept, "correct horse")


def _enrol(key: Any) -> None:
    """Make the key count in the server that runs."""
    from intercom.cli.ctl_sign import key_fields
    from intercom.local.places import places
    from intercom.operators.ctl.client import request

    public, private = key
    signature = key_fields("add", public.public, public.name, public.id, private.sign)
    request(places(), "key-add", {"public": public.public, "name": public.name, "signature": signature})


def _signed(key: Any, card: dict[str, Any]) -> dict[str, Any]:
    """The fields that carry the signature of an approval of this card, as ctl makes them."""
    from intercom.cli.ctl_sign import _stated, _with_signature
    from intercom.model import signing

    public, private = key
    said = {
        "request_id": card["request_id"],
        "subject": signing.card_subject(card),
        "risk": card["risk_level"],
        "decision": "approve",
        "text": None,
    }
    stated = _stated(said, public.id, signing.PIN)
    return _with_signature({}, stated, private.sign(signing.statement(stated)).hex())


def main() -> None:
    here = str(Path(__file__).resolve().parents[2])
    sides = {"no key": here, "key": here}
    if peer := os.environ.get("DECISION_PEER"):
        sides = {"peer": str(Path(peer).resolve()), **sides}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, checkout in sides.items():
            done = subprocess.run(
                [sys.executable, "-P", __file__, name],
                env={**os.environ, "PYTHONPATH": checkout},
                cwd=checkout,
                capture_output=True,
                text=True,
                check=True,
            )
            taken[name] += json.loads(done.stdout.splitlines()[-1])
    first = statistics.median(next(iter(taken.values())))
    print("from a decision to the agent's reply, over the local socket")
    for name, each in taken.items():
        middle, late = statistics.median(each), statistics.quantiles(each, n=20)[-1]
        print(f"  {name:<8} median {middle:6.2f} ms   p95 {late:6.2f} ms   {middle / first:5.2f}x")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(side(sys.argv[1])))
    else:
        main()
