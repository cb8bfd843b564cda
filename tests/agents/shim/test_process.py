"""The real shim process, with the test as its client and as its server."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom._version import __version__
from intercom.agents.shim import launch
from intercom.local import shim_process
from intercom.local.lock import acquire
from intercom.local.places import places, private_directory
from tests.agents.shim.by_hand import WELCOME, by_hand, shim
from tests.agents.shim.stage import STAND_IN, Life, Lives, Stage, conducted, stage

pytestmark = pytest.mark.real_time


async def test_it_introduces_itself_with_everything_the_server_needs() -> None:
    with stage() as here:
        text = "ipc_name = 'agent-intercom'\n"
        config = here.write("own.toml", text)
        async with (
            by_hand(here) as server,
            shim(here, config=config, workspace="/somewhere", channel="C12", session_id="s-1") as client,
        ):
            here.write(server.where.token_file, "secret\n")
            _, hello = await server.accept()
            assert not shim_process.is_dead(hello.pop("shim"))
            # The greeting may have been made before or after the token was written.
            assert hello.pop("token") in ("", "secret")
            assert hello == {
                "wire": 1,
                "version": __version__,
                "pid": client.process.pid,
                "client_pid": os.getpid(),
                "cwd": here.root,
                "workspace": "/somewhere",
                "channel": "C12",
                "session": "s-1",
                "config": config,
                "config_digest": hashlib.sha256(text.encode()).hexdigest(),
                "delivered": [],
                "agents": [],
            }


async def test_the_token_of_the_running_server_is_shown() -> None:
    with stage() as here:
        async with by_hand(here) as server:
            here.write(server.where.token_file, "secret\n")
            async with shim(here):
                assert (await server.accept())[1]["token"] == "secret"


async def test_a_delivery_is_told_once_written_and_told_again_until_recorded() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, hello = await server.accept()
            await client.call(1)
            name = (await one.hear())["params"]["_meta"]["intercom/call"]
            assert name == f"{hello['shim']}/1/1/tools/call"
            await one.say({"intercom": {"receipt": {"call": name, "text": name}}})
            await one.say({"jsonrpc": "2.0", "id": 1, "result": {}})
            assert (await client.hear())["id"] == 1
            assert await one.hear() == {"intercom": {"delivered": [name]}}
            await one.close()
            two, again = await server.accept()
            assert again["delivered"] == [name]
            await two.say({"intercom": {"recorded": [name]}})
            await client.call(2)
            assert await two.hear() == {"intercom": {"delivered": [name]}}
            assert (await two.hear())["id"] == 2
            await two.close()
            assert (await server.accept())[1]["delivered"] == []


async def test_after_a_handover_the_call_in_flight_is_asked_at_the_next_server() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            old, _ = await server.accept()
            await client.call(1)
            asked = await old.hear()
            await old.say({"intercom": {"handover": {}}})
            early, _ = await server.accept(welcome=False)
            await early.say({"intercom": {"handover": {}}})
            new, _ = await server.accept()
            assert await new.hear() == asked


async def test_a_refusal_is_what_calls_are_answered_with_and_the_shim_comes_back_later() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept(welcome=False)
            await client.call(1)
            refused = {"code": "config_mismatch", "message": "use one configuration", "retry": False}
            await one.say({"intercom": {"refused": refused}})
            told = (await client.hear())["result"]
            assert told["structuredContent"]["error_code"] == "config_mismatch"
            two, _ = await server.accept()
            await client.call(2)
            assert (await two.hear())["id"] == 2


async def test_a_refusal_that_may_be_retried_is_not_told_to_the_caller() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            await client.call(1)
            one, _ = await server.accept(welcome=False)
            await one.say({"intercom": {"refused": {"code": "busy", "message": "m", "retry": True}}})
            two, _ = await server.accept()
            assert (await two.hear())["id"] == 1


async def test_what_a_newer_server_adds_to_its_control_lines_is_ignored() -> None:
    newer: dict[str, Any] = {"trace": "0af7"}
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            await client.call(1)
            for said in ({"refused": {"code": "busy", "message": "m", "retry": True}}, {"handover": {}}):
                one, _ = await server.accept(welcome=False)
                await one.say({"intercom": {**newer, **said}})
            two, _ = await server.accept(welcome=False)
            await two.say({"intercom": {**newer, "welcome": {**newer, **WELCOME["intercom"]["welcome"]}}})
            assert (await two.hear())["id"] == 1


async def test_a_server_of_another_wire_is_a_version_mismatch() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            await client.call(1)
            one, _ = await server.accept(welcome=False)
            await one.say({"intercom": {"welcome": {"wire": 2, "version": "9", "life": "x"}}})
            assert (await client.hear())["result"]["structuredContent"]["error_code"] == "version_mismatch"


async def test_a_client_that_does_not_read_stops_nothing_else() -> None:
    big = "x" * (20 * 1024 * 1024)
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            await client.call(1)
            await client.call(2)
            assert [(await one.hear())["id"] for _ in range(2)] == [1, 2]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.say, {"jsonrpc": "2.0", "id": 1, "result": {"text": big}})
                nursery.start_soon(client.call, 3)
                assert (await one.hear())["id"] == 3
                answer = await client.hear()
            assert answer["result"]["text"] == big


async def test_lines_of_many_mebibytes_pass_both_ways() -> None:
    big = "y" * (24 * 1024 * 1024)
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.call(1, text=big))
                assert (await one.hear())["params"]["arguments"]["text"] == big


async def test_it_ends_when_its_client_has_closed_and_nothing_is_in_flight() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            await client.close()
            assert await one.hear() == {"intercom": {"bye": {}}}
            assert await one.hear() is None
            assert await client.process.wait() == 0


async def test_answers_on_their_way_still_reach_a_client_that_has_said_all() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            await client.call(1)
            await client.close()
            asked = await one.hear()
            call = asked["params"]["_meta"]["intercom/call"]
            await one.say({"intercom": {"receipt": {"call": call, "text": "a receipt"}}})
            await one.say({"jsonrpc": "2.0", "id": 1, "result": {}})
            assert (await client.hear())["id"] == 1
            assert "delivered" in (await one.hear())["intercom"]
            assert await client.process.wait() == 0


async def test_a_client_that_is_gone_without_a_word_ends_it() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            await client.process.stdout.aclose()
            assert await one.hear() is None
            assert await client.process.wait() == 0


async def test_sigterm_ends_it_in_good_order() -> None:
    with stage() as here:
        async with by_hand(here) as server, shim(here) as client:
            one, _ = await server.accept()
            await client.call(1)
            assert (await one.hear())["id"] == 1
            client.process.send_signal(signal.SIGTERM)
            assert await one.hear() is None
            assert await client.process.wait() == 0


async def test_a_start_that_fails_is_told_in_the_servers_words() -> None:
    says = '{"error": {"code": "config", "message": "line 3: ipc_nam is unknown"}}'
    code = f"import os,sys; os.write(int(sys.argv[sys.argv.index('--ready-fd') + 1]), b'{says}\\n')"
    with stage() as here:
        async with shim(here, server=[sys.executable, "-c", code]) as client:
            await client.call(1)
            told = (await client.hear())["result"]
            assert told["isError"] is True
            assert told["structuredContent"]["error_code"] == "config"
            assert told["structuredContent"]["error_message"] == "line 3: ipc_nam is unknown"


async def test_a_server_that_ends_without_a_word_is_given_up_after_a_few_starts() -> None:
    with stage() as here:
        async with shim(here, server=["/bin/false"]) as client:
            await client.call(1)
            assert (await client.hear())["result"]["structuredContent"]["error_code"] == "unavailable"


async def test_a_configuration_that_is_no_toml_is_told_through_calls() -> None:
    with stage() as here:
        config = here.write("own.toml", "ipc_name = ")
        async with shim(here, config=config, server=["/bin/false"]) as client:
            await client.call(1)
            assert (await client.hear())["result"]["structuredContent"]["error_code"] == "config"


async def test_once_the_cause_is_mended_the_server_is_started_by_itself() -> None:
    code = "import os, sys; os.path.exists(sys.argv[1]) and os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    stand_in = str(Path(__file__).with_name("stand_in.py"))
    with stage() as here:
        async with (
            conducted(here) as lives,
            shim(
                here,
                server=[
                    *(sys.executable, "-c", code, os.path.join(here.root, "mended")),
                    *(stand_in, "--conductor", here.conductor),
                ],
            ) as client,
        ):
            await client.call(1, question="q")
            assert (await client.hear())["result"]["isError"] is True
            here.write("mended")
            life = await lives.next()
            await life.until("hello")
            assert await client.shake_hands() == "stand-in"


@pytest.mark.real_time
async def test_many_shims_at_once_start_one_server() -> None:
    with stage() as here:
        async with conducted(here) as lives, trio.open_nursery() as nursery:
            done = trio.Event()

            async def one_of_many() -> None:
                async with shim(here):
                    await done.wait()

            for _ in range(6):
                nursery.start_soon(one_of_many)
            life = await lives.next()
            assert len({each["hello"]["shim"] for each in await life.until("hello", 6)}) == 6
            assert len(lives.all) == 1
            done.set()


async def started_by_a_relay_that_ended(here: Stage, lives: Lives) -> Life:
    """A server that gets ready only when the test says so."""
    async with shim(here, server=[*STAND_IN, "--conductor", here.conductor, "--slow"]) as client:
        starting = await lives.next()
        await client.close()
        assert await client.process.wait() == 0
    return starting


async def test_a_relay_that_ends_leaves_the_server_that_it_starts_to_the_next_one() -> None:
    """The TypeScript SDK's client starts one only to ask which protocol it speaks, and ends it."""
    with stage() as here:
        where = places(environ=here.environment)
        async with conducted(here) as lives:
            starting = await started_by_a_relay_that_ended(here, lives)
            assert launch.is_claimed(where)
            async with shim(here) as client:
                await starting.answer(start="now")
                await starting.until("up")
                assert await client.shake_hands() == "stand-in"
            assert not launch.is_claimed(where)
            assert lives.all == [starting]


