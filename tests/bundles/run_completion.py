"""The completion of real shells, switched on as the help says: what Tab completes, the line then does."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
import trio

from intercom.cli.parser import SHELLS
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import StandInService, card
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.real_time

#: The line that makes the shell show when it is ready, and the options with which it reads its own files alone.
PROMPTS = {
    "bash": ("PS1='ready> '", ["--noprofile", "--rcfile", ".bashrc", "-i"]),
    "zsh": ("PS1='ready> '", ["-d", "-i"]),
    "fish": ("function fish_prompt; echo -n 'ready> '; end", ["-i"]),
}
#: The longest that one shell may take: one that completes nothing waits for more of the line.
SECONDS = 60
#: What other lines of a person's file say above ours.
ABOVE = {"zsh, which completes already": "autoload -Uz compinit; compinit -u"}


@pytest.mark.parametrize("name", [*SHELLS, *ABOVE])
async def test_a_shell_completes_a_command_an_option_and_an_id(name: str, tmp_path: Path) -> None:
    shell = name.partition(",")[0]
    assert shutil.which(shell), f"{shell} is not on the PATH: install it (on Debian: apt-get install {shell})"
    file, line = SHELLS[shell]
    prompt, options = PROMPTS[shell]
    start = tmp_path / file.removeprefix("~/")
    start.parent.mkdir(parents=True, exist_ok=True)
    start.write_text(f"{ABOVE.get(name, '')}\n{prompt}\n{line}\n")
    service = StandInService(card("abc-1"), card("xyz-2"))
    async with ctl_server(tmp_path, service) as server:
        environ = server.environ | {"PATH": f"{sysconfig.get_path('scripts')}:{server.environ['PATH']}"}
        words = ["env", "-C", str(tmp_path), shell, *options]
        with trio.fail_after(SECONDS):
            async with on_terminal(words, environ) as screen:
                await screen.until("ready> ")
                screen.type("agent-intercom-ctl app\t--help\r")
                await screen.until("usage: agent-intercom-ctl approve")
                screen.type("agent-intercom doc\t--help\r")
                await screen.until("usage: agent-intercom doctor")
                # Neither a command nor an option may be abbreviated.
                screen.type("agent-intercom-ctl pending --ful\t\r")
                await screen.until("@@")
                screen.type("agent-intercom-ctl reject ab\t--reason no\r")
                await screen.until("rejected")
    assert [act[1] for act in service.acts if act[0] == "decide"] == ["abc-1"]
