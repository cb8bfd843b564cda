"""The file of one downstream: JSON, as the spec has it, with keys of our own.

`parse` checks the text of a file and reports all faults at once, and `to_json` is what a file of a configuration has.
No message contains a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from intercom.gateway import json_settings as read
from intercom.gateway import variables
from intercom.gateway.breaker import BreakerSettings
from intercom.gateway.budgets import ANY_TOOL, MICROS, TIMEOUT_SECONDS, Budget
from intercom.gateway.downstream_config import (
    NAME_LENGTH,
    SCHEMA_VERSION,
    DownstreamConfig,
    Expose,
    OAuth,
    Sharing,
    Transport,
    check_address,
    check_header,
)
from intercom.gateway.json_settings import Fault, Key, Place, SettingsError, Table, Unfit
from intercom.model.json_types import Json, JsonObject
from intercom.model.setting_checks import SECONDS, between

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9-]{{0,{NAME_LENGTH - 1}}}")
_CAPABILITY: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_-]*|\*)\.[A-Za-z0-9_.*-]+")
_VERB: Final = re.compile(r"[A-Za-z0-9_.*-]+")
_PRICED: Final = re.compile(r"[A-Za-z0-9_.-]+|\*")
_CLASS: Final = re.compile(r"[A-Za-z0-9_.-]+")
_VERSION: Final = re.compile(r"1\.[0-9]+\.[0-9]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: Headers that the transport sets.
_OWN_HEADERS: Final = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "transfer-encoding"}
    | {"last-event-id", "mcp-protocol-version", "mcp-session-id"}
)


# --- Values of one form


def _command(value: object, place: Place) -> str:
    command = read.filled(value, place)
    if re.search(r"\s", command) and not re.search(r"[/\\$]", command):
        raise Unfit("has spaces", "write the program alone, and each argument as a text in args")
    return command


def _path(value: object, place: Place) -> str:
    path = read.filled(value, place)
    if not path.startswith(("/", "~", "${")):
        raise Unfit("is a relative path", "write a path that begins with / or ~")
    return path


def _address(value: object, place: Place) -> str:
    address = read.filled(value, place)
    if not variables.references(address):
        check_address(address)
    return address


def _header(value: object, place: Place) -> str:
    header = read.text(value, place)
    check_header(header)
    return header


_HEADERS = read.mapping_of(_HEADER, "write the name of a header, as in Authorization", _header)


def _headers(value: object, place: Place) -> Mapping[str, str] | None:
    found = _HEADERS(value, place)
    for name in found or ():
        if name.lower() in _OWN_HEADERS:
            place.below(name).fault("is set by the gateway itself", "leave it out")
    return found


def _cost(value: object, place: Place) -> int:
    cost = read.number(value, place)
    if not 0 <= cost <= 1e6:
        raise Unfit("is out of range", "write a cost from 0 to 1000000")
    return round(cost * MICROS)


_COSTS = read.mapping_of(_PRICED, "write the name of a tool, or *", _cost)


def _costs(value: object, place: Place) -> object:
    return _COSTS(value, place) if isinstance(value, Mapping) else {ANY_TOOL: _cost(value, place)}


# --- How values are written


def _in_seconds(seconds: float) -> str | float:
    return f"{seconds:.0f}s" if seconds == int(seconds) else seconds


def _in_units(millionths: int) -> float:
    return millionths / MICROS


def _costs_in_units(costs: Mapping[str, int]) -> Json:
    found = {tool: _in_units(cost) for tool, cost in costs.items()}
    return found[ANY_TOOL] if set(found) == {ANY_TOOL} else found


def _lists(classes: Mapping[str, Sequence[str]]) -> JsonObject:
    return {name: list(verbs) for name, verbs in classes.items()}


# --- The tables of the file


@frozen
class _Rate:
    """The spec's sub-entity RateLimit."""

    requests_per_second: float = field(validator=between(0, 1e6, above=True))
    burst_size: int | None = field(default=None, validator=between(1, 1_000_000))


