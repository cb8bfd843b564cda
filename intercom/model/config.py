"""The configuration: every setting, its default, its limits, and what it does.

`intercom.local.config_file.load` makes a `Config` from a file. A program that embeds the library may construct one; the
same checks run. The text beside each setting is its documentation, from which docs/reference/configuration.md is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import Factory, evolve, field, fields, frozen, has
from attrs.validators import deep_mapping

from intercom.model.errors import InvalidArguments
from intercom.model.limits import BASE_URL, BASE_URL_FORM, CHANNEL_ID, HEADER, LOOKS_LIKE
from intercom.model.request import OperationKind, PromptType, RiskLevel
from intercom.model.setting_checks import (
    DAYS,
    SECONDS,
    SECONDS_OR_NONE,
    Check,
    address,
    base_url,
    between,
    is_loopback,
    matching,
    not_empty,
)
from intercom.model.web import person_name
from intercom.model.web_role import WebRole


class OnTimeout(StrEnum):
    """What happens to an agent's question without an answer in time. `hold` keeps it open."""

    CONTINUE = "continue"
    STOP = "stop"
    HOLD = "hold"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def token_off_loopback(owner: Config | None, _setting: object, required: bool) -> None:
    """Check that a port which others can reach requires the token. The check needs another setting, so its message
    begins with the setting's name."""
    if owner is not None and not required and not is_loopback(owner.http_host):
        raise ValueError(
            f"http_token_required must stay true while http_host is {owner.http_host}, which other machines reach:"
            " leave it out, or listen on 127.0.0.1 behind a reverse proxy"
        )


def setting(
    default: object,
    doc: str,
    *checks: Check,
    converter: Callable[[Any], Any] | None = None,
    operators: bool = False,
    strictest: object = None,
) -> Any:
    """Declare a setting. `default` may be a factory (a class or function). With `operators`, the setting says whom the
    server trusts or what it may run. It is never taken from a file that an agent's client names. `strictest` is the
    value that allows least; leave it out if that is the default."""
    value = Factory(default) if callable(default) else default
    metadata = {"doc": doc, "operators": operators, "strictest": strictest}
    return field(default=value, validator=list(checks) or None, converter=converter, metadata=metadata)


#: If nobody answers, an agent must not go on after an error or past a limit.
HELD = {PromptType.ERROR_RECOVERY: OnTimeout.HOLD, PromptType.RESOURCE_WARNING: OnTimeout.HOLD}


@frozen
class DatabaseSettings:
    path: Path = setting(
        Path("data/agent-rc.db"),
        "The SQLite file. Missing directories are created. Default: `data/agent-rc.db` in the user's state directory.",
    )


@frozen
class SlackSettings:
    channel_id: str | None = setting(
        None,
        "The channel where cards are posted; a connection may name another. Default: no Slack.",
        matching(CHANNEL_ID, LOOKS_LIKE),
    )
    workspace_channels: Mapping[Path, str] = setting(
        dict,
        'Another channel for the agents in a directory and all below it, `"~/projects/web" = "C0123456789"`; '
        "if several match, the nearest directory counts.",
        deep_mapping(value_validator=matching(CHANNEL_ID, LOOKS_LIKE)),
    )
    authorized_user_ids: tuple[str, ...] = setting(
        (),
        "Who may answer from Slack, by user id. Default: the ids in the server's `SLACK_MEMBER_IDS`.",
        matching(r"[UW][A-Z0-9]{2,}", "a user id like U0123456789 (a member's profile in Slack shows it)"),
    )
    proxy: str | None = setting(
        None,
        "The HTTP proxy for connections to Slack. Proxies that the environment names are not used: an agent could name"
        " its own, and get the tokens.",
        matching(r"https?://[^\s/?#]+/?", "a proxy's address like http://proxy.example.org:3128"),
    )
    ca_file: Path | None = setting(
        None, "Certificates to trust instead of the usual ones, PEM: for a proxy that inspects connections."
    )
    reconnect_backoff_max_seconds: float = setting(
        300, "The longest pause between two attempts to reach Slack again.", SECONDS
    )


