"""The lines of README.md and of the tutorial, typed word for word in a real shell of a new account."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from attrs import define, frozen

from tests.bundles.contents import ROOT
from tests.docs.test_documented import shell_blocks
from tests.support.terminal import Terminal, on_terminal

#: The lines that no test types, by how they begin, and why.
NOT_TYPED = {
    "README.md": {
        "python3 -m venv .venv && .venv/bin/pip install -q tox ": "all of continuous integration: it does this itself",
    },
    "docs/tutorial/first-approval.md": {
        "uv tool install .": "the README begins with the same line",
    },
}
PROMPT = ", ready> "
PIN = "correct horse"
DOWN, INTERRUPT = "\x1b[B", "\x03"
#: The longest that one page may take: it installs the package with its dependencies, twice in the README.
SECONDS = 900
pytestmark = pytest.mark.real_time(seconds=SECONDS)
#: What a new account takes over of this one's environment: how to reach a package registry.
REACH = re.compile(r"(PIP|UV|SSL)_.*|.*_CA_BUNDLE|(HTTPS?|NO)_PROXY", re.IGNORECASE)
AGENT = shlex.join([sys.executable, str(Path(__file__).with_name("readme_agent.py"))])


class Page:
    """The lines of a page's blocks, which a test takes one after the other."""

    def __init__(self, clone: Path, name: str) -> None:
        lines = [line for block in shell_blocks(clone / name) for line in block.splitlines()]
        left_out = tuple(NOT_TYPED[name])
        self._lines = [line for line in lines if not line.startswith(left_out)]
        assert len(lines) - len(self._lines) == len(left_out), f"{name} has not each line that NOT_TYPED names once"

    def take(self, start: str) -> str:
        """The next line, which must begin like this."""
        line = self._lines.pop(0)
        assert line.startswith(start), f"no step types the line {line!r}: write one, or name the line in NOT_TYPED"
        return line

    def is_at_its_end(self) -> bool:
        assert self._lines == [], "no step types these lines: write some, or name the lines in NOT_TYPED"
        return True


@define
class Shell:
    screen: Terminal

    def type(self, line: str) -> None:
        self.screen.type(f"{line}\r")

    async def run(self, line: str, *answers: tuple[str, str], code: int | None = 0) -> str:
        """Type a line, and each answer once its question is there; what was printed until the next prompt. With None
        for its code, it may end with any."""
        self.type(line)
        said = ""
        for question, answer in answers:
            said += await self.screen.until(question)
            self.type(answer)
        return said + await self.prompt(code, line)

    async def prompt(self, code: int | None, line: str = "") -> str:
        said, _, found = (await self.screen.until(PROMPT)).removesuffix(PROMPT).rpartition("exit ")
        assert code in (None, int(found)), (line, said, found)
        return said


@frozen
class Account:
    """A new account of a person: its home, in which there is a clone and a project."""

    home: Path
    environ: dict[str, str]

    @property
    def clone(self) -> Path:
        return self.home / "clone"

    @property
    def project(self) -> Path:
        return self.home / "project"

    @asynccontextmanager
    async def terminal(self, directory: Path) -> AsyncIterator[Shell]:
        async with on_terminal(["env", "-C", str(directory), "bash", "-i"], self.environ) as screen:
            await screen.until(PROMPT)
            yield Shell(screen)

    def read(self, name: str) -> str:
        """A file of this home."""
        return (self.home / name).read_text()

    def is_its_own(self) -> None:
        """Make this home the one that the installed program takes for the account's: it believes no environment about
        that, and would write to the home of who runs the tests, and read that person's keys."""
        (packages,) = self.home.glob(".local/share/**/site-packages")
        # Of a .pth file, Python runs only lines that begin with import.
        line = f"import intercom.local.places as places; places.STAND_IN_HOME = {str(self.home)!r}\n"
        (packages / "home_of_a_test.pth").write_text(line)

    def processes(self) -> list[psutil.Process]:
        return [each for each in psutil.process_iter() if self._has(each)]

    def _has(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    home, programs = tmp_path / "home", tmp_path / "bin"
    for each in (home, home / "run", home / "tmp", home / "project", programs):
        each.mkdir(mode=0o700)
    for name, program in (("uv", shutil.which("uv")), ("python3", os.path.realpath(sys.executable))):
        assert program, f"{name} is not on the PATH: run this with tox -e bundles"
        (programs / name).symlink_to(program)
    # A browser that opens nothing, and says which address it was given.
    (programs / "browser").write_text(f'#!/bin/sh\necho "$1" > {shlex.quote(str(home / "opened"))}\n')
    (programs / "browser").chmod(0o755)
    (home / ".bashrc").write_text(f"PS1='exit $?{PROMPT}'\n")
    # Not the package of the environment in which the tests run.
    path = [each for each in os.get_exec_path() if not Path(each, "agent-intercom").exists()]
    environ = {name: value for name, value in os.environ.items() if REACH.fullmatch(name)}
    environ |= {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(programs), *path]),
        "SHELL": "/bin/bash",
        "TMPDIR": str(home / "tmp"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "BROWSER": str(programs / "browser"),
    }
    subprocess.run(["git", "clone", "--quiet", ROOT, home / "clone"], check=True, env=environ)
    subprocess.run(["git", "init", "--quiet", home / "project"], check=True, env=environ)
    made = Account(home, environ)
    try:
        yield made
        # The server goes on in the background, as it should.
        subprocess.run([home / ".local/bin/agent-intercom", "stop"], env=environ, check=True, timeout=60)
        deadline = time.monotonic() + 20
        while left := made.processes():
            assert time.monotonic() < deadline, [each.cmdline() for each in left]
            time.sleep(0.1)
    finally:
        for process in made.processes():
            process.kill()


