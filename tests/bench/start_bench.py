"""From launch to the answer of tools/list: with a server running, with none, and ctl --help."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.bench_rig import CTL, SHIM, Peer, home, row, timed

ROUNDS = 9


def launch(command: list[str]) -> None:
    peer = Peer(command)
    peer.greet()
    peer.ask("tools/list", {})
    peer.close()


def main() -> None:
    with home() as root:
        shim = [*SHIM, "--workspace", str(root / "w")]
        bare = [sys.executable, "-m", "tests.bench.bare_server"]
        python = timed(lambda: subprocess.run([sys.executable, "-c", "import json, socket"], check=True), ROUNDS)
        launch(shim)
        Peer(shim).close()
        first = Peer(shim)
        first.greet()
        first.call("ping", {})
        warm = timed(lambda: launch(shim), ROUNDS)
        first.close()

        def cold() -> None:
            launch(shim)

        times = []
        for _ in range(5):
            subprocess.run([*SHIM, "stop"], stdout=subprocess.DEVNULL, check=True)
            times.append(timed(cold, 1))
        sdk = timed(lambda: launch(bare), 5)
        ctl = timed(lambda: subprocess.run([*CTL, "--help"], stdout=subprocess.DEVNULL, check=True), ROUNDS)
        row("python -c 'import json, socket'", python)
        row("launch to tools/list, a server running", warm, python, "to reach: <= 8x")
        row("bare SDK server, launch to tools/list", sdk)
        row("launch to tools/list, no server running", sorted(times)[len(times) // 2], sdk, "to reach: <= 0.5x")
        row("ctl --help", ctl, python, "to reach: <= 3x")


if __name__ == "__main__":
    main()
