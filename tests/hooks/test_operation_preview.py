"""What a person is shown of an operation, how much harm it could do, and whose hook it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents import agent_process_records
from intercom.model.request import ChangeKind, FileTouch, Operation, OperationKind, Replacement, RiskLevel
from intercom.workspace.client_operation import OperationPreview, preview_operation, risk_of

WRITE = Operation(OperationKind.WRITE, "Write", "Change", "x")
RUN = Operation(OperationKind.COMMAND, "Bash", "Run", "x", "ls")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text("one\ntwo\n")
    (made / "away").symlink_to(tmp_path)
    return made


def seen(root: Path, *touches: FileTouch, cwd: str | None = None) -> OperationPreview:
    return preview_operation(root, evolve(WRITE, touches=touches, cwd=cwd))


def test_a_new_file_and_one_that_goes(root: Path) -> None:
    found = seen(root, FileTouch("b.txt", "x\ny"), FileTouch(str(root / "a.txt"), delete=True))
    assert [(each.path, each.kind, each.added, each.removed) for each in found.changes] == [
        ("b.txt", ChangeKind.CREATE, 2, 0),
        ("a.txt", ChangeKind.DELETE, 0, 2),
    ]
    assert found.diff == (
        "diff --git a/b.txt b/b.txt\n"
        "--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1,2 @@\n+x\n+y\n\\ No newline at end of file\n"
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n"
    )


def test_pieces_are_replaced_where_they_fit_and_shown_where_they_do_not(root: Path) -> None:
    two = (Replacement("one", "1"), Replacement("1\ntwo", "2"))
    assert "-one\n-two\n+2\n" in seen(root, FileTouch("a.txt", replacements=two)).diff
    found = seen(root, FileTouch("a.txt", replacements=(Replacement("three", "3", True),)))
    assert found.diff.endswith("| @@ every place @@\n| -three\n| +3\n")
    assert found.remarks[0].text.startswith(
        "it does not contain the text to replace: what is shown is the agent's text"
    )
    assert found.changes[0].after_hash is None


@pytest.mark.parametrize(
    ("named", "cwd"),
    [("/etc/hosts", None), ("../x", None), ("away/x", None), ("~/.bashrc", None), ("x", "/etc"), ("x\0y", None)],
)
def test_what_lies_elsewhere_is_named_and_never_read(root: Path, named: str, cwd: str | None) -> None:
    found = seen(root, FileTouch(named, "new\n"), cwd=cwd)
    assert (found.changes, found.outside) == ((), (named,))
    assert found.diff.endswith("\n| +new\n")
    assert "\n-" not in found.diff
    assert found.remarks[0].text.startswith(
        "it lies outside of the workspace and was not read: what is shown is the agent's"
    )


def test_a_move_out_of_the_workspace_is_one_to_elsewhere(root: Path) -> None:
    found = seen(root, FileTouch("a.txt", move_to="../b.txt", diff="+x\n"))
    assert found.outside == ("../b.txt",)
    found = seen(root, FileTouch("a.txt", move_to="sub/b.txt", diff="+x\n"))
    assert (found.outside, found.inside) == ((), ("a.txt", "sub/b.txt"))


def test_what_is_no_text_is_told_by_its_size(root: Path) -> None:
    (root / "b").write_bytes(b"\xff\0")
    assert "2 bytes become 1" in seen(root, FileTouch("b", "x")).diff


def test_lines_that_a_client_gives_without_the_file_are_the_agents_words(root: Path) -> None:
    found = seen(root, FileTouch("a.txt", diff="@@ def harmless():\n-one\n+two\x1b[2J\n"))
    assert found.diff == "diff --git a/a.txt b/a.txt\n| @@ def harmless():\n| -one\n| +two\\x1b[2J\n"
    assert [remark.path for remark in found.remarks] == ["a.txt"]
    assert "the client gives only these lines: what is shown is the agent's text" in found.remarks[0].text


_NAMES = st.text(st.sampled_from("ab./\\~\0\u202e\n"), max_size=12)


@given(_NAMES, st.none() | _NAMES, st.none() | st.text(max_size=5), st.booleans())
def test_whatever_an_agent_names_is_foreseen(named: str, cwd: str | None, content: str | None, delete: bool) -> None:
    here = Path(__file__).parent
    found = preview_operation(here, evolve(WRITE, cwd=cwd, touches=(FileTouch(named, content, delete=delete),)))
    assert len(found.changes) + len(found.outside) == 1


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("npm test", RiskLevel.LOW),
        ("cd sub && npm test | tail", RiskLevel.LOW),
        ("rm -rf build", RiskLevel.HIGH),
        ("cd sub && /bin/rm x", RiskLevel.HIGH),
        ("FOO=1 sudo make", RiskLevel.HIGH),
        ("echo $(rm x)", RiskLevel.HIGH),
        ("cat .git/config", RiskLevel.HIGH),
        ("echo x > .claude/settings.json", RiskLevel.HIGH),
        ("echo rm", RiskLevel.LOW),
        ("", RiskLevel.LOW),
    ],
)
def test_the_risk_of_a_command(root: Path, line: str, level: RiskLevel) -> None:
    assert risk_of(root, evolve(RUN, text=line), OperationPreview()) is level


def test_the_risk_of_what_lies_elsewhere_or_is_protected(root: Path) -> None:
    assert risk_of(root, evolve(RUN, cwd="/"), OperationPreview()) is RiskLevel.HIGH
    assert risk_of(root, evolve(RUN, cwd=str(root)), OperationPreview()) is RiskLevel.LOW
    assert risk_of(root, evolve(RUN, cwd="a\0b"), OperationPreview()) is RiskLevel.HIGH
    for path, level in (("../x", RiskLevel.HIGH), (".git/hooks/x", RiskLevel.HIGH), ("x", RiskLevel.LOW)):
        operation = evolve(WRITE, touches=(FileTouch(path, ""),))
        assert risk_of(root, operation, preview_operation(root, operation)) is level


@contextmanager
def child(*command: str) -> Iterator[int]:
    """A process that says the pid of the one it started, and waits."""
    with subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.kill()


SAYS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def test_a_hook_belongs_to_the_nearest_client_above_it() -> None:
    # As a client starts it: by way of a shell that waits.
    with child("sh", "-c", f"{sys.executable} -c '{SAYS}'; true") as pid:
        mine, other = frozenset({os.getpid()}), frozenset({os.getppid()})
        assert agent_process_records.nearest(pid, {"far": other, "near": mine, "elsewhere": frozenset({1 << 22})}) == (
            "near",
        )
        assert agent_process_records.nearest(pid, {"one": mine, "two": mine}) == ("one", "two")
        assert agent_process_records.nearest(pid, {}) == ()


def test_a_process_that_is_gone_belongs_to_nobody() -> None:
    assert agent_process_records.nearest(1 << 22, {"mine": frozenset({os.getpid()})}) == ()
    assert agent_process_records.nearest(0, {"mine": frozenset({os.getpid()})}) == ()
