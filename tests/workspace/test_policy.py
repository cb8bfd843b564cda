"""What a policy grants, rule by rule."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.policy import DENY_ALL, FilePatterns, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace import command_rules
from intercom.workspace.policy import Limits, Query, evaluate, evaluate_files, is_protected
from intercom.workspace.policy_file import parse
from tests.workspace.policies import policies, queries

ON = WorkspacePolicy(enabled=True)


def allowing(*rules: str) -> WorkspacePolicy:
    return evolve(ON, commands=rules)


def writing(*patterns: str) -> WorkspacePolicy:
    return evolve(ON, file_patterns=FilePatterns(write=patterns))


@pytest.mark.parametrize(
    ("pattern", "command", "args", "granted"),
    [
        ("git status", "git status", (), True),
        ("git status", "git", ("status",), True),
        ("git status", "git status", ("-s",), False),
        ("git status", "git  'status'", (), True),
        ("git", "git status", (), False),
        ("git log *", "git log", (), True),
        ("git log *", "git log --oneline -5", (), True),
        ("git log *", "git log", ("--oneline", "-5"), True),
        ("git log *", "git logs", (), False),
        ("git * status", "git -P status", (), True),
        ("git * status", "git a b status", (), False),
        ("cargo test --pack*", "cargo test --package=x/y", (), True),
        ("ls -?", "ls -l", (), True),
        ("ls -[la]", "ls -l", (), True),
        ("ls -[la]", "ls -x", (), False),
        ("LS", "ls", (), False),
        ("*", "anything at all", (), True),
        ("echo 'a b'", "echo", ("a b",), True),
        ("cargo test *", "cargo test; rm -rf x", (), False),
        ("cargo test *", "cargo test", ("&&", "rm"), False),
        ("cargo test *", "cargo test && rm", (), False),
        ("cargo test *", "cargo test | sh", (), False),
        ("cargo test *", "cargo test & rm", (), False),
        ("cargo test *", "cargo test > out", (), False),
        ("cargo test *", "cargo test < in", (), False),
        ("cargo test *", "cargo test $(rm)", (), False),
        ("cargo test *", "cargo test `rm`", (), False),
        ("cargo test *", "cargo test $HOME", (), False),
        ("cargo test *", 'cargo test "$(rm)"', (), False),
        ("cargo test *", "cargo test\nrm", (), False),
        ("cargo test *", "cargo test\rrm", (), False),
        ("cargo test *", "cargo test", ("a\nrm",), False),
        ("cargo test *", "cargo test {a,b}", (), False),
        ("cargo test *", "(cargo test)", (), False),
        ("cargo test *", "cargo test 'open", (), False),
        ("cargo test *", "X=1 cargo test", (), False),
        ("cargo test; rm", "cargo test; rm", (), False),
        ("cargo (test)", "cargo test", (), False),
        ("git *", "git config --file .git/config x", (), False),
        ("cp *", "cp evil .git/hooks/pre-commit", (), False),
        ("tee *", "tee --output=.claude/settings.json", (), False),
        ("tee *", "tee", ("sub/CLAUDE.md",), False),
        ("tee *", "tee", (".g\\it/config",), False),
        ("tee *", "tee '.gi'\"t\"/config", (), False),
        ("tee *", "tee", ("'.g'it/config",), False),
        ("tee *", "tee .gi?/config", (), False),
        ("tee *", "tee sub/.[g]*/config", (), False),
        ("tee *", "tee .gi[^x]/config", (), False),
        ("tee *", "tee CLAUD[E].md", (), False),
        ("tee *", "tee CLAUD[^x].md", (), False),
        ("tee *", "tee CLAUD[[:upper:]].md", (), False),
        ("tee *", "tee sub/C*", (), False),
        ("tee *", "tee src/*.md", (), False),
        ("tee *", "tee x.code-w*", (), False),
        ("tee *", "tee .githu*/workflows/x", (), False),
        ("tee *", "tee .github/work*/x", (), False),
        ("tee *", "tee x*.py .gx* src/x* .github/x*", (), True),
        ("rg *", "rg 'C*' src", (), True),
        ("*", "", (), False),
        ("*", "  ", (), False),
    ],
)
def test_commands_are_globs_on_words(pattern: str, command: str, args: tuple[str, ...], granted: bool) -> None:
    answer = evaluate(allowing(pattern), Query(command, args))
    assert answer.auto_approved is granted
    assert answer.matched_rule == (f"command:{pattern}" if granted else None)
    assert (answer.why is None) is granted


def test_no_command_rule_is_ever_a_regular_expression() -> None:
    assert not evaluate(allowing("git.*", "^git"), Query("git status")).auto_approved


@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=3))
def test_whatever_holds_an_operator_never_matches(command: str, args: list[str]) -> None:
    given_words = command_rules.words(command, args)
    if any(char in part for part in (command, *args) for char in ";&|<>$`\n\r(){}"):
        assert given_words is None
        assert not evaluate(allowing("*"), Query(command, tuple(args))).auto_approved


@pytest.mark.parametrize(
    ("rule", "tool"),
    [("ping", "ping"), ("heartbeat", "ping"), ("ping", "heartbeat"), ("remote_log", "broadcast"), ("x", "x")],
)
def test_older_and_newer_tool_names_are_the_same_tool(rule: str, tool: str) -> None:
    answer = evaluate(evolve(ON, tools=(rule,)), Query(tool))
    assert (answer.auto_approved, answer.matched_rule) == (True, f"tool:{rule}")


def test_tools_are_names_and_not_globs() -> None:
    assert not evaluate(evolve(ON, tools=("*", "pin?")), Query("ping")).auto_approved


@pytest.mark.parametrize(
    ("pattern", "path", "granted"),
    [
        ("**/*.md", "README.md", True),
        ("**/*.md", "a/b/c.md", True),
        ("**/*.md", "a/b/c.MD", False),
        ("docs/**", "docs/a/b", True),
        ("docs/**", "docs", False),
        ("docs/**", "docsx/a", False),
        ("./docs/**", "docs/a", True),
        ("*", "a", True),
        ("*", "a/b", False),
        ("*.test.ts", "src/a.test.ts", False),
        ("src/*/x", "src/a/x", True),
        ("src/*/x", "src/a/b/x", False),
        ("**", "a/b", True),
        ("**", ".env", False),
        ("**", "a/.hidden/b", False),
        (".env", ".env", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[!a]x", "bx", True),
        ("!a", "b", False),
        ("*.{md,txt}", "a.md", False),
        ("docs/**", "docs/../src/x", False),
        ("docs/**", "src/../docs/x", True),
        ("**", "../x", False),
        ("**", "/etc/passwd", False),
        ("**", "a\0", False),
        ("**/**/**", "a", False),
        ("**/a/**", "x/a/b/c", True),
        ("**", "d" * 200 + "/" + "/".join(["d" * 102] * 8), True),
        ("**", "d" * 201 + "/" + "/".join(["d" * 102] * 8), False),
        ("**", "/".join("d" * 64), True),
        ("**", "/".join("d" * 65), False),
        ("**", "/".join("d" * 70), False),
    ],
)
def test_file_patterns_are_globs_on_canonical_paths(pattern: str, path: str, granted: bool) -> None:
    answer = evaluate(writing(pattern), Query("edit", file_path=path))
    assert answer.auto_approved is granted
    assert answer.matched_rule == (f"file_pattern:write:{pattern}" if granted else None)


def test_a_read_pattern_counts_for_a_read_and_for_nothing_else() -> None:
    policy, fault = parse('{"enabled": true, "file_patterns": {"write": ["docs/**"], "read": ["**/*"]}}')
    assert fault is None
    assert not evaluate(policy, Query("edit", file_path="src/x")).auto_approved
    assert evaluate(policy, Query("show", file_path="src/x", operation="read")).matched_rule == "file_pattern:read:**/*"
    assert evaluate(policy, Query("edit", file_path="docs/x")).auto_approved
    assert not evaluate(writing("docs/**"), Query("show", file_path="docs/x", operation="read")).auto_approved


EVERYTHING = evolve(
    ON,
    commands=("*",),
    tools=("edit",),
    file_patterns=FilePatterns(("**", "**/.*", "**/.*/**", ".*/**"), ("**", "**/.*", ".*/**")),
    risk_level_threshold=RiskLevel.CRITICAL,
)


@pytest.mark.parametrize(
    "path",
    [
        ".intercom/settings.json", ".monocoque/settings.json", ".git/config", ".git", "sub/.git/hooks/post-checkout",
        ".GIT/config", ".git./config", ".mcp.json", ".claude/settings.json", ".cursor/mcp.json", ".codex/config.toml",
        ".vscode/mcp.json", ".github/copilot-instructions.md", ".github/instructions/x.md", ".github/workflows/ci.yml",
        "CLAUDE.md", "sub/AGENTS.md", "docs/../.git/config", ".gitmodules",
    ],
)  # fmt: skip
@pytest.mark.parametrize("operation", ["write", "read"])
def test_what_steers_agents_or_runs_by_itself_always_needs_a_person(path: str, operation: str) -> None:
    query = Query("edit", file_path=path, operation="read" if operation == "read" else "write")
    assert not evaluate(EVERYTHING, query).auto_approved
    assert not evaluate_files(EVERYTHING, ("a", path), RiskLevel.LOW).auto_approved


def test_names_that_only_resemble_protected_ones_are_free() -> None:
    for path in ("git/config", ".github/ISSUE_TEMPLATE/x.md", "docs/claude.md.txt", ".gitignore"):
        assert not is_protected(path)


@pytest.mark.parametrize("threshold", list(RiskLevel))
@pytest.mark.parametrize("cap", list(RiskLevel))
@pytest.mark.parametrize("risk", list(RiskLevel))
def test_risk_passes_up_to_the_lower_of_both_limits_and_critical_never(
    threshold: RiskLevel, cap: RiskLevel, risk: RiskLevel
) -> None:
    policy = evolve(ON, tools=("t",), file_patterns=FilePatterns(("*",)), risk_level_threshold=threshold)
    granted = risk is not RiskLevel.CRITICAL and risk.rank <= min(threshold.rank, cap.rank)
    limits = Limits(max_risk_level=cap)
    assert evaluate(policy, Query("t", risk=risk), limits).auto_approved is granted
    assert evaluate_files(policy, ("f",), risk, limits).auto_approved is granted


def test_the_allowlist_gates_commands_only_where_it_is_required() -> None:
    policy = evolve(ON, commands=("cargo *", "rm *"), tools=("ping",), file_patterns=FilePatterns(("*",)))
    limits = Limits(allowlist=("cargo test", "git"))
    assert evaluate(policy, Query("cargo test --all"), limits).auto_approved
    assert not evaluate(policy, Query("cargo build"), limits).auto_approved
    assert not evaluate(policy, Query("rm x"), limits).auto_approved
    assert evaluate(policy, Query("ping"), limits).auto_approved
    assert evaluate(policy, Query("edit", file_path="f"), limits).auto_approved
    assert not evaluate(policy, Query("cargo test"), Limits(allowlist=())).auto_approved
    assert evaluate(policy, Query("rm x")).auto_approved


def test_rules_are_tried_in_order_commands_tools_files() -> None:
    policy = evolve(ON, commands=("edit",), tools=("edit",), file_patterns=FilePatterns(("*",)))
    query = Query("edit", file_path="f")
    assert evaluate(policy, query).matched_rule == "command:edit"
    assert evaluate(evolve(policy, commands=()), query).matched_rule == "tool:edit"
    assert evaluate(evolve(policy, commands=(), tools=()), query).matched_rule == "file_pattern:write:*"


@given(queries())
def test_a_policy_that_is_off_or_absent_grants_nothing(query: Query) -> None:
    assert not evaluate(DENY_ALL, query).auto_approved
    assert not evaluate(evolve(EVERYTHING, enabled=False), query).auto_approved


@pytest.mark.parametrize(
    ("paths", "granted", "why"),
    [
        (("docs/a", "docs/b"), True, None),
        (("docs/a", "src/b"), False, "src/b fits no write pattern"),
        ((), False, "names no file"),
        (("docs/a", "docs/.git/x"), False, "docs/.git/x is protected"),
        (("docs/../../x",), False, "outside the workspace"),
    ],
)
def test_a_proposal_passes_only_if_a_write_pattern_grants_each_file(
    paths: tuple[str, ...], granted: bool, why: str | None
) -> None:
    policy = evolve(ON, tools=("check_clearance",), commands=("*",), file_patterns=FilePatterns(("docs/**",), ("**",)))
    answer = evaluate_files(policy, paths, RiskLevel.LOW)
    assert answer.auto_approved is granted
    assert answer.matched_rule == ("file_pattern:write:docs/**" if granted else None)
    assert why is None or why in (answer.why or "")


@given(policies(), queries())
def test_what_is_critical_or_protected_never_passes_whatever_the_policy(policy: WorkspacePolicy, query: Query) -> None:
    assert not evaluate(policy, evolve(query, risk=RiskLevel.CRITICAL)).auto_approved
    assert not evaluate(policy, evolve(query, file_path=".git/config")).auto_approved
