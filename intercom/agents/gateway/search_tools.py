"""The tools `search_tools` and `call_tool`: agents find downstreams' tools by words, instead of having all in a list.

They stand for the tools of the downstreams whose file says `"expose": "search"`. An agent that has a role gets both in
its list, whatever downstreams are connected, so that its list stays the same.

`search_tools` reads what the gateway knows already: it sends nothing to a downstream, and is not recorded. Its answer
is JSON in a text. It has `tools`, each with `name`, `downstream`, `description` (one line) and `inputSchema`. To an
empty query it has `downstreams`, each with `downstream`, `description` and `tools` (how many; null if not known yet).
A `message` says what to do next.

`call_tool` is a call of the tool that it names: with the same checks, the same card and the same record as a direct
call. Its result is that of the tool.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import trio
from attrs import define, field, frozen

from intercom.agents import argument_schemas
from intercom.gateway.assignments import AgentIdentity, narrowed_by
from intercom.gateway.calls import GatewayCaller
from intercom.gateway.catalog import SEPARATOR, Catalog, Entry
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.roles import ANY, Effect
from intercom.gateway.search import ToolIndex, nearest_names
from intercom.gateway.tool_arguments import misfits_of
from intercom.model import limits
from intercom.model.errors import IntercomError, NotFound
from intercom.model.field_docs import doc
from intercom.model.json_types import Json, JsonObject
from intercom.model.visible_text import count, one_line

SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
#: The names of both.
NAMES: Final = frozenset({SEARCH_TOOLS, CALL_TOOL})

#: The most tools that one search returns, and the most that one downstream's listing names.
MOST_FOUND: Final = 20
MOST_NAMED: Final = 200
#: The longest schemas of one answer together, in characters. The first one is never left out of an answer.
SCHEMAS: Final = 60_000
#: The longest description of a tool in a search, and of a tool or downstream in a listing, in characters.
DESCRIPTION: Final = 300
SHORT: Final = 120
#: The most downstreams that the description of `search_tools` names, and the longest description there.
_NAMED: Final = 30
_NAMED_FOR: Final = 80

_ASKED: Final = "(A person is asked before each call.)"


@frozen
class SearchTools:
    """The arguments of `search_tools`."""

    query: str = field(
        default="",
        metadata=doc(
            'Words for what the tool does, or its name: "create issue". Empty lists the downstreams.', most=limits.TITLE
        ),
    )
    limit: int = field(
        default=5, metadata=doc(f"The most tools to return, 1 to {MOST_FOUND}.", minimum=1, maximum=MOST_FOUND)
    )
    downstream: str | None = field(
        default=None,
        metadata=doc("Search this downstream only. With an empty query, list its tools.", most=limits.NAME),
    )


@frozen
class CallTool:
    """The arguments of `call_tool`."""

    name: str = field(metadata=doc(f"The tool's name, as {SEARCH_TOOLS} returns it.", min_length=1, most=limits.NAME))
    arguments: Mapping[str, Any] = field(
        factory=dict, metadata=doc("The tool's arguments, as its inputSchema describes them.")
    )


_SEARCH_TEXT: Final = f"""\
Find tools of other MCP servers (downstreams) that are not in your list of tools. Returns the name, description and \
input schema of each tool that fits best; call it with {CALL_TOOL}. If nothing fits, try other words."""

_CALL_TEXT: Final = f"""\
Call a tool that {SEARCH_TOOLS} found, and return its result. The arguments must fit the inputSchema that \
{SEARCH_TOOLS} returned for it."""


def definitions(snapshot: OfferSnapshot, agent: AgentIdentity) -> tuple[JsonObject, ...]:
    """Return both tools as `tools/list` shows them to an agent; none if it has no downstream to search.

    This follows from the configuration alone. What downstreams offer, and whether they are connected, changes nothing.
    """
    reachable = _reachable(snapshot, agent)
    if not reachable:
        return ()
    named = [_introduced(snapshot, name) for name in reachable[:_NAMED]]
    more = [f"and {len(reachable) - _NAMED} more"] if len(reachable) > _NAMED else []
    return (
        {
            "name": SEARCH_TOOLS,
            "title": "Search tools",
            "description": f"{_SEARCH_TEXT}\nDownstreams: {'; '.join([*named, *more])}",
            "inputSchema": argument_schemas.portable(argument_schemas.of(SearchTools)),
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": CALL_TOOL,
            "title": "Call a tool",
            "description": _CALL_TEXT,
            "inputSchema": argument_schemas.portable(argument_schemas.of(CallTool)),
            "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
        },
    )


@define(eq=False)
class SearchMode:
    """Answers `search_tools` and `call_tool` for all agents of a gateway.

    `snapshot` returns the gateway's current one, `call_tool` is `Gateway.call_tool`. The index is made at the first
    search, and again at the first one after a downstream's tools have changed.
    """

    snapshot: Callable[[], OfferSnapshot]
    call_tool: Callable[[GatewayCaller, str, JsonObject], Awaitable[JsonObject]]
    _index: ToolIndex | None = field(default=None, init=False)
    _building: trio.Lock = field(factory=trio.Lock, init=False)

    def listed(self, agent: AgentIdentity) -> tuple[JsonObject, ...]:
        """Return what `tools/list` shows an agent of these tools: both, or none."""
        return definitions(self.snapshot(), agent)

    def tool_of(self, name: str, params: JsonObject) -> str:
        """Return the name of the tool that a `tools/call` is about: the one that `call_tool` names, else `name`."""
        inner = _object(params).get("name") if name == CALL_TOOL else None
        return inner if isinstance(inner, str) else name

    async def call(self, caller: GatewayCaller, name: str, params: JsonObject) -> JsonObject:
        """Answer a `tools/call` of one of both (`NAMES`), given its params; return the result.

        Raises InvalidArguments for arguments that do not fit these two tools, NotFound for an unknown downstream, and
        IntercomError ("unknown_tool") for an unknown tool. `call_tool` also raises what a direct call raises.
        """
        if name == SEARCH_TOOLS:
            return _text(await self._search(caller.identity, argument_schemas.read(SearchTools, _object(params))))
        return await self._call(caller, params)

    # --- search_tools ------------------------------------------------------------------------------------------------

    async def _search(self, agent: AgentIdentity, asked: SearchTools) -> JsonObject:
        snapshot = self.snapshot()
        reachable = _reachable(snapshot, agent)
        if asked.downstream is not None and asked.downstream not in reachable:
            raise NotFound(_no_downstream(asked.downstream, reachable))
        if not asked.query.strip():
            if asked.downstream is None:
                return _downstreams(snapshot, agent, reachable)
            return _tools_of(snapshot, agent, asked.downstream)

        def may(entry: Entry) -> bool:
            return (asked.downstream is None or entry.downstream == asked.downstream) and _may(snapshot, agent, entry)

        index = await self._indexed(snapshot.catalog)
        # The names are those of this snapshot: the index has the same tools.
        return _found(snapshot, agent, index.search(asked.query, asked.limit, may))

    async def _indexed(self, catalog: Catalog) -> ToolIndex:
        async with self._building:
            if self._index is None or not self._index.is_of(catalog):
                # For thousands of tools this takes a second.
                self._index = await trio.to_thread.run_sync(ToolIndex, catalog)
            return self._index

    # --- call_tool ---------------------------------------------------------------------------------------------------

    async def _call(self, caller: GatewayCaller, params: JsonObject) -> JsonObject:
        asked = argument_schemas.read(CallTool, _object(params))
        snapshot = self.snapshot()
        entry = snapshot.catalog.find(asked.name)
        if entry is None:
            raise IntercomError(_no_tool(snapshot, caller.identity, asked.name), code="unknown_tool")
        # An agent that may not call a tool does not get its schema: the call itself refuses it.
        if snapshot.decide(caller.identity, entry.downstream, entry.tool) is not Effect.DENY:
            faults = misfits_of(entry.definition.get("inputSchema"), asked.arguments)
            if faults:
                return _text(_misfit(entry, faults), is_error=True)
        real = {**params, "name": entry.name, "arguments": asked.arguments}
        return await self.call_tool(caller, entry.name, real)


# --- who may find what -----------------------------------------------------------------------------------------------


def _reachable(snapshot: OfferSnapshot, agent: AgentIdentity) -> list[str]:
    """Return the searched downstreams of which the agent's role may call anything, as the rules say."""
    role, _ = snapshot.role_of(agent)
    if role is None or not snapshot.has_search:
        return []
    narrowed = narrowed_by(snapshot.assignments, agent)
    roles = [snapshot.roles.roles.get(each) for each in {role, narrowed} if each is not None]
    return [
        name
        for name, config in sorted(snapshot.configs.items())
        if config.expose.value == "search"
        and all(
            each is not None
            and any(rule.tool in (ANY, name) and rule.effect is not Effect.DENY for rule in each.capabilities)
            for each in roles
        )
    ]


