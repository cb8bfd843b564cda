"""A stand-in for Slack that speaks its real wire, without HTTPS: Web API and Socket Mode on one port.

In a test, in the same Trio loop::

    from tests.slack_standin import ALICE, CHANNEL, serve

    async with serve() as slack:                       # random loopback port, state in memory
        ...  # start what is tested with slack.api_url, slack.app_token, slack.bot_token
        await slack.connected()                        # a Socket Mode socket is open
        card = await slack.wait_for(lambda: [m for m in slack.messages(CHANNEL) if m.get("blocks")])
        act = slack.tap(ALICE, card[0]["ts"], "approve_accept")
        await act.answer()                             # the ack's payload; raises Unanswered if none ever came
        slack.submit(ALICE, "intercom_refine", {"text": "smaller steps"})
        slack.command(ALICE, CHANNEL, "help")          # /intercom help
        slack.say(ALICE, CHANNEL, "yes", thread_ts=card[0]["ts"])
        assert slack.count("chat.postMessage", ok=True) == 1

What there is: `ALICE`, `BOB`, `MALLORY` (people); `CHANNEL`, `OTHER_CHANNEL` (the app is in them), `UNJOINED` (it is
not); `slack.add_channel(...)`, `slack.add_user(...)`. People's acts (`tap`, `submit`, `close_view`, `command`, `say`,
) are plain calls that return at once; those that tell the app give the `Envelope` (`.answer()`,
`.attempts`, `.missed`, `.acks`). To see: `messages`, `thread`, `message`, `ephemerals`, `views`, `view_errors`,
`files`, `calls`, `count`, `envelopes`, `unanswered`, `socket_mode.strange`; `text_of(message)`, `buttons(message)`. To
wait: `card`, `shows`, `first`, `told`, `form`, `wait_for(predicate)`, asked again at each change, without
polling; `connected()`, `acted_on()`.

It refuses what Slack refuses (see `limits` for the numbers): Block Kit that is not sound (`invalid_blocks` with Slack's
`response_metadata.messages`; also `msg_blocks_too_long`: blocks that together hold more than about 13,000 characters),
tokens, scopes (`slack.team.bot_scopes = ...`), channels, trigger_ids older than 3 s or used twice, response_urls used
more than 5 times, late acks. An unacked envelope is delivered again as `serve(redeliver=(0, 60, 300))` says: pauses
before the deliveries, each given `ack_within` seconds. Rate limits are off unless asked for:
`serve(rates=limits.RATES)`.

For what draws: `tests.slack_standin.blocks` has `faults_of_message(blocks)` and `faults_of_view(view)`, Slack's
complaints (none when it takes them), and `weight(blocks)`, which may not be over `limits.BLOCKS_TOGETHER`.

What goes wrong, on demand (`faults` lists all)::

    slack.plan("chat.postMessage", "lose")             # does the work, then cuts the connection: the answer is lost
    slack.plan("*", "status", status=502, times=10)    # swallow, cut, delay, stall, limit (429), refuse, too
    slack.drop_sockets("clean" | "abrupt" | "freeze")
    slack.refresh(warned=10)                           # warning, then refresh_requested; serve(lifetime=3600) does it
        slack.faults.deny_connects = 3; slack.faults.double = 5; slack.faults.reorder = 4; slack.faults.deaf = 1
    slack.on("called", lambda call: slack.drop_sockets("abrupt"), about=lambda call: call.method == "chat.update")
    await slack.redeliver(act)
    async with slack.down(): ...                       # out of reach
    slack.team.revoked[slack.bot_token] = "token_revoked"

Time is Trio's, so all of it runs under `trio.testing.MockClock`. Data on loopback is there as soon as it is sent, yet
where threads have a part (SQLite's writer, the SDK), give the clock an `autojump_threshold` of some 10 ms.

By itself: `python -m tests.slack_standin`.
"""

from tests.slack_standin.faults import Fault, Faults
from tests.slack_standin.people import CannotDo
from tests.slack_standin.sockets import Envelope, Unanswered
from tests.slack_standin.standin import (
    ALICE,
    APP_TOKEN,
    BOB,
    BOT_TOKEN,
    CHANNEL,
    MALLORY,
    OTHER_CHANNEL,
    UNJOINED,
    Standin,
    buttons,
    serve,
    text_of,
)
from tests.slack_standin.team import SlackRefuses

__all__ = [
    "ALICE",
    "APP_TOKEN",
    "BOB",
    "BOT_TOKEN",
    "CHANNEL",
    "MALLORY",
    "OTHER_CHANNEL",
    "UNJOINED",
    "CannotDo",
    "Envelope",
    "Fault",
    "Faults",
    "SlackRefuses",
    "Standin",
    "Unanswered",
    "buttons",
    "serve",
    "text_of",
]
