"""The app asks for what is used, and for nothing else."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from intercom.operators import slack
from intercom.operators.slack import settings as slack_settings
from tests.slack_standin import methods

_METHOD = re.compile(
    r"(admin|apps|auth|bots|chat|conversations|files|pins|reactions|team|users|usergroups|views)(\.[a-zA-Z]+)+"
)


def named_in_the_source() -> set[str]:
    """Every method of the Web API that a literal in the package names, outside the manifest's own table."""
    (package,) = slack.__path__
    files = [file for file in Path(package).rglob("*.py") if file.name != "manifest.py"]
    literals = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in literals if _METHOD.fullmatch(text)}


def test_every_method_that_is_called_is_in_the_table_and_no_other() -> None:
    assert set(slack_settings.METHODS) == named_in_the_source()


def test_the_stand_in_asks_for_the_same_scopes() -> None:
    theirs = {name: methods.METHODS[name].scopes for name in slack_settings.METHODS if name in methods.METHODS}
    assert theirs == {name: frozenset(slack_settings.METHODS[name]) for name in theirs}
    assert set(slack_settings.METHODS) - set(theirs) == {"apps.connections.open"}


def test_the_scopes_are_those_of_the_methods_the_events_and_the_command() -> None:
    asked = slack_settings.manifest()["oauth_config"]["scopes"]["bot"]
    assert asked == sorted(set(asked))
    assert set(asked) == {
        *("chat:write", "commands", "files:read", "files:write", "users:read"),
        *("channels:history", "channels:read", "groups:history", "groups:read"),
    }


def test_slack_takes_it() -> None:
    made = slack_settings.manifest()
    settings, features = made["settings"], made["features"]
    # These three need a request URL each, unless Socket Mode is on.
    assert settings["socket_mode_enabled"] is True
    assert settings["interactivity"] == {"is_enabled": True}
    assert settings["event_subscriptions"] == {"bot_events": ["message.channels", "message.groups"]}
    assert settings["token_rotation_enabled"] is False
    (command,) = features["slash_commands"]
    assert command["command"] == "/intercom"
    assert len(command["usage_hint"]) <= 1000
    assert len(made["display_information"]["name"]) <= 35
    assert len(made["display_information"]["description"]) <= 140
    assert json.loads(slack_settings.as_json()) == made


def test_the_link_carries_the_whole_manifest_under_any_name() -> None:
    for name in ("Intercom", "Ours & theirs ✓ 100%"):
        parts = urlsplit(slack_settings.link(name))
        assert (parts.scheme, parts.netloc) == ("https", "api.slack.com")
        query = parse_qs(parts.query)
        assert query["new_app"] == ["1"]
        assert json.loads(query["manifest_json"][0]) == slack_settings.manifest(name)
        assert query.keys() == {"new_app", "manifest_json"}
