"""A passkey in Chromium signs for the real server: made on the page, enrolled with the PIN, checked by `audit verify`.

Needs Chromium, Node, and the packages of the page (`npm ci` in web/).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from intercom.cli.ctl_sign import key_fields
from intercom.local import operator_keys
from intercom.local.operator_keys import PublicKey
from intercom.local.passkeys import is_origin
from intercom.model.clock import to_text
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl.client import Refusal, request
from tests.proxy import certificate
from tests.support.keys import make_key_file
from tests.support.server_process import TRUSTING, Home, Later, begin, call

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
        if "done" not in answer:
            # What is raised may wait for the agent's calls to end.
            print(answer, file=sys.stderr)
        assert "done" in answer, answer
        return answer["done"]


@contextlib.asynccontextmanager
async def browser_at(url: str, *arguments: str) -> AsyncIterator[Browser]:
    """The person at this address; `arguments` are Chromium's."""
    process = await trio.lowlevel.open_process(
        ["node", str(PERSON), url, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PERSON.parents[2]
    )
    try:
        yield Browser(process)
    finally:
        process.terminate()
        await process.wait()


async def make_passkey(home: Home, browser: Browser, enrol: Callable[[PublicKey], None]) -> None:
    """The person makes a passkey on the page, and types its code in a terminal."""
    origin = (await browser.hear())["done"]
    assert is_origin(origin)
    code = (await browser.do("make")).replace("-", "")
    (offered,) = (await trio.to_thread.run_sync(request, home.places, "passkeys", {}))["passkeys"]
    key = PublicKey.of(offered["public"], offered["name"])
    assert key.id == code
    assert key.public.startswith(f"{origin},")
    await trio.to_thread.run_sync(enrol, key)
    await browser.do("enrolled")


def verify(home: Home) -> Any:
    done = subprocess.run(
        [*CTL, "audit", "verify"], env=home.environ, capture_output=True, text=True, timeout=60, check=False
    )
    return json.loads(done.stdout)


def person_with_key(home: Home) -> tuple[PublicKey, Callable[[PublicKey], None]]:
    """A person's operator key, and what enrols keys with its PIN."""
    Path(home.places.config_file).parent.mkdir(parents=True, exist_ok=True)
    Path(home.places.config_file).parent.chmod(0o700)
    kept = make_key_file(home.places, PIN, "kim", to_text(datetime.now(UTC)))
    private = operator_keys.unlock(kept, PIN)

    def enrol(key: PublicKey) -> None:
        operator_keys.add_public(home.places, key)
        signature = key_fields("add", key.public, key.name, kept.key.id, private.sign)
        request(home.places, "key-add", {"public": key.public, "name": key.name, "signature": signature})

    return kept.key, enrol


@pytest.mark.real_time
async def test_a_passkey_of_the_page_decides_and_no_replay_of_it(home: Home) -> None:
    own, enrol = person_with_key(home)
    workspace, where = home.workspace(), home.places
    with home.serving():
        await trio.to_thread.run_sync(enrol, own)
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
                await make_passkey(home, browser, enrol)
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


PUBLIC = "intercom.example.org"


class Proxy:
    """A reverse proxy over TLS that signs everybody in as one person. Each connection has one request."""

    def __init__(self, directory: Path, behind: int, who: str, secret: str) -> None:
        chain, private = certificate.make(directory, PUBLIC)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(chain, private)
        made = x509.load_pem_x509_certificate(chain.read_bytes()).public_key()
        spki = made.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        #: What makes Chromium trust it, and find it.
        self.arguments = (
            f"--ignore-certificate-errors-spki-list={b64encode(hashlib.sha256(spki).digest()).decode()}",
            f"--host-resolver-rules=MAP {PUBLIC} 127.0.0.1",
        )
        self._behind = behind
        self._told = f"X-Forwarded-User: {who}\r\nX-Intercom-Proxy-Secret: {secret}\r\nConnection: close\r\n".encode()

    async def serve(self, listener: trio.SocketListener) -> None:
        await trio.serve_listeners(self._pass_on, [trio.SSLListener(listener, self._context)])

    async def _pass_on(self, browser: trio.SSLStream[trio.SocketStream]) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with browser, await trio.open_tcp_stream("127.0.0.1", self._behind) as server:
                head = b""
                while b"\r\n\r\n" not in head:
                    more = await browser.receive_some(65536)
                    if not more:
                        return
                    head += more
                line, rest = head.split(b"\r\n", 1)
                rest = re.sub(rb"(?im)^connection:[^\r]*\r\n", b"", rest, count=1)
                await server.send_all(line + b"\r\n" + self._told + rest)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._copy, browser, server, nursery.cancel_scope)
                    nursery.start_soon(self._copy, server, browser, nursery.cancel_scope)

    async def _copy(self, source: trio.abc.Stream, to: trio.abc.Stream, scope: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while more := await source.receive_some(65536):
                await to.send_all(more)
        scope.cancel()


@pytest.mark.real_time
async def test_an_operator_behind_a_proxy_makes_a_passkey_there_and_it_signs(home: Home) -> None:
    own, enrol = person_with_key(home)
    workspace, secret = home.workspace(), "s" * 32
    with socket.create_server(("127.0.0.1", 0)) as free:
        behind = free.getsockname()[1]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"https://{PUBLIC}:{listener.socket.getsockname()[1]}"
    home.configure(f'{TRUSTING}[web]\nport = {behind}\npublic_url = "{url}"\n[web.members]\nkim = "operator"\n')
    proxy = Proxy(home.root, behind, "kim", secret)
    with home.serving(INTERCOM_PROXY_SECRET=secret):
        await trio.to_thread.run_sync(enrol, own)
        async with home.agent(workspace) as agent, trio.open_nursery() as nursery:
            nursery.start_soon(proxy.serve, listener)
            asked = begin(nursery, agent, "check_clearance", title="First", diff="é\n", file_path="first.txt")
            async with browser_at(f"{url}/inbox", *proxy.arguments) as browser:
                await make_passkey(home, browser, enrol)
                await browser.do("approve First")
                answer = await asked()
                await browser.do("end")
            assert (await call(agent, "check_diff", request_id=answer["request_id"]))["status"] == "applied"
            shown = await trio.to_thread.run_sync(request, home.places, "show", {"id": answer["request_id"]})
            assert (shown["decided"]["by"], shown["decided"]["channel"]) == ("kim", "web")
            nursery.cancel_scope.cancel()
    found = verify(home)
    assert (found["ok"], found["faults"]) == (True, [])


LINES = "".join(f"x{number} = {number}\n" for number in range(60))
#: What is proposed: the title, the file, and its content.
PROPOSED = [
    ("Part", "part.txt", LINES.replace("x3 = 3\n", "x3 = 33\n").replace("x50 = 50\n", "x50 = 5050\n")),
    ("Comments", "comments.txt", "c\n"),
    ("One", "one.txt", "1\n"),
    ("Two", "two.txt", "2\n"),
    ("Rule", "docs/rule.txt", "r\n"),
]
PROGRAM = Path(__file__).parents[2] / "agents" / "gateway" / "scripted_downstream.py"


def configure(home: Home, workspace: Path) -> None:
    """A program that is started as an agent, a server behind the gateway, a policy, and a file to change."""
    args = json.dumps(["-c", "import time; time.sleep(600)"])
    top = f"host_cli = {json.dumps(sys.executable)}\nhost_cli_args = {args}\n"
    home.configure(f"{top}{TRUSTING}\n[gateway]\nenabled = true\n")
    downstreams = Path(home.places.gateway_directory)
    downstreams.mkdir(parents=True)
    run = {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), "docs", "new", str(home.root / "calls")]}
    settings = {"name": "docs", "transport": "stdio", **run, "capabilities": ["docs.*"], "schemaVersion": "1.0.0"}
    (downstreams / "docs.json").write_text(json.dumps(settings))
    policy = {"enabled": True, "file_patterns": {"write": ["none/**"]}}
    (workspace / ".intercom").mkdir()
    (workspace / ".intercom" / "settings.json").write_text(json.dumps(policy))
    (workspace / "part.txt").write_text(LINES)


