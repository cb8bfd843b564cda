"""`agent-intercom slack`, and the doctor's look at Slack: a real command line, a keychain of the test's own, and the
stand-in at the other end.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.cli import doctor, doctor_checks, main
from intercom.cli.doctor_checks import Finding, State
from intercom.local import operator_keys
from intercom.local.places import Places
from intercom.operators.slack import credentials, web_api
from intercom.operators.slack import settings as slack_settings
from tests.cli.test_doctor import serving
from tests.operators.slack.setup.keychains import Kept, Locked, NoKeychain, keychain_is
from tests.slack_standin import ALICE, APP_TOKEN, BOT_TOKEN, CHANNEL, Standin, serve

pytestmark = pytest.mark.usefixtures("where")


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """A stand-in in a thread of its own; this process takes it for Slack."""
    with standing_in() as found:
        monkeypatch.setenv("INTERCOM_SLACK_API", found.api_url)
        yield found


@contextmanager
def standing_in() -> Iterator[Standin]:
    ready: queue.SimpleQueue[tuple[Standin, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.SimpleQueue()

    async def stand() -> None:
        with trio.CancelScope() as scope:
            async with serve() as found:
                found.team.bot_scopes = frozenset(slack_settings.scopes())
                ready.put((found, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=[stand])
    thread.start()
    found, token, scope = ready.get(timeout=30)
    try:
        yield found
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()


def given(monkeypatch: pytest.MonkeyPatch, **other: str) -> None:
    for name, value in {"SLACK_APP_TOKEN": APP_TOKEN, "SLACK_BOT_TOKEN": BOT_TOKEN, **other}.items():
        monkeypatch.setenv(name, value)


def configured(where: Places, more: str = f'authorized_user_ids = ["{ALICE}"]') -> None:
    file = Path(where.config_file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[slack]\nchannel_id = "{CHANNEL}"\n{more}\n')
    file.chmod(0o600)


# --- manifest --------------------------------------------------------------------------------------


def test_the_manifest_is_one_json_value_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["slack", "manifest", "--name", "Ours"]) == 0
    assert json.loads(capsys.readouterr().out) == slack_settings.manifest("Ours")
    assert main.main(["slack", "manifest", "--link"]) == 0
    assert capsys.readouterr().out.startswith("https://api.slack.com/apps?new_app=1&manifest_json=%7B")


def test_a_name_that_slack_does_not_take_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["slack", "manifest", "--name", "x" * 36]) == 2
    assert "1 to 35 characters" in capsys.readouterr().err


# --- login -----------------------------------------------------------------------------------------


def test_login_proves_both_tokens_and_keeps_them_in_the_keychain(
    slack: Standin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch)
    with keychain_is(drawer := Kept()):
        assert main.main(["slack", "login", "--from-env"]) == 0
        said = capsys.readouterr().out
        assert "kept     in a drawer" in said
        assert APP_TOKEN not in said
        assert BOT_TOKEN not in said
        assert "agent-intercom doctor" in said
        assert credentials.load({}) == web_api.SlackTokens(APP_TOKEN, BOT_TOKEN, "T0TEAM001")
    assert {name for _, name in drawer.held} == {"slack_app_token", "slack_bot_token", "slack_team_id"}
    assert slack.socket_mode.opened == 0


def test_login_asks_for_what_is_not_shown_while_it_is_pasted(
    slack: Standin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pasted = iter([f" {APP_TOKEN}\n", BOT_TOKEN])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(pasted))
    with keychain_is(Kept()):
        assert main.main(["slack", "login"]) == 0
    said = capsys.readouterr().out
    assert said.index("xapp-...") < said.index("xoxb-...")


def test_swapped_tokens_are_noticed_at_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pasted = iter([BOT_TOKEN])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(pasted))
    with keychain_is(Kept()):
        assert main.main(["slack", "login"]) == 1
    assert "must begin with xapp-, but it is the bot token" in capsys.readouterr().err


def test_a_token_that_slack_does_not_know_is_not_kept(
    slack: Standin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ({"SLACK_BOT_TOKEN": "xoxb-another-one"}, {"SLACK_APP_TOKEN": "xapp-1-A0APP0001-1-no"}):
        given(monkeypatch, **wrong)
        with keychain_is(drawer := Kept()):
            assert main.main(["slack", "login", "--from-env"]) == 1
        assert "nothing was kept" in capsys.readouterr().err
        assert drawer.held == {}


def test_without_a_network_the_tokens_are_kept_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, INTERCOM_SLACK_API="http://127.0.0.1:9/api/")
    with keychain_is(Kept()):
        assert main.main(["slack", "login", "--from-env"]) == 0
    said = capsys.readouterr().out
    assert "warn     bot: slack could not be reached" in said
    assert "kept     in a drawer" in said


@pytest.mark.parametrize(
    ("keychain", "words"),
    [
        (NoKeychain(), "this machine has no keychain: agent-intercom slack login --file keeps the tokens in"),
        (Locked(), "the keychain is locked"),
    ],
)
def test_a_machine_without_a_keychain_is_told_before_anybody_pastes(
    keychain: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with keychain_is(keychain):
        assert main.main(["slack", "login"]) == 1
    assert words in capsys.readouterr().err


def test_login_without_a_terminal_and_without_the_environment_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with keychain_is(Kept()):
        assert main.main(["slack", "login"]) == 1
        assert "use --from-env" in capsys.readouterr().err
        assert main.main(["slack", "login", "--from-env"]) == 1
    assert "SLACK_APP_TOKEN and SLACK_BOT_TOKEN are not in the environment" in capsys.readouterr().err


def test_a_backend_that_only_this_shell_names_is_pointed_out(
    slack: Standin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, PYTHON_KEYRING_BACKEND="tests.Kept")
    with keychain_is(Kept()):
        assert main.main(["slack", "login", "--from-env"]) == 0
    assert "does not see PYTHON_KEYRING_BACKEND" in capsys.readouterr().out


# --- the file, status, logout ----------------------------------------------------------------------


def test_on_a_machine_without_a_keychain_a_private_file_serves(
    slack: Standin, where: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = credentials.file_in(where.state_dir)
    with keychain_is(NoKeychain()):
        with monkeypatch.context() as shell:
            given(shell)
            assert main.main(["slack", "login", "--from-env", "--file"]) == 0
        assert file.stat().st_mode & 0o777 == 0o600
        capsys.readouterr()
        assert main.main(["slack", "status"]) == 0
        assert f"bot token        in {file}" in capsys.readouterr().out
        assert main.main(["slack", "logout"]) == 0
        assert not file.exists()
        capsys.readouterr()
        assert main.main(["slack", "status"]) == 1
    told = capsys.readouterr()
    assert "app-level token  nowhere" in told.out
    assert "keychain         none on this machine" in told.out
    assert "agent-intercom slack login" in told.err


def test_status_says_where_each_comes_from_and_what_others_will_not_see(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
    with keychain_is(Kept(slack_app_token=APP_TOKEN)):
        assert main.main(["slack", "status"]) == 0
    said = capsys.readouterr().out
    assert "app-level token  in the keychain" in said
    assert "in this environment (SLACK_BOT_TOKEN); a server that an agent starts does not see it" in said
    assert "team id          nowhere, and not needed" in said
    assert BOT_TOKEN not in said


def test_logout_forgets_all_of_it_and_says_what_it_can_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
    with keychain_is(drawer := Kept(slack_app_token=APP_TOKEN, slack_bot_token=BOT_TOKEN)):
        assert main.main(["slack", "logout"]) == 0
        assert drawer.held == {}
        assert "still in this environment: SLACK_APP_TOKEN" in capsys.readouterr().out
        assert main.main(["slack", "logout"]) == 0
    assert "nothing was kept" in capsys.readouterr().out


def test_an_unusable_address_of_slack_is_refused_before_a_token_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, INTERCOM_SLACK_API="http://slack.example/api/")
    with keychain_is(Kept()):
        assert main.main(["slack", "login", "--from-env"]) == 1
    assert "over https only" in capsys.readouterr().err


# --- the doctor ------------------------------------------------------------------------------------

KEPT = {"slack_app_token": APP_TOKEN, "slack_bot_token": BOT_TOKEN}


def look(where: Places) -> dict[str, Finding]:
    found = doctor.examine(None, None, None, str(Path(where.state_dir).parent))
    return {each.subject: each for each in found if each.subject.startswith("slack")}


def test_a_machine_without_slack_is_not_asked_for_it(where: Places) -> None:
    found = look(where)
    assert {name: each.state for name, each in found.items()} == {"slack": State.OK}
    assert f"no channel_id under [slack] in {where.config_file}" in found["slack"].text


@pytest.mark.parametrize("how", ["environment", "file"])
def test_tokens_without_a_channel_are_pointed_out(where: Places, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "environment":
        given(monkeypatch)
    else:
        credentials.write_file(credentials.file_in(where.state_dir), KEPT)
    found = look(where)["slack"]
    assert (found.state, "no channel to post in" in found.text) == (State.WARN, True)
    assert where.config_file in found.advice


def test_with_a_configuration_at_fault_nothing_is_said_of_what_it_would_set_up(where: Places) -> None:
    configured(where, more='authorized_user_ids = ["bob"]')
    found = look(where)["slack"]
    assert (found.state, found.text) == (State.WARN, "not checked: the configuration has a fault")


def test_channels_for_workspaces_alone_are_a_fault(where: Places) -> None:
    file = Path(where.config_file)
    file.parent.mkdir(parents=True)
    file.write_text('[slack.workspace_channels]\n"/web" = "C0123456789"\n')
    found = look(where)["slack"]
    assert (found.state, "channel_id" in found.advice) == (State.FAULT, True)


def test_all_is_well_when_all_is_set_up(slack: Standin, where: Places, capsys: pytest.CaptureFixture[str]) -> None:
    configured(where)
    with keychain_is(Kept(**KEPT)):
        found = look(where)
        assert {each.state for each in found.values()} == {State.OK}
        assert found["slack tokens"].text == "found in the keychain"
        assert found["slack socket"].text == "opened, and slack said hello"
        main.main(["doctor", "--json"])
    assert APP_TOKEN not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keychain", "advice"),
    [
        (NoKeychain(), "agent-intercom slack login --file, as this machine has no keychain"),
        (Kept(slack_app_token=APP_TOKEN), "agent-intercom slack login"),
    ],
)
def test_tokens_that_are_nowhere_are_a_fault(where: Places, keychain: Any, advice: str) -> None:
    configured(where)
    with keychain_is(keychain):
        found = look(where)
    assert set(found) == {"slack tokens"}
    assert found["slack tokens"].state is State.FAULT
    assert "a server starts without Slack" in found["slack tokens"].text
    assert found["slack tokens"].advice == advice


def test_a_token_that_can_not_be_one_is_a_fault(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(where)
    given(monkeypatch, SLACK_BOT_TOKEN=APP_TOKEN)
    with keychain_is(NoKeychain()):
        assert "must begin with xoxb-" in look(where)["slack tokens"].text


def test_what_only_this_shell_knows_is_a_warning(
    slack: Standin, where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(where, more="")
    given(monkeypatch, SLACK_MEMBER_IDS=ALICE)
    with keychain_is(NoKeychain()):
        found = look(where)
    assert {name for name, each in found.items() if each.state is State.WARN} == {"slack tokens", "slack members"}
    assert "slack login --from-env" in found["slack tokens"].advice
    assert "authorized_user_ids" in found["slack members"].advice


def test_a_server_that_began_before_slack_was_set_up_is_named(slack: Standin, where: Places) -> None:
    with serving(where), keychain_is(Kept(**KEPT)):
        configured(where)
        found = look(where)
    assert found["slack server"].state is State.WARN
    assert "agent-intercom stop" in found["slack server"].advice


def test_a_server_without_the_tokens_of_this_environment_is_replaced_here(
    slack: Standin, where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server that an agent starts would not find them."""
    given(monkeypatch)
    with serving(where), keychain_is(NoKeychain()):
        configured(where)
        found = look(where)
    for subject in ("slack server", "slack tokens"):
        assert found[subject].state is State.WARN
        assert "agent-intercom serve --replace, with this environment" in found[subject].advice
    assert "agent-intercom stop" not in found["slack server"].advice


