"""Programs that only start another program. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Sequence

#: The parent of a program started through one is the launcher, not the process that wanted it.
LAUNCHERS = frozenset(
    {"bunx", "direnv", "env", "hatch", "mise", "nix", "npm", "npx", "pipx", "pnpm", "poetry", "uv", "uvx"}
)
_SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a command line starts another program and waits for it: `uvx tool`, `sh -c tool`."""
    # Some programs put their whole command line into the first argument.
    words = command[0].split() + list(command[1:]) if command else []
    names = [os.path.basename(word).removesuffix(".js").removesuffix("-cli") for word in words[:2]]
    if LAUNCHERS.intersection(names):
        return True
    return len(words) > 1 and names[0] in _SHELLS and words[1][:1] == "-" and words[1].endswith("c")