@contextlib.asynccontextmanager
async def person_on_the_page(home: Home) -> AsyncIterator[tuple[Browser, str, dict[str, Later]]]:
    """A person whose passkey counts on the page, a session's id, and what its agent proposes. In the end nothing of
    what was signed can be used again, and `audit verify` finds nothing."""
    own, enrol = person_with_key(home)
    workspace = home.workspace()
    configure(home, workspace)
    with home.serving():
        await trio.to_thread.run_sync(enrol, own)
        async with home.agent(workspace) as agent, trio.open_nursery() as nursery:
            asks = {
                title: begin(nursery, agent, "check_clearance", title=title, content=text, file_path=path)
                for title, path, text in PROPOSED
            }
            async with home.person(workspace) as person:
                for title in asks:
                    id = (await person.card(title=title))["session_id"]
            try:
                async with browser_at((await ask(home, "web"))["url"]) as browser:
                    await make_passkey(home, browser, enrol)
                    yield browser, id, asks
                    await browser.do("end")
            finally:
                nursery.cancel_scope.cancel()
    found = verify(home)
    assert (found["ok"], found["faults"]) == (True, [])


async def ask(home: Home, command: str, **fields: Any) -> Any:
    return await trio.to_thread.run_sync(request, home.places, command, fields)


async def assert_of_no_more_use(home: Home, sent: dict[str, Any]) -> None:
    """A process that saw these requests can do nothing with them, whatever it is answered."""

    async def entries() -> list[int]:
        # What the server goes on with, such as a restore, is on record too.
        log = (await ask(home, "log"))["entries"]
        return [
            each["id"]
            for each in log
            if (each.get("data") or {}).get("signature") or each["kind"] in ("task", "spawned")
        ]

    before = await entries()
    assert len({fields["signature"]["value"] for fields in sent.values()}) == len(sent)
    for command, fields in sent.items():
        assert fields["signature"]["method"] == "passkey"
        with contextlib.suppress(Refusal):
            answer = await ask(home, command, **fields)
            assert COMMANDS[command].access is Access.SIGNED_CARD, (command, answer)
    assert await entries() == before


