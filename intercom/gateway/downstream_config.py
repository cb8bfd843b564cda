"""The configuration of one downstream, which `downstream_file` reads.

Values may refer to variables (see `variables`); they stay as written until `expand`, just before the downstream is
started.

No message and no `repr` contains a value that may be a secret: arguments, values of variables and headers, or what
follows the host in an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from intercom.gateway import variables
from intercom.gateway.breaker import BreakerSettings
from intercom.gateway.budgets import Budget
from intercom.gateway.json_settings import Place, SettingsError, Unfit, plain
from intercom.gateway.variables import Lookup, Reference, Source
from intercom.model.errors import ConfigError
from intercom.model.setting_checks import SECONDS, between

SCHEMA_VERSION: Final = "1.0.0"
#: The longest name of a downstream. A tool's full name has at most 64 characters, and begins with it.
NAME_LENGTH: Final = 40
#: The time limit of a start with its handshake (seconds). The first start may have to download the program.
STARTUP_SECONDS: Final = 60.0
#: The class that the verbs of `readOnly` form.
READ_CLASS: Final = "read"


class Transport(StrEnum):
    """How the gateway talks to a downstream: over its standard streams, streamable HTTP, or HTTP with SSE."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class Sharing(StrEnum):
    """Whether all agents share one connection, or each agent has its own."""

    ALL = "all"
    AGENT = "agent"


class Expose(StrEnum):
    """Whether agents see each tool of the downstream, or find them by search."""

    ALL = "all"
    SEARCH = "search"


def _names(texts: Mapping[str, object]) -> str:
    return f"<{', '.join(plain(name) or '...' for name in texts)}>"


def _count(texts: Sequence[str]) -> str:
    return f"<{len(texts)}>"


def _program(command: str | None) -> str:
    """The name of the program, without its directory and what may follow it."""
    name = re.split(r"[\s=]", command or "", maxsplit=1)[0].rpartition("/")[2]
    return plain(name) or _hidden(command)


def _hidden(text: str | None) -> str:
    return "None" if text is None else "<hidden>"


def host_of(url: str | None) -> str:
    """Return the scheme and the host of an address, for people. Its user, path and query may be secrets."""
    found = re.match(r"(https?://)(?:[^/?#]*@)?([A-Za-z0-9.:\[\]-]+)(?=[/?#]|$)", url or "")
    return f"{found[1]}{found[2]}" if found else _hidden(url)


@frozen
class OAuth:
    """How to sign in to a remote downstream, where the defaults of the protocol do not do."""

    client_id: str | None = field(default=None, repr=_hidden)
    client_secret: str | None = field(default=None, repr=_hidden)
    scopes: tuple[str, ...] = ()
    callback_port: int | None = field(default=None, validator=between(1, 65_535))
    metadata_url: str | None = field(default=None, repr=host_of)
    resource: str | None = field(default=None, repr=host_of)


@frozen
class DownstreamConfig:
    """The configuration of one downstream. Its values may contain references until `expand`.

    `capabilities` are what it may offer at all, `disabled_tools` what it may not. `classes` are named lists of verbs.
    In all these, `*` stands for any characters. Calls that `read_only` names are repeated up to `retry` times after a
    transport failure, and their results are cached for `cache_seconds`. Results of the tools that `evidence` names are
    kept in the database. `redact` masks secrets in results. Without `prefix` its tools keep their names. With `roots`
    it may ask agents for their directories. The variables in `env_vars` are passed on if they are set. `cwd` and
    `env_file` may begin with `~`. A call's time limit is `budget.timeout_seconds`.
    """

    name: str
    transport: Transport
    capabilities: tuple[str, ...]
    schema_version: str
    description: str = ""
    command: str | None = field(default=None, repr=_program)
    args: tuple[str, ...] = field(default=(), repr=_count)
    env: Mapping[str, str] = field(factory=dict, repr=_names)
    env_vars: tuple[str, ...] = field(default=(), repr=_count)
    env_file: str | None = field(default=None, repr=_hidden)
    cwd: str | None = field(default=None, repr=_hidden)
    base_url: str | None = field(default=None, repr=host_of)
    headers: Mapping[str, str] = field(factory=dict, repr=_names)
    oauth: OAuth | None = None
    disabled_tools: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(factory=dict)
    sharing: Sharing = Sharing.ALL
    expose: Expose = Expose.ALL
    enabled: bool = True
    redact: bool = True
    prefix: bool = True
    roots: bool = False
    cache_seconds: float = field(default=0.0, validator=between(0, 86_400))
    startup_seconds: float = field(default=STARTUP_SECONDS, validator=SECONDS)
    budget: Budget = field(factory=Budget)
    breaker: BreakerSettings = field(factory=BreakerSettings)
    retry: int = field(default=1, validator=between(0, 3))

    @property
    def all_classes(self) -> Mapping[str, tuple[str, ...]]:
        """The classes for roles: also `read`, which has the verbs of `readOnly` unless a class has this name."""
        return {**({READ_CLASS: self.read_only} if self.read_only else {}), **self.classes}

    @property
    def signs_in(self) -> bool:
        """Whether its tokens come from a person's sign-in: it is remote, and its headers have no token."""
        is_remote = self.transport is not Transport.STDIO
        return is_remote and not any(name.lower() == "authorization" for name in self.headers)

    @property
    def connection_part(self) -> tuple[object, ...]:
        """What the connection depends on: if any of it changes, the connection is made again."""
        return (
            *(self.transport, self.command, self.args, self.env, self.env_vars, self.env_file, self.cwd),
            *(self.base_url, self.headers, self.oauth, self.sharing),
        )

    def is_read_only(self, tool: str) -> bool:
        """Whether a call of this tool changes nothing, as the configuration says."""
        return any(fnmatchcase(tool, verb) for verb in self.read_only)

    def keeps_evidence(self, tool: str) -> bool:
        """Whether the results of this tool are kept as evidence."""
        return any(fnmatchcase(tool, verb) for verb in self.evidence)

    def offers(self, tool: str) -> bool:
        """Whether the configuration lets agents have this tool at all. What precedes a capability's first dot is not
        compared: the spec's example names `git` for the downstream `github`."""
        if any(fnmatchcase(tool, verb) for verb in self.disabled_tools):
            return False
        return any(fnmatchcase(tool, capability.partition(".")[2]) for capability in self.capabilities)


