"""The command line and the environment of an agent that people start, without a shell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from attrs import frozen

from intercom.model.config import Config
from intercom.model.errors import ConfigError, InvalidArguments
from intercom.workspace import command_runner

#: The longest prompt in bytes. Linux allows arguments of up to 128 KiB.
LONGEST_PROMPT = 100_000

#: The prompt of a woken agent. The instructions themselves are attached to its next result, as always.
WAKE = "A person has something for you: call the tool ping of agent-intercom, and do what its instructions say."


@frozen
class Command:
    """A command line. `program` is an absolute path, `arguments` begin with the program's name."""

    program: str
    arguments: tuple[str, ...]


def check_prompt(prompt: str, host_cli_args: tuple[str, ...]) -> str:
    """Return the prompt if it can be an agent's only argument. Raises InvalidArguments.

    Most programs take a prompt that begins with a dash for an option, and options decide what an agent may do. It is
    allowed if `host_cli_args` end with `--`, which by convention ends the options.
    """
    if not prompt.strip():
        raise InvalidArguments("a prompt is needed: say what the agent is to do")
    if "\0" in prompt:
        raise InvalidArguments("the prompt holds a NUL character, which no argument can; leave it out")
    try:
        size = len(prompt.encode())
    except UnicodeEncodeError:
        raise InvalidArguments("the prompt is not valid Unicode; type it again") from None
    if size > LONGEST_PROMPT:
        raise InvalidArguments(
            f"the prompt has {size} bytes, and at most {LONGEST_PROMPT} can be given: put the rest into a file"
        )
    if prompt.lstrip().startswith("-") and host_cli_args[-1:] != ("--",):
        raise InvalidArguments(
            "the prompt begins with a dash, and the agent would take it for an option: begin with a word, or end"
            ' host_cli_args with "--" if the program knows that'
        )
    return prompt


def build_command(
    config: Config, prompt: str, environ: Mapping[str, str], session_id: str = "", *, resumes: bool = False
) -> Command:
    """Return the command that starts an agent with this prompt, or (`resumes`) wakes one for its instructions. The
    program is looked up in the PATH of `environ`, the agent's environment. `{session_id}` in an argument is replaced.

    Raises ConfigError if no program is configured or found, InvalidArguments for a prompt that cannot be used.
    """
    program = find(config.host_cli, environ)
    given = config.spawn.resume_args if resumes else config.host_cli_args
    arguments = (each.replace("{session_id}", session_id) for each in given)
    return Command(program, (program, *arguments, check_prompt(WAKE if resumes else prompt, given)))


def find(host_cli: str | None, environ: Mapping[str, str]) -> str:
    """Return the program's absolute path. Raises ConfigError if `host_cli` is not set, not found, or not executable."""
    if host_cli is None:
        raise ConfigError("no agent can be started: set host_cli in the server's configuration to an agent's program")
    name = _expanded(host_cli, environ)
    if "/" in name and not os.path.isabs(name):
        raise ConfigError(f"host_cli is {host_cli!r}: give a program's name, or a path that begins with / or ~")
    path = environ.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        where = "is no program that can be run" if "/" in name else f"is not found in the server's PATH ({path})"
        raise ConfigError(f"host_cli is {host_cli!r}, which {where}: install it, or give its whole path")
    return found


def _expanded(host_cli: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    return f"{home}{host_cli[1:]}" if host_cli.startswith("~/") and home else host_cli


#: Marks the processes of a session: for the agent's shim, and for ending them.
SESSION_ID = "INTERCOM_SESSION_ID"


def build_environment(
    environ: Mapping[str, str],
    passed_on: tuple[str, ...],
    session_id: str,
    workspace_root: str,
    http: Mapping[str, str],
) -> dict[str, str]:
    """Return the agent's environment. From the server's `environ` it gets what programs need, without credentials, and
    the names in `passed_on`. `http` are the variables for reaching the server over HTTP."""
    return {
        **command_runner.environment(environ),
        **{name: environ[name] for name in passed_on if name in environ},
        "INTERCOM_WORKSPACE_ROOT": workspace_root,
        SESSION_ID: session_id,
        **http,
    }
