"""`agent-intercom init --agent KEY`: the name by which all of a client's processes are one agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from intercom.agents.clients import CLIENTS
from tests.cli.test_init import init_with
from tests.cli.test_init_http import entry, key


def words(found: dict[str, Any]) -> list[str]:
    """The command line in an entry."""
    return [word for value in found.values() if isinstance(value, list) for word in value if isinstance(word, str)]


@pytest.mark.parametrize("name", CLIENTS)
def test_it_is_written_and_stays_until_another_is_given(own_home: Path, name: str) -> None:
    client = ("--client", name, "--write", "--no-hooks")
    assert init_with(*client) == 0
    assert "--agent" not in words(entry(own_home, name))
    for options, expected in ((("--agent", "nightly"), "nightly"), ((), "nightly"), (("--agent", "other"), "other")):
        assert init_with(*client, *options) == 0
        found = words(entry(own_home, name))
        assert found.count("--agent") == 1
        assert found[found.index("--agent") + 1] == expected


def test_over_http_it_is_in_the_address(own_home: Path) -> None:
    assert init_with("--http", "--write", "--client", "codex", "--agent", "nightly", "--no-hooks") == 0
    assert key(entry(own_home, "codex")) == "nightly"


@pytest.mark.parametrize("clients", [(), ("all",), ("codex", "cursor")])
def test_it_is_one_agents(own_home: Path, capsys: pytest.CaptureFixture[str], clients: tuple[str, ...]) -> None:
    assert init_with("--agent", "nightly", *(word for each in clients for word in ("--client", each))) == 2
    assert "--agent names one agent: give one --client with it" in capsys.readouterr().err


def test_a_key_that_is_none_is_a_usage_error(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        init_with("--client", "codex", "--agent", "two words")
    assert "--agent: must be a key" in capsys.readouterr().err
