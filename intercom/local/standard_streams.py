"""Standard output and signals of a process that a client starts and reads: the shim, or a permission hook.

Standard library only, because the client waits for its start.
"""

from __future__ import annotations

import os
import signal


def claim_standard_output() -> int:
    """Reserve standard output for what the client reads, and return a descriptor of it. All other output goes to
    standard error."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def listen_for_signals(*numbers: signal.Signals) -> tuple[list[int], int]:
    """Note these signals, instead of ending the process. Returns the list that received signals are added to, and a
    descriptor that polls readable when one has arrived. Must run in the main thread."""
    received: list[int] = []
    wake, tell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda signum, _frame: received.append(signum))
    return received, wake
