"""What the C library is told in the environment, which it reads once, as a program starts.

With glibc each thread keeps to itself what it gave back last, seven pieces of each of 64 sizes. In a server with twenty
threads, of which most sleep, that is 1.5 MiB that nobody uses, spread among what is in use, and it grows for an hour.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_VARIABLE = "GLIBC_TUNABLES"
_NO_CACHES = "glibc.malloc.tcache_count=0"
#: That this process has begun anew: glibc takes the other out of the environment of programs with rights of their own.
_ANEW = "AGENT_INTERCOM_BEGUN_ANEW"


def added(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a server in: this one, and that threads are to keep nothing. Unchanged where it says
    something of its own to the C library, or that is not glibc."""
    return dict(environ) if _VARIABLE in environ or not _is_glibc() else {**environ, _VARIABLE: _NO_CACHES}


def heed() -> None:
    """Have this process be one that was started so: to be called first, as it begins anew if it was not. Returns in
    the new one, and where that can not be. What it starts itself is not told of it."""
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