def _may(snapshot: OfferSnapshot, agent: AgentIdentity, entry: Entry) -> bool:
    """Whether an agent finds a tool: it is exposed by search, and the agent may call it."""
    return snapshot.is_searched(entry) and snapshot.decide(agent, entry.downstream, entry.tool) is not Effect.DENY


# --- answers ---------------------------------------------------------------------------------------------------------


def _found(snapshot: OfferSnapshot, agent: AgentIdentity, entries: tuple[Entry, ...]) -> JsonObject:
    """Return the answer of a search. Schemas that would make it too long are left out."""
    if not entries:
        return {
            "tools": [],
            "message": "no tool that you may call fits this query: use other words for what the tool does, or an empty"
            " query to see the downstreams",
        }
    tools: list[JsonObject] = []
    left: float = math.inf
    is_short = False
    for entry in entries:
        schema: JsonObject | None = _schema_of(entry)
        size = len(json.dumps(schema, ensure_ascii=False))
        if size > left:
            schema, is_short = None, True
        else:
            left = min(left, SCHEMAS) - size
        found = _introduced_tool(snapshot, agent, entry, DESCRIPTION)
        tools.append(found if schema is None else {**found, "inputSchema": schema})
    if not is_short:
        return {"tools": tools}
    return {"tools": tools, "message": "some schemas are left out, because they are long: search for one tool's name"}


