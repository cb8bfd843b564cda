"""The result of a server's start, for the shim that waits for it: ready, or the reason why not."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from intercom.model.errors import ConfigError, IntercomError


class Readiness:
    """Reports the start's result to the shim that started us, as one JSON line on its descriptor."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def done(self) -> None:
        self._tell({"ready": True})

    def failed(self, error: IntercomError, *, retry: bool, sandboxed: bool) -> None:
        told = {"code": error.error_code, "message": error.message, "retry": retry, "sandboxed": sandboxed}
        self._tell({"error": told})

    def _tell(self, said: dict[str, Any]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(said).encode() + b"\n")
            os.close(self._descriptor)
        except OSError:
            # The shim no longer waits; other clients may.
            pass
        self._descriptor = None


def told(failed: BaseException) -> IntercomError:
    """Return the error to report: the IntercomError at the root of `failed`, if there is one."""
    seen: BaseException | None = failed
    while seen is not None:
        if isinstance(seen, IntercomError):
            return seen
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
            continue
        seen = getattr(seen, "reason", None) or seen.__cause__
    if isinstance(failed, OSError):
        return ConfigError(f"{failed.filename or 'a file'} can not be used: {failed.strerror}", code="config")
    return IntercomError(f"the server failed ({type(failed).__name__}); its log says more", code="unavailable")


def is_denied(failed: BaseException) -> bool:
    """Tell whether the system did not let us write, usually because of a sandbox."""
    return isinstance(failed, PermissionError) or (isinstance(failed, OSError) and failed.errno == errno.EROFS)
