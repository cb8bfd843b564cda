"""The examples that are not programs do what the pages say of them."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from intercom.model.policy import WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.sessions.tools.tool_table import TOOLS
from intercom.workspace import command_rules
from intercom.workspace.command_rules import RUNS
from intercom.workspace.policy import Query, evaluate, evaluate_files
from intercom.workspace.policy_file import parse
from tests.docs.generated import DOCS, ROOT
from tests.workspace.test_command_options import HARMFUL

POLICY = (ROOT / "examples/policy/settings.json").read_text()
INSTRUCTIONS = (ROOT / "examples/agent-instructions/AGENTS.md").read_text()


#: What writes or runs behind some program or other.
HARMFUL_WORDS = (
    *(
        "-o.git/x",
        "-o x",
        "-ox",
        "--output=x",
        "--output x",
        "--outp=x",
        "--exec=x",
        "--exec x",
        "--ext-diff",
        "-c x=y",
    ),
    *("-c core.pager=x", "--upload-pack=x", "--config-env=a=b", "-exec x", "-delete", "--pre=x", "--to-command=x"),
    *("--checkpoint-action=exec=x", "--rsh=x", "--use-compress-program=x", "--basetemp=x", "@x"),
    *("+x", "A=b", "-- --output=x", "-- -o x", "*", "-"),
)


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
        ("git diff --stat", True),
        ("git diff --stat HEAD", False),
        ("git diff --output=x", False),
        ("python -m pytest -q tests", True),
        ("python -m pytest -p x", False),
        ("git status --short", False),
        ("git status; rm -rf x", False),
        ("git diff > x", False),
        ("git push", False),
    ],
)
def test_the_policy_grants_the_commands_that_its_page_says(command: str, granted: bool) -> None:
    assert evaluate(parse(POLICY)[0], Query(command)).auto_approved is granted


def documented_rules() -> set[str]:
    """The command rules of every policy in the documentation and the examples; and those in texts that end in `*`."""
    rules = set(json.loads(POLICY)["commands"])
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            with contextlib.suppress(ValueError):
                read = json.loads(block)
                rules |= set(read.get("commands", ())) if isinstance(read, dict) else set()
        rules |= set(re.findall(r"`([a-z][a-z0-9_. -]* \*)`", text))
    return {rule for rule in rules if isinstance(rule, str)}


def test_no_documented_rule_grants_a_harmful_variant() -> None:
    rules = documented_rules()
    assert {"git status", "git diff --stat", "python -m pytest *"} <= rules
    for rule in rules:
        begins = rule.removesuffix(" *")
        variants = [f"{begins} {more}" for more in HARMFUL_WORDS]
        variants += [f"{prefix} {begins}" for prefix in ("GIT_PAGER=x", "env", "sh -c", "xargs")]
        program, _, rest = begins.partition(" ")
        variants += [f"{program} {before} {rest}" for before in ("-c core.pager=x", "--exec-path=x", "-C x", "-c x")]
        for variant in (*variants, *(each for found in HARMFUL.values() for each in found)):
            assert not evaluate(WorkspacePolicy(enabled=True, commands=(rule,)), Query(variant)).auto_approved, (
                rule,
                variant,
            )


def test_the_page_names_every_program_that_the_table_knows() -> None:
    page = (DOCS / "reference/policy.md").read_text()
    assert [name for name, options in command_rules.TABLE.items() if options != RUNS and f"`{name}`" not in page] == []


def test_the_page_on_policies_shows_this_very_policy() -> None:
    assert f"```json\n{POLICY}```" in (DOCS / "how-to/write-a-policy.md").read_text()


def test_the_instructions_name_tools_that_are_there() -> None:
    named = set(re.findall(r"`([a-z_]+)`", INSTRUCTIONS))
    tools = {tool.name for tool in TOOLS}
    words = {"approved", "rejected", "timeout", "pending", "paused", "request_id", "risk_level"}
    words |= {"late_verdicts", "instructions", "tasks", "title", "file_path", "diff", "content"}
    assert named - words <= tools
    assert tools - named == {"auto_check", "switch_freq"}


def test_the_page_on_instructions_shows_these_very_words() -> None:
    assert f"```markdown\n{INSTRUCTIONS}```" in (DOCS / "how-to/instruct-agents.md").read_text()
