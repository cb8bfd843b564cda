"""Whatever happens in whatever order: every request is answered at most once, and exactly once if a server stays."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from intercom.agents.shim.relay import Effect, Failure, Relay, ToClient, ToServer


class AnyOrder(RuleBasedStateMachine):
    """A client that asks and cancels, and servers that answer, report and die at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.relay = Relay("shim", {})
        self.asked: set[int] = set()
        self.cancelled: set[int] = set()
        self.answered: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.owed: list[dict[str, Any]] = []  # what this life was asked and has not answered
        self.up = False
        self.shown: dict[int, float] = {}

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToServer):
                message = json.loads(effect.line)
                assert self.up, "nothing is said to a dead server"
                if message.get("method") == "tools/call":
                    name = message["params"]["_meta"]["intercom/call"]
                    assert self.names.setdefault(message["id"], name) == name
                    self.owed.append(message)
            elif isinstance(effect, ToClient):
                message = json.loads(effect.line)
                if message.get("method") == "notifications/progress":
                    token, value = message["params"]["progressToken"], message["params"]["progress"]
                    assert value > self.shown.get(token, -1)
                    self.shown[token] = value
                else:
                    self.answered[message["id"]] = self.answered.get(message["id"], 0) + 1

    @rule()
    def ask(self) -> None:
        request_id = len(self.asked)
        self.asked.add(request_id)
        params = {"name": "ask", "_meta": {"progressToken": request_id}}
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        self.perform(self.relay.client_line(json.dumps(message).encode()))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.asked)))
        if request_id not in self.answered:
            self.cancelled.add(request_id)
        params = {"requestId": request_id}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self.perform(self.relay.client_line(json.dumps(message).encode()))

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), twice=st.booleans())
    def answer(self, data: st.DataObject, twice: bool) -> None:
        message = self.owed.pop(data.draw(st.integers(0, len(self.owed) - 1)))
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
        for _ in range(1 + twice):
            self.perform(self.relay.server_line(line))

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), progress=st.integers(0, 5))
    def report(self, data: st.DataObject, progress: int) -> None:
        message = data.draw(st.sampled_from(self.owed))
        params = {"progressToken": message["id"], "progress": progress}
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()
        self.perform(self.relay.server_line(line))

    @precondition(lambda self: not self.up)
    @rule()
    def rise(self) -> None:
        self.up = True
        self.perform(self.relay.server_up())

    @precondition(lambda self: self.up)
    @rule()
    def die(self) -> None:
        self.up = False
        self.owed.clear()
        self.perform(self.relay.server_down())

    @precondition(lambda self: not self.up)
    @rule()
    def fail(self) -> None:
        self.perform(self.relay.server_failed(Failure("config", "wrong")))

    @precondition(lambda self: not self.up)
    @rule()
    def allow_retry(self) -> None:
        self.relay.retry_allowed()

    @invariant()
    def at_most_once(self) -> None:
        assert all(count == 1 for count in self.answered.values())
        assert not self.cancelled & set(self.answered), "cancelled is cancelled"

    def teardown(self) -> None:
        if not self.up:
            self.rise()
        while self.owed:
            message = self.owed.pop()
            line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
            self.perform(self.relay.server_line(line))
        self.at_most_once()
        assert set(self.answered) == self.asked - self.cancelled, "exactly once, when a server stays"


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestAnyOrder = AnyOrder.TestCase
