"""Doctor looks at the port for agents over HTTP: who listens there, and whether that is the server."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from intercom.cli import doctor_checks
from intercom.cli.doctor_checks import Finding, State
from intercom.local.places import Places
from intercom.model.config import Config
from tests.support.server_process import Home


def look(config: Config, where: Places) -> list[Finding]:
    return list(doctor_checks.examine_http(config, where))


def test_without_a_port_there_is_nothing_to_look_at(where: Places) -> None:
    assert look(Config(), where) == []


def test_a_port_is_free_or_another_programs(where: Places) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.listen()
        (found,) = look(Config(http_port=port), where)
        assert (found.state, "another program listens" in found.text) == (State.FAULT, True)
    (found,) = look(Config(http_port=port), where)
    assert (found.state, "will be served" in found.text) == (State.OK, True)
    (found,) = look(Config(http_port=0), where)
    assert found.state is State.OK


def test_a_token_that_others_may_read_is_a_fault(where: Places) -> None:
    file = Path(where.http_token_file)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_text("x" * 40)
    file.chmod(0o644)
    *_, found = look(Config(http_port=0), where)
    assert (found.subject, found.state) == ("http token", State.FAULT)
    file.chmod(0o600)
    *_, found = look(Config(http_port=0), where)
    assert (found.subject, found.state) == ("http token", State.OK)


@pytest.mark.home("http_port = 0\n")
def test_a_server_that_serves_it_is_told_and_one_that_does_not_is_a_fault(home: Home) -> None:
    with home.serving():
        until = time.monotonic() + 20
        while not os.path.exists(home.places.http_address_file):
            assert time.monotonic() < until, "it says nowhere where it serves agents"
            time.sleep(0.01)
        found, token = look(Config(http_port=0), home.places)
        assert (found.state, "agents are served at" in found.text) == (State.OK, True)
        assert token.state is State.OK
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        found, _ = look(Config(http_port=port), home.places)
        assert (found.state, "nothing listens" in found.text) == (State.FAULT, True)
