"""What commands load before they do anything: a server's libraries take a second, which only a server spends."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path

import pytest

import intercom.app
from intercom.cli.main import load_server
from intercom.operators import channel_actor
from intercom.operators.web import events, listener, sign_in


@pytest.mark.parametrize(
    ("module", "words"),
    [("main", ["stop"]), ("main", ["doctor"]), ("main", ["demo", "--config", "x"]), ("ctl", ["audit", "verify"])],
)
def test_a_command_beside_the_server_loads_no_server(tmp_path: Path, module: str, words: list[str]) -> None:
    code = (
        f"import sys; from intercom.cli import {module}; {module}.main({words!r});"
        "print([each for each in ('mcp', 'mcp_types', 'pydantic', 'intercom.app') if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HOME": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("words", [["list"], ["pending"], ["watch", "--plain"], ["watch", "--json"], ["--help"], []])
def test_only_the_inbox_loads_textual(tmp_path: Path, words: list[str]) -> None:
    code = (
        f"import sys; from intercom.cli import ctl, ctl_watch; ctl_watch.again = lambda *_: sys.exit(3);"
        f"sys.argv[1:] = {words!r}; import contextlib\n"
        "with contextlib.suppress(SystemExit): ctl.main()\n"
        "print([each for each in ('textual', 'pygments') if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_garbage_is_collected_again_once_a_server_is_loaded() -> None:
    assert load_server().__name__ == "intercom.cli.serve"
    assert gc.isenabled()


def test_a_server_loads_the_page_and_its_web_server_only_once_somebody_opens_it() -> None:
    for module in (intercom.app, channel_actor, listener, sign_in, events):
        assert module.__file__ is not None
        body = ast.parse(Path(module.__file__).read_text()).body
        loaded = {node.module or "" for node in body if isinstance(node, ast.ImportFrom)}
        assert not [name for name in loaded if name.startswith(("h11", "starlette", "intercom.web_server"))]
        assert "intercom.operators.web.site" not in loaded
