"""The page about the gateway: what it says to type is a command, and does what it says; its files have no fault."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.agents import role_token
from intercom.agents.shim.link import ROLE_TOKEN
from intercom.cli import ctl, main
from intercom.gateway import assignments, downstream_file, roles
from intercom.gateway.client_import import OWN_NAME
from intercom.gateway.downstream_file import check
from intercom.gateway.roles import LintKind, decide, lint
from intercom.gateway.tool_arguments import read_arguments
from tests.cli.conftest import own_home
from tests.docs.generated import DOCS

PAGE = (DOCS / "how-to/gateway.md").read_text()

__all__ = ["own_home"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def typed(program: str) -> Iterator[list[str]]:
    for block in blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == program:
                yield words[1:]


def test_what_the_page_says_to_type_is_a_command() -> None:
    started = [main.parser().parse_args(words) for words in typed("agent-intercom")]
    assert [(each.command, getattr(each, "action", None)) for each in started] == [
        ("gateway", "import"),
        ("gateway", "import"),
        ("stop", None),
        ("gateway", "sign-in"),
        ("gateway", "sign-out"),
        ("gateway", "secret"),
        ("gateway", "undo"),
    ]
    asked = [ctl.fields_of(ctl.parser().parse_args(ctl.hoist(words))) for words in typed("agent-intercom-ctl")]
    names = ["list", "test", "call", "call", "tail", "explain", "explain", "lint", "budgets"]
    names += ["evidence", "evidence", "evidence", "evidence", "disable", "enable"]
    assert [command for command, _ in asked] == [f"gateway-{name}" for name in names]
    written = [read_arguments(str(fields["text"]), {}) for command, fields in asked if command == "gateway-call"]
    assert written == [{"timezone": "Europe/Berlin"}] * 2


def test_every_way_to_show_a_role_token_is_on_the_pages_that_need_it() -> None:
    assert ROLE_TOKEN in PAGE
    for page in ("how-to/gateway", "how-to/connect-over-http", "how-to/reverse-proxy", "reference/http"):
        assert role_token.HEADER.decode() in (DOCS / f"{page}.md").read_text().lower(), page


def test_the_files_that_the_page_shows_have_no_fault() -> None:
    shown_roles, downstream = blocks("json")
    config, faults = check(downstream, "github.json")
    assert (config is not None, faults) == (True, ())
    found, wrong = roles.parse(json.loads(shown_roles))
    assert found is not None, wrong
    assert assignments.parse(json.loads(shown_roles))[0] is not None
    assert decide(found, "maintainer", "github", "merge_pull_request").effect.value == "ask"
    assert decide(found, "maintainer", "github", "delete_repository").effect.value == "deny"
    assert decide(found, "reader", "github", "create_issue").effect.value == "deny"
    assert {each.kind for each in lint(found)} == {LintKind.OVER_BROAD}


def test_every_key_of_the_gateway_s_files_is_in_the_reference() -> None:
    tables = [downstream_file._DOWNSTREAM, *downstream_file._DOWNSTREAM.below.values()]
    assert [key.name for table in tables for key in table.keys if not key.doc] == []
    page = (DOCS / "reference/gateway-files.md").read_text().partition("## roles.json")[2]
    told = set(re.findall(r"^\| `(?:\w+\[\]\.)?(\w+)` \|", page, re.MULTILINE))
    assert told == {"roles", "role", *roles._LISTS, "classes", *assignments.KEYS, *assignments._CONDITIONS}


def test_the_first_step_and_the_last_do_as_the_page_says(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr("builtins.input", lambda _question: "y")
    file = own_home / ".claude.json"
    file.write_text(before := '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}')
    show, apply, _stop, _sign_in, _sign_out, _secret, undo = typed("agent-intercom")
    assert main.main(show) == 0
    assert "add --apply to do this" in capsys.readouterr().out
    assert file.read_text() == before
    assert main.main(apply) == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == [OWN_NAME]
    assert (own_home / ".config/agent-intercom/gateway/time.json").exists()
    assert "agent-intercom stop" in capsys.readouterr().out
    assert main.main(undo) == 0
    assert file.read_text() == before
