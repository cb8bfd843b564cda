"""agent-intercom-ctl for tests: `python ctl_at_home.py WORD ...`, where HOME in the environment is the user's home.

The program believes no environment about that, and would list a test's directories in the home of who runs the tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from intercom.cli import ctl
    from intercom.local import places

    places.STAND_IN_HOME = os.environ["HOME"]
    raise SystemExit(ctl.main())
