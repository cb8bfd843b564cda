"""Run the real shim with a server of the test's: `python shim_main.py '<options as JSON>'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from intercom.agents.shim.options import Options
from intercom.agents.shim.run import main

if __name__ == "__main__":
    sys.exit(main(Options(**json.loads(sys.argv[1]))))
