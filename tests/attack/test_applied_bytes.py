"""What was approved is what is written, where it was approved, and nothing else: tries to have it otherwise."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.local import operator_keys
from intercom.model.card import CardState
from intercom.model.clock import to_text
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, InvalidState, PathViolation
from intercom.model.request import Operation, OperationKind
from intercom.sessions.messages import AskPermission
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store import rows
from intercom.store.writer_messages import Transact
from intercom.workspace.files import digest
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock

HOOK = "#!/bin/sh\necho taken\n"
POLICY = '{"enabled": true, "file_patterns": {"write": ["docs/**", "d/**"]}}\n'
PATCH = "--- /dev/null\n+++ b/docs/pre-commit\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo taken\n"
EDIT = "--- a/docs/text\n+++ b/docs/text\n@@ -1 +1 @@\n-old\n+new\n"
DELETE = "--- a/docs/text\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
RENAME = "diff --git a/docs/text b/docs/name\nsimilarity index 100%\nrename from docs/text\nrename to docs/name\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    for name in ("docs", ".git/hooks", ".intercom"):
        (made / name).mkdir(parents=True)
    (made / "docs/text").write_text("old\n")
    (made / ".git/hooks/text").write_text("old\n")
    (made / "CLAUDE.md").write_text("Be careful.\n")
    return made


def found(root: Path) -> dict[str, str]:
    """Every file that is reached without a link, and what it holds."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


async def approved(server: VirtualServer, agent: AgentClient, path: str, diff: str) -> str:
    id = (await agent.propose(path, diff)).request_id
    await server.decide(id, Decision.APPROVE)
    return id


async def sql(server: VirtualServer, text: str, *values: object) -> None:
    """Change the database behind the server's back."""
    assert await server.ask("store", Transact(lambda db: rows.affected(db, text, values))), "it hit nothing"


def becomes(path: Path, target: str) -> None:
    """A directory or file is moved aside, and a link takes its place."""
    path.rename(path.with_name("aside"))
    path.symlink_to(target)


# --- the place -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "diff"),
    [
        ("docs/pre-commit", HOOK),
        ("docs/pre-commit", PATCH),
        ("docs/text", "new\n"),
        ("docs/text", EDIT),
        ("docs/text", DELETE),
        ("docs/text", RENAME),
        ("docs/new/pre-commit", HOOK),
    ],
    ids=["new file", "new by patch", "whole file", "patch", "delete", "rename", "new directory"],
)
async def test_a_directory_that_became_a_link_after_approval_is_not_followed(
    server: VirtualServer, root: Path, path: str, diff: str
) -> None:
    agent = await server.arrive(root)
    id = await approved(server, agent, path, diff)
    becomes(root / "docs", ".git/hooks")
    before = found(root)
    with pytest.raises(PathViolation, match="docs is a symbolic link"):
        await agent.ask(CheckDiff(id))
    assert found(root) == before
    # Put right, it goes on: nothing was lost.
    (root / "docs").unlink()
    (root / "aside").rename(root / "docs")
    assert (await agent.ask(CheckDiff(id))).answered.answer.status == "applied"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("link", "target", "path"),
    [("docs", ".intercom", "docs/settings.json"), ("docs/note", "../CLAUDE.md", "docs/note")],
)
async def test_what_a_policy_let_pass_is_not_written_through_a_link(
    server: VirtualServer, root: Path, link: str, target: str, path: str, force: bool
) -> None:
    (root / ".intercom/settings.json").write_text(POLICY)
    (root / "docs/note").write_text("a note\n")
    (root / "docs/settings.json").write_text("{}\n")
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose(path, "mine\n")
    assert opened.answered is not None, "the policy lets it pass"
    becomes(root / link, target)
    before = found(root)
    with pytest.raises(IntercomError):
        await agent.ask(CheckDiff(opened.request_id, force))
    assert found(root) == before


async def test_a_link_that_was_there_is_resolved_when_it_is_proposed_and_never_again(
    server: VirtualServer, root: Path
) -> None:
    (root / "d").symlink_to("docs")
    agent = await server.arrive(root)
    id = (await agent.propose("d/new", "mine\n")).request_id
    card = await server.operator.card(id=id) if server.operator.cards else await server.app.service.card(id)
    assert ([file.path for file in card.files], card.detail) == (["docs/new"], "docs/new")
    await server.decide(id, Decision.APPROVE)
    (root / "d").unlink()
    (root / "d").symlink_to(".git/hooks")
    await agent.ask(CheckDiff(id))
    assert (root / "docs/new").read_text() == "mine\n"
    assert not (root / ".git/hooks/new").exists()


async def test_a_policy_judges_the_place_and_not_the_name(server: VirtualServer, root: Path) -> None:
    (root / ".intercom/settings.json").write_text(POLICY)
    (root / "d").symlink_to(".intercom")
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.propose("d/new", "mine\n")).answered is None, "a person is asked"


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def hard_link(path: Path) -> None:
    path.unlink()
    os.link(path.parents[1] / "CLAUDE.md", path)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("../CLAUDE.md")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("swap", [fifo, hard_link, link, directory])
