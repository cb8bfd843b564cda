"""Where Slack's credentials are found, in which order, and what is said of those that cannot be right."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from intercom.model.config import Config, SlackSettings
from intercom.model.errors import IpcError, SlackError
from intercom.operators.slack import credentials
from intercom.operators.slack import settings as slack_settings
from intercom.operators.slack.credentials import APP, BOT, KINDS, TEAM, Source
from intercom.operators.slack.web_api import SlackTokens
from tests.operators.slack.setup.keychains import Broken, Kept, Locked, NoKeychain, NullKeychain, Silent, keychain_is

ENV = {"SLACK_APP_TOKEN": "xapp-1-A1-2-env", "SLACK_BOT_TOKEN": "xoxb-1-2-env", "SLACK_TEAM_ID": "T0ENV"}
IN_SLACK = Config(slack=SlackSettings(channel_id="C0123456789"))


def filed(path: Path, **held: str) -> Path:
    path.write_text(json.dumps(held))
    path.chmod(0o600)
    return path


# --- the order ------------------------------------------------------------------------------------


def test_each_credential_comes_from_the_first_place_that_has_it(tmp_path: Path) -> None:
    file = filed(
        tmp_path / "f", slack_app_token="xapp-1-A1-2-file", slack_bot_token="xoxb-1-2-file", slack_team_id="T0FILE"
    )
    env = {"SLACK_APP_TOKEN": "xapp-1-A1-2-env", "SLACK_BOT_TOKEN": " xoxb-1-2-env\n"}
    with keychain_is(Kept(slack_app_token="xapp-1-A1-2-kept", slack_bot_token="", slack_team_id="  ")):
        looked = credentials.look(env, file=file)
    assert looked.has_keychain
    assert {name: found.source for name, found in looked.found.items()} == {
        "slack_app_token": Source.KEYCHAIN,
        "slack_bot_token": Source.ENVIRONMENT,
        "slack_team_id": Source.FILE,
    }
    assert looked.tokens() == SlackTokens("xapp-1-A1-2-kept", "xoxb-1-2-env", "T0FILE")


def test_without_a_keychain_the_environment_serves_and_nothing_is_said_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), keychain_is(NoKeychain()):
        looked = credentials.look(ENV)
        assert credentials.load(ENV) == SlackTokens("xapp-1-A1-2-env", "xoxb-1-2-env", "T0ENV")
    assert not looked.has_keychain
    assert looked.unread == ()
    assert caplog.records == []


def test_the_team_is_not_needed_and_the_tokens_both_are() -> None:
    with keychain_is(NoKeychain()):
        for kind in KINDS:
            env = {name: value for name, value in ENV.items() if name != kind.variable}
            assert (credentials.load(env) is None) is kind.needed


# --- keychains that do not answer ------------------------------------------------------------------


def test_a_keychain_that_waits_for_its_password_is_not_waited_for() -> None:
    began = time.monotonic()
    silent = Silent()
    with keychain_is(silent):
        assert credentials.load(ENV, patience=0.05) is not None, "the environment has all of them"
        with pytest.raises(SlackError, match=r"did not answer within 0\.05 s: unlock it"):
            credentials.load({}, patience=0.05)
        assert silent.asked.is_set()
        assert all(each.daemon for each in threading.enumerate() if each.name == "keychain"), "none keeps the process"
    assert time.monotonic() - began < 25, "the keychain answers after thirty seconds"


@pytest.mark.parametrize(
    ("backend", "said"), [(Locked(), "the keychain is locked: unlock it"), (Broken(), r"ConnectionResetError: the bus")]
)
def test_a_keychain_that_fails_matters_only_where_the_tokens_are_nowhere_else(backend: Kept, said: str) -> None:
    with keychain_is(backend):
        assert credentials.load(ENV) is not None
        with pytest.raises(SlackError, match=said):
            credentials.load({})
        assert credentials.look({}).unread != ()


def test_what_is_kept_is_found_and_forgotten_again() -> None:
    drawer = Kept()
    with keychain_is(drawer):
        assert credentials.write_keychain({APP.name: "a", BOT.name: "b", TEAM.name: ""}, patience=5) == "a drawer"
        assert credentials.read_keychain([APP.name, BOT.name, TEAM.name], patience=5) == {APP.name: "a", BOT.name: "b"}
        assert credentials.write_keychain({TEAM.name: "T1"}, patience=5)
        assert credentials.write_keychain({TEAM.name: ""}, patience=5), "an empty value is forgotten"
        assert credentials.forget([kind.name for kind in KINDS], patience=5) == (APP.name, BOT.name)
        assert credentials.forget([APP.name], patience=5) == ()
    assert drawer.held == {}


def test_a_keychain_that_keeps_nothing_is_found_out() -> None:
    with keychain_is(NullKeychain()), pytest.raises(SlackError, match="did not store"):
        credentials.write_keychain({APP.name: "a"}, patience=5)


def test_no_keychain_is_an_answer_and_no_error() -> None:
    with keychain_is(NoKeychain()):
        assert credentials.read_keychain([APP.name], patience=5) is None
        assert credentials.write_keychain({APP.name: "a"}, patience=5) is None
        assert credentials.forget([APP.name], patience=5) is None


# --- what they look like ---------------------------------------------------------------------------

WRONG = [
    (
        "SLACK_APP_TOKEN",
        "xoxb-1-2-secret",
        "app-level token .* must begin with xapp-, but it is the bot token; copy it",
    ),
    (
        "SLACK_BOT_TOKEN",
        "xapp-1-secret-9",
        "bot token .* must begin with xoxb-, but it is the app-level token; copy it",
    ),
    ("SLACK_BOT_TOKEN", "xoxp-1-2-secret", "but it is a user's token"),
    ("SLACK_BOT_TOKEN", "xoxe.xoxb-secret", "without token rotation"),
    ("SLACK_BOT_TOKEN", "https://secret", "but it is an address"),
    ("SLACK_BOT_TOKEN", '"xoxb-1-2-secret"', "must begin with xoxb-, and it does not"),
    ("SLACK_BOT_TOKEN", "xoxb-1", "is cut off, or"),
    ("SLACK_APP_TOKEN", "xapp-1-A1-2 secret", "or has something else in it"),
    ("SLACK_APP_TOKEN", "xapp-1-A1-2-sécret", "or has something else in it"),
    ("SLACK_TEAM_ID", "my team", "must look like T0123456789"),
]


@pytest.mark.parametrize(("variable", "value", "said"), WRONG)
def test_what_can_not_be_a_token_is_named_and_not_shown(variable: str, value: str, said: str) -> None:
    with keychain_is(NoKeychain()), pytest.raises(SlackError, match=said) as refused:
        credentials.load(ENV | {variable: value})
    assert value not in str(refused.value)
    assert "cret" not in str(refused.value)


def test_no_text_of_what_was_found_holds_a_token() -> None:
    with keychain_is(Kept(slack_app_token="xapp-1-A1-2-kept")):
        looked = credentials.look(ENV)
        found = slack_settings.settle(IN_SLACK, ENV)
    for text in (repr(looked), repr(looked.tokens()), repr(found)):
        assert "xoxb-1" not in text
        assert "2-kept" not in text


# --- the file --------------------------------------------------------------------------------------


def test_the_file_is_private_and_holds_what_was_given(tmp_path: Path) -> None:
    path = credentials.file_in(str(tmp_path / "state"))
    credentials.write_file(path, {APP.name: "a", TEAM.name: ""})
    credentials.write_file(path, {APP.name: "b", TEAM.name: ""})
    assert credentials.read_file(path) == {APP.name: "b"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert credentials.remove(path)
    assert not credentials.remove(path)
    assert credentials.read_file(path) == {}


def test_a_file_that_others_could_read_is_not_read(tmp_path: Path) -> None:
    path = filed(tmp_path / "f", slack_app_token="xapp-1-A1-2-file", slack_bot_token="xoxb-1-2-file")
    with keychain_is(NoKeychain()):
        assert credentials.load({}, file=path) is not None
        path.chmod(0o640)
        with pytest.raises(SlackError, match=r"open to other users \(mode 640\): run chmod 600"):
            credentials.load({}, file=path)
        assert credentials.load(ENV, file=path) is not None, "it is not needed"


def test_a_link_and_what_is_no_file_are_not_read(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(filed(tmp_path / "f", slack_app_token="x"))
    with pytest.raises(SlackError, match="cannot be read"):
        credentials.read_file(link)
    with pytest.raises(SlackError, match="not a file of yours"):
        credentials.read_file(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"slack_app_token": 1}', '"x"', "\udcff"])
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(SlackError, match="holds no credentials"):
        credentials.read_file(path)


def test_the_file_is_not_put_where_others_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(IpcError, match="open to other users"):
        credentials.write_file(tmp_path / "f", {APP.name: "a"})
    assert list(tmp_path.iterdir()) == []


# --- the setup -------------------------------------------------------------------------------------


def test_without_a_channel_slack_is_off_and_no_keychain_is_asked() -> None:
    silent = Silent()
    with keychain_is(silent):
        assert slack_settings.settle(Config(), ENV) is None
    assert not silent.asked.is_set()


def test_a_server_without_slack_loads_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys, argparse; from intercom.cli import serve, server_settings;"
        "found = server_settings.settle(argparse.Namespace(config=None, ipc_name=None));"
        "assert found.slack is None and not found.slack_fault;"
        "print([name for name in ('keyring', 'slack_sdk', 'intercom.operators.slack.web_api') if name in sys.modules])"
    )
    env = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_channel_without_tokens_says_what_to_do() -> None:
    with keychain_is(NoKeychain()), pytest.raises(SlackError, match="run agent-intercom slack login"):
        slack_settings.settle(IN_SLACK, {})


def test_slack_is_where_the_environment_says_if_that_is_here_or_encrypted() -> None:
    with keychain_is(NoKeychain()):
        for url in ("http://127.0.0.1:8065/api/", "https://slack-gov.com/api/"):
            found = slack_settings.settle(IN_SLACK, ENV | {"INTERCOM_SLACK_API": url})
            assert found is not None
            assert found.api_url == url
        with pytest.raises(SlackError, match="over https only"):
            slack_settings.settle(IN_SLACK, ENV | {"INTERCOM_SLACK_API": "http://example.com/api/"})


def test_who_may_answer_is_said_by_the_configuration_or_else_by_the_environment() -> None:
    env = {"SLACK_MEMBER_IDS": " U1, ,W2,"}
    named = Config(slack=SlackSettings(authorized_user_ids=("U333",)))
    assert credentials.authorized(named, env) == {"U333"}
    assert credentials.authorized(Config(), env) == {"U1", "W2"}
    assert credentials.authorized(Config(), {}) == frozenset()


def test_a_bus_that_accepts_and_never_answers_keeps_neither_the_start_nor_the_process(tmp_path: Path) -> None:
    """The keyring library's own way of looking, in a process of its own: it waits where its users are told it does."""
    code = """
import os, socket, sys, tempfile
with tempfile.TemporaryDirectory() as directory:
    bus = socket.socket(socket.AF_UNIX)
    bus.bind(directory + "/bus")
    bus.listen()
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={directory}/bus"
    from intercom.operators.slack import credentials
    print(credentials.look({}, patience=1.0).unread)
"""
    env = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if sys.platform.startswith("linux"):
        assert "the keychain did not answer within 1 s" in done.stdout
