"""Directories of a user that this process takes for its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.local import places as local_places
from intercom.local.places import Places, places

_FORGOTTEN = (
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "CODEX_HOME", "COPILOT_HOME"),
    "CLAUDE_CONFIG_DIR",
    *("GEMINI_CLI_HOME", "QWEN_HOME"),
    *("SLACK_APP_TOKEN", "SLACK_BOT_TOKEN", "SLACK_TEAM_ID", "SLACK_MEMBER_IDS", "PYTHON_KEYRING_BACKEND"),
)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory, with a project that is the present directory."""
    made = tmp_path / "home"
    (made / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setattr(local_places, "STAND_IN_HOME", str(made))
    for name in _FORGOTTEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(made / "project")
    return made


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """The places of a server, empty, with a project beside them."""
    # Not pytest's own directory, whose path is long for a socket.
    with tempfile.TemporaryDirectory(prefix="ix-") as directory:
        for name in _FORGOTTEN:
            monkeypatch.delenv(name, raising=False)
        for variable, part in (("RUNTIME_DIR", "run"), ("CONFIG_HOME", "config"), ("STATE_HOME", "state")):
            (Path(directory) / part).mkdir(mode=0o700)
            monkeypatch.setenv(f"XDG_{variable}", str(Path(directory) / part))
        monkeypatch.setenv("HOME", str(Path(directory) / "home"))
        (Path(directory) / "project").mkdir()
        yield places()
