"""The programs as the walks run them: `python program.py DIR [ctl] ...`, the rest as agent-intercom or ctl takes it.

A server and a relay listen in DIR for when to count. What ctl enters is counted from its first line to its last, and
left in DIR; the others count from then on, as nothing of it has reached them before.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(directory: Path, words: list[str]) -> int:
    if sys.path[0] == str(Path(__file__).resolve().parent):
        del sys.path[0]
    sys.path.insert(0, str(ROOT))
    from tests.support import program_with_faults
    from tests.walks import tracer

    tracer.install()
    if words[:1] != ["ctl"]:
        kind = "server" if "serve" in words else "relay"
        tracer.listen(directory / f"{kind}-{os.getpid()}.sock")
        return program_with_faults.main(words)
    from intercom.cli import ctl

    for place in directory.glob("*.sock"):
        tracer.tell(place, "begin")
    tracer.begin()
    try:
        return ctl.main(words[1:])
    finally:
        (directory / f"ctl-{os.getpid()}.json").write_text(tracer.entered())


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
