"""Settings of the C library that it reads from the environment at program start.

With glibc each thread caches freed blocks, seven of each of 64 sizes. In a server with twenty mostly idle threads this
is 1.5 MiB of unused memory, scattered among used memory, and it grows for an hour.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_VARIABLE = "GLIBC_TUNABLES"
_NO_CACHES = "glibc.malloc.tcache_count=0"
#: Marks a re-executed process: glibc removes its own variable from the environment of privileged programs.
_ANEW = "AGENT_INTERCOM_BEGUN_ANEW"


def added(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` for the start of a server, with thread caches disabled. It is unchanged if it already has
    settings for the C library, or if that is not glibc."""
    return dict(environ) if _VARIABLE in environ or not _is_glibc() else {**environ, _VARIABLE: _NO_CACHES}


def heed() -> None:
    """Re-execute this process with thread caches disabled, unless it was started so. Call it first. Returns in the new
    process, or if that is not possible. Processes that it starts do not inherit the setting."""
    environ = added(os.environ)
    if os.environ.pop(_ANEW, None) is None and environ != os.environ:
        try:
            os.execve(sys.executable, sys.orig_argv, {**environ, _ANEW: "1"})
        except OSError:
            return
    if os.environ.get(_VARIABLE) == _NO_CACHES:
        del os.environ[_VARIABLE]


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):
        return False
