"""What Slack is asked to prove, and the words for each thing that is wrong. The other end is the stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from attrs import evolve

from intercom.operators.slack import settings as slack_settings
from intercom.operators.slack.settings import Outcome, SlackSetup
from intercom.operators.slack.web_api import SlackTokens
from tests.slack_standin import ALICE, BOB, CHANNEL, OTHER_CHANNEL, UNJOINED, Standin, methods, serve
from tests.slack_standin.team import User

SUBJECTS = ["slack bot", "slack scopes", "slack socket", "slack channel", "slack people"]


def setup_for(slack: Standin, **other: Any) -> SlackSetup:
    tokens = SlackTokens(slack.app_token, slack.bot_token)
    whole = SlackSetup(tokens, CHANNEL, frozenset({ALICE}), {Path("/web"): OTHER_CHANNEL}, slack.api_url)
    return evolve(whole, **other)


def asked_for(slack: Standin) -> None:
    slack.team.bot_scopes = frozenset(slack_settings.scopes())


async def test_what_is_set_up_right_is_proved_one_by_one_and_nothing_is_posted() -> None:
    async with serve() as slack:
        asked_for(slack)
        proofs = await slack_settings.prove(setup_for(slack))
        assert [(each.subject, each.outcome) for each in proofs] == [
            (subject, Outcome.OK) for subject in (*SUBJECTS[:4], "slack channel", "slack people")
        ]
        texts = " | ".join(each.text for each in proofs)
        for word in ("@intercom in The stand-in", "slack said hello", f"#agents ({CHANNEL})", "Alice Example"):
            assert word in texts
        assert slack.socket_mode.opened == 1
        assert slack.messages() == []


async def test_a_server_that_is_connected_keeps_all_that_people_do() -> None:
    async with serve() as slack:
        proofs = await slack_settings.prove(setup_for(slack), socket=False)
        assert slack.socket_mode.opened == 0
        assert {each.subject: each for each in proofs}["slack socket"].outcome is Outcome.OK


Change = Callable[[Standin, SlackSetup], SlackSetup | None]


def change(do: Callable[[Standin], object]) -> Change:
    def changed(slack: Standin, _setup: SlackSetup) -> None:
        do(slack)

    return changed


def tokens(app: str | None = None, bot: str | None = None, team: str = "") -> Change:
    def changed(slack: Standin, setup: SlackSetup) -> SlackSetup:
        return evolve(setup, tokens=SlackTokens(app or slack.app_token, bot or slack.bot_token, team))

    return changed


def setting(**other: Any) -> Change:
    return lambda _slack, setup: evolve(setup, **other)


FAULTS: list[tuple[Change, str, str, str]] = [
    (tokens(bot="xoxb-another"), "slack bot", "slack does not know it (invalid_auth)", "make a new one"),
    (
        change(lambda slack: slack.team.revoked.update({slack.bot_token: "token_revoked"})),
        "slack bot",
        "the bot token is not valid: it was revoked",
        "agent-intercom slack login",
    ),
    (tokens(team="T0OTHER"), "slack bot", "the team id kept with it is T0OTHER", "tokens of one team"),
    (tokens(app="xapp-1-A0APP0001-1-no"), "slack socket", "the app-level token is not valid", "make a new one"),
    (
        change(lambda slack: setattr(slack.team, "app_scopes", frozenset())),
        "slack socket",
        "may not open a socket (missing_scope)",
        "with the scope connections:write",
    ),
    (
        change(lambda slack: setattr(slack.team, "socket_mode", False)),
        "slack socket",
        "slack refuses a socket (socket_mode_disabled)",
        "switch Socket Mode on",
    ),
    (
        change(lambda slack: setattr(slack.faults, "deny_connects", 1)),
        "slack socket",
        "a socket could not be opened",
        "port 443",
    ),
    (
        change(lambda slack: setattr(slack.team, "app_id", "A0OTHER")),
        "slack socket",
        "the bot token is of the app A0OTHER, the app-level token of A0APP0001",
        "from the same app",
    ),
    (
        change(lambda slack: setattr(slack.team, "bot_scopes", slack.team.bot_scopes - {"files:write", "commands"})),
        "slack scopes",
        "the bot lacks permissions: commands, files:write",
        "agent-intercom slack manifest prints",
    ),
    (setting(channel_id=UNJOINED), "slack channel", f"the bot is not in #elsewhere ({UNJOINED})", "/invite @intercom"),
    (setting(channel_id="C0NOWHERE"), "slack channel", "does not see C0NOWHERE (channel_not_found)", "compare the id"),
    (
        change(lambda slack: setattr(slack.team.channels[CHANNEL], "is_archived", True)),
        "slack channel",
        "#agents (C0AGENTS1) is archived",
        "unarchive it",
    ),
    (setting(authorized=frozenset()), "slack people", "nobody may answer from Slack", "authorized_user_ids"),
    (
        setting(authorized=frozenset({ALICE, "U0NOBODY"})),
        "slack people",
        "Alice Example (U0ALICE01); U0NOBODY is not a member here (user_not_found)",
        "Copy member ID",
    ),
]


@pytest.mark.parametrize(("change", "subject", "text", "advice"), FAULTS)
async def test_each_fault_is_told_with_what_to_do(change: Change, subject: str, text: str, advice: str) -> None:
    async with serve() as slack:
        asked_for(slack)
        setup = change(slack, setup_for(slack)) or setup_for(slack)
        proofs = await slack_settings.prove(setup)
    faults = [each for each in proofs if each.outcome is not Outcome.OK]
    assert {each.subject for each in faults} == {subject}, "nothing else is wrong"
    assert faults[0].outcome is Outcome.FAULT
    assert text in faults[0].text
    assert advice in faults[0].advice
    for secret in (setup.tokens.app, setup.tokens.bot):
        assert all(secret not in f"{each}" for each in proofs)


async def test_people_who_have_left_and_bots_may_not_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    def user_info(team: Any, args: dict[str, Any]) -> dict[str, Any]:
        user: User = team.users[args["user"]]
        return {"ok": True, "user": {"name": user.name, "deleted": user.id == BOB, "is_bot": user.id == ALICE}}

    monkeypatch.setitem(methods.METHODS, "users.info", methods.Method(user_info))
    async with serve() as slack:
        (proof,) = [
            each
            for each in await slack_settings.prove(setup_for(slack, authorized=frozenset({ALICE, BOB})))
            if each.subject == "slack people"
        ]
    assert proof.outcome is Outcome.FAULT
    assert proof.text == f"alice ({ALICE}) is a bot; bob ({BOB}) has left"


async def test_a_long_list_of_people_is_looked_at_in_part() -> None:
    async with serve() as slack:
        everybody = [slack.add_user(f"U0MANY{number:03}", f"name{number}").id for number in range(50)]
        proofs = await slack_settings.prove(setup_for(slack, authorized=frozenset(everybody)))
        assert slack.count("users.info") == 20
    assert proofs[-1].text.endswith("name19 (U0MANY019) and 30 more may answer")


async def test_a_token_that_may_not_look_at_people_is_a_warning() -> None:
    async with serve() as slack:
        slack.team.bot_scopes = frozenset(slack_settings.scopes()) - {"users:read"}
        proofs = await slack_settings.prove(setup_for(slack))
    assert proofs[-1].outcome is Outcome.WARN
    assert proofs[-1].text == "1 may answer; who they are cannot be looked up"


async def test_without_a_network_there_is_one_warning_and_no_more() -> None:
    async with serve() as slack:
        setup = setup_for(slack)
        async with slack.down():
            (proof,) = await slack_settings.prove(setup)
    assert proof.outcome is Outcome.WARN
    assert "slack could not be reached" in proof.text
    assert "a server keeps trying" in proof.text


async def test_a_slack_that_never_answers_is_not_waited_for() -> None:
    async with serve() as slack:
        slack.plan("auth.test", "swallow")
        began = trio.current_time()
        (proof,) = await slack_settings.prove(setup_for(slack), patience=3)
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)
    assert proof.outcome is Outcome.WARN


async def test_a_socket_on_which_nothing_is_said_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as slack:
        monkeypatch.setattr(slack.socket_mode, "_hello", lambda: {"type": "disconnect", "reason": "link_disabled"})
        proofs = await slack_settings.prove(setup_for(slack), patience=3)
    fault = next(each for each in proofs if each.subject == "slack socket")
    assert fault.outcome is Outcome.FAULT
    assert "did not say hello" in fault.text
    assert "Socket Mode on" in fault.advice


@pytest.mark.parametrize(("seconds", "words"), [(120, "s behind Slack"), (-95, "s ahead of Slack"), (5, None)])
async def test_a_clock_that_is_wrong_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, seconds: float, words: str | None
) -> None:
    monkeypatch.setattr(slack_settings, "time", SimpleNamespace(time=lambda: time.time() - seconds))
    async with serve() as slack:
        found = [each for each in await slack_settings.prove(setup_for(slack)) if each.subject == "clock"]
    assert [each.outcome for each in found] == [Outcome.WARN] * (words is not None)
    assert all(words in each.text for each in found if words)


async def test_login_asks_about_the_tokens_alone_and_learns_the_team() -> None:
    async with serve() as slack:
        asked_for(slack)
        proofs, team_id = await slack_settings.verify(SlackTokens(slack.app_token, slack.bot_token), slack.api_url)
        assert team_id == slack.team.id
        assert [each.subject for each in proofs] == SUBJECTS[:3]
        assert slack.socket_mode.opened == 0
        swapped = SlackTokens(slack.bot_token, slack.app_token)
        proofs, _ = await slack_settings.verify(swapped, slack.api_url)
        assert [each.outcome for each in proofs if each.subject == "slack socket"] == [Outcome.FAULT]