@frozen
class _BudgetTable:
    """A budget as the file has it: with the rate as a table of its own."""

    rate: _Rate | None = None
    concurrency_limit: int | None = field(default=None, validator=between(1, 100_000))
    timeout_seconds: float | None = field(default=None, validator=SECONDS)
    daily_quota: int = field(default=0, validator=between(0, 10**15))
    cost_per_call: Mapping[str, int] = field(factory=dict)
    daily_cost: int = 0

    @staticmethod
    def of(budget: Budget) -> _BudgetTable:
        """The table of a budget without the time limit, which the spec has outside of it."""
        rate = None
        if budget.requests_per_second is not None:
            rate = _Rate(budget.requests_per_second, budget.burst_size)
        return _BudgetTable(
            rate, budget.concurrency_limit, None, budget.daily_quota, budget.cost_per_call, budget.daily_cost
        )

    def budget(self, timeout_seconds: float) -> Budget:
        """Raises ValueError with a sentence that begins with an attribute's name."""
        rate = self.rate.requests_per_second if self.rate else None
        burst = (self.rate.burst_size if self.rate else None) or max(1, round(rate or 0))
        return Budget(
            rate,
            burst,
            self.concurrency_limit,
            timeout_seconds,
            self.daily_quota,
            self.cost_per_call,
            self.daily_cost,
        )


@frozen
class _BreakerTable:
    """A breaker's settings as the file has them: without tables below it."""

    degraded_after: int = field(default=BreakerSettings().degraded_after, validator=between(1, 10_000))
    open_after: int = field(default=BreakerSettings().open_after, validator=between(1, 10_000))
    degraded_seconds: float = field(default=BreakerSettings().degraded_seconds, validator=SECONDS)
    backoff_seconds: float = field(default=BreakerSettings().backoff.initial, validator=SECONDS)
    backoff_max_seconds: float = field(default=BreakerSettings().backoff.max, validator=SECONDS)
    count_tool_errors: bool = False

    @staticmethod
    def of(settings: BreakerSettings) -> _BreakerTable:
        backoff = settings.backoff
        return _BreakerTable(
            settings.degraded_after,
            settings.open_after,
            settings.degraded_seconds,
            backoff.initial,
            backoff.max,
            settings.count_tool_errors,
        )

    def settings(self) -> BreakerSettings:
        """Raises ValueError with a sentence that begins with an attribute's name."""
        if self.backoff_max_seconds < self.backoff_seconds:
            raise ValueError(f"backoff_max_seconds must be at least backoff, which is {self.backoff_seconds:g} s")
        backoff = evolve(BreakerSettings().backoff, initial=self.backoff_seconds, max=self.backoff_max_seconds)
        return BreakerSettings(
            self.degraded_after, self.open_after, self.degraded_seconds, self.count_tool_errors, backoff
        )


_TOOLS: Final = read.list_of(read.matching(_VERB, "write the name of a tool; * stands for any characters"))

_RATE: Final = Table(
    _Rate,
    (
        Key(
            "requests_per_second",
            "requestsPerSecond",
            read.number,
            required='"requestsPerSecond": 10',
            doc="How many calls a second, spread over time.",
        ),
        Key(
            "burst_size",
            "burstSize",
            read.whole,
            doc="How many calls may come at once before they are spread. Default: those of one second.",
        ),
    ),
    _Rate,
)

_BUDGET: Final = Table(
    _BudgetTable,
    (
        Key("rate", "rateLimit", _RATE.read, _RATE.write, doc="How fast calls may come. Default: any number at once."),
        Key(
            "concurrency_limit",
            "concurrencyLimit",
            read.whole,
            doc="How many calls may run at once. Default: any number.",
        ),
        Key(
            "timeout_seconds",
            "timeout",
            read.seconds,
            _in_seconds,
            doc="The same as `timeout` outside of the budget: write it once.",
        ),
        Key("daily_quota", "dailyQuota", read.whole, doc="How many calls a day, of UTC; 0 means any number."),
        Key(
            "cost_per_call",
            "costPerCall",
            _costs,
            _costs_in_units,
            doc=(
                "What one call costs, in a unit of yours: a number for every tool, or a table by tool, with `*` "
                "for all others."
            ),
        ),
        Key(
            "daily_cost",
            "dailyCost",
            _cost,
            _in_units,
            doc="What all calls of a day may cost together; 0 means any amount.",
        ),
    ),
    _BudgetTable,
    below={"budget.rateLimit": _RATE},
)

