"""A timed probe: runs a client with a scripted model and a tool that does not answer, to see when it gives up.

The client is the user's own. Its model is a stand-in on loopback, so that it needs no account. Its directories are made
for the probe. Of the user's settings, only the time-out for a call applies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from attrs import frozen

from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import Client
from intercom.cli import probe_model

#: Seconds that a client has to start and to end, besides the call.
_AROUND_SECONDS = 60.0


@frozen
class Outcome:
    """The result of a probe. `how` is held, cancelled or closed; `seconds` is how long the call was open. `progress`
    says whether the client asked for progress reports."""

    how: str
    seconds: float
    progress: bool


class ProbeFailed(Exception):
    """Raised if the client could not be probed; the message says why."""


def run(client: Client, entry: Mapping[str, Any], seconds: float) -> Outcome:
    """Probe a client for at most `seconds`, with the time-out in `entry`, the user's own for Intercom.

    Raises ProbeFailed if the client cannot be run by a script, is not installed, or did not call the tool.
    """
    if client.probe is None:
        known = ", ".join(each.name for each in CLIENTS.values() if each.probe is not None)
        raise ProbeFailed(f"{client.name} cannot be run by a script: {known} can")
    program = shutil.which(client.probe.program)
    if program is None:
        raise ProbeFailed(f"{client.probe.program} is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="intercom-probe-") as made, probe_model.serving() as model:
        home = Path(made)
        note = home / "note.json"
        server = [sys.executable, "-P", "-m", "intercom.cli.probe_server", str(note), str(seconds)]
        planned = client.probe.run(made, model, _entry(client, server, entry))
        dump = tomlkit.dumps if planned.file.endswith(".toml") else json.dumps
        (home / planned.file).write_text(dump(planned.content))
        work = home / "work"
        work.mkdir()
        _run([program, *planned.arguments], os.environ | planned.environ, work, seconds + _AROUND_SECONDS)
        if not note.exists():
            text = "did not call the tool of the probe: is this version known to work?"
            raise ProbeFailed(f"{client.probe.program} {text}")
        return Outcome(**json.loads(note.read_text()))


def _entry(client: Client, server: list[str], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry that `init` would write for the probe's server, with the time-out of the user's `entry`."""
    limit = client.entry.timeout
    found = client.entry.stdio(server)
    if limit is None:
        return found
    found.pop(limit.key, None)
    return found | ({limit.key: entry[limit.key]} if limit.key in entry else {})


def _run(command: list[str], environ: Mapping[str, str], work: Path, seconds: float) -> None:
    process = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Kill its whole process group, with everything that it started.
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()
