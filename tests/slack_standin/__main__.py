"""Run the stand-in by itself, so that somebody without a Slack account can try the whole thing.

    python -m tests.slack_standin [--port 8065]

Prints what to export before the server is started, and serves a page that shows the channel.
"""

from __future__ import annotations

import argparse
import errno
import socket
import sys

import trio

from intercom.local.places import places
from tests.slack_standin import ALICE, BOB, CHANNEL, serve
from tests.slack_standin.limits import RATES

PORT = 8065


def free_port(wanted: int) -> int:
    """Return the port that is wanted, or 0 (any free one) if another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            print(f"port {wanted} is in use by another program: a free one is used instead\n", file=sys.stderr)
            return 0
    return wanted


async def run(port: int, slow: bool) -> None:
    async with serve(port=port, rates=RATES if slow else None) as slack:
        print("A stand-in for Slack. In the shell that starts the server:\n")
        print(f"export INTERCOM_SLACK_API={slack.api_url}")
        print(f"export SLACK_APP_TOKEN={slack.app_token}")
        print(f"export SLACK_BOT_TOKEN={slack.bot_token}")
        print(f"export SLACK_MEMBER_IDS={ALICE},{BOB}")
        print(f"\nIn the configuration, {places().config_file}, without the # before it:\n")
        print(f'channel_id = "{CHANNEL}"\n')
        print("Then, in that shell:\n\nagent-intercom serve --replace\n")
        print("With an operator key, Slack's answers count once you have signed that: agent-intercom-ctl key settings")
        print(f"\nThe channel itself: {slack.url}/\n", flush=True)
        await trio.sleep_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.slack_standin", description="A stand-in for Slack, on this machine."
    )
    parser.add_argument("--port", type=int, help=f"where to listen (0: any free port; default: {PORT} if it is free)")
    parser.add_argument("--rates", action="store_true", help="take no more requests than Slack does")
    args = parser.parse_args()
    port = free_port(PORT) if args.port is None else args.port
    try:
        trio.run(run, port, args.rates)
    except* KeyboardInterrupt:
        pass
    except* OSError as faults:
        _, others = faults.split(lambda each: isinstance(each, OSError) and each.errno == errno.EADDRINUSE)
        if others is not None:
            raise others from None
        sys.exit(f"port {args.port} is in use by another program: give another one with --port (0: any free one)")


if __name__ == "__main__":
    main()
