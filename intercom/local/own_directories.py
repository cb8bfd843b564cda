"""The user's own configuration and state directories, independent of the environment.

An agent's client chooses the environment of its relay, and of the server that the relay starts. So only two kinds of
directories count: those in the system's home directory of the user, and those that a recognised operator has used. A
file in that home directory lists the latter.
"""

from __future__ import annotations

import os
from pathlib import Path

from intercom.local.own_files import read_own, replace
from intercom.local.places import APP, Places, places, private_directory, system_home
from intercom.model.errors import ConfigError

_HEAD = "# Directories of agent-intercom that its user has used, one a line.\n"


def default_places() -> Places | None:
    """Return the places of the user with an empty environment, or None for a uid unknown to the system."""
    home = system_home()
    return None if home is None else places(environ={"HOME": home})


def list_file() -> Path | None:
    """Return the path of the list, or None for a uid unknown to the system."""
    home = system_home()
    return None if home is None else Path(home, ".local", "state", APP, "own-directories")


def own() -> tuple[frozenset[str], str]:
    """Return the user's own directories and the fault of the list, or "". A list with a fault counts as empty."""
    default = default_places()
    if default is None:
        return frozenset(), ""
    found = {os.path.dirname(default.config_file), default.state_dir}
    try:
        return frozenset(found | _listed()), ""
    except ConfigError as fault:
        return frozenset(found), fault.message


def is_own(directory: str, own: frozenset[str]) -> bool:
    """Whether this directory is one of `own`, under any name."""
    real = os.path.realpath(directory)
    return any(os.path.realpath(each) == real for each in own)


def is_own_config(file: str, own: frozenset[str]) -> bool:
    """Whether this is the configuration file in one of `own`, under any name."""
    real = os.path.realpath(file)
    return any(os.path.realpath(os.path.join(each, "config.toml")) == real for each in own)


def operator_keys_files() -> tuple[Path, ...]:
    """Return the paths of operator keys files in the user's own directories. The files need not exist."""
    return tuple(Path(each, "operator-keys") for each in sorted(own()[0]))


def record(*directories: str) -> None:
    """Add directories to the user's own, and drop those that no longer exist. The caller has recognised an operator.

    Raises ConfigError if the list is damaged, and OSError if it cannot be written.
    """
    known = own()[0]
    fresh = {each for each in directories if not is_own(each, known)}
    if fresh:
        _write({each for each in _listed() if os.path.isdir(each)} | fresh)


def forget(*directories: str) -> None:
    """Remove directories from the list. Raises as `record` does."""
    listed = _listed()
    if listed & set(directories):
        _write(listed - set(directories))


def _listed() -> set[str]:
    file = list_file()
    try:
        text = "" if file is None else read_own(file, private=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return set()
    return {line for line in text.splitlines() if os.path.isabs(line)}


def _write(directories: set[str]) -> None:
    file = list_file()
    if file is None:
        raise ConfigError("this uid has no passwd entry: its own directories cannot be recorded")
    private_directory(str(file.parent))
    kept = sorted(each for each in directories if each.isprintable())
    replace(file, (_HEAD + "".join(f"{each}\n" for each in kept)).encode("utf-8"))
