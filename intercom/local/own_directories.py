"""Which directories of configuration and state are the user's own, whatever an environment says.

An agent's client chooses the environment of its relay, and so of the server that this relay starts. Own are therefore
only the directories in the home that the system knows, and those that a recognised operator has used: these are listed
in a file in that home.
"""

from __future__ import annotations

import os
from pathlib import Path

from intercom.local.operator_keys import read_own, replace
from intercom.local.places import APP, Places, places, private_directory, system_home
from intercom.model.errors import ConfigError

_HEAD = "# Directories of agent-intercom that its user has used, one a line.\n"


def default_places() -> Places | None:
    """The places of the user whose environment names none; None for a uid that the system does not know."""
    home = system_home()
    return None if home is None else places(environ={"HOME": home})


def list_file() -> Path | None:
    """Where the directories are listed; None for a uid that the system does not know."""
    home = system_home()
    return None if home is None else Path(home, ".local", "state", APP, "own-directories")


def own() -> tuple[frozenset[str], str]:
    """The user's own directories, and what is wrong with the file that lists them: then it lists none."""
    default = default_places()
    if default is None:
        return frozenset(), ""
    found = {os.path.dirname(default.config_file), default.state_dir}
    try:
        return frozenset(found | _listed()), ""
    except ConfigError as fault:
        return frozenset(found), fault.message


def is_own(directory: str, own: frozenset[str]) -> bool:
    """Whether this is one of `own`, by whatever name."""
    real = os.path.realpath(directory)
    return any(os.path.realpath(each) == real for each in own)


def is_own_config(file: str, own: frozenset[str]) -> bool:
    """Whether this is the configuration file in one of `own`, by whatever name."""
    real = os.path.realpath(file)
    return any(os.path.realpath(os.path.join(each, "config.toml")) == real for each in own)


def operator_keys_files() -> tuple[Path, ...]:
    """The files of operator keys in the user's own directories, whether there are any or not."""
    return tuple(Path(each, "operator-keys") for each in sorted(own()[0]))


def record(*directories: str) -> None:
    """List these as the user's own, and no longer those that are gone. The caller has recognised an operator.

    Raises ConfigError where the list is damaged, and OSError where it cannot be written.
    """
    known = own()[0]
    fresh = {each for each in directories if not is_own(each, known)}
    if fresh:
        _write({each for each in _listed() if os.path.isdir(each)} | fresh)


def forget(*directories: str) -> None:
    """List these no longer. Raises as `record` does."""
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
    replace(file, (_HEAD + "".join(f"{each}\n" for each in kept)).encode("utf-8"), 0o600)