def check_address(address: str) -> None:
    """Check the address of a remote downstream. Raises Unfit."""
    try:
        url = urlsplit(address)
        fits = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # a bad port, or half of an IPv6 address
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", address):
        raise Unfit("is not an address of HTTP", "write it like https://mcp.example.com/mcp")
    if "@" in urlsplit(address).netloc:
        raise Unfit("has a user or a password in it", 'write "headers": {"Authorization": "Bearer ${NAME}"}')


def check_header(header: str) -> None:
    """Check the value of a header. Raises Unfit."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", header):
        raise Unfit("has a line break or another control character", "write it as one line")


# --- Expanding references


class MissingVariables(ConfigError):
    """References of a configuration have no value. `references` are those."""

    def __init__(self, name: str, missing: Mapping[Reference, Sequence[str]]) -> None:
        self.references = tuple(missing)
        needs = ", ".join(f"{reference} (for {', '.join(keys)})" for reference, keys in missing.items())
        sources = {reference.source for reference in missing}
        remedies = []
        if Source.ENVIRONMENT in sources:
            remedies.append(
                f"store them with agent-intercom gateway secret set {name}/NAME and write ${{keychain:{name}/NAME}} for"
                " them, or stop the server and run agent-intercom serve where they are set (one that an agent starts"
                " does not get them)"
            )
        if Source.KEYCHAIN in sources:
            secrets = [each.name for each in missing if each.source is Source.KEYCHAIN]
            remedies.append("; ".join(f"run agent-intercom gateway secret set {each}" for each in secrets))
        message = f"downstream {name} needs {needs}, which there is not: {'; '.join(remedies)}"
        super().__init__(message, references=[str(each) for each in missing])


def references(config: DownstreamConfig) -> Mapping[Reference, tuple[str, ...]]:
    """Return what a configuration refers to without a default, and the keys that do."""
    found: dict[Reference, list[str]] = {}

    def note(key: str, value: str) -> str:
        for reference, has_default in variables.references(value):
            if not has_default and key not in found.setdefault(reference, []):
                found[reference].append(key)
        return value

    _convert(config, note)
    return {reference: tuple(keys) for reference, keys in found.items()}


def expand(config: DownstreamConfig, lookup: Lookup) -> DownstreamConfig:
    """Return the configuration with the values of its references. Its `repr` still shows no secret.

    Raises MissingVariables with all references that have no value, or SettingsError if an address or a header is not
    valid with the values.
    """
    missing: dict[Reference, list[str]] = {}
    place = Place(config.name)

    def value(key: str, written: str) -> str:
        absent: list[Reference] = []
        expanded = variables.expand(written, lookup, absent)
        for reference in absent:
            missing.setdefault(reference, []).append(key)
        if not absent and expanded != written:
            _check_expanded(key, expanded, place)
        return expanded

    expanded = _convert(config, value)
    if missing:
        raise MissingVariables(config.name, missing)
    if place.faults:
        raise SettingsError(place.faults)
    return expanded


def _check_expanded(key: str, value: str, place: Place) -> None:
    place = evolve(place, key=key)
    try:
        if "\0" in value:
            raise Unfit("has a NUL character", "correct the value of its variable")
        if key in ("baseURL", "oauth.authServerMetadataUrl", "oauth.resource"):
            check_address(value)
        if key.startswith("headers."):
            check_header(value)
    except Unfit as unfit:
        place.fault(unfit.what, f"{unfit.remedy} (with the values of its variables)")


def _convert(config: DownstreamConfig, convert: Callable[[str, str], str]) -> DownstreamConfig:
    """Convert each value that may have references; `convert` gets its key and the value."""

    def one(key: str, value: str | None) -> str | None:
        return None if value is None else convert(key, value)

    def table(key: str, values: Mapping[str, str]) -> Mapping[str, str]:
        return {name: convert(f"{key}.{plain(name) or '...'}", value) for name, value in values.items()}

    oauth = config.oauth
    if oauth is not None:
        oauth = evolve(
            oauth,
            client_id=one("oauth.clientId", oauth.client_id),
            client_secret=one("oauth.clientSecret", oauth.client_secret),
            metadata_url=one("oauth.authServerMetadataUrl", oauth.metadata_url),
            resource=one("oauth.resource", oauth.resource),
        )
    return evolve(
        config,
        command=one("command", config.command),
        args=tuple(convert(f"args[{index}]", value) for index, value in enumerate(config.args)),
        env=table("env", config.env),
        env_file=one("envFile", config.env_file),
        cwd=one("cwd", config.cwd),
        base_url=one("baseURL", config.base_url),
        headers=table("headers", config.headers),
        oauth=oauth,
    )