def test_a_pipe_in_place_of_the_start_lock_holds_nobody_up() -> None:
    with stage() as here:
        where = places(environ=here.environment)
        Path(where.start_lock).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(where.start_lock)
        assert not launch.is_claimed(where)


async def test_a_server_that_ends_before_it_is_ready_leaves_the_start_to_the_next_relay() -> None:
    with stage() as here:
        async with conducted(here) as lives:
            starting = await started_by_a_relay_that_ended(here, lives)
            async with shim(here) as client:
                starting.kill()
                await lives.next()
                assert await client.shake_hands() == "stand-in"


async def test_a_server_that_hangs_while_it_starts_does_not_hold_up_other_agents_for_ever() -> None:
    with stage() as here:
        async with conducted(here) as lives:
            hanging = await started_by_a_relay_that_ended(here, lives)
            async with shim(here, patience=0.2) as client:
                assert await client.shake_hands() == "stand-in"
            assert len(lives.all) == 2
            assert not hanging.heard_of("up")


async def test_where_nothing_can_be_written_the_agent_gets_a_server_of_its_own_that_ends_with_it() -> None:
    with stage() as here:
        async with conducted(here) as lives:
            async with shim(here, sandboxed=True) as client:
                life = await lives.next()
                assert (await life.until("hello"))[0]["hello"]["token"] == ""
                client.process.kill()
            await life.over.wait()  # its end of the socket pair has closed


