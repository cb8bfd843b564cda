"""`logs`: prints an agent's output, and with `--follow` its further output. It uses the standard library alone."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from intercom.cli.ctl_text import clean
from intercom.local.places import Places
from intercom.operators.ctl.client import request

#: Seconds between two requests for more output.
_PAUSE = 0.25


def logs(where: Places, fields: dict[str, Any], *, follow: bool, as_json: bool) -> int:
    """Print an agent's output, with `follow` until the agent has ended. If the server goes away, each request waits for
    it as usual. Raises what `request` raises."""
    piece = request(where, "logs", fields)
    _print(piece, as_json)
    while follow and (piece["is_going"] or piece["text"]):
        if not piece["text"]:
            time.sleep(_PAUSE)
        rest = {name: value for name, value in fields.items() if name != "limit"}
        before, piece = piece["end"], request(where, "logs", {**rest, "start": piece["end"]})
        if piece["start"] > before and not as_json:
            print(f"[{piece['start'] - before} bytes are gone: more was written than is kept]", file=sys.stderr)
        if piece["text"]:
            _print(piece, as_json)
    if follow and not as_json and piece["exit"] is not None:
        print(f"[ended: {piece['exit']}]", file=sys.stderr)
    return 0


def _print(piece: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(piece), flush=True)
        return
    # An agent wrote this; it must not control the terminal.
    sys.stdout.write(clean(piece["text"].replace("\r\n", "\n")))
    sys.stdout.flush()