_BREAKER: Final = Table(
    _BreakerTable,
    (
        Key(
            "degraded_after",
            "degradedAfter",
            read.whole,
            doc="After how many failures in a row the server counts as degraded.",
        ),
        Key(
            "open_after",
            "openAfter",
            read.whole,
            doc=(
                "After how many failures in a row it counts as offline, and no call is sent. At least `degradedAfter`."
            ),
        ),
        Key(
            "degraded_seconds",
            "degradedTimeout",
            read.seconds,
            _in_seconds,
            doc="How long a degraded server may be without a success before it is connected again.",
        ),
        Key(
            "backoff_seconds",
            "backoff",
            read.seconds,
            _in_seconds,
            doc="The pause before the first new connection; each further one is twice as long.",
        ),
        Key("backoff_max_seconds", "backoffMax", read.seconds, _in_seconds, doc="The longest such pause."),
        Key(
            "count_tool_errors",
            "countToolErrors",
            read.flag,
            doc="Whether a tool's own error is a failure. Without it, an error shows that the server works.",
        ),
    ),
    lambda **values: _BreakerTable(**values).settings(),
)

_OAUTH: Final = Table(
    OAuth,
    (
        Key(
            "client_id",
            "clientId",
            read.filled,
            doc=(
                "The id of a client that you have registered there. Default: a client is registered at the first "
                "sign-in."
            ),
        ),
        Key(
            "client_secret", "clientSecret", read.filled, doc="Its secret, if it has one; better as `${keychain:NAME}`."
        ),
        Key("scopes", "scopes", read.list_of(read.filled), list, doc="What to ask for. Default: what the server says."),
        Key(
            "callback_port",
            "callbackPort",
            read.whole,
            doc="The port on localhost to which the browser comes back, if a registered client needs a fixed one.",
        ),
        Key(
            "metadata_url",
            "authServerMetadataUrl",
            _address,
            doc="Where the metadata of the authorization server are, if they are not at the usual places.",
        ),
        Key(
            "resource",
            "resource",
            _address,
            doc="The address that tokens are asked for (RFC 8707), if it is not `baseURL`.",
        ),
    ),
    OAuth,
)

_A_CLIENTS_FILE: Final = "this is a client's file: 'agent-intercom gateway import' makes a file for each of its servers"