def _tools_of(snapshot: OfferSnapshot, agent: AgentIdentity, downstream: str) -> JsonObject:
    """Return the answer that lists the tools of one downstream."""
    entries = [
        entry for entry in snapshot.catalog.entries if entry.downstream == downstream and _may(snapshot, agent, entry)
    ]
    if not entries:
        return {"tools": [], "message": _why_none(snapshot, downstream)}
    tools = [_introduced_tool(snapshot, agent, entry, SHORT) for entry in entries[:MOST_NAMED]]
    left = len(entries) - MOST_NAMED
    more = f"{count(left, 'more tool')} {'is' if left == 1 else 'are'} left out; " if left > 0 else ""
    return {"tools": tools, "message": f"{more}search for a tool's name to get its inputSchema"}


def _downstreams(snapshot: OfferSnapshot, agent: AgentIdentity, reachable: list[str]) -> JsonObject:
    """Return the answer that lists the downstreams of which an agent may call anything."""
    count: dict[str, int] = {}
    for entry in snapshot.catalog.entries:
        if _may(snapshot, agent, entry):
            count[entry.downstream] = count.get(entry.downstream, 0) + 1
    found: list[JsonObject] = [
        # Without a number, nobody knows yet.
        {"downstream": name, "description": _purpose(snapshot, name), "tools": count.get(name)}
        for name in reachable
        if name in count or not _is_known(snapshot, name)
    ]
    if not found:
        return {"downstreams": [], "message": "there is no downstream of which you may call any tool"}
    return {
        "downstreams": found,
        "message": "search for words of what you want to do, or name a downstream to list its tools",
    }


def _misfit(entry: Entry, faults: tuple[str, ...]) -> JsonObject:
    """Return the answer to a call whose arguments do not fit, with the whole schema."""
    return {
        "status": "error",
        "error_code": "invalid_arguments",
        "error_message": f"the arguments do not fit {entry.name}, and nothing was sent: {'; '.join(faults)}; correct"
        f" them by this inputSchema, and call {CALL_TOOL} again",
        "inputSchema": _schema_of(entry),
    }


