"""The examples that are not programs do what the pages say of them."""

from __future__ import annotations

import re

import pytest

from intercom.agents.tools import TOOLS
from intercom.model.approval import RiskLevel
from intercom.workspace.policy import Query, evaluate, evaluate_files
from intercom.workspace.policy_file import parse
from tests.docs.generated import DOCS, ROOT

POLICY = (ROOT / "examples/policy/settings.json").read_text()
INSTRUCTIONS = (ROOT / "examples/agent-instructions/AGENTS.md").read_text()


def test_the_policy_has_no_fault() -> None:
    assert parse(POLICY)[1] is None


@pytest.mark.parametrize(
    ("paths", "risk", "granted"),
    [
        (["docs/how-to/x.md"], RiskLevel.LOW, True),
        (["tests/test_x.py", "docs/a.md"], RiskLevel.LOW, True),
        (["tests/test_x.py"], RiskLevel.HIGH, False),
        (["tests/test_x.py", "src/x.py"], RiskLevel.LOW, False),
        (["docs/x.html"], RiskLevel.LOW, False),
        (["tests/.git/config"], RiskLevel.LOW, False),
    ],
)
def test_the_policy_grants_the_files_that_its_page_says(paths: list[str], risk: RiskLevel, granted: bool) -> None:
    assert evaluate_files(parse(POLICY)[0], paths, risk).auto_approved is granted


@pytest.mark.parametrize(
    ("command", "granted"),
    [
        ("git status", True),
        ("git diff --stat HEAD", True),
        ("python -m pytest -q tests", True),
        ("git status --short", False),
        ("git status; rm -rf x", False),
        ("git diff > x", False),
        ("git push", False),
    ],
)
def test_the_policy_grants_the_commands_that_its_page_says(command: str, granted: bool) -> None:
    assert evaluate(parse(POLICY)[0], Query(command)).auto_approved is granted


def test_the_page_on_policies_shows_this_very_policy() -> None:
    assert f"```json\n{POLICY}```" in (DOCS / "how-to/write-a-policy.md").read_text()


def test_the_instructions_name_tools_that_are_there() -> None:
    named = set(re.findall(r"`([a-z_]+)`", INSTRUCTIONS))
    tools = {tool.name for tool in TOOLS}
    words = {"approved", "rejected", "timeout", "pending", "paused", "request_id", "risk_level"}
    words |= {"late_verdicts", "instructions", "tasks"}
    assert named - words <= tools
    assert tools - named == {"auto_check", "switch_freq"}


def test_the_page_on_instructions_shows_these_very_words() -> None:
    assert f"```markdown\n{INSTRUCTIONS}```" in (DOCS / "how-to/instruct-agents.md").read_text()