_DOWNSTREAM: Final = Table(
    DownstreamConfig,
    (
        Key(
            "name",
            "name",
            read.matching(_NAME, f"write letters, digits and hyphens, at most {NAME_LENGTH}, as in github"),
            required='"name": "github"',
            doc="The server's name for people, roles and agents: letters, digits and hyphens, at most 40.",
        ),
        Key(
            "transport",
            "transport",
            read.one_of(Transport),
            str,
            required='"transport": "stdio", "http" or "sse"',
            doc="How it is reached: `stdio`, `http` (streamable HTTP), or `sse` (the transport before it).",
        ),
        Key("description", "description", read.text, doc="A text for people."),
        Key("command", "command", _command, doc="For `stdio`, and needed there: the program."),
        Key("args", "args", read.list_of(read.text), list, doc="For `stdio`: its arguments, a list of texts."),
        Key(
            "env",
            "env",
            read.mapping_of(_VARIABLE, "write the name of a variable, as in GITHUB_TOKEN", read.text),
            dict,
            doc="For `stdio`: variables for it, a table. Otherwise it gets only a few, such as `PATH` and `HOME`.",
        ),
        Key(
            "env_vars",
            "envVars",
            read.list_of(read.matching(_VARIABLE, "write the name of a variable, as in LANG")),
            list,
            doc=(
                "For `stdio`: names of variables that it gets from the Intercom server's own environment, if "
                "they are set there."
            ),
        ),
        Key(
            "env_file",
            "envFile",
            _path,
            doc="For `stdio`: a file with `NAME=value` on each line; `env` takes precedence.",
        ),
        Key("cwd", "cwd", _path, doc="For `stdio`: the directory in which it runs."),
        Key("base_url", "baseURL", _address, doc="For `http` and `sse`, and needed there: the address."),
        Key(
            "headers",
            "headers",
            _headers,
            dict,
            doc="For `http` and `sse`: headers of each request, a table. With `Authorization` nobody signs in.",
        ),
        Key(
            "oauth",
            "oauth",
            _OAUTH.read,
            _OAUTH.write,
            doc="For `http` and `sse`: how to sign in, where the defaults of the protocol do not do.",
        ),
        Key(
            "capabilities",
            "capabilities",
            read.list_of(
                read.matching(_CAPABILITY, "write NAME.TOOL, as in github.list_commits, or NAME.* for all"),
                empty='name what the downstream may offer; ["NAME.*"] is all',
            ),
            list,
            required='"capabilities": ["NAME.*"]',
            doc=(
                "What it may offer to agents at all, a list: `github.list_commits`, or `github.*` for all. Roles "
                "choose among these."
            ),
        ),
        Key(
            "disabled_tools",
            "disabledTools",
            _TOOLS,
            list,
            doc="Tools that it may not offer, a list; `*` stands for any characters, here and below.",
        ),
        Key(
            "read_only",
            "readOnly",
            _TOOLS,
            list,
            doc=(
                "Tools that change nothing, a list. Their calls may be repeated and cached, and are not of high "
                "risk. Roles may name them as the class `read`."
            ),
        ),
        Key(
            "evidence",
            "evidence",
            _TOOLS,
            list,
            doc=("Tools whose results are [kept as evidence](../how-to/gateway.md#keep-results-as-evidence), a list."),
        ),
        Key(
            "classes",
            "classes",
            read.mapping_of(_CLASS, "write a name like read", _TOOLS),
            _lists,
            doc=(
                'Further classes that roles may name, a table of lists: with `{"write": ["create_*"]}`, '
                "`github.write` is a capability."
            ),
        ),
        Key(
            "sharing",
            "sharing",
            read.one_of(Sharing),
            str,
            doc=(
                "`all`: one connection for all agents. `agent`: each agent has one of its own, for a server that "
                "keeps the state of one client."
            ),
        ),
        Key(
            "expose",
            "expose",
            read.one_of(Expose),
            str,
            doc=(
                "`all`: agents see each tool. `search`: they find the tools with `search_tools` and call them "
                "with `call_tool`, which saves context."
            ),
        ),
        Key(
            "enabled",
            "enabled",
            read.flag,
            doc="Whether it is connected. `gateway disable` and `enable` do the same without the file.",
        ),
        Key(
            "timeout_seconds",
            "timeout",
            read.seconds,
            _in_seconds,
            doc=f"The longest time for a call. Default: {TIMEOUT_SECONDS:g} seconds.",
        ),
        Key(
            "startup_seconds",
            "startupTimeout",
            read.seconds,
            _in_seconds,
            doc=("The longest time for a start with its handshake. The first start may have to download the program."),
        ),
        Key("budget", "budget", _BUDGET.read, lambda budget: _BUDGET.write(_BudgetTable.of(budget)), doc="Its limits."),
        Key(
            "breaker",
            "breaker",
            _BREAKER.read,
            lambda settings: _BREAKER.write(_BreakerTable.of(settings)),
            doc="When it counts as degraded and as offline, and how its connection is renewed.",
        ),
        Key(
            "retry",
            "retry",
            read.whole,
            doc="How often a call that `readOnly` names is sent again after the connection was lost, 0 to 3.",
        ),
        Key("redact", "redact", read.flag, doc="Whether secrets in its results are masked for agents."),
        Key(
            "prefix",
            "prefix",
            read.flag,
            doc="Whether agents see its tools with its name before them, as `github__list_commits`.",
        ),
        Key("roots", "roots", read.flag, doc="Whether it may ask agents for their directories."),
        Key(
            "cache_seconds",
            "cache",
            read.seconds,
            _in_seconds,
            doc="How long the result of a call that `readOnly` names is used again for the same arguments.",
        ),
        Key(
            "schema_version",
            "schemaVersion",
            read.matching(_VERSION, f'write "{SCHEMA_VERSION}", or update Intercom if the file needs a later one'),
            required=f'"schemaVersion": "{SCHEMA_VERSION}"',
            doc="The version of this form: `1.0.0`.",
        ),
    ),
    DownstreamConfig,
    hints={
        "mcpServers": _A_CLIENTS_FILE,
        "servers": _A_CLIENTS_FILE,
        "url": "write baseURL",
        "type": "write transport",
        "disabled": 'write "enabled": false',
        "token": 'write a secret as a variable: "env": {"TOKEN": "${TOKEN}"}, or in headers for HTTP',
        "password": 'write a secret as a variable: "env": {"PASSWORD": "${PASSWORD}"}',
    },
    below={"budget": _BUDGET, "budget.rateLimit": _RATE, "breaker": _BREAKER, "oauth": _OAUTH},
)

