"""The configuration file: what it gives, and what it says of faults."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intercom.local.config_file import load
from intercom.model.config import Config, LogLevel, OnTimeout, Pace, TimeoutSettings
from intercom.model.errors import ConfigError
from intercom.model.request import PromptType, RiskLevel


@pytest.fixture(autouse=True)
def _a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "SLACK_MEMBER_IDS"):
        monkeypatch.delenv(name, raising=False)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "conf" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text))
    return refused.value.message


def test_without_a_file_the_defaults_hold_and_the_database_has_a_place(tmp_path: Path) -> None:
    config = load()
    database = tmp_path / "home/.local/state/agent-intercom/data/agent-rc.db"
    assert config == attrs.evolve(Config(), database=attrs.evolve(Config().database, path=database))


def test_the_users_own_file_is_read_when_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    file = tmp_path / "xdg/agent-intercom/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("retention_days = 7")
    assert load().retention_days == 7


def test_a_relative_xdg_directory_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert load().database.path.is_relative_to(tmp_path / "home")


def test_every_kind_of_setting_is_read(tmp_path: Path) -> None:
    config = load(
        written(
            tmp_path,
            """
            default_workspace_root = "~/project"
            host_cli = "./bin/agent"
            host_cli_args = ["--quiet", "-x"]
            http_port = 3000
            [database]
            path = "rel/a.db"
            [slack]
            channel_id = "C0123456789"
            authorized_user_ids = ["U0123456789"]
            [slack.workspace_channels]
            "~/project" = "C0123456780"
            "link/../rel" = "C0123456781"
            [timeouts]
            approval_seconds = 0.5
            prompt_on_timeout = "stop"
            prompt_by_type = { error_recovery = "continue" }
            [stall]
            enabled = false
            [commands]
            status = "git status"
            [policy]
            max_risk_level = "low"
            [clients."codex"]
            call_wait_seconds = 240
            [clients."my agent"]
            call_wait_seconds = 0
            [rooms]
            enabled = true
            database = "rooms/all.db"
            secret_file = "~/secret"
            pace = "slow"
            active_seconds = 30
            [logging]
            level = "debug"
            file = "/var/log/x.log"
            """,
        )
    )
    here = tmp_path / "conf"
    assert config.default_workspace_root == tmp_path / "home/project"
    assert config.host_cli == str(here / "bin/agent")
    assert config.host_cli_args == ("--quiet", "-x")
    assert config.http_port == 3000
    assert config.database.path == here / "rel/a.db"
    assert config.slack.channel_id == "C0123456789"
    assert config.slack.authorized_user_ids == ("U0123456789",)
    assert config.slack.workspace_channels == {
        tmp_path / "home/project": "C0123456780",
        here / "rel": "C0123456781",
    }
    assert config.timeouts.approval_seconds == 0.5
    assert config.timeouts.prompt_by_type == {
        PromptType.ERROR_RECOVERY: OnTimeout.CONTINUE,
        PromptType.RESOURCE_WARNING: OnTimeout.HOLD,
    }
    assert not config.stall.enabled
    assert config.commands == {"status": "git status"}
    assert config.policy.max_risk_level is RiskLevel.LOW
    assert {name: each.call_wait_seconds for name, each in config.clients.items()} == {"codex": 240, "my agent": 0}
    assert config.rooms.enabled
    assert config.rooms.database == here / "rooms/all.db"
    assert config.rooms.secret_file == tmp_path / "home/secret"
    assert (config.rooms.pace, config.rooms.active_seconds) == (Pace.SLOW, 30)
    assert config.logging.level is LogLevel.DEBUG
    assert config.logging.file == Path("/var/log/x.log")


_PATHS = [
    (section.name, name)
    for section in attrs.fields(Config)
    if attrs.has(type(getattr(Config(), section.name)))
    for name, kind in get_type_hints(type(getattr(Config(), section.name))).items()
    if kind in (Path, Path | None)
]


@pytest.mark.parametrize(("path", "found"), [("rel/x", "conf/rel/x"), ("~/x", "home/x"), ("/x", "/x")])
def test_no_path_depends_on_where_the_server_is_started(tmp_path: Path, path: str, found: str) -> None:
    assert {("gateway", "directory"), ("web", "proxy_secret_file"), ("rooms", "secret_file")} < set(_PATHS)
    config = load(written(tmp_path, "".join(f'{section}.{name} = "{path}"\n' for section, name in _PATHS)))
    for section, name in _PATHS:
        assert getattr(getattr(config, section), name) == tmp_path / found, (section, name)


def test_a_bare_program_name_is_left_for_the_path_to_find(tmp_path: Path) -> None:
    assert load(written(tmp_path, 'host_cli = "claude"')).host_cli == "claude"


def test_members_from_the_environment_count_where_the_file_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_MEMBER_IDS", " U0123 ,U4567,")
    assert load().slack.authorized_user_ids == ("U0123", "U4567")
    named = written(tmp_path, '[slack]\nauthorized_user_ids = ["U9999"]')
    assert load(named).slack.authorized_user_ids == ("U9999",)
    monkeypatch.setenv("SLACK_MEMBER_IDS", "bob")
    with pytest.raises(ConfigError, match=r"^SLACK_MEMBER_IDS in the environment must be a user id .*not 'bob'$"):
        load()


FAULTS = [
    ("htp_port = 1", "line 1: htp_port is not a setting: did you mean http_port?"),
    ("http_port = 65536", "line 1: http_port must be at least 0 and at most 65535, not 65536"),
    ('http_host = "example.org"', "line 1: http_host must be an IP address of this machine"),
    (
        'http_token_required = false\nhttp_host = "0.0.0.0"',
        "line 1: http_token_required must stay true while http_host is 0.0.0.0",
    ),
    ('http_allowed_origins = ["https://a.example/page"]', "line 1: http_allowed_origins must be an origin like"),
    ("http_port = true", "line 1: http_port is true but must be a whole number"),
    ('http_port = "80"', 'line 1: http_port is "80" but must be a whole number'),
    ("max_concurrent_sessions = 0", "at least 1"),
    ("max_concurrent_sessions = 1.5", "is 1.5 but must be a whole number"),
    ("retention_days = -1", "at least 1"),
    ('host_cli = " "', "host_cli must not be empty"),
    ('host_cli_args = ["a", 1]', "host_cli_args is a list but must be a list of texts"),
    ('ipc_name = "../x"', "ipc_name must be up to 64 letters"),
    ('default_workspace_root = "/"', "default_workspace_root must not be /:"),
    ('default_workspace_root = "~/x/.."', "an agent would own all below it"),
    ('default_workspace_root = ""', 'default_workspace_root is "" but must be a path in quotes'),
    ('default_workspace_root = "a\\u0000b"', "must not contain a NUL character"),
    ("database = 3", "database is 3 but must be a table: write [database]"),
    ("[database]\npath = {}", "line 2: database.path is a table but must be a path"),
    ('[slack]\nchannel_id = "#general"', "line 2: slack.channel_id must be a channel id like C0123456789"),
    (
        '[slack]\nworkspace_channels = {"/a" = "#web"}',
        "line 2: slack.workspace_channels must be a channel id like C0123",
    ),
    ('[slack]\nauthorized_user_ids = ["bob"]', "must be a user id like U0123456789"),
    ('[slack]\napp_token = "xapp-1"', "a token is never in this file"),
    ("[timeouts]\n# why\napproval_seconds = 0", "line 3: timeouts.approval_seconds must be more than 0"),
    ("[timeouts]\nwait_seconds = -0.5", "timeouts.wait_seconds must be at least 0"),
    ("timeouts.wait_seconds = inf", "line 1: timeouts.wait_seconds must be"),
    ("[timeouts]\nprompt_seconds = nan", "must be more than 0"),
    ("[timeouts]\nprompt_seconds = 1e400", "not inf"),
    (f"[timeouts]\nprompt_seconds = 1{'0' * 400}", "must be more than 0 and at most"),
    ('[timeouts]\nprompt_on_timeout = "Hold"', 'but must be "continue", "stop" or "hold" (did you mean hold?)'),
    ('[timeouts]\nprompt_by_type.warning = "hold"', "timeouts.prompt_by_type.warning"),
    ('[timeouts]\nprompt_by_type = "hold"', "must be a table: write [timeouts.prompt_by_type]"),
    ("[timeouts]\napproval_timeout_seconds = 1", "write approval_seconds under [timeouts]"),
    ('[stall]\ndefault_nudge_message = ""', "stall.default_nudge_message must not be empty"),
    ('[commands]\n"a b" = "x"', "commands must be named with letters"),
    ('[commands]\nlist = " "', "commands must not be empty for list"),
    ("[commands]\nlist = 1", "line 2: commands.list is 1 but must be a text in quotes"),
    ('[policy]\nmax_risk_level = "none"', '"low", "high" or "critical"'),
    ('[rooms]\nsecret = "x"', "line 2: rooms.secret is not a setting: a secret is never in this file"),
    ('[web]\nproxy_secret = "x"', "line 2: web.proxy_secret is not a setting: a secret is never in this file"),
    ('[rooms]\ndatabase_url = "postgresql://u:p@h/d"', "write database_url_env, the name of a variable"),
    ('[rooms]\npublic_url = "rooms.example.org"', "rooms.public_url must be an address like https://rooms.example.org"),
    ('[rooms]\npublic_url = "https://a.example/?x=1"', "rooms.public_url must be an address like"),
    ('[rooms]\npublic_url = "https://a.example:99999"', "rooms.public_url must be an address like"),
    ('[web]\npublic_url = "https://a.example:99999"', "web.public_url must be an address like"),
    ('[rooms]\npace = "fast"', 'rooms.pace is "fast" but must be "normal" or "slow"'),
    (
        "[rooms]\nactive_seconds = 60\ndisconnected_seconds = 60",
        "line 3: rooms.disconnected_seconds must be more than active_seconds (60), not 60",
    ),
    ("[rooms]\nmax_wait_seconds = 0", "rooms.max_wait_seconds must be at least 1"),
    ("[rooms]\nloop_budget = -1", "rooms.loop_budget must be at least 0"),
    ("[clients]\ncodex = 240", "line 2: clients.codex is 240 but must be a table: write [clients.codex]"),
    ("[clients.codex]\ncall_wait_seconds = -1", "clients.codex.call_wait_seconds must be at least 0"),
    ("legacy_tool_names = true", "it is under [mcp]"),
    ("[mcp]\nhttp_port = 1", "it is at the top of the file"),
    ("[server]", "server is not a setting: its settings are at the top of the file now"),
    ("quite_unknown_thing = 1", "known here: default_workspace_root"),
    ("retention_days = \nhttp_port = 1", "is not valid TOML: invalid value (at line 1"),
    ("a = 1\na = 2", "is not valid TOML"),
    ("[slack]\na = 1\n[slack]\nb = 2", "the table [slack] twice (at line 3, column 7); keep one"),
    ("[clients.codex]\n[clients.codex]", "the table [clients.codex] twice (at line 2"),
    (f"retention_days = 1{'0' * 5000}", "is not valid TOML"),
    (f"a = {'[' * 5000}", "is not valid TOML"),
]


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_a_fault_is_told_with_its_place_and_what_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    message = refusal(tmp_path, text)
    assert said in message
    assert str(tmp_path / "conf/config.toml") in message
    assert not message.endswith(".")


def test_all_faults_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'http_port = -1\nfoo = 1\n[stall]\nenabled = 1\ndefault_workspace_root = "/"')
    assert message.splitlines()[0].endswith("config.toml has 4 faults:")
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == ["line 1", "line 2", "line 4", "line 5"]


def test_a_named_file_that_is_missing_is_a_fault_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"there is no configuration file at .*none\.toml: write one with 'agent-inter"
    ):
        load(tmp_path / "none.toml")


def test_a_file_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    file.chmod(0o606)
    with pytest.raises(ConfigError, match="can be written by every user: run 'chmod 600"):
        load(file)


def test_what_can_not_be_read_in_its_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(is a directory\)"):
        load(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=r"cannot be read \(too many levels"):
        load(tmp_path / "loop")
    file = written(tmp_path, "")
    file.write_bytes(b"a = 1\nb = '\xff'")
    with pytest.raises(ConfigError, match="is not UTF-8 text at line 2"):
        load(file)


def test_a_program_that_makes_its_own_configuration_meets_the_same_checks() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Config(max_concurrent_sessions=0)


@pytest.mark.parametrize(
    ("timeouts", "kind", "becomes"),
    [
        (TimeoutSettings(), PromptType.CONTINUATION, OnTimeout.CONTINUE),
        (TimeoutSettings(), PromptType.ERROR_RECOVERY, OnTimeout.HOLD),
        (TimeoutSettings(), PromptType.RESOURCE_WARNING, OnTimeout.HOLD),
        (TimeoutSettings(prompt_on_timeout=OnTimeout.STOP), PromptType.CLARIFICATION, OnTimeout.STOP),
        (TimeoutSettings(prompt_on_timeout=OnTimeout.STOP), PromptType.ERROR_RECOVERY, OnTimeout.HOLD),
        (
            TimeoutSettings(prompt_by_type={PromptType.ERROR_RECOVERY: OnTimeout.STOP}),
            PromptType.ERROR_RECOVERY,
            OnTimeout.STOP,
        ),
    ],
)
def test_what_an_unanswered_question_becomes(timeouts: TimeoutSettings, kind: PromptType, becomes: OnTimeout) -> None:
    assert timeouts.prompt_by_type.get(kind, timeouts.prompt_on_timeout) is becomes


NAMES = st.sampled_from([each.name for each in attrs.fields(Config)]) | st.text("abc_", min_size=1, max_size=9)
VALUES = st.recursive(
    st.integers().map(str)
    | st.floats().map(repr)
    | st.sampled_from(["true", '"x"', '""', "[]", '["a"]', "1979-05-27"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3).map(
        lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(NAMES, VALUES, max_size=5).map(lambda t: "\n".join(f"{k} = {v}" for k, v in t.items())) | st.text()
)
def test_whatever_a_file_says_it_is_a_configuration_or_a_refusal(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text.encode("utf-8", "replace").decode())
    try:
        assert isinstance(load(file), Config)
    except ConfigError as refused:
        said = refused.message
    else:
        return
    assert str(file) in said
