"""A passkey in Chromium signs for the real server: made on the page, enrolled with the PIN, checked by `audit verify`.

Needs Chromium, Node, and the packages of the page (`npm ci` in web/).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.cli.ctl_sign import key_fields
from intercom.local import operator_keys
from intercom.local.operator_keys import PublicKey
from intercom.model.clock import to_text
from intercom.operators.ctl.client import Refusal, request
from tests.support.keys import make_key_file
from tests.support.server_process import Home, begin, call

CTL = [sys.executable, str(Path(__file__).parents[2] / "support" / "ctl_at_home.py"), "--json"]
PIN = "correct horse"
PERSON = Path(__file__).parents[3] / "web" / "tests" / "support" / "passkey-person.mjs"


class Browser:
    """The person in Chromium."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def hear(self) -> Any:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            more = await self._process.stdout.receive_some()
            assert more, "the browser has ended"
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    async def do(self, step: str) -> Any:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{step}\n".encode())
        answer = await self.hear()
        assert "done" in answer, answer
        return answer["done"]


@contextlib.asynccontextmanager
async def browser_at(url: str) -> AsyncIterator[Browser]:
    process = await trio.lowlevel.open_process(
        ["node", str(PERSON), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PERSON.parents[2]
    )
    try:
        yield Browser(process)
    finally:
        process.terminate()
        await process.wait()


def verify(home: Home) -> Any:
    done = subprocess.run(
        [*CTL, "audit", "verify"], env=home.environ, capture_output=True, text=True, timeout=60, check=False
    )
    return json.loads(done.stdout)


@pytest.mark.real_time
async def test_a_passkey_of_the_page_decides_and_no_replay_of_it(home: Home) -> None:
    Path(home.places.config_file).parent.chmod(0o700)
    kept = make_key_file(home.places, PIN, "kim", to_text(datetime.now(UTC)))
    private = operator_keys.unlock(kept, PIN)
    workspace, where = home.workspace(), home.places

    def enrol(key: PublicKey) -> None:
        operator_keys.add_public(where, key)
        signature = key_fields("add", key.public, key.name, kept.key.id, private.sign)
        request(where, "key-add", {"public": key.public, "name": key.name, "signature": signature})

    with home.serving():
        await trio.to_thread.run_sync(enrol, kept.key)
        async with home.agent(workspace) as agent, trio.open_nursery() as nursery:
            asks = [
                begin(
                    nursery,
                    agent,
                    "check_clearance",
                    title=title,
                    diff="é\n",
                    file_path=f"{title}.txt",
                    risk_level=risk,
                )
                for title, risk in (("First", "low"), ("Second", "critical"), ("Edited", "low"))
            ]
            link = await trio.to_thread.run_sync(request, where, "web", {})
            async with browser_at(link["url"]) as browser:
                origin = (await browser.hear())["done"]
                assert origin.startswith("http://localhost:")
                code = (await browser.do("make")).replace("-", "")
                (offered,) = (await trio.to_thread.run_sync(request, where, "passkeys", {}))["passkeys"]
                key = PublicKey.of(offered["public"], offered["name"])
                assert key.id == code
                assert key.public.startswith(f"{origin},")
                await trio.to_thread.run_sync(enrol, key)
                await browser.do("enrolled")
                first = await browser.do("approve First")
                second = await browser.do("approve Second")
                third = await browser.do("edit Edited")
                answers = [await ask() for ask in asks]
                for title, answer in zip(("First", "Second", "Edited"), answers, strict=True):
                    assert (await call(agent, "check_diff", request_id=answer["request_id"]))["status"] == "applied"
                    text = "mine, without an end" if title == "Edited" else "é\n"
                    assert (workspace / f"{title}.txt").read_text() == text
                # What a process that saw the request can do with it.
                begin(nursery, agent, "check_clearance", title="Third", diff="x\n", file_path="third.txt")
                async with home.person(workspace) as person:
                    card = await person.card(title="Third")
                for sent in (first, second, third):
                    for changed in ({}, {"request_id": card["request_id"]}):
                        fields = {**sent, "id": card["request_id"], "signature": {**sent["signature"], **changed}}
                        with pytest.raises(Refusal):
                            await trio.to_thread.run_sync(request, where, "approve", fields)
                await browser.do("away")
                with pytest.raises(AssertionError, match="failed"):
                    await browser.do("approve Third")
                await browser.do("end")
            assert (await trio.to_thread.run_sync(request, where, "show", {"id": card["request_id"]}))[
                "status"
            ] == "pending"
            nursery.cancel_scope.cancel()
    found = verify(home)
    assert (found["ok"], found["faults"]) == (True, [])