@pytest.mark.real_time
async def test_decisions_of_each_kind_are_signed_on_the_page(home: Home) -> None:
    async with person_on_the_page(home) as (browser, _, asks):
        sent = {"approve": await browser.do("part Part"), "changes": await browser.do("changes Comments")}
        declined = await browser.do("declined One Two")
        assert [text.partition(": it was not signed")[2][:2] for text in declined] == [": ", ", "], declined
        one, two = await browser.do("several One Two")
        # Each has an assertion of its own.
        assert one["signature"]["value"] != two["signature"]["value"]
        sent["policy-accept"] = await browser.do("policy")
        assert (await browser.do("rule Rule"))["signature"]["decision"] == "accept"
        await assert_of_no_more_use(home, sent)
        part = await asks["Part"]()
        assert part["status"] == "approved"
        # The note is signed with what the agent is told, and reaches it.
        assert str(sent["approve"]["signature"]["text"]).endswith("\n\nnote: fifty stays")
        assert "fifty stays" in str(part)
        assert "why\n    so?" in str((await asks["Comments"]())["reason"])


@pytest.mark.real_time
async def test_commands_of_each_kind_are_signed_on_the_page(home: Home) -> None:
    async with person_on_the_page(home) as (browser, id, _):
        await ask(home, "checkpoint", session=id)
        sent = {"task": await browser.do(f"task {id}"), "take-back": await browser.do(f"untask {id}")}
        sent["start"] = await browser.do(f"start {home.root / 'ws1'}")
        sent["gateway-enable"] = await browser.do("enable docs")
        sent["answer"] = await browser.do(f"restore {id}")
        assert sent["task"]["text"] == "clean up\nall of it"
        await assert_of_no_more_use(home, sent)
        (docs,) = (await ask(home, "gateway-list"))["downstreams"]
        assert docs["is_enabled"]