def test_a_server_that_is_in_slack_keeps_its_socket_to_itself(
    slack: Standin, where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(where, more="")
    given(monkeypatch, SLACK_MEMBER_IDS=ALICE)
    monkeypatch.setattr(doctor_checks, "_running", lambda _where: frozenset({"server", "slack/connection"}))
    with keychain_is(NoKeychain()):
        found = look(where)
    assert {each.state for each in found.values()} == {State.OK}, "it plainly has found what it needs"
    assert slack.socket_mode.opened == 0


@pytest.mark.parametrize(
    ("connection", "faults", "state", "words"),
    [
        ({"state": "up", "last_error": "gone"}, {}, [State.OK], ["is connected for", "channel C1", "3 messages to be"]),
        ({"state": "waiting", "last_error": "no network"}, {}, [State.WARN], ["not connected (waiting)", "no network"]),
        ({"state": "refused", "last_error": "token revoked"}, {}, [State.FAULT], ["token revoked"]),
        ({"state": "up", "last_error": None}, {"C1": "invite the bot"}, [State.OK, State.WARN], ["C1: invite the bot"]),
        (None, {}, [State.WARN], ["restarting"]),
        ({"state": "odd", "last_error": None}, {}, [State.WARN], ["the same version"]),
    ],
)
def test_the_server_that_runs_says_how_it_fares_in_slack(
    where: Places,
    monkeypatch: pytest.MonkeyPatch,
    connection: dict[str, Any] | None,
    faults: dict[str, str],
    state: list[State],
    words: list[str],
) -> None:
    configured(where)
    standing = {
        "channel": "C1",
        "connection": connection
        and {**connection, "since": "2026-01-01T00:00:00+00:00", "reconnects": 0, "last_heard": None, "in_hand": 0},
        "outbox": {
            "waiting": {"card": 2, "log": 0},
            "updates": 1,
            "oldest": None,
            "faults": faults,
            "last_error": None,
        },
    }
    answers = {
        "tree": {"tree": {"id": "c", "name": "slack/connection", "class_name": "SlackConnection", "state": "running"}},
        "slack": {"slack": standing},
    }
    monkeypatch.setattr(doctor_checks, "request", lambda _where, verb, _fields, patience: answers[verb])
    with keychain_is(NoKeychain()):
        config, _, _ = doctor.configuration(None, None)
        found = [each for each in doctor_checks.examine_slack(config, where, "") if each.subject == "slack server"]
    assert [each.state for each in found] == state
    text = " ".join(each.text for each in found)
    assert [each for each in words if each not in text] == []


def test_a_server_whose_tokens_are_not_seen_from_here_is_not_said_to_have_none(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(where)
    monkeypatch.setattr(doctor_checks, "_running", lambda _where: frozenset({"server", "slack/connection"}))
    with keychain_is(NoKeychain()):
        found = look(where)
    assert {name: each.state for name, each in found.items()} == {"slack tokens": State.OK}
    assert "the running server has its own" in found["slack tokens"].text
    assert found["slack tokens"].advice == ""


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked-keychain", "malformed-token"])
def test_what_this_shell_cannot_read_is_no_fault_while_the_server_is_in_slack(
    where: Places, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    configured(where)
    monkeypatch.setattr(doctor_checks, "_running", lambda _where: frozenset({"server", "slack/connection"}))
    if not is_locked:
        given(monkeypatch, SLACK_BOT_TOKEN=APP_TOKEN)
    with keychain_is(Locked() if is_locked else NoKeychain()):
        config, _, _ = doctor.configuration(None, None)
        found = list(doctor_checks.examine_slack(config, where, ""))
    assert [each.state for each in found] == ([State.WARN, State.OK] if is_locked else [State.WARN])


def test_without_a_network_the_doctor_says_that_and_ends(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(where)
    monkeypatch.setenv("INTERCOM_SLACK_API", "http://127.0.0.1:9/api/")
    with keychain_is(Kept(**KEPT)):
        found = look(where)
    assert {name: each.state for name, each in found.items()} == {"slack tokens": State.OK, "slack bot": State.WARN}


def test_an_operator_key_that_has_not_signed_for_slack_is_named(where: Places) -> None:
    """Doctor said who may answer, and Slack refused every answer."""
    configured(where)
    config, _, _ = doctor.configuration(None, None)
    assert list(doctor_checks._unsigned_decisions(config, where)) == []
    Path(where.operator_keys_file).parent.chmod(0o700)
    made = operator_keys.create(where, "correct horse", "ana", "2026-11-21T12:00:00+00:00")
    operator_keys.add_public(where, made.key)
    (found,) = doctor_checks._unsigned_decisions(config, where)
    assert '[decisions] slack = "high"' in found.text
    assert "agent-intercom-ctl key settings" in found.advice
    private = operator_keys.unlock(made, "correct horse")
    allowed = operator_keys.Allowed.by(config)
    operator_keys.write(where, operator_keys.sign(allowed, "2026-11-21T12:00:00+00:00", made.key.id, private.sign))
    assert list(doctor_checks._unsigned_decisions(config, where)) == []