#: Keys that a transport has no use for. The spec's files name a command for HTTP, too.
UNUSED_BY_HTTP: Final = frozenset({"args", "env", "envVars", "envFile", "cwd"})
UNUSED_BY_STDIO: Final = frozenset({"baseURL", "headers", "oauth"})


# --- Reading and writing files


def structure(raw: Mapping[str, object], place: Place) -> DownstreamConfig | None:
    """Make a configuration from a parsed file. Return None if there are faults, which the place then has."""
    before = len(place.faults)
    values = _DOWNSTREAM.values(raw, place)
    _check_transport(values, place)
    timeout, written = values.pop("timeout_seconds", None), values.pop("budget", None)
    table = written if isinstance(written, _BudgetTable) else _BudgetTable()
    try:
        SECONDS(None, None, timeout)
    except ValueError as error:
        place.below("timeout").fault("is out of range", f"it {error}")
    if None not in (timeout, table.timeout_seconds) and timeout != table.timeout_seconds:
        place.below("timeout").fault("differs from the time-out in the budget", "write it once")
    if len(place.faults) > before:
        return None
    timeout = timeout or table.timeout_seconds or TIMEOUT_SECONDS
    budget = _BUDGET.made(place.below("budget"), table.budget, timeout_seconds=timeout)
    made: Callable[..., DownstreamConfig] = DownstreamConfig
    return None if budget is None else made(**values, budget=budget)


def _check_transport(values: Mapping[str, object], place: Place) -> None:
    transport = values.get("transport")
    if transport is None:
        return
    stdio = transport is Transport.STDIO
    needed, example = ("command", '"npx", and its arguments in args') if stdio else ("base_url", '"https://..."')
    name = _DOWNSTREAM.name_of(needed)
    if needed not in values:
        place.below(name).fault("is missing", f'write "{name}": {example}')
    unused = UNUSED_BY_STDIO if stdio else UNUSED_BY_HTTP
    for name in sorted(unused & {_DOWNSTREAM.name_of(attribute) for attribute in values}):
        place.below(name).fault(f"is of no use for {transport}", "leave it out, or write another transport")


def check(content: str, file: str) -> tuple[DownstreamConfig | None, tuple[Fault, ...]]:
    """Check the text of a file. Return the configuration, or None if there are faults, and all faults."""
    try:
        raw = read.parse_json(content)
    except read.BadJson as error:
        return None, (Fault(file, "", f"is not JSON ({error.what})", "correct that place", error.line),)
    place, config = Place(file), None
    lines: dict[str, int] = {}
    for key, line, twice in read.key_lines(content):
        if twice:
            place.faults.append(Fault(file, key, "is written twice", "keep one of the two", line))
        lines.setdefault(key, line)
    if isinstance(raw, dict):
        config = structure(raw, place)
    else:
        place.fault(f"is {read.kind_of(raw)}", 'write a table, {"name": "github", ...}')
    return (None if place.faults else config), tuple(read.located(place.faults, lines))


def parse(content: str, file: str) -> DownstreamConfig:
    """Return the configuration that the text of a file has. Raises SettingsError with all faults."""
    config, faults = check(content, file)
    if config is None:
        raise SettingsError(faults)
    return config


def to_json(config: DownstreamConfig) -> JsonObject:
    """Return what a file of this configuration contains, without what has its default."""
    written = {key: value for key, value in _DOWNSTREAM.write(config).items() if value != {}}
    if config.budget.timeout_seconds != TIMEOUT_SECONDS:
        written["timeout"] = _in_seconds(config.budget.timeout_seconds)
    return written
