"""A server that a client's relay starts: of the client's environment and of the files it names, nothing that says whom
the server trusts, what it runs, or where secrets go.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from attrs import evolve

from intercom.agents.shim import launch
from intercom.agents.shim.launch import Options, isolation
from intercom.cli.server_settings import ServerSettings, settle
from intercom.local import lock
from intercom.local import places as where_things_live
from intercom.local.daemon import allowed, server_environment
from intercom.local.places import places
from intercom.model.config import (
    ApplySettings,
    Config,
    CtlSettings,
    DecisionsSettings,
    HighestRisk,
    PolicySettings,
    SlackSettings,
    strictest,
    with_operators_settings,
)
from intercom.model.request import RiskLevel
from tests.faults.hosted import ctl, hosted
from tests.support.server_process import TRUSTING, Home, call

pytestmark = [pytest.mark.real_time, pytest.mark.home(""), pytest.mark.usefixtures("real_starts")]

#: What an agent, or a file in a repository that configures its client, could say to a relay.
HOSTILE = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/tmp/evil.pem",
    "SSL_CERT_DIR": "/tmp/evil",
    "REQUESTS_CA_BUNDLE": "/tmp/evil.pem",
    "SLACK_BOT_TOKEN": "xoxb-evil",
    "SLACK_APP_TOKEN": "xapp-evil",
    "SLACK_MEMBER_IDS": "U0EVIL",
    "INTERCOM_SLACK_API": "http://127.0.0.1:9/api/",
    "INTERCOM_FAULT": "",
    "PYTHON_KEYRING_BACKEND": "evil.Backend",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/evil",
    "PYTHONSTARTUP": "/tmp/evil.py",
    "PYTHONINSPECT": "",
    "GLIBC_TUNABLES": "glibc.malloc.check=3",
    "LD_LIBRARY_PATH": "/tmp/evil",
    "NODE_OPTIONS": "--require /tmp/evil.js",
}


def environ_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if pair)


async def test_a_server_that_a_relay_starts_takes_nothing_of_the_clients_environment(home: Home) -> None:
    planted = home.root / "planted"
    (planted / "intercom").mkdir(parents=True)
    (planted / "sitecustomize.py").write_text(f"open({str(home.root / 'ran')!r}, 'a').write('sitecustomize')")
    (planted / "intercom" / "__init__.py").write_text(f"open({str(home.root / 'ran')!r}, 'a').write('package')")
    user_site = home.root / ".local" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    user_site.mkdir(parents=True)
    (user_site / "usercustomize.py").write_text(f"open({str(home.root / 'ran')!r}, 'a').write('usercustomize')")
    hostile = {name: value for name, value in HOSTILE.items() if name.isupper() and name != "INTERCOM_FAULT"}
    # The relay itself runs as its client says; -P keeps these from it, as an installed program has it.
    async with home.agent(home.workspace(), **hostile) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        pid = home.server()
        assert pid is not None
        environ = environ_of(pid)
        # The C library has cut its own variable at the colons.
        settings = server_environment({})["GLIBC_TUNABLES"].split(":")
        assert environ.pop("GLIBC_TUNABLES") == settings[0]
        environ = {name: value for name, value in environ.items() if f"{name}={value}" not in settings}
        bus = environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
        assert bus in (None, f"unix:path=/run/user/{os.geteuid()}/bus")
        assert environ == allowed(environ)
        assert not environ.keys() & HOSTILE.keys()
        words = (await trio.Path(f"/proc/{pid}/cmdline").read_bytes()).split(b"\0")
        assert b"-I" in words or b"-E" in words
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert not (home.root / "ran").exists()


async def test_planted_modules_do_not_run_in_the_server(home: Home) -> None:
    """Named by PYTHONPATH, which the relay's own interpreter heeds; the server's does not."""
    planted = home.root / "planted"
    planted.mkdir()
    ran = home.root / "ran"
    (planted / "sitecustomize.py").write_text(f"import os; open({str(ran)!r}, 'a').write(f'{{os.getpid()}}\\n')")
    async with home.agent(home.workspace(), PYTHONPATH=str(planted)) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        pids = [int(line) for line in ran.read_text().split()]
        assert pids, "it runs in the relay, so it is a plant that works"
        assert home.server() not in pids


@pytest.mark.parametrize("how", [(), ("--in-process",)])
async def test_a_clients_config_makes_no_agent_trusted(home: Home, how: tuple[str, ...]) -> None:
    root = home.workspace()
    evil = root / "evil.toml"
    evil.write_text("[ctl]\ntrust_agent_processes = true\n[slack]\nchannel_id = 'C0123456789'\n")
    async with hosted(home, root, arguments=("--config", str(evil), *how)) as agent:
        await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        found: list[dict[str, str]] = []
        while not found:
            code, said = await ctl(home, "pending")
            found = said if code == 0 else []
        id = found[0]["request_id"]
        tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {id}")
        assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
        code, shown = await ctl(home, "show", id)
        assert (code, shown["status"]) == (0, "pending")


@pytest.mark.parametrize("how", [(), ("--in-process",)], ids=["background", "in process"])
@pytest.mark.parametrize(
    "named",
    [
        "XDG_CONFIG_HOME={evil}/.config",
        "HOME={evil} XDG_CONFIG_HOME=",
        "HOME={evil} XDG_CONFIG_HOME= XDG_STATE_HOME=",
        "XDG_STATE_HOME={evil}/.local/state",
    ],
)
async def test_a_directory_that_the_client_names_makes_no_agent_trusted(
    home: Home, named: str, how: tuple[str, ...]
) -> None:
    root, evil = home.workspace(), home.root / "evil"
    config = evil / ".config" / "agent-intercom" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(TRUSTING)
    if "XDG_CONFIG_HOME" not in named:
        # Even the user's own settings count only for the user's own server.
        home.configure(TRUSTING)
    given = named.format(evil=evil).split()
    stand_in = {name: value for name, _, value in (each.partition("=") for each in given)}
    try:
        async with hosted(home, root, "env", *given, arguments=how) as agent:
            await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
            found: list[dict[str, str]] = []
            while not found:
                code, said = await ctl(home, "pending")
                found = said if code == 0 else []
            tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {found[0]['request_id']}")
            assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
            if not how:
                _, log = await ctl(home, "log")
                told = [entry["summary"] for entry in log["entries"] if entry["kind"] == "security"]
                assert any("is not known to be yours" in each and "about ctl" in each for each in told), told
    finally:
        holder = lock.holder(Path(places(environ={**home.environ, **stand_in}).database))
        if holder is not None and holder.pid:
            os.kill(holder.pid, signal.SIGKILL)


async def test_directories_that_the_user_has_used_count(home: Home) -> None:
    root = home.workspace()
    home.configure(TRUSTING)
    async with hosted(home, root) as agent:
        await agent.call("ping")
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with home.person(root) as person:
            card = await person.card(status="pending")
        tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {card['request_id']}")
        assert tried["code"] == 0, tried
        assert (await agent.answer(asked))["status"] == "approved"


def test_what_a_client_may_say_of_the_server_stays_and_the_rest_is_the_users() -> None:
    given = Config(retention_days=7, ctl=CtlSettings(True), slack=SlackSettings("C0123456789"), host_cli="evil")
    own = Config(retention_days=9, policy=PolicySettings(require_allowlist=True), host_cli="mine")
    kept, left_out = with_operators_settings(given, own)
    assert kept == Config(retention_days=7, policy=own.policy, host_cli="mine")
    assert set(left_out) == {"ctl", "slack", "host_cli"}
    assert with_operators_settings(Config(), own) == (Config(policy=own.policy, host_cli="mine"), ())


def test_the_strictest_settings_let_nothing_be_decided_without_a_person() -> None:
    assert strictest() == Config(
        policy=PolicySettings(
            require_allowlist=True, max_risk_level=RiskLevel.LOW, remote_mode_asks_always=True, trust_changes=False
        ),
        apply=ApplySettings(agent_may_force=False),
        ctl=CtlSettings(trust_agent_processes=False),
        decisions=DecisionsSettings(slack=HighestRisk.NONE, embed=HighestRisk.NONE, unlock_minutes=0),
    )


@pytest.fixture
def me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration file, in the home that the system knows; the environment names that home too."""
    file = tmp_path / "me/.config/agent-intercom/config.toml"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(where_things_live, "STAND_IN_HOME", str(tmp_path / "me"))
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return file