async def test_in_a_sandbox_the_agent_gets_a_server_of_its_own_unless_one_answers() -> None:
    with stage() as here:
        async with conducted(here) as lives:
            async with shim(here, doomed=True) as client:
                life = await lives.next()
                assert (await life.until("hello"))[0]["hello"]["token"] == ""
                assert b"this is a sandbox (bwrap)" in await client.process.stderr.receive_some()
                client.process.kill()
            await life.over.wait()
        async with by_hand(here) as server, shim(here, doomed=True):
            await server.accept()


async def test_while_another_server_lets_go_of_the_database_the_shim_keeps_trying() -> None:
    with stage() as here:
        async with conducted(here) as lives:
            where = places(environ=here.environment)
            private_directory(where.state_dir)
            lock = acquire(f"{where.state_dir}/db", version="old")
            async with shim(here) as client:
                await lives.next_loser()
                lock.release()
                await lives.next()
                assert await client.shake_hands() == "stand-in"


async def test_a_list_that_a_dying_server_owes_is_answered_from_what_is_shipped() -> None:
    with stage() as here:
        results = {"initialize": {"serverInfo": {"name": "shipped", "version": "1"}}, "tools/list": {"tools": []}}
        shipped = here.write("shipped.json", json.dumps({"2025-11-25": results}))
        async with shim(here, shipped=shipped, server=["/bin/false"]) as client:
            assert await client.shake_hands() == "shipped"
            async with by_hand(here) as server:
                one, _ = await server.accept()
                assert (await one.hear())["method"] == "initialize"
                await client.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
                assert (await one.hear())["method"] == "tools/list"
                await one.close()
                assert (await client.hear())["result"] == {"tools": []}


async def test_starts_that_ended_without_a_word_before_a_server_answered_do_not_count_any_more() -> None:
    """While servers are killed all the time, the starts of one shim may all come to nothing, and others' not."""
    with stage() as here:
        told = os.path.join(here.root, "started")
        os.mkfifo(told)
        server = ["/bin/sh", here.write("silent.sh", f"echo $$ > {told}\nexec sleep 1000\n")]

        async def started() -> int:
            return int(await trio.to_thread.run_sync(Path(told).read_text, abandon_on_cancel=True))

        async with AsyncExitStack() as at_the_end, shim(here, server=server) as client:
            for number, starts in enumerate((4, 1)):
                await client.call(number)
                for _ in range(starts - 1):
                    os.kill(await started(), signal.SIGKILL)
                last = await started()
                other = await at_the_end.enter_async_context(by_hand(here))
                os.kill(last, signal.SIGKILL)
                one, _ = await other.accept()
                assert (await one.hear())["id"] == number
                await one.say({"jsonrpc": "2.0", "id": number, "result": {"content": []}})
                assert (await client.hear())["result"] == {"content": []}
                if number == 0:
                    # Without a server, the shim starts another; the second one stays to the end.
                    await other.close()
                    await one.close()
