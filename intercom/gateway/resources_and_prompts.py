"""Resources and prompts of all downstreams, as agents see them, and whose they are. Pure.

A prompt has a name of its own for agents, as a tool does; a downstream without a prefix keeps its prompts' names. A
resource keeps its address, because results of tools refer to it. Where two downstreams have the same address, each
one's is written `gateway+NAME:ADDRESS`; that form is always understood.

Roles name them by the verbs `@resources` and `@prompts`; a tool whose name begins with `@` is refused (`pins`).
`github.*` covers them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from attrs import frozen

from intercom.gateway.catalog import exposed_name, is_plain
from intercom.gateway.messages import Offer
from intercom.model.json_types import JsonObject

#: The verbs of roles for what is not a tool.
RESOURCES: Final = "@resources"
PROMPTS: Final = "@prompts"
_QUALIFIED: Final = re.compile(r"gateway\+([A-Za-z0-9][A-Za-z0-9-]*):(.+)", re.DOTALL)
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")

#: The longest template and address that are compared (characters), and the most expressions of a template.
_LONGEST: Final = 2_000
_MOST_EXPRESSIONS: Final = 20
#: Whether an agent sees the resources, or the prompts, of a downstream.
Sees = Callable[[str], bool]


@frozen
class Place:
    """Where a request goes: the downstream, and the name or address that it knows."""

    downstream: str
    name: str


def resources(offers: Mapping[str, Offer], sees: Sees) -> tuple[JsonObject, ...]:
    """Return the resources that an agent sees, sorted by downstream."""
    return _addressed(offers, sees, lambda offer: offer.resources, "uri")


def templates(offers: Mapping[str, Offer], sees: Sees) -> tuple[JsonObject, ...]:
    """Return the templates of resources that an agent sees, sorted by downstream."""
    return _addressed(offers, sees, lambda offer: offer.templates, "uriTemplate")


def _addressed(
    offers: Mapping[str, Offer], sees: Sees, listed: Callable[[Offer], tuple[JsonObject, ...]], key: str
) -> tuple[JsonObject, ...]:
    found: dict[str, dict[str, JsonObject]] = {}
    for name in sorted(offers):
        for each in listed(offers[name]) if sees(name) else ():
            address = each.get(key)
            if isinstance(address, str):
                found.setdefault(address, {}).setdefault(name, each)
    return tuple(
        {**each, key: address if len(of) == 1 else f"gateway+{name}:{address}"}
        for address, of in found.items()
        for name, each in of.items()
    )


def prompts(
    offers: Mapping[str, Offer], sees: Sees, plain: Collection[str] = (), taken: Collection[str] = ()
) -> tuple[JsonObject, ...]:
    """Return the prompts that an agent sees, sorted by downstream, under their names for agents. The downstreams in
    `plain` have no prefix. `taken` are names that no prompt may have."""
    named = _named_prompts(offers, plain, taken)
    return tuple({**each, "name": shown} for shown, place, each in named if sees(place.downstream))


def find_prompt(
    offers: Mapping[str, Offer], exposed: str, plain: Collection[str] = (), taken: Collection[str] = ()
) -> Place | None:
    """Return the prompt that agents know by this name."""
    return next((place for shown, place, _ in _named_prompts(offers, plain, taken) if shown == exposed), None)


def _named_prompts(
    offers: Mapping[str, Offer], plain: Collection[str], taken: Collection[str]
) -> Iterator[tuple[str, Place, JsonObject]]:
    """Yield all prompts with their names for agents. A name without a prefix is the first downstream's, whether or not
    an agent may see it: so a name is the same for all agents."""
    first: dict[str, str] = {}
    for name in sorted(offers):
        for each in offers[name].prompts:
            prompt = each.get("name")
            if isinstance(prompt, str):
                is_free = name in plain and is_plain(prompt) and prompt not in taken
                is_own = is_free and first.setdefault(prompt, name) == name
                yield prompt if is_own else exposed_name(name, prompt), Place(name, prompt), each


def find_resource(offers: Mapping[str, Offer], address: str, sees: Sees) -> Place | None:
    """Return whose resource this is: by its address, by a template, or, if only one downstream that the agent sees has
    resources with this scheme, by that."""
    qualified = _QUALIFIED.fullmatch(address)
    if qualified is not None:
        name, own = qualified[1], qualified[2]
        return Place(name, own) if name in offers and sees(name) else None
    visible = {name: offers[name] for name in sorted(offers) if sees(name)}
    for fits in (_lists, _has_template, _has_scheme):
        able = [name for name, offer in visible.items() if fits(offer, address)]
        if able:
            # What two have is nobody's without a name: one could take the other's place.
            return Place(able[0], address) if len(able) == 1 else None
    return None


def _lists(offer: Offer, address: str) -> bool:
    return any(each.get("uri") == address for each in offer.resources)


def _has_template(offer: Offer, address: str) -> bool:
    return any(_fits(each.get("uriTemplate"), address) for each in offer.templates)


def _has_scheme(offer: Offer, address: str) -> bool:
    return address.partition(":")[0] in _schemes(offer)


def find_template(offers: Mapping[str, Offer], template: str, sees: Sees) -> Place | None:
    """Return whose template of resources this is."""
    qualified = _QUALIFIED.fullmatch(template)
    if qualified is not None:
        return Place(qualified[1], qualified[2]) if qualified[1] in offers and sees(qualified[1]) else None
    able = [
        name
        for name in sorted(offers)
        if sees(name) and any(each.get("uriTemplate") == template for each in offers[name].templates)
    ]
    return Place(able[0], template) if len(able) == 1 else None


def _schemes(offer: Offer) -> set[str]:
    addresses = [each.get("uri") for each in offer.resources] + [each.get("uriTemplate") for each in offer.templates]
    return {each.partition(":")[0] for each in addresses if isinstance(each, str) and ":" in each}


def _fits(template: object, address: str) -> bool:
    """Whether an address fits a URI template (RFC 6570, roughly): `{name}` is one step of a path, `{+name}` any text,
    and a query may be absent. It takes the first place of each literal part, so its time is bounded."""
    if not isinstance(template, str) or len(template) > _LONGEST or len(address) > _LONGEST:
        return False
    parts = _EXPRESSION.split(template)
    literals, expressions = parts[::2], parts[1::2]
    if ":" not in literals[0] or len(expressions) > _MOST_EXPRESSIONS or not address.startswith(literals[0]):
        return False
    at = len(literals[0])
    for number, (expression, literal) in enumerate(zip(expressions, literals[1:], strict=True), 1):
        is_last = number == len(expressions)
        least = 0 if expression[:1] in ("?", "&") else 1
        if is_last and not literal:
            end = len(address)
        else:
            end = address.rfind(literal, at + least) if is_last else address.find(literal, at + least)
        if end < at + least or (is_last and end + len(literal) != len(address)):
            return False
        if not _is_value(expression, address[at:end]):
            return False
        at = end + len(literal)
    return at == len(address)


def _is_value(expression: str, value: str) -> bool:
    match expression[:1]:
        case "?" | "&":
            return not value or value[0] in "?&"
        case "+" | "#" | "/":
            return True
    return not any(sign in value for sign in "/?#")