@frozen
class TimeoutSettings:
    approval_seconds: float = setting(3600, "How long a proposed change waits for a decision.", SECONDS)
    approved_valid_seconds: float = setting(
        86400, "How long an approved change may still be applied before the approval lapses.", SECONDS
    )
    prompt_seconds: float = setting(
        1800, "How long an agent's question waits before `prompt_on_timeout` decides it.", SECONDS
    )
    prompt_on_timeout: OnTimeout = setting(
        OnTimeout.CONTINUE,
        "What happens to an unanswered question: the agent continues, stops, or keeps waiting. "
        "It is told that nobody answered and nobody consented (`timed_out`), and people are told what it was told.",
    )
    prompt_by_type: Mapping[PromptType, OnTimeout] = setting(
        dict,
        "The same for one type of question, instead of `prompt_on_timeout`. "
        "`error_recovery` and `resource_warning` hold unless named here.",
        converter=lambda given: HELD | given,
    )
    wait_seconds: float = setting(0, "How long an agent stands by for work; 0 means without limit.", SECONDS_OR_NONE)
    command_timeout_seconds: float = setting(
        60, "How long a command of `[commands]` may run before it is killed.", SECONDS
    )


@frozen
class LimitSettings:
    pending_per_session: int = setting(
        200,
        "How many requests of one session may wait for a person at once; a further one is refused.",
        between(1, 100_000),
    )
    pending_total: int = setting(
        2000,
        "The same for all sessions together. A session with fewer than 5 may exceed it, up to twice the limit.",
        between(1, 1_000_000),
    )


@frozen
class StallSettings:
    enabled: bool = setting(True, "Whether the server notices an agent that has gone quiet.")
    inactivity_threshold_seconds: float = setting(
        300, "How long an agent may be quiet before it counts as stalled. Waiting for a person is not quiet.", SECONDS
    )
    escalation_threshold_seconds: float = setting(
        120, "How long a stall alert waits for a person before the agent is nudged, and between nudges.", SECONDS
    )
    max_retries: int = setting(3, "How often an agent is nudged before the alert escalates.", between(0, 1000))
    default_nudge_message: str = setting(
        "Continue working on the current task. Pick up where you left off.",
        "The text of a nudge if the person gives none.",
        not_empty,
    )


@frozen
class SteeringSettings:
    max_queued: int = setting(
        20, "How many messages or tasks may wait for one agent, or in the inbox of one workspace.", between(1, 1000)
    )
    max_queued_bytes: int = setting(
        65536, "The most bytes of UTF-8 that they may have together, and so also one of them.", between(100, 2**20)
    )


@frozen
class PolicySettings:
    require_allowlist: bool = setting(
        False, "Whether a workspace policy may approve only commands that `[commands]` lists too.", strictest=True
    )
    max_risk_level: RiskLevel = setting(
        RiskLevel.HIGH,
        "The highest risk any workspace policy may approve by itself; `critical` never is.",
        strictest=RiskLevel.LOW,
    )
    remote_mode_asks_always: bool = setting(
        False, "Whether a session in remote mode asks a person even if the policy would approve.", strictest=True
    )
    trust_changes: bool = setting(
        False,
        "Whether every content of a policy file takes effect at once. Otherwise a person accepts it first. If there"
        " is an operator key, this has to be signed with it (`agent-intercom-ctl key settings`).",
    )


@frozen
class ApplySettings:
    agent_may_force: bool = setting(
        False,
        "Whether an agent's `force` alone writes an approved file over one that has changed since. Otherwise, and "
        "wherever there is an operator key, a person decides, who is shown both.",
    )


@frozen
class McpSettings:
    legacy_tool_names: bool = setting(
        False, "Whether the tools also answer to their older names (`ask_approval`, `accept_diff`, ...)."
    )
    permission_prompt_tool: bool = setting(
        False,
        "Whether there is a tool `permission_prompt` for Claude Code's `--permission-prompt-tool`.",
    )


@frozen
class HooksSettings:
    ask_for: tuple[str, ...] = setting(
        tuple(kind.value for kind in OperationKind if kind is not OperationKind.READ),
        "What a client's permission hook asks about: `write` (changes to files), `command`, `fetch` (the network),"
        " `mcp` (tools of other MCP servers), `read` and `other` (unknown tools). What is not named here is"
        " left to the client.",
        matching("|".join(OperationKind), f"one of {', '.join(OperationKind)}"),
    )


@frozen
class CtlSettings:
    trust_agent_processes: bool = setting(
        False,
        "Whether everything that runs as you may decide with `agent-intercom-ctl`, including agents' own processes and"
        " those without a terminal. An agent could then approve its own requests.",
    )


@frozen
class ElicitationSettings:
    enabled: bool = setting(
        False,
        "Whether an agent's questions and standbys are also shown in a dialog of its own client, if that has dialogs"
        " (elicitation). The answer comes from the agent's process, which could write it itself: approvals are never"
        " asked this way, and nothing is if there is an operator key.",
    )


