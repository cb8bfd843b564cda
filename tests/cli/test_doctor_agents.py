"""Doctor says whether there is a program to start agents with."""

from __future__ import annotations

import pytest

from intercom.cli import doctor_checks
from intercom.cli.doctor_checks import State
from intercom.model.config import Config, SpawnSettings


@pytest.mark.parametrize(
    ("config", "state", "says"),
    [
        (Config(), State.OK, "no host_cli is set"),
        (Config(host_cli="sh", host_cli_args=("-x",)), State.OK, "/sh -x"),
        (Config(host_cli="no-such-agent"), State.FAULT, "not found in the server's PATH"),
        (Config(host_cli="sh", spawn=SpawnSettings(environment=("NO_SUCH_KEY",))), State.WARN, "NO_SUCH_KEY"),
    ],
)
def test_what_is_found_of_the_program(config: Config, state: State, says: str) -> None:
    found = doctor_checks.examine_agents(config)
    assert (found.state, says in found.text) == (state, True), found