def started_by_client(config: Path | None = None) -> ServerSettings:
    named = None if config is None else str(config)
    return settle(argparse.Namespace(config=named, ipc_name=None), by_client=True)


STRICT = """
host_cli = "~/bin/agent"
[policy]
require_allowlist = true
[decisions]
slack = "none"
[slack]
channel_id = "C0123456789"
"""


@pytest.mark.parametrize("named", ["--config", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"])
def test_the_users_own_settings_hold_whatever_a_client_names(
    named: str, me: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.write_text(STRICT)
    config = None
    if named == "--config":
        config = tmp_path / "evil.toml"
        config.write_text("retention_days = 7\n[policy]\nmax_risk_level = 'low'\n")
    else:
        monkeypatch.setenv(named, str(tmp_path / "evil"))
    settings = started_by_client(config)
    assert settings.config.policy == PolicySettings(require_allowlist=True)
    assert settings.config.decisions.slack is HighestRisk.NONE
    assert settings.config.host_cli == str(tmp_path / "me/bin/agent")
    assert settings.config.slack == SlackSettings(), "two servers must not be in Slack"
    assert settings.slack is None
    if named == "--config":
        assert settings.config.retention_days == 7
        assert "takes nothing from its configuration about policy" in settings.left_out_message
    else:
        assert "not known to be yours" in settings.left_out_message


def test_a_client_does_not_choose_what_stands_for_home_in_the_users_configuration(
    me: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.write_text('host_cli = "~/bin/agent"\n[web]\nproxy_secret_file = "~/secret"\n')
    evil = tmp_path / "evil"
    monkeypatch.setenv("HOME", str(evil))
    # The directories are the user's own.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me/.config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "me/.local/state"))
    config = started_by_client().config
    assert config.host_cli == str(tmp_path / "me/bin/agent")
    assert config.web.proxy_secret_file == tmp_path / "me/secret"


def test_where_the_users_own_configuration_is_damaged_the_strictest_holds_and_people_are_told(
    me: Path, tmp_path: Path
) -> None:
    me.write_text("[ctl]\ntrust_agent_processes = true\n[policy\n")
    config = tmp_path / "named.toml"
    config.write_text("")
    settings = started_by_client(config)
    assert settings.config == evolve(strictest(), database=settings.config.database)
    assert "the strictest settings apply" in settings.left_out_message
    assert f"{me} is not valid TOML" in settings.left_out_message


def test_a_user_without_a_configuration_has_the_defaults(me: Path, tmp_path: Path) -> None:
    config = tmp_path / "named.toml"
    config.write_text("[ctl]\ntrust_agent_processes = true\n")
    settings = started_by_client(config)
    assert settings.config == evolve(Config(), database=settings.config.database)
    assert settings.left_out == ("ctl",)


async def test_people_are_told_which_settings_were_not_taken(home: Home) -> None:
    root = home.workspace()
    named = home.root / "named.toml"
    named.write_text("[ctl]\ntrust_agent_processes = true\n")
    async with home.agent(root, "--config", str(named)) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        _, log = await ctl(home, "log")
        [told] = [entry["summary"] for entry in log["entries"] if entry["kind"] == "security"]
        assert "takes nothing from its configuration about ctl" in told
        assert f"agent-intercom serve --config {named}" in told


async def test_a_private_server_takes_nothing_of_the_clients_environment(home: Home) -> None:
    """It is a child of the relay, in whose sandbox no other could live."""
    out = home.root / "environ"
    dump = f"import os, sys; open({str(out)!r}, 'w').write(repr((dict(os.environ), os.getcwd())))"
    kept = dict(os.environ)
    os.environ.update({name: value for name, value in HOSTILE.items() if not name.startswith("LD_")})
    try:
        line, child = launch.start_private(Options(server=(sys.executable, "-I", "-c", dump)))
    finally:
        os.environ.clear()
        os.environ.update(kept)
    with line:
        await trio.to_thread.run_sync(child.wait)
    environ, cwd = eval(out.read_text())
    assert cwd == "/"
    assert not set(environ) & (set(HOSTILE) - {"GLIBC_TUNABLES", "DBUS_SESSION_BUS_ADDRESS"})
    assert environ["GLIBC_TUNABLES"] == server_environment({})["GLIBC_TUNABLES"]
    assert "evil" not in environ.get("DBUS_SESSION_BUS_ADDRESS", "")


def test_an_installation_in_the_users_own_site_directory_still_finds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getusersitepackages", lambda: "/home/me/.local/lib/python3/site-packages")
    own = "/home/me/.local/lib/python3/site-packages/intercom/agents/shim/launch.py"
    assert isolation("/usr/bin/python3", own) == ("-E", "-P")
    assert isolation("/usr/bin/python3", "/usr/lib/python3/site-packages/intercom/options.py") == ("-I",)
    assert launch.SERVER[0] == sys.executable
