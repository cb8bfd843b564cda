"""Runs `agent-intercom gateway secret`: stores a secret of a downstream in the user's keychain, or deletes it.

The value is typed without echo, or read from a pipe. It is in no argument, which other programs of the machine could
read, and in no message. It needs no server: one that runs looks the secret up at the next connection.
"""

from __future__ import annotations

import argparse
import getpass
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from intercom.cli.ctl_text import one_line
from intercom.gateway.config_directory import read_settings
from intercom.gateway.downstream_config import DownstreamConfig, references
from intercom.gateway.variables import Source
from intercom.local import keychain
from intercom.local.places import Places
from intercom.model.config import Config
from intercom.model.errors import ConfigError

PROGRAM: Final = "agent-intercom"
#: The command that stores a secret, without its name.
SET: Final = f"{PROGRAM} gateway secret set"
#: Seconds that a person has to unlock the keychain.
_PATIENCE: Final = 60.0
#: The longest secret, in characters.
_LONGEST: Final = 64 * 1024
_NAME: Final = re.compile(r"(?P<server>[A-Za-z0-9][A-Za-z0-9_-]*)/(?P<name>[A-Za-z0-9_.@/-]+)")


def run(options: argparse.Namespace, where: Places, config: Config) -> int:
    """Carry out `secret set` or `secret delete`. Returns 0 if it was done, 1 if nothing was there to delete, or nothing
    was typed. Raises ConfigError for a wrong name, and if the keychain cannot be used."""
    name: str = options.name
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name[:80]!r} is no name of a secret: write SERVER/NAME, such as github/TOKEN; the name of the MCP server"
            " is first, so that no other server gets it"
        )
    directory = config.gateway.directory or Path(where.gateway_directory)
    settings = read_settings(directory)
    if options.secret_action == "delete":
        return _delete(name, directory)
    if keychain.read([name], patience=_PATIENCE) is None:
        # Asked first, so that no person types a secret in vain.
        raise ConfigError(without_keychain(name, directory))
    value = _value(name)
    if not value:
        print(f"{PROGRAM}: no value was given; nothing was stored", file=sys.stderr)
        return 1
    if len(value) > _LONGEST:
        raise ConfigError(f"the value is longer than {_LONGEST} characters: is it the right file?")
    kept = keychain.write({name: value}, patience=_PATIENCE)
    if kept is None:
        raise ConfigError(without_keychain(name, directory))
    print(one_line(f"stored {name} in the keychain ({kept})"))
    print(one_line(f"  {next_step(name, settings.configs, directory)}"))
    return 0


def _delete(name: str, directory: Path) -> int:
    gone = keychain.forget([name], patience=_PATIENCE)
    if gone is None:
        raise ConfigError(f"this machine has no keychain, so {name} is not in one: look in {directory}")
    print(f"deleted {name} from the keychain" if gone else f"the keychain has no {name}")
    return 0 if gone else 1


def _value(name: str) -> str:
    """Read the secret: without echo from a terminal, else all of standard input without the last line end."""
    if sys.stdin.isatty():
        try:
            return getpass.getpass(f"value of {name} (not shown): ").strip()
        except EOFError:
            print()
            return ""
    return sys.stdin.read(_LONGEST + 2).removesuffix("\n").removesuffix("\r")


def without_keychain(name: str, directory: Path) -> str:
    """Return what to do where there is no keychain."""
    server, _, variable = name.partition("/")
    file = directory / f"{server}.json"
    return (
        f"this machine has no keychain that Intercom can use: write the value itself into {file}, which only you can"
        f" read; or write ${{{_variable(variable)}}} there, and run {PROGRAM} serve where this variable is set"
    )


def next_step(name: str, configs: Mapping[str, DownstreamConfig], directory: Path) -> str:
    """Return what remains to be done for a stored secret to be used."""
    server, _, variable = name.partition("/")
    file = directory / f"{server}.json"
    config = configs.get(server)
    if config is None:
        there = ", ".join(sorted(configs)) or "none"
        return f"no MCP server is called {server} yet (there are: {there}): refer to it there by ${{keychain:{name}}}"
    found = references(config)
    if any(each.source is Source.KEYCHAIN and each.name == name for each in found):
        return f"{server} gets it at its next connection: agent-intercom-ctl gateway test {shlex.quote(server)}"
    if any(each.source is Source.ENVIRONMENT and each.name == variable for each in found):
        return f"now write ${{keychain:{name}}} for ${{{variable}}} in {file}"
    return f"nothing refers to it yet: write ${{keychain:{name}}} where {file} needs it"


def _variable(name: str) -> str:
    """Return a name that a variable of the environment can have."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789") or "SECRET"