def _no_tool(snapshot: OfferSnapshot, agent: AgentIdentity, name: str) -> str:
    downstream = name.partition(SEPARATOR)[0]
    if downstream in _reachable(snapshot, agent) and not _is_known(snapshot, downstream):
        return f"no tool is called {name[:80]!r} now: {_why_none(snapshot, downstream)}"
    near = nearest_names(name, (each.entry for each in snapshot.visible_to(agent)))
    hint = f"similar names are {', '.join(near)}" if near else "no name is similar"
    return (
        f"no tool of a downstream is called {name[:80]!r}, and {hint}: use a name that {SEARCH_TOOLS} returns, and call"
        " the tools of your own list directly"
    )


def _no_downstream(name: str, reachable: list[str]) -> str:
    near = get_close_matches(name[:100], reachable, 1)
    there = ", ".join(reachable[:_NAMED]) or "none"
    return f"no downstream is called {name[:80]!r}" + (
        f" (did you mean {near[0]}?)" if near else f"; there are: {there}"
    )


def _why_none(snapshot: OfferSnapshot, downstream: str) -> str:
    if _is_known(snapshot, downstream):
        return f"{downstream} has no tool that you may call"
    if not snapshot.configs[downstream].enabled:
        return f"{downstream} is disabled: ask the person to enable it (agent-intercom-ctl gateway enable {downstream})"
    return f"{downstream} has not been connected yet, so its tools are not known: try again in a moment"


# --- texts -----------------------------------------------------------------------------------------------------------


def _is_known(snapshot: OfferSnapshot, downstream: str) -> bool:
    """Whether the tools of a downstream are known: it was connected, and has said them."""
    offer = snapshot.offers.get(downstream)
    return offer is not None and bool(offer.version or offer.tools)


def _schema_of(entry: Entry) -> JsonObject:
    schema = entry.definition.get("inputSchema")
    return dict(schema) if isinstance(schema, Mapping) else {"type": "object"}


def _introduced_tool(snapshot: OfferSnapshot, agent: AgentIdentity, entry: Entry, most: int) -> JsonObject:
    """Return a tool without its schema: its name, its downstream, and its description on one line."""
    said = entry.definition.get("description") or entry.definition.get("title")
    line = _cut(said if isinstance(said, str) else "", most)
    if snapshot.decide(agent, entry.downstream, entry.tool) is Effect.ASK:
        line = f"{line} {_ASKED}".lstrip()
    return {"name": entry.name, "downstream": entry.downstream, "description": line}


def _introduced(snapshot: OfferSnapshot, name: str) -> str:
    """Return a downstream's name with its description from the configuration. What a downstream says of itself is left
    out: it stands in every agent's list, and nobody has approved it."""
    said = _cut(snapshot.configs[name].description, _NAMED_FOR)
    return f"{name} ({said})" if said else name


def _purpose(snapshot: OfferSnapshot, name: str) -> str:
    """Return what a downstream is for: as its file says, or as the first line of its own instructions."""
    offer = snapshot.offers.get(name)
    instructions = offer.instructions.strip() if offer is not None else ""
    return _cut(snapshot.configs[name].description or instructions.partition("\n")[0].lstrip("# "), SHORT)


def _cut(text: str, most: int) -> str:
    # Making text visible takes time by its length.
    line = one_line(text[: 4 * most])
    return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."


def _object(params: Mapping[str, Json]) -> JsonObject:
    """Return the arguments of a call. Models often write the tool's own arguments as the text of an object."""
    given = params.get("arguments")
    if not isinstance(given, dict):
        return {}
    inner = given.get("arguments")
    if isinstance(inner, str):
        try:
            return {**given, "arguments": json.loads(inner, parse_constant=_refuse_constant)}
        except (ValueError, RecursionError):
            return given
    return given


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _text(content: JsonObject, *, is_error: bool = False) -> JsonObject:
    """Return a tool's result. It has no structured content: some clients would show a model both."""
    text = json.dumps(content, ensure_ascii=False)
    if not _is_utf8(text):
        text = json.dumps(content)
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _is_utf8(text: str) -> bool:
    """Whether a text can be sent: half of a surrogate pair, which JSON may have, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
