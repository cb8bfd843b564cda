"""One walk: what the processes of one user's home enter between two points, several times over."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from tests.support.server_process import Home
from tests.walks import program
from tests.walks.tracer import tell

#: How often a walk is made. What is entered each time belongs to it; a timer that was due in one of them does not.
ROUNDS = 5
#: Seconds without anything new after which all is quiet. Before: what an earlier call has put off is done by then, as
#: is a session's own record of it. After: the shorter, the fewer timers are due meanwhile.
BEFORE, AFTER = 0.7, 0.2
#: The kinds of processes, in the order in which they are shown.
KINDS = ("server", "relay", "ctl")


@frozen(order=True)
class Function:
    """A function of the product, by its file, its first line and its qualified name."""

    file: str
    line: int
    name: str


@define
class Walk:
    """`rounds` has, for each time that the walk was made, the functions that each kind of process entered, in order of
    first entry."""

    directory: Path
    rounds: list[dict[str, list[Function]]] = field(factory=list)

    def through(self, home: Home) -> list[str]:
        """Have the servers and relays of this home counted. Returns how to run ctl, so that it is counted too."""
        home.program = [sys.executable, program.__file__, str(self.directory)]
        return [*home.program, "ctl", "--json"]

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count while this lasts, from when all is quiet until all is quiet again."""
        for left in self.directory.glob("*.json"):
            left.unlink()
        self._ask("begin")
        await self._quiet(BEFORE)
        self._ask("begin")
        yield
        await self._quiet(AFTER)
        entered: dict[str, list[tuple[int, Function]]] = {kind: [] for kind in KINDS}
        for process, found in self._ask("entered").items():
            entered[process.partition("-")[0]] += [(at, Function(file, line, name)) for file, line, name, at in found]
        self.rounds.append({kind: [each for _, each in sorted(found)] for kind, found in entered.items()})

    async def _quiet(self, seconds: float) -> None:
        """Wait until for so long nothing was entered that was not entered before."""
        seen = -1
        while (now := sum(len(found) for found in self._ask("entered").values())) != seen:
            seen = now
            await trio.sleep(seconds)

    def _ask(self, word: str) -> dict[str, Any]:
        """What each process answers to this word, by its name; of one that is over, what it has left."""
        said = {place.name: tell(place, word) for place in self.directory.glob("*.sock")}
        said |= {place.name: place.read_text() for place in self.directory.glob("*.json")}
        return {name: json.loads(each) for name, each in said.items()}

    def functions(self, kind: str) -> list[Function]:
        """What this kind of process entered each time, in the order of first entry."""
        others = [{*each[kind]} for each in self.rounds[:-1]]
        return [one for one in self.rounds[-1][kind] if all(one in other for other in others)]

    def together(self) -> set[Function]:
        """What the processes entered, taken together."""
        return {function for kind in KINDS for function in self.functions(kind)}


def files(functions: Collection[Function]) -> int:
    """In how many files these are."""
    return len({function.file for function in functions})
