"""A policy grants nothing that is protected under another name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.model.errors import InvalidState
from intercom.model.policy import WorkspacePolicy
from intercom.model.request import FileTouch, Operation, OperationKind
from intercom.sessions.messages import AskPermission
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext, FileAccess
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.workspace import policy
from intercom.workspace.policy import Query, evaluate, is_protected
from tests.support.virtual_server import VirtualServer

POLICY = '{"enabled": true, "file_patterns": {"write": ["docs/**", "src/**"], "read": ["docs/**"]}}\n'


def hooks_path(root: Path) -> None:
    # git takes the last one.
    earlier = "\thooksPath = src\n" * 2
    (root / ".git/config").write_text(f'[core]\n\tbare = false\n{earlier}\thooksPath = "docs/x" ; ours\n')


def link(name: str, target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)

    return make


#: What makes of the plain path docs/x/file something protected.
LEADS = {
    "instructions": link("CLAUDE.md", "docs/x/file"),
    "a client's directory": link(".claude", "docs/x"),
    "in a client's directory": link(".cursor/rules/own.md", "../../docs/x/file"),
    "deeper in it": link(".claude/skills/a/b", "../../../docs/x"),
    "what runs": link(".github/workflows", "../docs/x"),
    "a hook": link(".git/hooks/pre-commit", "../../docs/x/file"),
    "all hooks": hooks_path,
    "beside it": link("docs/AGENTS.md", "x/file"),
    "through another link": lambda root: (link("lnk", "docs/x")(root), link("GEMINI.md", "lnk/file")(root))[0],
    "the policy itself": link(".monocoque", "docs/x"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    for name in ("docs/x", "src", ".git/hooks", ".intercom"):
        (made / name).mkdir(parents=True)
    (made / "docs/x/file").write_text("old\n")
    (made / ".intercom/settings.json").write_text(POLICY)
    (made / "plain").symlink_to("src")
    return made


@pytest.mark.parametrize("leads", LEADS)
async def test_a_person_is_asked_about_what_a_protected_link_leads_to(
    server: VirtualServer, root: Path, leads: str
) -> None:
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.propose("docs/x/file", "new\n")).answered is not None, "the policy grants it as it is"
    LEADS[leads](root)
    assert (await agent.propose("docs/x/file", "newer\n")).answered is None
    assert (await agent.propose("src/other", "new\n")).answered is not None, "what nothing leads to is granted"
    answer = await agent.ask(AutoCheck("edit", CheckContext("docs/x/file", operation=FileAccess.READ)))
    assert not answer.answer.auto_approved


async def test_what_was_granted_before_a_link_led_there_is_not_applied(server: VirtualServer, root: Path) -> None:
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose("docs/x/file", "new\n")
    assert opened.answered is not None
    LEADS["a hook"](root)
    with pytest.raises(InvalidState, match=r"docs/x/file is what \.git/hooks/pre-commit leads to"):
        await agent.ask(CheckDiff(opened.request_id))
    assert (root / "docs/x/file").read_text() == "old\n"


async def test_a_client_that_writes_in_place_is_not_let_into_a_file_with_a_second_name(
    server: VirtualServer, root: Path
) -> None:
    def write(path: str) -> AskPermission:
        touch = FileTouch(path, content="new\n")
        return AskPermission(path, "client", Operation(OperationKind.WRITE, "Write", path, path, touches=(touch,)), "s")

    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.ask(write("docs/x/file"))).answered is not None
    os.link(root / ".intercom/settings.json", root / "docs/twin")
    assert (await agent.ask(write("docs/twin"))).answered is None
    assert not any(policy.has_other_name(root, path) for path in ("docs", "plain", "docs/gone", "gone/x"))
    # An apply makes a new file of it, and leaves the other name alone.
    opened = await agent.propose("docs/twin", "{}\n")
    assert opened.answered is not None
    await agent.ask(CheckDiff(opened.request_id))
    assert (root / ".intercom/settings.json").read_text() == POLICY


@pytest.mark.parametrize(
    "path", ["GIT~1/hooks/x", "docs/interc~1/settings.json", "CLAUDE~2", "MCP~1.JSO", "GITHUB~1/x"]
)
def test_the_short_name_of_a_windows_file_system_is_protected_too(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    [
        *(".devcontainer.json", "x.code-workspace", "X.CODE-WORKSPACE", ".gitconfig", ".githooks/pre-commit"),
        *("lefthook.yml", ".clinerules/a.md", ".roo/rules/a.md", "opencode.json", ".kiro/hooks/x", "AGENT.md"),
        *("docs/QWEN.md", ".claude-plugin/plugin.json", "CLAUDE.md::$DATA", ".git::$INDEX_ALLOCATION/config"),
        *("CLAUDE\u200b.md", ".g\u2060it/config"),
    ],
)
def test_what_else_clients_obey_or_runs_by_itself_is_protected(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize("line", ["path = ../tools/gitconfig", '[include] path = "../tools/gitconfig"'])
def test_configuration_that_git_includes_is_protected(root: Path, line: str) -> None:
    (root / ".git/config").write_text(f"[include]\n\t{line}\n")
    why = policy.why_protected(root, ["docs/x", "tools/gitconfig"])
    assert why is not None
    assert "tools/gitconfig is what include.path of git leads to" in why


@pytest.mark.parametrize("path", ["docs~1/x", "file~", "git~", "notes~1.txt", "~1", "gitgit~1"])
def test_what_only_looks_like_a_short_name_is_not(path: str) -> None:
    assert not is_protected(path)


async def test_no_repository_comes_to_be_or_changes_that_is_not_called_one(server: VirtualServer, root: Path) -> None:
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.propose("docs/x/config", "[core]\n")).answered is not None, "a config alone is none"
    assert (await agent.propose("docs/x/HEAD", "ref: refs/heads/main\n")).answered is None
    (root / "docs/x/HEAD").write_text("ref: refs/heads/main\n")
    assert (await agent.propose("docs/x/config", "[core]\nfsmonitor = ./y\n")).answered is None
    assert (await agent.propose("docs/x/hooks/pre-commit", "./y\n")).answered is None
    assert (await agent.propose("docs/y/config", "x\n")).answered is not None
    assert "lies in docs/x, which has a HEAD" in str(policy.why_protected(root, ["docs/x/config"]))
    (root / "HEAD").touch()
    assert "lies in ., which has a HEAD" in str(policy.why_protected(root, ["docs/x/config"]))


def test_a_command_names_no_head_unless_it_is_one_of_git() -> None:
    policy = WorkspacePolicy(enabled=True, commands=("tee *", "git diff *", "head *"))
    granted = {line: evaluate(policy, Query(line)).auto_approved for line in COMMANDS_WITH_HEAD}
    assert granted == COMMANDS_WITH_HEAD


COMMANDS_WITH_HEAD = {"tee docs/x/HEAD": False, "tee head": False, "git diff HEAD": True, "head -5 x": True}


def test_more_than_can_be_looked_at_is_for_a_person(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".claude").mkdir()
    for n in range(10):
        (root / ".claude" / str(n)).touch()
        (root / "docs" / str(n)).touch()
    (root / ".git/objects/ab").mkdir(parents=True)
    # The directories .git, .intercom and .claude, and what lies in them: one file, 10, and of .git what lies directly.
    monkeypatch.setattr(policy, "MAX_ENTRIES", 16)
    assert policy.why_protected(root, ["docs/x/file"]) is None
    monkeypatch.setattr(policy, "MAX_ENTRIES", 15)
    assert "too many" in str(policy.why_protected(root, ["docs/x/file"]))
    assert "cannot be looked at" in str(policy.why_protected(root / "gone", ["docs/x/file"]))
