"""The catalog: the tools of all downstreams under names of their own, and the part of it that a role may call. Pure.

Agents see a tool as `downstream__tool`. Clients accept names of 1 to 64 letters, digits, `_` and `-`. A name follows
from the downstream's and the tool's names alone. So it stays the same over restarts, and whatever else is offered.

A downstream can be configured to have no prefix, so that what agents and people know its tools by stays as it was. Then
a tool keeps its own name, unless that is taken by one of Intercom's or of another downstream.

A name that would be too long, or have other characters, or be ambiguous, ends in a hash: `github__do_it_3f9a0c24b1d7`.
No two tools have the same name: a plain name has only one reading, and never looks like one with a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from attrs import field, frozen

from intercom.gateway.pins import PINNED_FIELDS
from intercom.gateway.roles import Effect, Roles, decide
from intercom.model.json_types import Json, JsonObject
from intercom.model.visible_text import one_line

SEPARATOR: Final = "__"
#: The longest name that every client accepts, in characters.
NAME: Final = 64

#: The length of a hash in a name, and of a downstream's name before it.
_HASH: Final = 12
_DOWNSTREAM: Final = 20
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASHED: Final = re.compile(rf".*_[0-9a-f]{{{_HASH}}}", re.DOTALL)


@frozen
class Entry:
    """One tool in the catalog. `name` is what agents call it; `definition` is what its downstream offers."""

    name: str
    downstream: str
    tool: str
    definition: Mapping[str, Json] = field(eq=False, repr=False)

    @property
    def exposed(self) -> JsonObject:
        """The definition for agents: under the exposed name, and with the pinned fields only."""
        kept = {key: self.definition[key] for key in PINNED_FIELDS if self.definition.get(key) is not None}
        return {**kept, "name": self.name}


@frozen
class Visible:
    """A tool that a role may call; `asks` says that a person is asked for each call."""

    entry: Entry
    asks: bool


@frozen
class Catalog:
    """The tools of all downstreams, sorted by downstream and tool. `faults` are sentences about tools left out."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[str, ...] = ()
    _by_name: Mapping[str, Entry] = field(init=False, eq=False, repr=False)

    @_by_name.default
    def _(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in self.entries}

    def find(self, name: str) -> Entry | None:
        """Return the tool that agents call by this name."""
        return self._by_name.get(name)

    @property
    def verbs(self) -> dict[str, tuple[str, ...]]:
        """The names of the tools of each downstream that has any."""
        found: dict[str, list[str]] = {}
        for entry in self.entries:
            found.setdefault(entry.downstream, []).append(entry.tool)
        return {downstream: tuple(tools) for downstream, tools in found.items()}

    def visible_to(self, roles: Roles, role: str) -> tuple[Visible, ...]:
        """Return the tools that a role may call, in the order of the catalog. What is denied is not in it."""
        found: list[Visible] = []
        for entry in self.entries:
            effect = decide(roles, role, entry.downstream, entry.tool).effect
            if effect is not Effect.DENY:
                found.append(Visible(entry, asks=effect is Effect.ASK))
        return tuple(found)


def named_tool(
    catalog: Catalog, downstreams: Collection[str], name: str | None, tool: str | None
) -> tuple[str | None, str | None]:
    """Return the downstream and the tool that a person means. They may write a tool as agents call it
    (`github__list_commits`), as roles name it (`github.list_commits`), or behind the downstream's name."""
    if name is None or (tool is None and name in downstreams):
        return name, tool
    written = name if tool is None else tool
    entry = catalog.find(written)
    if entry is not None and (tool is None or entry.downstream == name):
        return entry.downstream, entry.tool
    for downstream in sorted(downstreams, key=len, reverse=True) if tool is None else [name]:
        for separator in (SEPARATOR, "."):
            rest = written.removeprefix(f"{downstream}{separator}")
            # A tool may really be called so.
            if rest not in ("", written) and (tool is None or tool not in catalog.verbs.get(name, ())):
                return downstream, rest
    return name, tool


def catalog_of(
    offers: Mapping[str, Iterable[Mapping[str, Json]]], *, plain: Collection[str] = (), taken: Collection[str] = ()
) -> Catalog:
    """Return the catalog of what downstreams offer: the tools of each as `tools/list` returns them.

    The downstreams in `plain` have no prefix. `taken` are names that no tool may have.

    The order of downstreams and tools makes no difference. A tool is left out if it has no name, or if its downstream
    offers another one by the same name.
    """
    faults: dict[str, None] = {}
    found: dict[str, Entry] = {}
    twice: set[str] = set()
    own: dict[str, str] = dict.fromkeys(taken, "")
    for downstream in sorted(offers):
        for tool in offers[downstream]:
            name = tool.get("name")
            if not isinstance(name, str) or not name:
                faults[f"{one_line(downstream)} offers a tool without a name"] = None
                continue
            shown = exposed_name(downstream, name)
            if downstream in plain and is_plain(name) and own.setdefault(name, downstream) == downstream:
                shown = name
            entry = Entry(shown, downstream, name, tool)
            other = found.setdefault(entry.name, entry)
            if other != entry or other.exposed != entry.exposed:
                twice.add(entry.name)
                faults[f"{one_line(downstream)} offers different tools by the name {one_line(name)}"] = None
    usable = [entry for name, entry in found.items() if name not in twice]
    return Catalog(tuple(sorted(usable, key=lambda entry: (entry.downstream, entry.tool))), tuple(faults))


def is_plain(name: str) -> bool:
    """Whether a name can stay as it is: clients accept it, and it does not look like one with a prefix."""
    return len(name) <= NAME and bool(_ALLOWED.fullmatch(name)) and SEPARATOR not in name


def exposed_name(downstream: str, tool: str) -> str:
    """Return the name by which agents call a tool: `github__list_commits`."""
    plain = f"{downstream}{SEPARATOR}{tool}"
    if (
        len(plain) <= NAME
        and tool
        and _ALLOWED.fullmatch(plain)
        # The first separator must be ours: `a_` and `b` would become the same as `a` and `_b`.
        and SEPARATOR not in downstream
        and not downstream.endswith("_")
        and not _HASHED.fullmatch(plain)
    ):
        return plain
    # The length makes every pair a different text.
    pair = f"{len(downstream)}:{downstream}{tool}"
    digest = hashlib.sha256(pair.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    start = f"{_OTHER.sub('_', downstream[:_DOWNSTREAM])}{SEPARATOR}{_OTHER.sub('_', tool)}"
    return f"{start[: NAME - _HASH - 1]}_{digest}"
