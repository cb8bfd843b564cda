"""An actor system for synchronous programs."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import trio

from actors._system import System
from actors.spec import ChildSpec

__all__ = ["system_in_thread"]


@contextlib.contextmanager
def system_in_thread(root: ChildSpec | Sequence[ChildSpec], **options: Any) -> Iterator[System]:
    """Run a system on a loop in its own thread until the `with` block ends. `options` are those of `System`.

    In the body use `system.named(...).ask(message)`, `ref.tell(message)`, `system.run_sync` and `system.from_thread`.
    Raises StartFailed on entry, and SystemFailed on exit if the root went down.
    """
    opened: queue.SimpleQueue[System | BaseException] = queue.SimpleQueue()
    ended: list[BaseException] = []

    async def main() -> None:
        async with System(root, **options) as system:
            opened.put(system)
            await trio.sleep_forever()

    def work() -> None:
        try:
            trio.run(main)
        except BaseException as exc:
            ended.append(exc)
            opened.put(exc)

    thread = threading.Thread(target=work, name="actor system")
    thread.start()
    system = opened.get()
    if isinstance(system, BaseException):
        thread.join()
        raise system
    try:
        yield system
    finally:
        system.request_stop()
        thread.join()
    if ended:
        raise ended[0]
