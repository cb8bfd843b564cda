"""The argument parser of both commands: errors are one sentence that says what was probably meant, and shells can
complete the line.

The module uses the standard library alone, because both commands start with it. It imports argcomplete only if a shell
asks for completions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, Final, NoReturn

#: The shells that `completion_script` writes for: the file that a shell reads at its start, and the line to add there.
SHELLS: Final[Mapping[str, tuple[str, str]]] = {
    "bash": ("~/.bashrc", 'eval "$(agent-intercom completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(agent-intercom completion zsh)"'),
    # Of its completions directory fish reads a file only for the command that the file is named after.
    "fish": ("~/.config/fish/config.fish", "agent-intercom completion fish | source"),
}

#: What people type for a command of ctl, and the command.
SYNONYMS: Final[Mapping[str, str]] = {"requests": "pending", "status": "list"}

#: Exit code of wrong usage.
USAGE: Final = 2


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence. `program` is the name that errors begin with; the parser of a
    subcommand takes it from its parent's `prog`. `elsewhere` names the other program, and returns its commands.
    `synonyms` are words that people type for a command."""

    elsewhere: tuple[str, Callable[[], Collection[object]]] | None = None
    synonyms: ClassVar[Mapping[str, str]] = SYNONYMS

    def error(self, message: str) -> NoReturn:
        """Print the sentence and exit with 2."""
        if message.startswith("unrecognized arguments"):
            message += f" ({_suggested_option(message, self)}put -- before a text that contains an option)"
        self.tell(message)
        raise SystemExit(USAGE)

    def tell(self, message: str) -> None:
        """Print what is wrong with the line."""
        ends = "" if message.endswith("?") else ";"
        print(f"{self.prog.split()[0]}: {message}{ends} see {self.prog} --help", file=sys.stderr)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Raise ArgumentError for a value that is no choice, with the choices that look like it."""
        if action.choices is None or value in action.choices:
            return
        is_command = isinstance(action, argparse._SubParsersAction)
        names = [str(each) for each in action.choices]
        said = f"there is no command {value!r}" if is_command else f"{value!r} is none of {', '.join(names)}"
        meant = self.synonyms.get(str(value))
        near = [meant] if meant is not None and meant in names else close(str(value), names)
        if is_command and self.elsewhere is not None and value in self.elsewhere[1]():
            said += f"; did you mean {self.elsewhere[0]} {value}?"
        elif near:
            said += f"; did you mean {' or '.join(near)}?"
        # Without an action, argparse does not put the argument's name in front of the sentence.
        raise argparse.ArgumentError(None if is_command else action, said)


def close(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that a misspelled word may stand for, the likeliest first."""
    import difflib

    known = list(names)
    begins = [name for name in known if name.startswith(word)] if len(word) > 1 else []
    return (begins or difflib.get_close_matches(word.lower(), known, 2, 0.75))[:2]


class JsonParser(Parser):
    """A parser whose errors are one JSON value. So are those of its subcommands."""

    def tell(self, message: str) -> None:
        print(json.dumps({"ok": False, "error": message, "error_code": "invalid_arguments"}))


def _suggested_option(message: str, parser: argparse.ArgumentParser) -> str:
    """Return a question about the first unknown option that looks like a known one; else an empty text."""
    options = {name for each in _all_parsers(parser) for action in each._actions for name in action.option_strings}
    for word in message.split()[2:]:
        name = word.partition("=")[0]
        is_option = word.startswith("--") and word != "--"
        near = close(name, sorted(options)) if is_option and name not in options else []
        if near:
            return f"did you mean {' or '.join(near)}? "
    return ""


def _all_parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in action.choices:
                found += _all_parsers(action.choices[name])
    return found


# --- completion


def asks_help(words: list[str]) -> list[str]:
    """Return a command line in which `help` in front has become `--help` at the end."""
    return [*words[1:], "--help"] if words[:1] == ["help"] else words


def is_completing() -> bool:
    """Tell whether a shell asks for completions, and not for a command."""
    return "_ARGCOMPLETE" in os.environ


def complete(
    parser: argparse.ArgumentParser, ids: Callable[[str, argparse.Namespace], list[str]] | None = None
) -> None:
    """Print the completions and exit if a shell asks for them; else do nothing. `ids` returns the ids that a positional
    argument can have, by the argument's name and what was typed before it."""
    if not is_completing():
        return
    import argcomplete

    if ids is not None:
        for each in _all_parsers(parser):
            for action in each._actions:
                if not action.option_strings and action.choices is None:
                    action.completer = _completer(ids, action.dest)  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _completer(ids: Callable[[str, argparse.Namespace], list[str]], name: str) -> Callable[..., list[str]]:
    def suggest(parsed_args: argparse.Namespace, **_more: object) -> list[str]:
        return ids(name, parsed_args)

    return suggest


#: Completion is off in zsh until ~/.zshrc calls compinit, which the file that a new user has does not. With -i it asks
#: nothing.
_ZSH_COMPLETION_ON = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }"


def completion_script(shell: str, programs: Iterable[str]) -> str:
    """Return what a shell reads to complete these programs. `shell` is one of SHELLS."""
    from argcomplete.shell_integration import shellcode

    script = str(shellcode(list(programs), shell=shell))
    if shell != "zsh":
        return script
    # A file of completions must begin with #compdef.
    mark, script = script.split("\n", 1)
    return f"{mark}\n{_ZSH_COMPLETION_ON}\n{script}"
