"""What the tools of downstreams cost a model's context: all in the list, against `search_tools` and `call_tool`.

python -m tests.bench.gateway_tokens_bench

The lists are those of seven real downstreams, as recorded (tests/gateway/recorded_tools.py). A token is estimated as
four characters of JSON. Real tokenizers differ by model, and need a little more for JSON, by about the same factor on
both sides. There are two measures: all that `tools/list` sends, and what clients show a model of it (name, description
and input schema; not titles, output schemas and annotations).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from typing import Any, Final

import trio
from attrs import frozen

from intercom.agents.gateway.search_tools import SEARCH_TOOLS, SearchMode
from intercom.gateway.assignments import AgentIdentity, parse
from intercom.gateway.calls import GatewayCaller
from intercom.gateway.downstream_config import DownstreamConfig, Expose, Transport
from intercom.gateway.messages import Offer
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.roles import parse as parse_roles
from intercom.gateway.search import ToolIndex
from intercom.model.json_types import JsonObject
from tests.gateway.recorded_tools import HELD_OUT, QUERIES, recorded, recorded_catalog

#: What a token is taken for, in characters.
TOKEN: Final = 4
AGENT: Final = AgentIdentity("agent")
_SHOWN: Final = ("name", "description", "inputSchema")
_ROLES: Final = {"roles": [{"role": "dev", "capabilities": ["*.*"]}], "defaultRole": "dev"}
#: The descriptions that a person would write into the downstreams' files.
_PURPOSES: Final = {
    "everything": "a server for tests",
    "fetch": "web pages as text",
    "filesystem": "files and directories of this machine",
    "git": "a local git repository",
    "memory": "a graph of facts to remember",
    "playwright": "a browser",
    "time": "time and time zones",
}


@frozen
class Cost:
    """What texts cost together: the bytes that are sent, and tokens by the estimate."""

    bytes: int
    tokens: int


def cost_of(value: Any) -> Cost:
    text = json.dumps(value, ensure_ascii=False)
    return Cost(len(text.encode()), -(-len(text) // TOKEN))


def snapshot() -> OfferSnapshot:
    """Return a gateway's state in which all recorded downstreams are exposed by search, and one role may call all."""
    assignments, _ = parse(_ROLES)
    roles, _ = parse_roles(_ROLES)
    assert assignments is not None
    assert roles is not None
    return OfferSnapshot(
        configs={
            name: DownstreamConfig(
                name, Transport.STDIO, ("*.*",), "1.0.0", description=_PURPOSES[name], expose=Expose.SEARCH
            )
            for name in recorded()
        },
        roles=roles,
        assignments=assignments,
        offers={name: Offer(version="2025-11-25") for name in recorded()},
        catalog=recorded_catalog(),
    )


def shown(tools: Iterable[JsonObject]) -> list[JsonObject]:
    """Return what clients show a model of tools."""
    return [{key: tool[key] for key in _SHOWN if key in tool} for tool in tools]


async def search_costs(queries: Iterable[str]) -> list[Cost]:
    """Return what the question and the answer of one search cost, for each query."""
    state = snapshot()

    async def nothing(*_any: object) -> Any:
        raise AssertionError("nothing is called")

    mode = SearchMode(lambda: state, nothing)
    # A search does not use the client.
    port: Any = None
    caller = GatewayCaller(AGENT, port, "run", nothing)
    costs: list[Cost] = []
    for query in queries:
        arguments: JsonObject = {"query": query}
        result: Any = await mode.call(caller, SEARCH_TOOLS, {"name": SEARCH_TOOLS, "arguments": arguments})
        [content] = result["content"]
        asked, answered = cost_of(arguments), len(content["text"])
        costs.append(Cost(asked.bytes + len(content["text"].encode()), asked.tokens - (-answered // TOKEN)))
    return costs


@frozen
class Measured:
    """The costs of both ways. `searches` are those of one search each."""

    direct: Cost
    direct_shown: Cost
    two: Cost
    two_shown: Cost
    searches: list[Cost]


def measure() -> Measured:
    entries = [entry.exposed for entry in recorded_catalog().entries]
    two = SearchMode(snapshot, unused()).listed(AGENT)
    searches = trio.run(search_costs, [query for query, _ in QUERIES])
    return Measured(cost_of(entries), cost_of(shown(entries)), cost_of(two), cost_of(shown(two)), searches)


def unused() -> Callable[..., Any]:
    return lambda *_any: None


def recall(queries: tuple[tuple[str, tuple[str, ...]], ...], limit: int) -> float:
    """Return for which part of the queries a wanted tool is among so many results."""
    index = ToolIndex(recorded_catalog())
    hits = [
        bool(set(wanted) & {entry.name for entry in index.search(query, limit, lambda _entry: True)})
        for query, wanted in queries
    ]
    return sum(hits) / len(hits)


def main() -> None:
    found = measure()
    tokens = sorted(cost.tokens for cost in found.searches)
    median = statistics.median(tokens)
    print(f"{len(recorded_catalog().entries)} tools of {len(recorded())} downstreams; a token is {TOKEN} characters")
    print(f"{'':28}{'bytes':>10}{'tokens':>10}{'shown to a model':>20}")
    for name, each, as_shown in (
        ("all tools in the list", found.direct, found.direct_shown),
        ("search_tools and call_tool", found.two, found.two_shown),
    ):
        print(f"{name:28}{each.bytes:>10,}{each.tokens:>10,}{as_shown.tokens:>20,}")
    print(f"one search: median {median:,.0f} tokens, from {tokens[0]:,} to {tokens[-1]:,}")
    total = found.two_shown.tokens + median
    print(f"two tools and one search: {total:,.0f} tokens, {total / found.direct_shown.tokens:.1%} of the list")
    searches = (found.direct_shown.tokens - found.two_shown.tokens) / statistics.mean(tokens)
    print(f"searches until they cost as much as the list: {searches:.0f}")
    for limit in (1, 3, 5):
        print(
            f"recall@{limit}: {recall(QUERIES, limit):.3f} of {len(QUERIES)} queries,"
            f" {recall(HELD_OUT, limit):.3f} of {len(HELD_OUT)} held out"
        )


if __name__ == "__main__":
    main()
