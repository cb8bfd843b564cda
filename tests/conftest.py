"""What holds for every test: a run that can be repeated, on a machine that may be busy.

`--hypothesis-profile=explore` looks where nobody has looked before.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A runner in the background is started with interrupts ignored, and whatever a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
