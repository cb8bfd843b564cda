"""The choice of an agent's workspace: from its command line, its client's roots, or its directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from intercom.model.errors import WorkspaceRefused
from intercom.workspace import paths
from intercom.workspace.roots import version_control_root


def choose(option: str | None, roots: Iterable[str], cwd: str | None, default: Path | None) -> str:
    """Return the first usable workspace root. The order is `option` (--workspace), the client's `roots` (file URIs),
    the version-control root above `cwd`, `default`. Raises WorkspaceRefused if there is none, and at once for an
    unusable `option`."""
    if option is not None:
        return str(paths.check_workspace(Path(option)))
    for candidate in [*_local(roots), *_above(cwd)]:
        try:
            return str(paths.check_workspace(candidate))
        except WorkspaceRefused:
            continue
    if default is not None:
        return str(paths.check_workspace(default))
    raise WorkspaceRefused(
        "no workspace is known: start agent-intercom with --workspace DIR, run the client inside a version-controlled"
        " project, or set default_workspace_root in the configuration"
    )


def _local(roots: Iterable[str]) -> list[Path]:
    parts = [urlsplit(root) for root in roots]
    return [Path(unquote(part.path)) for part in parts if part.scheme == "file" and part.netloc in ("", "localhost")]


def _above(cwd: str | None) -> list[Path]:
    found = None if cwd is None else version_control_root(Path(cwd))
    return [] if found is None else [found]
