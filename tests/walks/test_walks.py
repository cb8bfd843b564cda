"""The walks count what is entered, in every process and every thread."""

from __future__ import annotations

from pathlib import Path

from tests.walks.walk import Function, Walk, files
from tests.walks.walks import made


def test_a_request_for_clearance_is_followed_from_the_agents_relay_to_the_operators_watch() -> None:
    walk = made("clearance")
    relay, server = walk.functions("relay"), walk.functions("server")
    assert any(each.file.startswith("intercom/agents/shim/") for each in relay)
    # The layers in the order in which the request reaches them. The store works in a thread of its own, which may
    # begin with another transaction.
    packages = list(dict.fromkeys(each.file.split("/")[1] for each in server))
    assert packages.index("agents") < packages.index("sessions")
    assert {"agents", "sessions", "store", "workspace", "operators", "model"} <= {*packages}
    assert max(packages.index("sessions"), packages.index("store")) < packages.index("operators")
    # Nobody typed anything, and nothing of the start is counted.
    assert walk.functions("ctl") == []
    assert not any(each.file.startswith("intercom/cli/") for each in server)
    assert files(server) < files(walk.together()) <= files(server) + files(relay)


def test_what_is_not_entered_each_time_is_left_out(tmp_path: Path) -> None:
    one, timer, other, first = (Function("intercom/x.py", line, f"f{line}") for line in range(4))
    walk = Walk(
        tmp_path,
        [
            {"server": [first, one, other], "relay": [one], "ctl": []},
            {"server": [one, timer, other], "relay": [one], "ctl": []},
            {"server": [other, one], "relay": [one], "ctl": []},
        ],
    )
    assert walk.functions("server") == [other, one]
    assert walk.together() == {one, other}
    assert files(walk.together()) == 1