@pytest.mark.parametrize(("path", "diff"), [("docs/text", "new\n"), ("docs/text", EDIT), ("docs/text", DELETE)])
async def test_a_target_that_was_swapped_for_something_else_is_left_as_it_is(
    server: VirtualServer, root: Path, swap: Callable[[Path], None], path: str, diff: str
) -> None:
    agent = await server.arrive(root)
    id = await approved(server, agent, path, diff)
    swap(root / path)
    before = (root / path).lstat()
    with pytest.raises(IntercomError):
        await agent.ask(CheckDiff(id))
    after = (root / path).lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
    assert (root / "CLAUDE.md").read_text() == "Be careful.\n"


async def test_a_file_with_a_second_name_changes_under_the_approved_name_alone(
    server: VirtualServer, root: Path
) -> None:
    os.link(root / "CLAUDE.md", root / "docs/twin")
    agent = await server.arrive(root)
    id = await approved(server, agent, "docs/twin", "mine\n")
    await agent.ask(CheckDiff(id))
    assert (root / "docs/twin").read_text() == "mine\n"
    assert (root / "CLAUDE.md").read_text() == "Be careful.\n"


def swap_workspace(root: Path, other: Path, how: str) -> None:
    root.rename(root.parent / "aside")
    (other / "docs").mkdir(parents=True)
    if how == "a link":
        root.symlink_to(other)
    else:
        other.rename(root)


def swap_back(root: Path) -> None:
    root.unlink() if root.is_symlink() else shutil.rmtree(root)
    (root.parent / "aside").rename(root)


@pytest.mark.parametrize("how", ["a link", "another directory"])
async def test_a_workspace_that_was_swapped_for_another_is_not_written_to(
    server: VirtualServer, root: Path, how: str
) -> None:
    other = root.parent / "other"
    agent = await server.arrive(root)
    id = await approved(server, agent, "docs/new", "mine\n")
    swap_workspace(root, other, how)
    with pytest.raises(IntercomError, match="the workspace"):
        await agent.ask(CheckDiff(id))
    assert found(root) == {}
    # The right one again.
    swap_back(root)
    await agent.ask(CheckDiff(id))
    assert (root / "docs/new").read_text() == "mine\n"


# --- the bytes -------------------------------------------------------------------------------------------------------

_CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "the text": ("update approval_request set diff_content = ?", ("evil\n",)),
    "text and hash": ("update approval_request set diff_content = ?, proposal_hash = 'x'", ("evil\n",)),
    "text as a patch": ("update approval_request set diff_content = ?", (PATCH,)),
    "the path": ("update approval_file set path = ?", (".git/hooks/pre-commit",)),
    "the hash after": ("update approval_file set after_hash = ?", ("0" * 64,)),
    "the hash before": ("update approval_file set before_hash = ?", ("0" * 64,)),
    "the kind": ("update approval_file set kind = ?", ("write",)),
    "the mode": ("update approval_file set mode = ?", (0o755,)),
    "the old path": ("update approval_file set old_path = ?", ("CLAUDE.md",)),
    "the risk": ("update approval_request set risk_level = ?", ("critical",)),
    "a file less": ("delete from approval_file where path = ?", ("docs/new",)),
    "what is shown": ("update approval_request set preview = ?", ("--- /dev/null\n+++ docs/new\n",)),
    "what is shown taken away": ("update approval_request set preview = null", ()),
    "what is said of it": ("update approval_request set remarks = ?", ('[["docs/new", "harmless"]]',)),
    "what Slack is shown": ("update approval_request set masked = ?", ('[[3, "+harmless"]]',)),
}


@pytest.mark.parametrize("change", _CHANGES)
async def test_a_proposal_that_was_changed_in_the_database_is_not_written(
    server: VirtualServer, root: Path, change: str
) -> None:
    agent = await server.arrive(root)
    id = await approved(server, agent, "docs/new", "shown\n")
    text, values = _CHANGES[change]
    await sql(server, text, *values)
    before = found(root)
    with pytest.raises(IntercomError) as refused:
        await agent.ask(CheckDiff(id))
    assert refused.value.error_code == "record_mismatch"
    assert found(root) == before
    told = await server.operator.notice("was changed after it was decided")
    assert (told.session_id, told.level) == (None, "error")
    # It is void: the same proposal is a new request.
    assert (await agent.propose("docs/new", "shown\n")).request_id != id


def step_by_hand(path: str) -> str:
    """A journal's step that makes `path` of a file that is staged beside it."""
    step = {
        "path": path,
        "old_path": None,
        "kind": "create",
        "temp": ".intercom-planted-0.tmp",
        "before_hash": "new_file",
        "size": 5,
    }
    return json.dumps([{**step, "after_hash": digest(HOOK.encode()), "mode": 0o755, "made": []}])


