"""Doctor's check of HTTP: the port, the program that listens there, and the token."""

from __future__ import annotations

import http.client
import json
import os
import stat
from collections.abc import Iterator

from intercom.cli.finding import Finding, State
from intercom.local import dial
from intercom.local.places import Places
from intercom.model.config import Config

#: Seconds that the listening program has to answer.
_PATIENCE = 2.0
_SUBJECT = "http"


def examine(config: Config, where: Places) -> Iterator[Finding]:
    """Check the port and the token. Yields nothing if HTTP is off."""
    if config.http_port is None:
        return
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.http_host, config.http_host)
    port = config.http_port or _told(where.http_address_file)
    yield _port(host, port, runs=_runs(where))
    if config.http_token_required and os.path.lexists(where.http_token_file):
        yield _token(where.http_token_file)


def _port(host: str, port: int, *, runs: bool) -> Finding:
    if not port:
        return Finding(_SUBJECT, State.OK, "a server that runs will take any free port")
    at = f"{f'[{host}]' if ':' in host else host}:{port}"
    listens = _listens(host, port)
    if listens is None and runs:
        advice = "its log says why; if the configuration has changed since it started, start it again"
        return Finding(_SUBJECT, State.FAULT, f"a server runs, and nobody listens at {at}", advice)
    if listens is None:
        text = f"agents will be served at http://{at}/mcp by a server that runs; they start none"
        return Finding(_SUBJECT, State.OK, text)
    if not listens or not runs:
        advice = "stop that program, or set another http_port and write the clients' entries again (init --http)"
        return Finding(_SUBJECT, State.FAULT, f"another program listens at {at}", advice)
    return Finding(_SUBJECT, State.OK, f"agents are served at http://{at}/mcp")


def _listens(host: str, port: int) -> bool | None:
    """Tell whether a server of ours listens there: False for another program, None if nothing listens."""
    line = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    try:
        line.request("GET", "/doctor")
        said = json.loads(line.getresponse().read(10_000))
        return "error_code" in said["error"]["data"]
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return False
    finally:
        line.close()


def _runs(where: Places) -> bool:
    try:
        dial.connect(where.ctl_socket, timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def _told(file: str) -> int:
    """Return the port that a server has recorded, or 0 if there is none."""
    try:
        with open(file, encoding="ascii") as told:
            return int(told.read(100).strip().rpartition(":")[2])
    except (OSError, ValueError):
        return 0


def _token(path: str) -> Finding:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        advice = f"rm {path}; the next server makes a new one, and clients have to be given that"
        return Finding("http token", State.FAULT, f"{path} is not a file of yours alone", advice)
    return Finding("http token", State.OK, path)
