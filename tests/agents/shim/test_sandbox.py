"""Where a server would die with its agent, from what a process sees of its PID namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.agents.shim.launch import SandboxSigns, doom, look

NPX = ("npx", "@anthropic-ai/claude-code")
CLAUDE = ("claude",)
BASH = ("bash",)
UVX = ("uvx", "agent-intercom")
SCRIPT = ("/bin/sh", "-c", "claude")


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        pytest.param(SandboxSigns(nested=False), None, id="the machine itself"),
        pytest.param(SandboxSigns(nested=False, first="bwrap"), None, id="a machine whose init has an odd name"),
        pytest.param(SandboxSigns(True, first="bwrap"), "bwrap", id="a sandbox"),
        pytest.param(SandboxSigns(True, image=True, first="firejail"), "firejail", id="one with files of its own"),
        pytest.param(SandboxSigns(True, first="codex-linux-san"), "codex", id="a sandbox with a long name"),
        pytest.param(SandboxSigns(True, first="claude", line=(CLAUDE,)), "client", id="the client is process 1"),
        pytest.param(SandboxSigns(True, first="npm", line=(CLAUDE, SCRIPT, NPX)), "client", id="its launcher is"),
        pytest.param(SandboxSigns(True, first="claude", line=(UVX, CLAUDE)), "client", id="a launcher of ours is not"),
        pytest.param(SandboxSigns(True, first="tini", line=(CLAUDE, ("tini", "--"))), "client", id="a mere init is"),
        pytest.param(SandboxSigns(True, first="agent", is_first=True), "client", id="we are process 1"),
        pytest.param(SandboxSigns(True, True, "claude", (CLAUDE,)), None, id="a container for the client"),
        pytest.param(SandboxSigns(True, True, "sh", is_first=True), None, id="a container for us"),
        pytest.param(SandboxSigns(True, first="bash", line=(CLAUDE, BASH)), None, id="a person's shell is process 1"),
        pytest.param(SandboxSigns(True, first="init", line=(CLAUDE, BASH, ("/sbin/init",))), None, id="an init is"),
        pytest.param(SandboxSigns(True, first="sleep"), None, id="started into a container from outside"),
    ],
)
def test_a_server_dies_with_its_agent_where_process_1_is_the_agents(at: SandboxSigns, wanted: str | None) -> None:
    found = doom(at)
    assert (found is None) is (wanted is None)
    assert wanted is None or wanted in str(found)


class Proc:
    """A made-up /proc."""

    def __init__(self, root: Path, namespace: str) -> None:
        self.root = root
        self._namespace = namespace

    def process(self, pid: int, parent: int, *command: str, root: str = "ext4") -> None:
        at = self.root / str(pid)
        (at / "ns").mkdir(parents=True)
        (at / "ns/pid").symlink_to(self._namespace)
        (at / "comm").write_text(os.path.basename(command[0])[:15] + "\n")
        (at / "cmdline").write_text("".join(f"{word}\0" for word in command))
        (at / "status").write_text(f"Name:\t{command[0]}\nPid:\t{pid}\nPPid:\t{parent}\n")
        (at / "mountinfo").write_text(
            f"22 1 0:5 / /proc rw - proc proc rw\n23 1 0:20 / / rw,relatime shared:1 - {root} /dev/x rw\n"
        )

    def look(self, pid: int) -> SandboxSigns:
        (self.root / "root").mkdir(exist_ok=True)
        return look(str(self.root), str(self.root / "root"), pid)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path, "pid:[4026532999]")


def test_a_line_of_ancestors_is_read_up_to_process_1(proc: Proc) -> None:
    proc.process(1, 0, "claude", "--resume")
    proc.process(7, 1, "uvx", "agent-intercom")
    proc.process(9, 7, "agent-intercom")
    assert proc.look(9) == SandboxSigns(True, False, "claude", (("uvx", "agent-intercom"), ("claude", "--resume")))
    assert proc.look(1).is_first
    assert doom(proc.look(9)) is not None


def test_what_was_started_from_outside_has_no_line(proc: Proc) -> None:
    proc.process(1, 0, "sleep", "infinity")
    proc.process(20, 0, "claude")
    proc.process(21, 20, "agent-intercom")
    assert proc.look(21).line == ()
    assert doom(proc.look(21)) is None


@pytest.mark.parametrize("kind", ["overlay", "fuse.fuse-overlayfs"])
def test_a_container_is_known_by_its_root(proc: Proc, kind: str) -> None:
    proc.process(1, 0, "claude", root=kind)
    proc.process(5, 1, "agent-intercom", root=kind)
    assert proc.look(5).image
    assert doom(proc.look(5)) is None


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_mark(proc: Proc, mark: str) -> None:
    proc.process(1, 0, "claude")
    proc.process(5, 1, "agent-intercom")
    assert not proc.look(5).image
    file = proc.root / "root" / mark
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert proc.look(5).image


def test_the_machines_own_namespace_is_no_sandbox(tmp_path: Path) -> None:
    machine = Proc(tmp_path, "pid:[4026531836]")
    machine.process(1, 0, "bwrap")
    machine.process(5, 1, "agent-intercom")
    assert machine.look(5) == SandboxSigns(nested=False)


def test_where_there_is_no_proc_nothing_is_nested(tmp_path: Path) -> None:
    assert look(str(tmp_path / "none")) == SandboxSigns(nested=False)


_CHILD = """
import json
from intercom.agents.shim.launch import doom, look
found = look()
print(json.dumps([found.nested, found.line != (), found.is_first, doom(found._replace(image=False))]))
"""
_CLIENT = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {_CHILD!r}]).returncode)"


def test_a_real_namespace_made_for_a_client_is_seen_as_one() -> None:
    # Where no namespace may be made, the same is asked of what there is; the made-up ones above stand for the rest.
    for way in (("--user", "--map-root-user"), ()):
        command = ["unshare", *way, "--pid", "--fork", "--mount-proc", sys.executable, "-c", _CLIENT]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except FileNotFoundError:
            break
        if ran.returncode == 0:
            nested, has_line, is_first, doomed = json.loads(ran.stdout)
            assert (nested, has_line, is_first) == (True, True, False)
            assert "client" in doomed
            return
    try:
        expected = os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    except OSError:
        expected = False
    assert look().nested is expected
