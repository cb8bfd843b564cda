"""`agent-intercom stop`: stops the background server in good order."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from intercom.local import config_file, lock
from intercom.local.places import places
from intercom.model.errors import IntercomError

_SECONDS = 15.0


def run(options: argparse.Namespace) -> int:
    """Ask the server to stop and wait. Returns 0 if none runs any more, 1 if it did not stop, 2 for a faulty setup."""
    try:
        path = Path(options.config) if options.config else Path(places().config_file)
        config = config_file.load(path if options.config or path.exists() else None)
        where = places(options.ipc_name or config.ipc_name)
        database = config_file.database_path(config, where)
        holder = lock.holder(database)
    except IntercomError as error:
        print(f"agent-intercom: {error}", file=sys.stderr)
        return 2
    if holder is None:
        print("no server is running")
        return 0
    os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        now = lock.holder(database)
        if now is None or now.pid != holder.pid:
            print(f"stopped the server (process {holder.pid}); what waits is kept, and agents start it again")
            return 0
        time.sleep(0.05)
    print(f"agent-intercom: the server (process {holder.pid}) did not stop within {_SECONDS:.0f} s", file=sys.stderr)
    return 1