def names_of_people(_owner: object, _setting: object, names: Iterable[str]) -> None:
    """Check that each of these names is recorded as it is written, and could not be read as something else."""
    for name in names:
        try:
            recorded = person_name(name)
        except InvalidArguments as fault:
            raise ValueError(f"must be names of people, not {name!r}: {fault.message}") from None
        if recorded != name:
            raise ValueError(f"must be names of people as they are recorded: {recorded!r}, not {name!r}")


def another_header(owner: WebSettings | None, _setting: object, name: str) -> None:
    """Check that the secret has a header of its own: a person's name is repeated to whom it names."""
    if owner is not None and name.casefold() == owner.proxy_header.casefold():
        raise ValueError("proxy_secret_header must be another header than proxy_header")


def port_of_proxy(owner: WebSettings | None, _setting: object, url: str | None) -> None:
    """Check that a proxy finds the page: a free port is another one each time."""
    if owner is not None and url is not None and not owner.port:
        raise ValueError("public_url needs the port to which the proxy connects: set port under [web] too")


@frozen
class WebSettings:
    enabled: bool = setting(
        True,
        "Whether `agent-intercom-ctl web` may open the page in the browser. Nothing listens before somebody does, "
        "except on a set `port`, for a proxy or a program with a token.",
    )
    port: int = setting(
        0, "Its port on 127.0.0.1; 0 takes a free one, and keeps it until the server ends.", between(0, 65535)
    )
    public_url: str | None = setting(
        None,
        "The address of a reverse proxy that signs people in and leads to this port, for example"
        " `https://intercom.example.org`. Default: the page is reached on this machine only. The proxy has to show a"
        " secret, and `port` must be set.",
        base_url(r"https://[A-Za-z0-9._-]+(:\d{1,5})?", "an address like https://intercom.example.org, without a path"),
        port_of_proxy,
    )
    members: Mapping[str, WebRole] = setting(
        dict,
        'Who may use the page behind that proxy, `"kim@example.org" = "operator"`: the name as the proxy gives it, and'
        " what the person may do. Others are refused.",
        names_of_people,
    )
    proxy_header: str = setting(
        "X-Forwarded-User",
        "The header in which the proxy says who is signed in. It must remove the one that a browser sends.",
        matching(HEADER, "a header's name"),
    )
    proxy_secret_header: str = setting(
        "X-Intercom-Proxy-Secret",
        "The header in which the proxy shows its secret.",
        matching(HEADER, "a header's name"),
        another_header,
    )
    proxy_secret_file: Path | None = setting(
        None,
        "A file with that secret, which other users cannot read. Default: `INTERCOM_PROXY_SECRET` in the environment of"
        " `agent-intercom serve`, not of a server that an agent starts.",
    )
    push_contact: str | None = setting(
        None,
        "Your address (`mailto:` or `https:`), which push services are told with each message; Apple's wants one.",
        matching(r"mailto:[^\s@]+@[^\s@]+|https://[^\s/]\S*", "an address such as mailto:alex@example.org"),
    )


class HighestRisk(StrEnum):
    """The highest risk that may be decided; `none` allows nothing."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return -1 if self is HighestRisk.NONE else RiskLevel(self.value).rank


@frozen
class DecisionsSettings:
    slack: HighestRisk = setting(
        HighestRisk.HIGH,
        "The highest risk that may be decided from Slack if there is an operator key. This setting has to be signed"
        " with it (`agent-intercom-ctl key settings`). A higher risk is decided with the key.",
        strictest=HighestRisk.NONE,
    )
    embed: HighestRisk = setting(
        HighestRisk.NONE,
        "The same for a program that embeds the server.",
    )
    unlock_minutes: float = setting(
        15,
        "How long a terminal keeps an unused key unlocked; 0 asks for the PIN each time. Critical decisions"
        " always ask.",
        between(0, 24 * 60),
        strictest=0,
    )


class SpawnRestart(StrEnum):
    """When an agent that a person started is restarted, after its process ended by itself."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


