"""Roles: which tools of which downstreams an agent may call, and for which calls a person is asked. Pure.

A role is a list of rules. A rule has an effect (allow, ask or deny) and names tools by a capability `<tool>.<verb>`:

- `github.list_commits`: one tool of one downstream;
- `github.read`: the tools of a class, if the configuration has a class `read` for this downstream;
- `github.get_*`: the tools whose names match; `*` stands for any characters, also for none;
- `github.*`: all tools of one downstream; `*.search`, `*.read`, `*.*`: the same for each downstream.

A class is a list of verbs and patterns for one downstream. It comes from the configuration, never from a downstream's
own annotations. A class takes precedence over a tool of the same name. If a class is gone that was there before, rules
that name it only make things stricter: those in `ask` and `deny` count for all tools, those that allow for none.

The most specific rule decides. A rule is more specific than another if one of its two parts is narrower and the other
is not wider. The downstream is one or any; the verb is one, several (a class or a pattern) or all. So `github.*` and
`*.delete_*` are equals. Among equals, deny comes before ask, and ask before allow. What no rule names is denied.

The spec's pattern for capabilities rejects `*.*`, which its own example uses, and `list_commits`. Here verbs are tool
names as MCP has them: ASCII letters of both cases, digits, `_`, `-` and `.`. A tool with another name needs a `*`.
`github.@resources` and `github.@prompts` name the resources and prompts of a downstream; `github.*` covers them, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from intercom.model.visible_text import one_line

ANY: Final = "*"
#: The longest name of a role, in characters.
ROLE_NAME: Final = 100

_TOOL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_CAPABILITY: Final = re.compile(
    r"(?P<tool>[A-Za-z0-9][A-Za-z0-9_-]*|\*)\.(?P<verb>@resources|@prompts|[A-Za-z0-9_.*-]+)"
)
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*-]+")
_CLASS: Final = re.compile(r"[A-Za-z0-9_.-]+")
#: The longest value that a message repeats, in characters.
_SHOWN: Final = 60
#: How many names a message lists.
_NAMED: Final = 5

Classes: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
#: The tools that each downstream offers, or None for a downstream whose tools are not known now.
Catalog: TypeAlias = Mapping[str, Collection[str] | None]


class Effect(Enum):
    """What follows for a call: it is made, a person is asked first, or it is refused."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


#: Which effect comes first among rules of which none is more specific.
_STRICTEST_FIRST: Final = (Effect.DENY, Effect.ASK, Effect.ALLOW)


class Breadth(IntEnum):
    """How many verbs of one downstream a capability names."""

    ONE = 0
    SEVERAL = 1
    ALL = 2


@frozen
class Capability:
    """A rule of a role: the tools that it names, and its effect. `tool` is a downstream's name or `*`."""

    tool: str
    verb: str
    effect: Effect = Effect.ALLOW

    @property
    def name(self) -> str:
        return f"{self.tool}.{self.verb}"

    def __str__(self) -> str:
        return f"{self.effect.value} {self.name}"


@frozen
class Role:
    """A named set of rules. Without rules it grants nothing."""

    name: str
    capabilities: tuple[Capability, ...] = ()


@frozen
class Decision:
    """What follows for a call, and the rule that decided; no rule if none names the tool, or the role is unknown."""

    effect: Effect
    rule: Capability | None = None


@frozen
class _Rule:
    """A capability as it applies to one downstream."""

    capability: Capability
    any_tool: bool
    breadth: Breadth
    strictness: int
    matches: Callable[[str], object]

    def is_more_specific(self, other: _Rule) -> bool:
        mine, theirs = (self.any_tool, self.breadth), (other.any_tool, other.breadth)
        return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


@frozen
class _Rules:
    """The rules of one role for one downstream, each part in order of precedence. `former` are those in `ask` and
    `deny` that name a class which is gone."""

    named: tuple[_Rule, ...]
    any_tool: tuple[_Rule, ...]
    former: tuple[_Rule, ...] = ()

    def __iter__(self) -> Iterator[_Rule]:
        yield from self.named
        yield from self.any_tool