async def test_the_lines_of_the_readme_do_what_it_says(account: Account) -> None:
    page = Page(account.clone, "README.md")
    async with account.terminal(account.clone) as shell:
        await shell.run(page.take("uv tool install ."))
        await shell.run("uv tool update-shell")
    account.is_its_own()
    async with account.terminal(account.project) as first, account.terminal(account.project) as second:
        demo = await first.run(page.take("agent-intercom demo"), *[("[d]etails:", "y")] * 2)
        assert demo.count("The request is applied.") == 2
        await connect(first, page)

        first.type(f"{AGENT} HELLO.md Hello")
        await first.screen.until("the agent waits")
        doctor = await second.run(page.take("agent-intercom doctor"))
        assert "answers are accepted here" in doctor, doctor
        second.type(page.take("agent-intercom-ctl "))
        await second.screen.until("Add HELLO.md")
        second.screen.type("q")
        await second.prompt(0)
        await second.run(page.take("agent-intercom-ctl web"))
        assert account.read("opened").startswith("file://")
        await approve(second, page)
        await is_written(account, first, "HELLO.md", "Hello\n")

        async with account.terminal(account.clone) as shell:
            shell.type(page.take("python3 -m venv .venv && .venv/bin/pip install -q '.[test]' && "))
            await shell.screen.until("The channel itself: http://")
            shell.screen.type(INTERRUPT)
            await shell.prompt(0)

        first.type(page.take("agent-intercom rooms "))
        await first.screen.until("people watch    agent-intercom-ctl")
        await second.run(page.take("agent-intercom-ctl rooms list"))
        first.screen.type(INTERRUPT)
        await first.prompt(0)

        await second.run(page.take("agent-intercom gateway import"))
        # Nothing was there to move.
        assert "this server has no gateway" in await second.run(page.take("agent-intercom-ctl gateway list"), code=1)
        assert page.is_at_its_end()


async def test_the_lines_of_the_tutorial_do_what_it_says(account: Account) -> None:
    page = Page(account.clone, "docs/tutorial/first-approval.md")
    async with account.terminal(account.clone) as shell:
        await shell.run(page.take("python3 -m venv "))
        await shell.run(page.take("~/.local/share/agent-intercom/bin/pip install ."))
        await shell.run(page.take("mkdir -p ~/.local/bin "))
        # As the page says of a shell that does not look there.
        await shell.run("""echo 'PATH="$HOME/.local/bin:$PATH"' >> ~/.bashrc""")
    account.is_its_own()
    async with account.terminal(account.project) as first, account.terminal(account.project) as second:
        assert "agent-intercom " in await first.run(page.take("agent-intercom --version"))
        await connect(first, page)

        second.type(page.take("agent-intercom-ctl"))
        first.type(f"{AGENT} HELLO.md Hello")
        await second.screen.until("Add HELLO.md")
        assert not (account.project / "HELLO.md").exists()
        await second.screen.press(DOWN, "+++ b/HELLO.md")
        await second.screen.press("a", "PIN")
        second.type(PIN)
        await is_written(account, first, "HELLO.md", "Hello\n")
        second.screen.type("q")
        await second.prompt(0)

        async with account.terminal(account.home) as third:
            first.type(f"{AGENT} SALUT.md Salut")
            await first.screen.until("the agent waits")
            await approve(third, page)
            await is_written(account, first, "SALUT.md", "Salut\n")

        first.type(f"{AGENT} HALLO.md Hallo")
        await first.screen.until("the agent waits")
        await second.run(page.take("agent-intercom-ctl tree"))
        doctor = await second.run(page.take("agent-intercom doctor"))
        pid = re.search(r"server.*running as process (\d+)", doctor)
        assert pid, doctor
        await second.run(page.take("kill -9 PID").replace("PID", pid[1]))
        line = page.take("agent-intercom-ctl pending")
        while "no server" in (said := await second.run(line, code=None)).replace(line, ""):
            pass
        found = only_id(said)
        assert page.is_at_its_end()
        await second.run(f"agent-intercom-ctl approve {found}", ("PIN of key", PIN))
        await is_written(account, first, "HALLO.md", "Hallo\n")


async def connect(shell: Shell, page: Page) -> None:
    """Answer the questions of `init` with what it proposes."""
    said = await shell.run(
        page.take("agent-intercom init --write --client codex"),
        ("Install these hooks? [y/N]", ""),
        ("Write these instructions? [y/N]", ""),
        ("Make an operator key? [Y/n]", ""),
        ("Choose a PIN for the new key:", PIN),
        ("The same again:", PIN),
    )
    assert "own-directories" not in said, "it wrote to the home of who runs the tests"
    assert "Restart Codex. Then answer what it asks, in a terminal of your own:" in said


def only_id(said: str) -> str:
    """The id of the only request that `pending` printed."""
    (found,) = re.findall(r"^(\w+) .*Add ", said, re.MULTILINE)
    return str(found)


async def approve(shell: Shell, page: Page) -> None:
    """Answer line by line, with the id of the request in place of the page's."""
    found = only_id(await shell.run(page.take("agent-intercom-ctl pending")))
    show, answer = page.take("agent-intercom-ctl show 3f2a"), page.take("agent-intercom-ctl approve 3f2a")
    assert "+++ b/" in await shell.run(show.replace("3f2a", found))
    await shell.run(answer.replace("3f2a", found), ("PIN of key", PIN))


async def is_written(account: Account, shell: Shell, name: str, text: str) -> None:
    """The agent got its approval, and ends once it has applied the change."""
    said = await shell.prompt(0)
    assert "the agent was told: approved" in said
    assert "check_diff said: applied" in said
    assert account.read(f"project/{name}") == text