@frozen
class SpawnSettings:
    environment: tuple[str, ...] = setting(
        (),
        "Further variables of the server's environment that the agents get: an API key, for example.",
        matching(r"(?!INTERCOM_)[A-Za-z_][A-Za-z0-9_]*", "a variable's name, and not one of Intercom's own"),
    )
    restart: SpawnRestart = setting(
        SpawnRestart.NEVER, "Whether an agent whose process ended is started again, with the same prompt and session."
    )
    max_restarts: int = setting(
        3, "How many restarts in a row; a run of ten minutes resets the count.", between(0, 1000)
    )
    restart_backoff_seconds: float = setting(
        1, "The pause before the first restart; it doubles each time, up to five minutes.", SECONDS
    )
    resume_args: tuple[str, ...] = setting(
        (),
        "Arguments with which `host_cli` continues a conversation, instead of `host_cli_args`: an agent that has ended "
        "successfully is started again with them if a message waits for it. `{session_id}` stands for the session's id "
        "in both.",
    )
    output_limit_bytes: int = setting(
        10 * 2**20,
        "How much of each agent's output is stored, for stdout and stderr each; the oldest is removed first.",
        between(4096, 2**33),
    )


@frozen
class CheckpointSettings:
    keep_contents: bool = setting(
        True,
        "Whether checkpoints store the contents of files, so that they can be restored. Otherwise they store hashes, "
        "which show what has changed. What .gitignore excludes is never included.",
    )
    max_files: int = setting(100_000, "How many files of a workspace a checkpoint includes.", between(1, 1_000_000))
    max_bytes: int = setting(2 * 2**30, "How many bytes of all files together a checkpoint reads.", between(1, 2**40))
    max_file_bytes: int = setting(
        8 * 2**20, "The largest file whose content is stored; of a larger one only the hash is.", between(0, 64 * 2**20)
    )
    max_kept_bytes: int = setting(
        4 * 2**30,
        "How much disk the contents of all checkpoints may take together. What does not fit is not stored, and the "
        "checkpoint says so.",
        between(0, 2**40),
    )
    max_seconds: float = setting(30, "How long a checkpoint, or a comparison with one, may read files.", SECONDS)


@frozen
class ClientSettings:
    call_wait_seconds: float | None = setting(
        None,
        "How long one call of this client may wait before it is told to ask again; 0 means without limit. "
        "Default: the known limit of the client.",
        SECONDS_OR_NONE,
    )


@frozen
class LoggingSettings:
    level: LogLevel = setting(
        LogLevel.INFO,
        "The lowest level that is logged. `INTERCOM_LOG` in the environment of `agent-intercom serve` has precedence,"
        " and may set single loggers: `warning,intercom.store=debug`.",
    )
    file: Path | None = setting(
        None, "Where the background server logs. Default: `log/<ipc_name>.log` in the user's state directory."
    )


class Pace(StrEnum):
    """How often the teams of a room call. `slow` suits agents whose turns take minutes."""

    NORMAL = "normal"
    SLOW = "slow"


def after_active(owner: RoomsSettings | None, _setting: object, disconnected: float | None) -> None:
    """Check that a team counts as disconnected later than as idle. The message begins with the setting's name."""
    if owner is None or owner.active_seconds is None or disconnected is None:
        return
    if disconnected <= owner.active_seconds:
        raise ValueError(
            f"disconnected_seconds must be more than active_seconds ({owner.active_seconds:g}), not {disconnected:g}"
        )


@frozen
class GatewaySettings:
    enabled: bool = setting(False, "Whether agents reach other MCP servers through this server.")
    directory: Path | None = setting(
        None,
        "The directory with a file for each MCP server, and `roles.json`. Default: `gateway` beside this file.",
    )


