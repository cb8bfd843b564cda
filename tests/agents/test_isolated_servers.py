"""A server that a client's relay starts: of the client's environment and of the files it names, nothing that says whom
the server trusts, what it runs, or where secrets go."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from intercom.agents.shim import launch, options
from intercom.agents.shim.options import Options, isolation
from intercom.local import lock
from intercom.local.daemon import allowed
from intercom.local.places import places
from intercom.model.config import Config, CtlSettings, SlackSettings, without_operators_settings
from tests.agents.live import TRUSTING, Home, call, home, live
from tests.faults.hosted import ctl, hosted

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


@pytest.fixture
def house() -> Iterator[Home]:
    with home("") as made:
        yield made


def environ_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if pair)


@live
async def test_a_server_that_a_relay_starts_takes_nothing_of_the_clients_environment(house: Home) -> None:
    planted = house.root / "planted"
    (planted / "intercom").mkdir(parents=True)
    (planted / "sitecustomize.py").write_text(f"open({str(house.root / 'ran')!r}, 'a').write('sitecustomize')")
    (planted / "intercom" / "__init__.py").write_text(f"open({str(house.root / 'ran')!r}, 'a').write('package')")
    user_site = house.root / ".local" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    user_site.mkdir(parents=True)
    (user_site / "usercustomize.py").write_text(f"open({str(house.root / 'ran')!r}, 'a').write('usercustomize')")
    hostile = {name: value for name, value in HOSTILE.items() if name.isupper() and name != "INTERCOM_FAULT"}
    # The relay itself runs as its client says; -P keeps these from it, as an installed program has it.
    async with house.agent(house.workspace(), **hostile) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        pid = house.server()
        assert pid is not None
        environ = environ_of(pid)
        # What the server gives itself, for its threads.
        assert environ.pop("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0") == "glibc.malloc.tcache_count=0"
        environ.pop("AGENT_INTERCOM_BEGUN_ANEW", None)
        bus = environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
        assert bus in (None, f"unix:path=/run/user/{os.geteuid()}/bus")
        assert environ == allowed(environ)
        assert not environ.keys() & HOSTILE.keys()
        words = (await trio.Path(f"/proc/{pid}/cmdline").read_bytes()).split(b"\0")
        assert b"-I" in words or b"-E" in words
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert not (house.root / "ran").exists()


@live
async def test_planted_modules_do_not_run_in_the_server(house: Home) -> None:
    """Named by PYTHONPATH, which the relay's own interpreter heeds; the server's does not."""
    planted = house.root / "planted"
    planted.mkdir()
    ran = house.root / "ran"
    (planted / "sitecustomize.py").write_text(f"import os; open({str(ran)!r}, 'a').write(f'{{os.getpid()}}\\n')")
    async with house.agent(house.workspace(), PYTHONPATH=str(planted)) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        pids = [int(line) for line in ran.read_text().split()]
        assert pids, "it runs in the relay, so it is a plant that works"
        assert house.server() not in pids


@pytest.mark.parametrize("how", [(), ("--in-process",)])
@live
async def test_a_clients_config_makes_no_agent_trusted(house: Home, how: tuple[str, ...]) -> None:
    root = house.workspace()
    evil = root / "evil.toml"
    evil.write_text("[ctl]\ntrust_agent_processes = true\n[slack]\nchannel_id = 'C0123456789'\n")
    async with hosted(house, root, arguments=("--config", str(evil), *how)) as agent:
        await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        found: list[dict[str, str]] = []
        while not found:
            code, said = await ctl(house, "pending")
            found = said if code == 0 else []
        id = found[0]["request_id"]
        tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {id}")
        assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
        code, shown = await ctl(house, "show", id)
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
@live
async def test_a_directory_that_the_client_names_makes_no_agent_trusted(
    house: Home, named: str, how: tuple[str, ...]
) -> None:
    root, evil = house.workspace(), house.root / "evil"
    config = evil / ".config" / "agent-intercom" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(TRUSTING)
    if "XDG_CONFIG_HOME" not in named:
        # Even the user's own settings count only for the user's own server.
        house.configure(TRUSTING)
    given = named.format(evil=evil).split()
    stand_in = {name: value for name, _, value in (each.partition("=") for each in given)}
    try:
        async with hosted(house, root, "env", *given, arguments=how) as agent:
            await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
            found: list[dict[str, str]] = []
            while not found:
                code, said = await ctl(house, "pending")
                found = said if code == 0 else []
            tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {found[0]['request_id']}")
            assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
            if not how:
                _, log = await ctl(house, "log")
                told = [entry["summary"] for entry in log["entries"] if entry["kind"] == "security"]
                assert any("is not known to be yours" in each and "about ctl" in each for each in told), told
    finally:
        holder = lock.holder(Path(places(environ={**house.environ, **stand_in}).database))
        if holder is not None and holder.pid:
            os.kill(holder.pid, signal.SIGKILL)


@live
async def test_directories_that_the_user_has_used_count(house: Home) -> None:
    root = house.workspace()
    house.configure(TRUSTING)
    async with hosted(house, root) as agent:
        await agent.call("ping")
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with house.person(root) as person:
            card = await person.card(status="pending")
        tried = await agent.shell(f"{sys.executable} -m intercom.cli.ctl --json approve {card['request_id']}")
        assert tried["code"] == 0, tried
        assert (await agent.answer(asked))["status"] == "approved"


def test_what_a_client_may_say_of_the_server_stays_and_the_rest_goes() -> None:
    given = Config(retention_days=7, ctl=CtlSettings(True), slack=SlackSettings("C0123456789"), host_cli="evil")
    kept, left_out = without_operators_settings(given)
    assert kept == Config(retention_days=7)
    assert set(left_out) == {"ctl", "slack", "host_cli"}
    assert without_operators_settings(Config()) == (Config(), ())


@live
async def test_people_are_told_which_settings_were_not_taken(house: Home) -> None:
    root = house.workspace()
    named = house.root / "named.toml"
    named.write_text("[ctl]\ntrust_agent_processes = true\n")
    async with house.agent(root, "--config", str(named)) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
        _, log = await ctl(house, "log")
        [told] = [entry["summary"] for entry in log["entries"] if entry["kind"] == "security"]
        assert "takes nothing from its configuration about ctl" in told
        assert f"agent-intercom serve --config {named}" in told


@live
async def test_a_private_server_takes_nothing_of_the_clients_environment(house: Home) -> None:
    """It is a child of the relay, in whose sandbox no other could live."""
    out = house.root / "environ"
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
    assert environ.get("GLIBC_TUNABLES") in (None, "glibc.malloc.tcache_count=0")
    assert "evil" not in environ.get("DBUS_SESSION_BUS_ADDRESS", "")


def test_an_installation_in_the_users_own_site_directory_still_finds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getusersitepackages", lambda: "/home/me/.local/lib/python3/site-packages")
    own = "/home/me/.local/lib/python3/site-packages/intercom/agents/shim/options.py"
    assert isolation("/usr/bin/python3", own) == ("-E", "-P")
    assert isolation("/usr/bin/python3", "/usr/lib/python3/site-packages/intercom/options.py") == ("-I",)
    assert options.SERVER[0] == sys.executable
