"""What people see of the server itself, and of how clients connect to it. Values, and the protocol of what knows them.

No value holds a secret: an entry names the variable that has the token, and a database's URL has no password.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from attrs import frozen

#: The port of the entries over HTTP if the configuration has none.
DEFAULT_PORT = 3000
#: What a server that listens everywhere is called on its own machine.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def local_base(host: str, port: int) -> str:
    """Return the address of a server that listens on `host`, for clients on its own machine."""
    called = _EVERYWHERE.get(host, host).strip("[]")
    return f"http://{f'[{called}]' if ':' in called else called}:{port}"


@frozen
class HttpPort:
    """The HTTP port. `base` is its address on this machine, without a path; None while the port is closed. `fault` then
    says why."""

    base: str | None
    fault: str | None
    token_required: bool


@frozen
class ServerStatus:
    """What runs, since when, and with what.

    `configuration` is the configuration file, None if the defaults apply. `database` is the file with requests,
    decisions and the audit log; `rooms_database` is the file or the URL of the rooms, None without rooms. `http` is
    None if the configuration has no HTTP port.
    """

    version: str
    started_at: datetime
    configuration: str | None
    database: str
    rooms_database: str | None
    http: HttpPort | None
    has_gateway: bool
    has_page: bool


@frozen
class ClientEntry:
    """What a client's file has to say so that the client finds this server: over stdio, and over HTTP, as the text of a
    new file.

    `name` is the client's name for `init`. `file` is where the text belongs: in the project if `is_in_project`. The
    notes are for the person. `fault` says why there is no text for stdio, which is empty then.
    """

    name: str
    title: str
    file: str
    is_in_project: bool
    stdio: str
    stdio_note: str
    http: str
    http_note: str
    fault: str = ""


@frozen
class ClientEntries:
    """The entries of all clients. Those over HTTP lead to `url`; `remark` says what is missing for that, if anything
    is."""

    clients: tuple[ClientEntry, ...]
    url: str
    remark: str = ""


class ServerOperations(Protocol):
    """What people can ask about the server itself."""

    def status(self) -> ServerStatus: ...

    async def entries(self, name: str | None = None) -> ClientEntries:
        """Return the entries of all clients, or of the one with this name. Raises NotFound, and InvalidState if this
        server serves no clients in this way."""
        ...
