"""What the spawner and its children are given: their surroundings, as values and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from actors import Name
from intercom.model.session import SessionMode
from intercom.sessions.context import Context


@frozen
class Surroundings:
    """`root` is where output is kept, one directory a session; `environ` the server's environment. `http` says what an
    agent needs to reach the server over HTTP, as variables. `came` and `left` note whose processes are agents'; `stays`
    is true when this server makes room for another that will take its agents over. `reception` lets sessions run."""

    context: Context
    root: Path
    environ: Mapping[str, str]
    children: Name
    reception: Name
    default_mode: SessionMode
    http: Callable[[str], Mapping[str, str]] = lambda _session_id: {}
    came: Callable[[str, frozenset[int]], None] = lambda _door, _pids: None
    left: Callable[[str], None] = lambda _door: None
    stays: Callable[[], bool] = lambda: False
    #: The pids of all keepers that this server knows: none of them is another's descendant.
    keepers: dict[str, int] = field(factory=dict, init=False)
