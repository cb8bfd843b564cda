"""Approves through the library, once the server is gone: `embedded.py REQUEST`."""

import sys

import intercom

with intercom.start(ctl=False) as switchboard:
    print(switchboard.run(switchboard.operator("root").approve, sys.argv[1]).state)
