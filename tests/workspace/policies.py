"""Policies and queries for tests that hold for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from intercom.model.policy import FilePatterns, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace.policy import Query

COMMANDS = ["*", "git *", "git status", "cargo test *", "ls -?", "npm run [lt]*"]
TOOLS = ["ping", "heartbeat", "broadcast", "remote_log", "write_file"]
PATTERNS = ["**", "**/*", "*.md", "docs/**", "src/**/test_*.py", ".env", ".git/**"]


def _some(values: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=3, unique=True).map(tuple)


def policies() -> st.SearchStrategy[WorkspacePolicy]:
    return st.builds(
        WorkspacePolicy,
        enabled=st.booleans(),
        commands=_some(COMMANDS),
        tools=_some(TOOLS),
        file_patterns=st.builds(FilePatterns, _some(PATTERNS), _some(PATTERNS)),
        risk_level_threshold=st.sampled_from(list(RiskLevel)),
        log_auto_approved=st.booleans(),
        summary_interval_seconds=st.sampled_from([0, 60, 300]),
    )


def queries() -> st.SearchStrategy[Query]:
    return st.builds(
        Query,
        tool_name=st.sampled_from(
            ["git", "git status", "cargo test", "ls", "ping", "remote_log", "write_file", "npm run test"]
        ),
        args=st.lists(st.sampled_from(["-l", "status", "--all", "; rm", ".git/config"]), max_size=2).map(tuple),
        file_path=st.sampled_from([None, "README.md", "docs/a/b.md", "src/a/test_x.py", ".env", ".git/config", "../x"]),
        risk=st.sampled_from(list(RiskLevel)),
        operation=st.sampled_from(["write", "read"]),
    )
