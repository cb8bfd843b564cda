"""What the tests of sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An agent's workspace, beside the server's files."""
    made = tmp_path / "ws"
    made.mkdir()
    return made
