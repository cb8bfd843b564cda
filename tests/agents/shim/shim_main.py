"""Run the real shim with a server of the test's: `python shim_main.py '<options as JSON>'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from intercom.agents.shim import launch, link
from intercom.agents.shim.launch import Options
from intercom.agents.shim.main import main

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if options.pop("sandboxed", False):
        # Tests may run as a user whom no directory refuses.
        launch.sandboxed = lambda where: where.state_dir
    if options.pop("doomed", False):
        launch.look = lambda: launch.SandboxSigns(nested=True, first="bwrap")
    link._OTHERS_START_SECONDS = options.pop("patience", link._OTHERS_START_SECONDS)
    sys.exit(main(Options(**options)))