@frozen
class Roles:
    """All roles by name, and the classes of each downstream. `former` are the names of classes that are gone."""

    roles: Mapping[str, Role] = field(factory=dict)
    classes: Classes = field(factory=dict)
    former: Mapping[str, frozenset[str]] = field(factory=dict)
    _compiled: dict[tuple[str, str], _Rules] = field(init=False, factory=dict, eq=False, repr=False)

    def rules(self, role: Role, tool: str) -> _Rules:
        """Return the rules of a role for one downstream. They are compiled once."""
        found = self._compiled.get((role.name, tool))
        if found is None:
            has_classes = tool in self.classes or tool in self.former
            is_named = has_classes or any(each.tool == tool for each in role.capabilities)
            # One entry serves all other downstreams, so that made-up names take no memory.
            key = (role.name, tool if is_named else "")
            found = self._compiled.get(key) or _compile(role, key[1], self)
            self._compiled[key] = found
        return found

    def after(self, before: Roles) -> Roles:
        """Return these roles, which know the classes that were there before and are gone."""
        former: dict[str, frozenset[str]] = {}
        for tool in {*before.classes, *before.former}:
            names = {*before.classes.get(tool, ()), *before.former.get(tool, ())} - {*self.classes.get(tool, ())}
            if names:
                former[tool] = frozenset(names)
        return evolve(self, former=former)


NO_ROLES: Final = Roles()


def decide(roles: Roles, role: str, tool: str, method: str) -> Decision:
    """Decide about a call of a downstream's tool by an agent with this role. `tool` is the downstream's name."""
    known = roles.roles.get(role)
    if known is None:
        return Decision(Effect.DENY)
    rules = roles.rules(known, tool)
    matching = [*_first(rules.named, method), *_first(rules.any_tool, method)]
    decision = _decision(matching)
    for rule in rules.former:
        # It never overrules a stricter rule: nobody knows which tools it named.
        is_stricter = rule.strictness < _STRICTEST_FIRST.index(decision.effect)
        if is_stricter and not any(other.is_more_specific(rule) for other in matching):
            decision = Decision(rule.capability.effect, rule.capability)
    return decision


def _first(rules: tuple[_Rule, ...], method: str) -> tuple[_Rule, ...]:
    # A plain loop: a generator takes a third more time.
    for rule in rules:
        if rule.matches(method):
            return (rule,)
    return ()


def _decision(matching: Sequence[_Rule]) -> Decision:
    """Return the decision of these rules, which all match, in order of precedence."""
    best = [rule for rule in matching if not any(other.is_more_specific(rule) for other in matching)]
    if not best:
        return Decision(Effect.DENY)
    rule = min(best, key=lambda each: each.strictness)
    return Decision(rule.capability.effect, rule.capability)


def _compile(role: Role, tool: str, roles: Roles) -> _Rules:
    classes, gone = roles.classes.get(tool, {}), roles.former.get(tool, frozenset())
    about = [each for each in role.capabilities if each.tool in (tool, ANY)]
    rules = [_rule(each, classes) for each in about if each.verb not in gone]
    rules.sort(key=lambda rule: (rule.breadth, rule.strictness))
    former = [_former_rule(each) for each in about if each.verb in gone and each.effect is not Effect.ALLOW]
    return _Rules(
        tuple(rule for rule in rules if not rule.any_tool),
        tuple(rule for rule in rules if rule.any_tool),
        tuple(former),
    )


def _former_rule(capability: Capability) -> _Rule:
    """Return a rule whose class is gone: for all tools, and as narrow as a class can be."""
    strictness = _STRICTEST_FIRST.index(capability.effect)
    return _Rule(capability, capability.tool == ANY, Breadth.SEVERAL, strictness, matcher((ANY,)))


def _rule(capability: Capability, classes: Mapping[str, tuple[str, ...]]) -> _Rule:
    patterns = classes.get(capability.verb)
    if patterns is not None:
        breadth = Breadth.ALL if ANY in patterns else Breadth.SEVERAL
    elif capability.verb == ANY:
        breadth = Breadth.ALL
    else:
        breadth = Breadth.SEVERAL if ANY in capability.verb else Breadth.ONE
    strictness = _STRICTEST_FIRST.index(capability.effect)
    matches = matcher((capability.verb,) if patterns is None else patterns)
    return _Rule(capability, capability.tool == ANY, breadth, strictness, matches)


def matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Return a function that says whether a text matches one of the patterns, in a time linear for each `*`."""
    if not any(ANY in pattern for pattern in patterns):
        return frozenset(patterns).__contains__
    return re.compile("|".join(map(_regex, patterns)), re.DOTALL).fullmatch


def _regex(pattern: str) -> str:
    """Return the regular expression for a pattern. Atomic groups keep the time linear for each `*`."""
    first, *others = map(re.escape, pattern.split(ANY))
    if not others:
        return first
    return first + "".join(f"(?>.*?{part})" for part in others[:-1]) + f".*{others[-1]}"


# --- explanations ----------------------------------------------------------------------------------------------------


@frozen
class Explanation:
    """Why a call is allowed, asked about or denied, for people.

    `needed` says what would make it allowed; it is empty if it is. `overruled` are the other rules that name the tool,
    the most specific first.
    """

    role: str
    tool: str
    method: str
    decision: Decision
    why: str
    needed: str = ""
    overruled: tuple[Capability, ...] = ()

    @property
    def text(self) -> str:
        lines = [self.why, *[f"Overruled: {rule}." for rule in self.overruled]]
        return "\n".join([*lines, self.needed] if self.needed else lines)


def explain(roles: Roles, role: str, tool: str, method: str) -> Explanation:
    """Explain the decision about a call: which rule decides, and what would be needed for a call without a person."""
    what = f"{one_line(tool)}.{one_line(method)}"
    known = roles.roles.get(role)
    if known is None:
        why = f"Denied: there is no role {_quoted(role)}{_suggestion(role, roles.roles)}."
        needed = f"Needed: a role {_quoted(role)} with the capability {what}."
        return Explanation(role, tool, method, Decision(Effect.DENY), why, needed)
    decision = decide(roles, role, tool, method)
    matching = sorted(
        (rule for rule in roles.rules(known, tool) if rule.matches(method)),
        key=lambda rule: (rule.breadth + rule.any_tool, rule.any_tool, rule.strictness),
    )
    overruled = tuple(rule.capability for rule in matching if rule.capability is not decision.rule)
    verb = {Effect.ALLOW: "Allowed", Effect.ASK: "A person is asked", Effect.DENY: "Denied"}[decision.effect]
    if decision.rule is None:
        why = f"{verb}: no rule of the role {_quoted(role)} names {what}."
    else:
        rule = _described(decision.rule, roles, tool)
        why = f"{verb}: the rule {rule} of the role {_quoted(role)} decides about {what}."
    needed = "" if decision.effect is Effect.ALLOW else _needed(roles, known, tool, method, decision)
    return Explanation(role, tool, method, decision, why, needed, overruled)


def _described(capability: Capability, roles: Roles, tool: str) -> str:
    if capability.verb in roles.former.get(tool, ()):
        return f"{capability} (a class that is gone: it counts for all tools)"
    patterns = roles.classes.get(tool, {}).get(capability.verb)
    return str(capability) if patterns is None else f"{capability} (a class: {_listed(patterns)})"


def _needed(roles: Roles, role: Role, tool: str, method: str, decision: Decision) -> str:
    classes = roles.classes.get(tool, {})
    exact = f"{tool}.{method}"
    is_class = method in classes or method in roles.former.get(tool, ())
    can_name = _CAPABILITY.fullmatch(exact) and ANY not in exact and not is_class
    ways = [exact] if can_name else []
    if decision.rule is None:
        ways += [f"{tool}.{name}" for name, patterns in classes.items() if matcher(patterns)(method)]
        if not ways:
            ways = [f"{one_line(tool)}.*"]
        return f"Needed: one of the capabilities {_listed(ways)}." if len(ways) > 1 else f"Needed: {ways[0]}."
    rule = decision.rule
    where = "its ask list" if rule.effect is Effect.ASK else "its deny list"
    # The exact rule is more specific than all others.
    if can_name and (rule.tool, rule.verb) != (tool, method):
        return f"Needed: the capability {exact}, which is more specific; or take {rule.name} out of {where}."
    return f"Needed: take {rule.name} out of {where}, and have a capability that names the tool."


# --- the linter ------------------------------------------------------------------------------------------------------


class LintKind(Enum):
    SHADOWED = "shadowed"
    REDUNDANT = "redundant"
    OVER_BROAD = "over_broad"
    UNKNOWN_DOWNSTREAM = "unknown_downstream"
    UNKNOWN_VERB = "unknown_verb"
    AMBIGUOUS = "ambiguous"
    GRANTS_NOTHING = "grants_nothing"


@frozen
class LintWarning:
    """A likely mistake. `role` and `rule` are None if it is about a class. `text` is a sentence for people."""

    kind: LintKind
    text: str
    role: str | None = None
    rule: Capability | None = None


def lint(roles: Roles, catalog: Catalog | None = None) -> tuple[LintWarning, ...]:
    """Return what is likely a mistake in the classes and roles, in the order of the configuration.

    `catalog` has every configured downstream. Without it, downstreams and verbs are taken as they are, and only rules
    that name the same are found to be shadowed.
    """
    found = list(_class_warnings(roles, catalog))
    for role in roles.roles.values():
        found += _role_warnings(roles, role, catalog)
    return tuple(found)


def _class_warnings(roles: Roles, catalog: Catalog | None) -> Iterator[LintWarning]:
    for tool, classes in roles.classes.items():
        offered = _offered(catalog, tool)
        if catalog is not None and tool not in catalog:
            text = f"classes.{tool}: no server has this name{_suggestion(tool, catalog)}."
            yield LintWarning(LintKind.UNKNOWN_DOWNSTREAM, text)
        for name, patterns in classes.items():
            if ANY in patterns:
                text = f"classes.{tool}.{name}: it contains all tools, also those that the server adds later."
                yield LintWarning(LintKind.OVER_BROAD, text)
            if offered and name in offered:
                text = f"classes.{tool}.{name}: {tool} has a tool of this name, too; {tool}.{name} means the class."
                yield LintWarning(LintKind.AMBIGUOUS, text)
            for pattern in patterns if offered else ():
                if not any(map(matcher((pattern,)), offered or ())):
                    hint = _suggestion(pattern, offered or ())
                    text = f"classes.{tool}.{name}: {pattern} matches no tool of {tool}{hint}."
                    yield LintWarning(LintKind.UNKNOWN_VERB, text)


def _role_warnings(roles: Roles, role: Role, catalog: Catalog | None) -> Iterator[LintWarning]:
    if not any(rule.effect is not Effect.DENY for rule in role.capabilities):
        yield LintWarning(LintKind.GRANTS_NOTHING, f"role {_quoted(role.name)}: it grants nothing.", role.name)
    uses = _uses(roles, role, catalog)
    for at, rule in enumerate(role.capabilities):
        start = f"role {_quoted(role.name)}: {rule}"
        unknown = _unknown(roles, rule, catalog)
        if unknown is not None:
            yield LintWarning(unknown[0], f"{start}: {unknown[1]}", role.name, rule)
            continue
        broad = _over_broad(roles, rule)
        if broad is not None:
            yield LintWarning(LintKind.OVER_BROAD, f"{start}: {broad}", role.name, rule)
        twin = _twin(role, at)
        if twin is not None:
            yield LintWarning(LintKind.SHADOWED, f"{start}: it never decides, because {twin} does.", role.name, rule)
        elif rule not in uses:
            continue
        elif not uses[rule].decides:
            by = _listed([str(each) for each in uses[rule].shadowed_by])
            yield LintWarning(LintKind.SHADOWED, f"{start}: it never decides, because {by} does.", role.name, rule)
        elif not uses[rule].matters and rule.effect is not Effect.DENY:
            # A deny rule without effect is often there for the day on which another rule allows more.
            text = f"{start}: the role decides the same without it."
            yield LintWarning(LintKind.REDUNDANT, text, role.name, rule)


def _twin(role: Role, at: int) -> Capability | None:
    """Return a rule that names the same and comes before this one, by effect or else by place."""
    rule = role.capabilities[at]
    for place, other in enumerate(role.capabilities):
        if other.name == rule.name and place != at:
            before = _STRICTEST_FIRST.index(other.effect) - _STRICTEST_FIRST.index(rule.effect)
            if before < 0 or (before == 0 and place < at):
                return other
    return None


class _Use:
    """What a rule does for the offered tools that it names."""

    def __init__(self) -> None:
        self.decides = False
        self.matters = False
        self.shadowed_by: dict[Capability, None] = {}


def _uses(roles: Roles, role: Role, catalog: Catalog | None) -> dict[Capability, _Use]:
    """Return the uses of all rules that name at least one offered tool."""
    uses: dict[Capability, _Use] = {}
    for tool, verbs in (catalog or {}).items():
        rules = tuple(roles.rules(role, tool))
        for verb in verbs or ():
            matching = [rule for rule in rules if rule.matches(verb)]
            decision = _decision(matching)
            for rule in matching:
                use = uses.setdefault(rule.capability, _Use())
                if rule.capability == decision.rule:
                    use.decides = True
                    others = [each for each in matching if each.capability != decision.rule]
                    use.matters = use.matters or _decision(others).effect is not decision.effect
                elif decision.rule is not None:
                    use.shadowed_by[decision.rule] = None
    return uses


def _unknown(roles: Roles, rule: Capability, catalog: Catalog | None) -> tuple[LintKind, str] | None:
    if catalog is None:
        return None
    if rule.tool != ANY and rule.tool not in catalog:
        text = f"no downstream has the name {rule.tool}{_suggestion(rule.tool, catalog)}."
        return LintKind.UNKNOWN_DOWNSTREAM, text
    tools = list(catalog) if rule.tool == ANY else [rule.tool]
    # Nothing is said about what downstreams have whose tools are not known now.
    if not tools or rule.verb == ANY or any(catalog[tool] is None for tool in tools):
        return None
    # The gateway reports this itself, as a fault.
    if any(rule.verb in roles.former.get(tool, ()) for tool in tools):
        return None
    names: list[str] = []
    for tool in tools:
        verbs, classes = catalog[tool] or (), roles.classes.get(tool, {})
        if any(map(_rule(rule, classes).matches, verbs)):
            return None
        names += [*verbs, *classes]
    where = "any server" if rule.tool == ANY else rule.tool
    return LintKind.UNKNOWN_VERB, f"it names no tool of {where}{_suggestion(rule.verb, names)}."


def _over_broad(roles: Roles, rule: Capability) -> str | None:
    if rule.effect is not Effect.ALLOW:
        return None
    if rule.tool == ANY:
        what = "every tool" if rule.verb == ANY else "tools"
        return f"it allows {what} of every server, also of those that are added later."
    if rule.verb == ANY:
        classes = [f"{rule.tool}.{name}" for name in roles.classes.get(rule.tool, {})]
        instead = f" Narrower are {_listed(classes)}." if classes else ""
        return f"it allows every tool of {rule.tool}, also those that the server adds later.{instead}"
    return None


def _offered(catalog: Catalog | None, tool: str) -> Collection[str] | None:
    return None if catalog is None else catalog.get(tool)


# --- reading ---------------------------------------------------------------------------------------------------------

#: Keys of the same file that `assignments.parse` reads.
_OF_ASSIGNMENTS: Final = ("assignments", "defaultRole", "trustClientNames")
#: The lists of a role, and the effect of the rules in each.
_LISTS: Final = {"capabilities": Effect.ALLOW, "ask": Effect.ASK, "deny": Effect.DENY}


def parse(raw: Mapping[str, object]) -> tuple[Roles | None, tuple[str, ...]]:
    """Read roles and classes from a parsed JSON or TOML file. Return None if there are faults, and all faults.

    The form is `{"roles": [{"role": "reader", "capabilities": ["github.read"], "ask": [...], "deny": [...]}],
    "classes": {"github": {"read": ["get_*", "list_*"]}}}`. A fault is a sentence that names the place and the remedy.
    """
    faults: list[str] = []
    _check_keys(raw, "", ("roles", "classes", *_OF_ASSIGNMENTS), faults)
    classes = _read_classes(raw.get("classes", {}), faults)
    roles: dict[str, Role] = {}
    listed = raw.get("roles", [])
    if not isinstance(listed, list):
        faults.append('roles: must be a list, such as [{"role": "reader", "capabilities": ["github.read"]}]')
        listed = []
    for at, each in enumerate(listed):
        role = _read_role(each, f"roles[{at}]", faults)
        if role is not None and role.name in roles:
            faults.append(f"roles[{at}].role: {_quoted(role.name)} is there twice; join the two, or rename one")
        elif role is not None:
            roles[role.name] = role
    return (None if faults else Roles(roles, classes)), tuple(faults)


def _read_role(raw: object, where: str, faults: list[str]) -> Role | None:
    if not isinstance(raw, Mapping):
        faults.append(f'{where}: must be a table with "role" and "capabilities", not {_shown(raw)}')
        return None
    _check_keys(raw, f"{where}.", ("role", *_LISTS), faults)
    rules: list[Capability] = []
    for key, effect in _LISTS.items():
        rules += _read_rules(raw.get(key, []), f"{where}.{key}", effect, faults)
    if not any(key in raw for key in _LISTS):
        faults.append(f"{where}.capabilities: is missing; write [] for a role that grants nothing")
    name = raw.get("role")
    if not isinstance(name, str) or not name or name != one_line(name) or len(name) > ROLE_NAME:
        was = f"not {_shown(name)}" if "role" in raw else "but is missing"
        faults.append(f"{where}.role: must be a name of visible characters, at most {ROLE_NAME}, {was}")
        return None
    return Role(name, tuple(rules))


def _read_rules(raw: object, where: str, effect: Effect, faults: list[str]) -> Iterator[Capability]:
    if not isinstance(raw, list):
        faults.append(f'{where}: must be a list of capabilities, such as ["github.read"], not {_shown(raw)}')
        return
    for at, each in enumerate(raw):
        found = _CAPABILITY.fullmatch(each) if isinstance(each, str) else None
        if found is None or "**" in found["verb"]:
            faults.append(f"{where}[{at}]: {_shown(each)} is not a capability: {_remedy(each)}")
        else:
            yield Capability(found["tool"], found["verb"], effect)


def _remedy(raw: object) -> str:
    if not isinstance(raw, str):
        return 'write a text, such as "github.list_commits"'
    if "**" in raw:
        return "write one * instead of two"
    if raw.startswith("-"):
        return f'write {_shown(raw[1:])} in the list "deny"'
    if _TOOL.fullmatch(raw):
        return f'write "{raw[:_SHOWN]}.*" for all tools of the downstream, or the name of a tool instead of *'
    if raw == ANY:
        return 'write "*.*" for all tools of all downstreams'
    return "write <downstream>.<verb>: the names of a downstream and a tool, with letters, digits, _, - and ."


def _read_classes(raw: object, faults: list[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    if not isinstance(raw, Mapping):
        faults.append('classes: must be a table, such as {"github": {"read": ["get_*", "list_*"]}}')
        return found
    for tool, classes in raw.items():
        where = f"classes.{_key(tool)}"
        if tool == ANY:
            faults.append(f"{where}: classes are for one downstream each; write the name of a downstream")
            continue
        if not _TOOL.fullmatch(str(tool)):
            faults.append(f"{where}: is not the name of a downstream; names have letters, digits, _ and -")
        if not isinstance(classes, Mapping):
            faults.append(f'{where}: must be a table, such as {{"read": ["get_*", "list_*"]}}, not {_shown(classes)}')
            continue
        found[str(tool)] = {
            str(name): tuple(_read_patterns(patterns, f"{where}.{_key(name)}", str(name), faults))
            for name, patterns in classes.items()
        }
    return found


def _read_patterns(raw: object, where: str, name: str, faults: list[str]) -> Iterator[str]:
    if not _CLASS.fullmatch(name):
        faults.append(f"{where}: is not a name for a class; names have letters, digits, _, - and .")
    if not isinstance(raw, list):
        faults.append(f'{where}: must be a list of verbs and patterns, such as ["get_*"], not {_shown(raw)}')
        return
    for at, each in enumerate(raw):
        if isinstance(each, str) and _PATTERN.fullmatch(each) and "**" not in each:
            yield each
        else:
            remedy = "write one * instead of two" if isinstance(each, str) and "**" in each else _PATTERN_REMEDY
            faults.append(f"{where}[{at}]: {_shown(each)} is not a verb or pattern: {remedy}")


_PATTERN_REMEDY: Final = "write the name of a tool without the downstream's, with letters, digits, _, -, . and *"


def _check_keys(raw: Mapping[str, object], where: str, known: Collection[str], faults: list[str]) -> None:
    for key in raw:
        if key not in known:
            hint = _suggestion(str(key), known) or f" (known here: {', '.join(known)})"
            faults.append(f"{where}{_key(key)}: is not a setting{hint}")


def _key(key: object) -> str:
    text = one_line(str(key))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return _quoted(value) if isinstance(value, str) else _key(value)


def _quoted(text: str) -> str:
    return f'"{_key(text)}"'


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _suggestion(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name[:ROLE_NAME], known, 1)
    return f" (did you mean {one_line(near[0])}?)" if near else ""