@pytest.mark.parametrize(
    "how", ["other steps", "not decided", "not signed", "by the policy", "another card", "no card"]
)
async def test_a_journal_that_was_written_by_hand_is_not_carried_through(clock: Clock, root: Path, how: str) -> None:
    """A committed apply is carried through after a restart: but only if it is the one that was approved."""
    key = Key()
    async with virtual_server(root.parent, clock) as server:
        if how == "not signed":
            operator_keys.add_public(server.app.places, key.public)
            await server.app.service.add_key(key.public, *key.for_key("add", key.public, server.now()))
        agent = await server.arrive(root)
        id = (await agent.propose("docs/new", HOOK)).request_id
        if how == "another card":
            text = "diff --git a/docs/new b/docs/new\n--- /dev/null\n+++ b/docs/new\n@@ -0,0 +1 @@\n+harmless\n"
            await sql(server, "update approval_request set preview = ? where id = ?", text, id)
        if how == "no card":
            await sql(server, "update approval_request set preview = null where id = ?", id)
        if how in ("other steps", "another card", "no card"):
            await server.decide(id, Decision.APPROVE)
        elif how != "not decided":
            await sql(
                server,
                "update approval_request set status = 'approved', verdict = 'approve', verdict_id = 'v',"
                " decided_by = 'kim', decided_via = ?, decided_at = created_at where id = ?",
                *("policy" if how == "by the policy" else "ctl", id),
            )
        path = ".git/hooks/pre-commit" if how == "other steps" else "docs/new"
        (root / path).with_name(".intercom-planted-0.tmp").write_text(HOOK)
        await sql(
            server,
            "insert into apply_journal values (?, ?, ?, 'committed', ?, null, null, ?)",
            *(id, agent.session_id, str(root), step_by_hand(path), to_text(server.now())),
        )
    before = found(root)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await agent.settled()
        assert found(root) == before
        card = (
            await server.operator.card(id=f"apply-{id}")
            if server.operator.cards
            else await server.app.service.card(f"apply-{id}")
        )
        said = card.body or ""
        assert "not what was approved" in said or "does not count" in said or "the policy does not let it pass" in said


# --- the policy ------------------------------------------------------------------------------------------------------


async def test_an_approval_of_the_policys_that_was_made_by_hand_decides_nothing(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose("docs/new", "mine\n")).request_id
    await sql(
        server,
        "update approval_request set status = 'approved', auto_rule = 'file_pattern:write:docs/**',"
        " verdict = 'approve', verdict_id = 'v', decided_by = 'policy', decided_via = 'policy',"
        " decided_at = created_at where id = ?",
        id,
    )
    with pytest.raises(InvalidState, match="the policy does not let it pass"):
        await agent.ask(CheckDiff(id))
    assert not (root / "docs/new").exists()


async def test_an_approval_without_a_decision_decides_nothing(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose("docs/new", "mine\n")).request_id
    await sql(server, "update approval_request set status = 'approved' where id = ?", id)
    with pytest.raises(InvalidState, match="no decision"):
        await agent.ask(CheckDiff(id))
    assert not (root / "docs/new").exists()


async def test_what_a_policy_let_pass_and_lets_pass_no_more_is_not_written(server: VirtualServer, root: Path) -> None:
    (root / ".intercom/settings.json").write_text(POLICY)
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose("docs/new", "mine\n")
    assert opened.answered is not None
    (root / ".intercom/settings.json").write_text('{"enabled": false}\n')
    with pytest.raises(InvalidState, match="the policy does not let it pass") as refused:
        await agent.ask(CheckDiff(opened.request_id))
    assert refused.value.error_code == "not_approved"
    assert not (root / "docs/new").exists()
    # Asked again it is a question to a person, and not the approval that is void.
    again = await agent.propose("docs/new", "mine\n")
    assert (again.answered, again.request_id != opened.request_id) == (None, True)
    card = await server.app.service.card(again.request_id)
    assert card.state is CardState.PENDING


# --- leave -----------------------------------------------------------------------------------------------------------


async def test_leave_that_was_given_for_one_command_cannot_be_moved_to_another(
    server: VirtualServer, root: Path
) -> None:
    def asked(text: str) -> AskPermission:
        command = Operation(OperationKind.COMMAND, "Bash", text, text, text=text)
        return AskPermission(f"call {text}", "client", command, "slot")

    agent = await server.arrive(root)
    harmless = (await agent.ask(asked("ls"))).request_id
    harmful = (await agent.ask(asked("rm -rf docs"))).request_id
    await server.decide(harmless, Decision.APPROVE)
    await server.decide(harmful, Decision.REJECT)
    await sql(
        server,
        "update approval_request set key = (select key from approval_request where id = ?) where id = ?",
        *(harmful, harmless),
    )
    await sql(server, "update approval_request set delivered_at = created_at where id = ?", harmful)
    opened = await agent.ask(asked("rm -rf docs"))
    assert opened.answered is None, "a person is asked anew"
    assert opened.request_id not in (harmless, harmful)