@frozen
class RoomsSettings:
    enabled: bool = setting(
        False,
        "Whether this server has rooms, and serves them on its HTTP port. `agent-intercom rooms` always does.",
    )
    database: Path | None = setting(None, "The rooms' SQLite file. Default: `rooms.db` beside the server's database.")
    database_url_env: str | None = setting(
        None,
        "The variable of the server's environment that holds the URL of a PostgreSQL database for the rooms instead,"
        " which several servers may share. Default: none, or `DATABASE_URL` for `agent-intercom rooms`.",
        matching(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name"),
    )
    public_url: str | None = setting(
        None,
        "The address at which teams reach the rooms, for example `https://rooms.example.org`. `agent-intercom-ctl rooms"
        " url` changes it while the server runs, and has precedence. Default: the address that the server listens on.",
        base_url(BASE_URL, BASE_URL_FORM),
    )
    pace: Pace = setting(
        Pace.NORMAL,
        "After how many seconds without a call a team counts as idle, and as disconnected: 10 and 60, or 180 and 900"
        " for agents that are slow.",
    )
    active_seconds: float | None = setting(None, "The first of the two, if neither pace fits.", SECONDS)
    disconnected_seconds: float | None = setting(
        None, "The second of the two, if neither pace fits.", SECONDS, after_active
    )
    loop_budget: int = setting(
        200,
        "How many messages teams may add without a change of the document or a message of a person. Ten times as many"
        " messages and changes may follow without a person. Then the room is paused, until a person or the team that"
        " created it lets it continue; 0 means without limit.",
        between(0, 1_000_000),
    )
    idle_polls: int = setting(
        10,
        "After how many calls in a row without a message a waiting team is advised to stop; 0 means never.",
        between(0, 1_000_000),
    )
    max_wait_seconds: float = setting(
        55, "How long one call waits for messages; a longer time is shortened to this.", between(1, 3600)
    )
    convener_only_conclude: bool = setting(False, "Whether only the team that created a room may conclude it.")
    convener_only_metadata: bool = setting(
        False, "Whether only the team that created a room may change its title and description."
    )
    one_room_at_a_time: bool = setting(
        False, "Whether a team (by its name) is refused in a room while it is active or idle in another."
    )
    conclusion_agent: bool = setting(
        False,
        "Whether a room may ask for an agent that this server starts (`host_cli`) to conclude it, when all its teams"
        " are gone or the team that created it asks. Anyone who may create rooms could then have agents started.",
    )
    posts_per_minute: int = setting(
        0, "How many messages a team may post in a minute; 0 means without limit.", between(0, 1_000_000)
    )
    document_writes_per_minute: int = setting(
        0, "How often a team may write the document in a minute; 0 means without limit.", between(0, 1_000_000)
    )
    metadata_interval_seconds: float = setting(
        0, "The shortest time between two changes of a room's title or description; 0 means none.", SECONDS_OR_NONE
    )
    secret_file: Path | None = setting(
        None,
        "A file with the secret that callers have to show, as `Authorization: Bearer SECRET`; other users cannot read"
        " it. Default:"
        " `INTERCOM_ROOMS_SECRET` in the environment of `agent-intercom rooms` or `serve`, not of a server that an"
        " agent starts. Without either, callers need no secret.",
    )
    secret_required: bool = setting(
        False, "Whether the server refuses to start without such a secret, so that a forgotten one is noticed."
    )
    only_rooms_off_loopback: bool = setting(
        True,
        "Whether other machines reach nothing but the rooms and `/healthz` on the HTTP port. Programs on this machine"
        " reach the agents' own endpoints too.",
    )


@frozen
class Config:
    """All settings. If `load` made it, its paths are absolute. Numbers of seconds may be fractions."""

    default_workspace_root: Path | None = setting(
        None, "The workspace of an agent that does not say where it works. `/` and the home directory are refused."
    )
    max_concurrent_sessions: int = setting(3, "How many agents started by people may run at once.", between(1, 1000))
    host_cli: str | None = setting(
        None,
        "The agent that `session-start` runs: a program's name or path. Default: none can be started.",
        not_empty,
        operators=True,
    )
    host_cli_args: tuple[str, ...] = setting(
        (),
        "Arguments for `host_cli`, before the prompt, which is the last one. No shell is used.",
        operators=True,
    )
    http_port: int | None = setting(
        None,
        "The port for agents that speak MCP over HTTP; 0 takes a free one. Default: no HTTP.",
        between(0, 65535),
    )
    http_host: str = setting(
        "127.0.0.1",
        "The address of that port. Except on loopback, the token is sent unencrypted: use a proxy with TLS instead.",
        address,
        operators=True,
    )
    http_token_required: bool = setting(
        True,
        "Whether a caller over HTTP must show the token. Other users of the machine can reach the port too. "
        "It can be false on loopback only.",
        token_off_loopback,
        operators=True,
    )
    http_max_request_bytes: int = setting(
        16 * 2**20, "The largest request over HTTP, in bytes; a larger one is answered 413.", between(65536, 2**30)
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        (),
        "Further names that a request may have as its `Host`, in addition to those of loopback and `http_host`: what a "
        'reverse proxy passes on, for example `"intercom.example.org"`; with a port, that port only.',
        matching(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?", "a host, or host:port"),
        operators=True,
    )
    http_allowed_origins: tuple[str, ...] = setting(
        (),
        'Web pages whose scripts may call the port, for example `"https://intercom.example.org"`. '
        "Requests of other pages are refused; programs other than browsers send no origin.",
        matching(r"https?://[A-Za-z0-9._:\[\]-]+", "an origin like https://intercom.example.org, without a path"),
        operators=True,
    )
    ipc_name: str = setting(
        "agent-intercom",
        "The name of the server's sockets; `agent-intercom-ctl --ipc-name` takes the same.",
        matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", "up to 64 letters, digits, dots, dashes and underscores"),
    )
    retention_days: int = setting(30, "How long an ended session, with everything that belongs to it, is kept.", DAYS)
    interrupted_retention_days: int = setting(
        7,
        "How long a session whose agent is gone can still be resumed. Then it ends, its pending requests are closed, "
        "and `retention_days` counts.",
        DAYS,
    )
    checkpoint_retention_days: int = setting(30, "How long a checkpoint is kept, if its session is.", DAYS)
    command_output_limit_bytes: int = setting(
        65536, "How much of a command's output is kept; the rest is cut off, which is shown.", between(1, 16 * 2**20)
    )
    database: DatabaseSettings = setting(DatabaseSettings, "The database.")
    slack: SlackSettings = setting(SlackSettings, "Slack. Its tokens are never in this file.", operators=True)
    timeouts: TimeoutSettings = setting(TimeoutSettings, "How long things wait for a person.")
    limits: LimitSettings = setting(LimitSettings, "How much may wait for people.")
    stall: StallSettings = setting(StallSettings, "Agents that go quiet.")
    steering: SteeringSettings = setting(SteeringSettings, "What people tell agents that work.")
    commands: Mapping[str, str] = setting(
        dict,
        'Commands people may run by name, `name = "shell command"`. Nothing else can be run.',
        matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "named with letters, digits, dots, dashes and underscores"),
        not_empty,
        operators=True,
    )
    policy: PolicySettings = setting(
        PolicySettings, "Limits on what workspaces may approve by themselves.", operators=True
    )
    apply: ApplySettings = setting(ApplySettings, "Writing approved changes.", operators=True)
    mcp: McpSettings = setting(McpSettings, "The tools as agents see them.")
    hooks: HooksSettings = setting(HooksSettings, "The clients' permission hooks.")
    ctl: CtlSettings = setting(CtlSettings, "Who may answer from a terminal.", operators=True)
    elicitation: ElicitationSettings = setting(
        ElicitationSettings, "Questions in a dialog of the agent's own client.", operators=True
    )
    web: WebSettings = setting(WebSettings, "The page in the browser.", operators=True)
    decisions: DecisionsSettings = setting(
        DecisionsSettings,
        "What each channel may decide if there is an operator key (`agent-intercom-ctl key`).",
        operators=True,
    )
    spawn: SpawnSettings = setting(
        SpawnSettings, "Agents started by people: the processes of `host_cli`.", operators=True
    )
    checkpoint: CheckpointSettings = setting(CheckpointSettings, "What checkpoints include and store.")
    rooms: RoomsSettings = setting(
        RoomsSettings,
        "Rooms, in which teams of agents work together. Their secret and the password of a database are never in this"
        " file.",
        operators=True,
    )
    gateway: GatewaySettings = setting(
        GatewaySettings,
        "The gateway, through which agents reach other MCP servers.",
        operators=True,
    )
    clients: Mapping[str, ClientSettings] = setting(
        dict,
        "One table for each MCP client, named as `init --client` names it, or by the beginning of the name that it"
        ' gives itself: `[clients."qwen-code"]` is for `qwen-cli-mcp-client-agent-intercom`, `[clients."mcp"]` for'
        " programs on the Python SDK.",
    )
    logging: LoggingSettings = setting(LoggingSettings, "What is logged, and where.")


def with_operators_settings(config: Config, own: Config) -> tuple[Config, tuple[str, ...]]:
    """Return `config` with the operators' settings of `own`, and the names of the settings that this overrode."""
    named = _operators_settings()
    kept = {name: getattr(own, name) for name in named}
    left_out = tuple(name for name in named if getattr(config, name) not in (getattr(_DEFAULTS, name), kept[name]))
    return evolve(config, **kept), left_out


def strictest() -> Config:
    """Return the configuration whose operators' settings allow least."""
    strict: dict[str, Any] = {}
    for name in _operators_settings():
        default = getattr(_DEFAULTS, name)
        if has(type(default)):
            values = {each.name: each.metadata["strictest"] for each in fields(type(default))}
            strict[name] = evolve(default, **{name: value for name, value in values.items() if value is not None})
    return evolve(_DEFAULTS, **strict)


def _operators_settings() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Config) if each.metadata["operators"])


_DEFAULTS = Config()
