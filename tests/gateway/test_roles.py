"""Roles decide which tools an agent may call: the most specific rule counts, and among equals the strictest."""

from __future__ import annotations

import json
import tomllib
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.roles import (
    ANY,
    NO_ROLES,
    Capability,
    Catalog,
    Decision,
    Effect,
    LintKind,
    Role,
    Roles,
    decide,
    explain,
    lint,
    parse,
)

CLASSES = {"github": {"read": ["get_*", "list_*"], "write": ["create_*", "update_*", "delete_*"]}}


def roles(*, allow: object = (), ask: object = (), deny: object = (), classes: object = CLASSES) -> Roles:
    """Return roles with one role `agent`."""
    lists = {"capabilities": allow, "ask": ask, "deny": deny}
    role = {"role": "agent", **{key: list(rules) for key, rules in lists.items()}}  # type: ignore[call-overload]
    found, faults = parse({"roles": [role], "classes": classes})
    assert found is not None, faults
    return found


@pytest.mark.parametrize(
    ("allow", "ask", "deny", "call", "expected", "rule"),
    [
        ([], [], [], "github.list_commits", Effect.DENY, None),
        (["github.list_commits"], [], [], "github.list_commits", Effect.ALLOW, "github.list_commits"),
        (["github.list_commits"], [], [], "github.list_commit", Effect.DENY, None),
        (["github.list_commits"], [], [], "github.LIST_COMMITS", Effect.DENY, None),
        (["github.list_commits"], [], [], "gitlab.list_commits", Effect.DENY, None),
        (["jira.searchIssues", "a.b.c-d_E"], [], [], "jira.searchIssues", Effect.ALLOW, "jira.searchIssues"),
        (["a.b.c-d_E"], [], [], "a.b.c-d_E", Effect.ALLOW, "a.b.c-d_E"),
        # A point is no wildcard.
        (["a.b.c"], [], [], "a.bxc", Effect.DENY, None),
        (["github.read"], [], [], "github.list_commits", Effect.ALLOW, "github.read"),
        (["github.read"], [], [], "github.delete_repo", Effect.DENY, None),
        # The class, not a tool of the same name.
        (["github.read"], [], [], "github.read", Effect.DENY, None),
        (["fs.read"], [], [], "fs.read", Effect.ALLOW, "fs.read"),
        (["fs.get_*_of_*"], [], [], "fs.get_size_of_file", Effect.ALLOW, "fs.get_*_of_*"),
        (["fs.get_*_of_*"], [], [], "fs.get_size", Effect.DENY, None),
        (["fs.*"], [], [], "fs.a tool/with\nother characters", Effect.ALLOW, "fs.*"),
        (["*.*"], [], [], "anything.at_all", Effect.ALLOW, "*.*"),
        (["*.search"], [], [], "jira.search", Effect.ALLOW, "*.search"),
        (["*.read"], [], [], "github.get_file", Effect.ALLOW, "*.read"),
        (["*.read"], [], [], "fs.read", Effect.ALLOW, "*.read"),
        # The most specific rule decides.
        (["github.*"], [], ["github.delete_repo"], "github.delete_repo", Effect.DENY, "github.delete_repo"),
        (["github.delete_repo"], [], ["github.*"], "github.delete_repo", Effect.ALLOW, "github.delete_repo"),
        (["github.*"], ["github.write"], [], "github.create_issue", Effect.ASK, "github.write"),
        (["github.*"], ["github.write"], [], "github.get_issue", Effect.ALLOW, "github.*"),
        (["github.*"], [], ["*.*"], "github.get_issue", Effect.ALLOW, "github.*"),
        # Among equals deny comes before ask, and ask before allow.
        (["a.b"], ["a.b"], [], "a.b", Effect.ASK, "a.b"),
        (["a.b"], ["a.b"], ["a.b"], "a.b", Effect.DENY, "a.b"),
        (["github.get_public_*"], [], ["github.get_*"], "github.get_public_key", Effect.DENY, "github.get_*"),
        # One rule is narrower in its downstream, the other in its verb: they are equals.
        (["github.*"], [], ["*.delete_*"], "github.delete_repo", Effect.DENY, "*.delete_*"),
        (["*.delete_*"], [], ["github.*"], "github.delete_repo", Effect.DENY, "github.*"),
        (["github.*"], ["*.delete_repo"], [], "github.delete_repo", Effect.ASK, "*.delete_repo"),
        # A third rule may be more specific than both.
        (["github.write"], [], ["*.delete_*", "github.*"], "github.delete_repo", Effect.ALLOW, "github.write"),
    ],
)
def test_the_most_specific_rule_decides(
    allow: list[str], ask: list[str], deny: list[str], call: str, expected: Effect, rule: str | None
) -> None:
    tool, _, method = call.partition(".")
    found = decide(roles(allow=allow, ask=ask, deny=deny), "agent", tool, method)
    assert (found.effect, found.rule and found.rule.name) == (expected, rule)


def test_a_class_with_everything_in_it_is_as_wide_as_all_tools() -> None:
    everything = roles(allow=["fs.read"], deny=["fs.*"], classes={"fs": {"read": ["*"]}})
    assert decide(everything, "agent", "fs", "delete").effect is Effect.DENY


def test_an_unknown_role_may_do_nothing() -> None:
    assert decide(NO_ROLES, "agent", "fs", "read") == Decision(Effect.DENY)
    assert decide(roles(allow=["*.*"]), "Agent", "fs", "read") == Decision(Effect.DENY)


def test_made_up_downstreams_take_no_memory() -> None:
    known = roles(allow=["github.*", "*.search"])
    for number in range(100):
        assert decide(known, "agent", f"d{number}", "search").effect is Effect.ALLOW
    assert len(known._compiled) <= 2


# --- against a naive model -------------------------------------------------------------------------------------------

TOOLS = ("a", "b", "c")
VERBS = ("x", "y", "xy", "xyx", "read", "x.y")
PATTERNS = (*VERBS, "x*", "*y", "x*x", "*x*y*", "r*")
RULES = st.builds(
    Capability, st.sampled_from([*TOOLS[:2], ANY]), st.sampled_from([*PATTERNS, ANY]), st.sampled_from(Effect)
)
CLASS_TABLES = st.dictionaries(
    st.sampled_from(TOOLS),
    st.dictionaries(st.sampled_from(["read", "x"]), st.lists(st.sampled_from([*PATTERNS, ANY]), max_size=3).map(tuple)),
)


def naive(rules: list[Capability], classes: dict[str, dict[str, tuple[str, ...]]], tool: str, method: str) -> Effect:
    """What the module's first lines say, word for word."""
    matching: list[tuple[bool, int, Effect]] = []
    for rule in rules:
        patterns = classes.get(tool, {}).get(rule.verb, (rule.verb,))
        if rule.tool in (tool, "*") and any(fnmatchcase(method, pattern) for pattern in patterns):
            is_class = rule.verb in classes.get(tool, {})
            several = is_class or "*" in rule.verb
            matching.append((rule.tool == "*", 2 if "*" in patterns else 1 if several else 0, rule.effect))
    best = [
        effect
        for any_tool, breadth, effect in matching
        if not any(t <= any_tool and b <= breadth and (t, b) != (any_tool, breadth) for t, b, _ in matching)
    ]
    return next((effect for effect in (Effect.DENY, Effect.ASK, Effect.ALLOW) if effect in best), Effect.DENY)


@given(st.lists(RULES, max_size=8), CLASS_TABLES, st.sampled_from(TOOLS), st.sampled_from(VERBS))
def test_decisions_are_those_of_a_naive_model(
    rules: list[Capability], classes: dict[str, dict[str, tuple[str, ...]]], tool: str, method: str
) -> None:
    known = Roles({"agent": Role("agent", tuple(rules))}, classes)
    found = decide(known, "agent", tool, method)
    assert found.effect is naive(rules, classes, tool, method)
    assert found.rule is None or (found.rule in rules and found.rule.effect is found.effect)


@given(st.lists(RULES, max_size=8), CLASS_TABLES, st.sampled_from(TOOLS), st.sampled_from(VERBS))
def test_the_order_of_rules_makes_no_difference(
    rules: list[Capability], classes: dict[str, dict[str, tuple[str, ...]]], tool: str, method: str
) -> None:
    one, other = (Roles({"agent": Role("agent", order)}, classes) for order in (tuple(rules), tuple(reversed(rules))))
    assert decide(one, "agent", tool, method).effect is decide(other, "agent", tool, method).effect


@given(st.lists(RULES, max_size=8), CLASS_TABLES, CLASS_TABLES, st.sampled_from(TOOLS), st.sampled_from(VERBS))
def test_a_class_that_is_gone_lets_nothing_more_through(
    rules: list[Capability],
    before: dict[str, dict[str, tuple[str, ...]]],
    gone: dict[str, dict[str, tuple[str, ...]]],
    tool: str,
    method: str,
) -> None:
    left = {name: {key: each[key] for key in each.keys() - gone.get(name, {}).keys()} for name, each in before.items()}
    role = {"agent": Role("agent", tuple(rules))}
    was, known = Roles(role, before), Roles(role, left).after(Roles(role, before))
    found = decide(known, "agent", tool, method).effect
    strictest_first = (Effect.DENY, Effect.ASK, Effect.ALLOW)
    assert strictest_first.index(found) <= strictest_first.index(decide(was, "agent", tool, method).effect)
    assert decide(Roles(role, before).after(known), "agent", tool, method).effect is naive(rules, before, tool, method)


@given(st.lists(RULES, max_size=6), CLASS_TABLES, st.sampled_from(TOOLS), st.sampled_from(VERBS))
def test_an_explanation_says_what_is_decided_and_what_would_be_enough(
    rules: list[Capability], classes: dict[str, dict[str, tuple[str, ...]]], tool: str, method: str
) -> None:
    known = Roles({"agent": Role("agent", tuple(rules))}, classes)
    found = explain(known, "agent", tool, method)
    assert found.decision == decide(known, "agent", tool, method)
    assert (found.needed == "") == (found.decision.effect is Effect.ALLOW)
    exact = f"{tool}.{method}"
    if f"the capability {exact}," in found.needed or f"Needed: {exact}." in found.needed:
        more = Role("agent", (*rules, Capability(tool, method)))
        assert decide(Roles({"agent": more}, classes), "agent", tool, method).effect is Effect.ALLOW


@given(st.lists(RULES, max_size=6), CLASS_TABLES)
def test_a_rule_without_use_can_be_left_out(
    rules: list[Capability], classes: dict[str, dict[str, tuple[str, ...]]]
) -> None:
    catalog: Catalog = dict.fromkeys(TOOLS, VERBS)
    known = Roles({"agent": Role("agent", tuple(rules))}, classes)
    useless = (LintKind.SHADOWED, LintKind.REDUNDANT, LintKind.UNKNOWN_VERB, LintKind.UNKNOWN_DOWNSTREAM)
    for warning in lint(known, catalog):
        if warning.rule is None or warning.kind not in useless:
            continue
        kept = list(rules)
        kept.remove(warning.rule)
        less = Roles({"agent": Role("agent", tuple(kept))}, classes)
        for tool in TOOLS:
            for verb in VERBS:
                assert decide(known, "agent", tool, verb).effect is decide(less, "agent", tool, verb).effect


@given(st.text(alphabet="ab*", min_size=1, max_size=8), st.text(alphabet="ab\n", max_size=10))
def test_patterns_match_like_those_of_a_shell(pattern: str, method: str) -> None:
    known = Roles({"agent": Role("agent", (Capability("d", pattern),))})
    assert (decide(known, "agent", "d", method).effect is Effect.ALLOW) == fnmatchcase(method, pattern)


def test_a_pattern_of_many_stars_takes_no_long_time() -> None:
    known = roles(allow=["d." + "*a" * 30 + "*b"], classes={})
    assert decide(known, "agent", "d", "a" * 20_000).effect is Effect.DENY


# --- explanations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "ask", "deny", "call", "expected"),
    [
        (
            ["github.read"],
            [],
            [],
            "github.list_commits",
            ['Allowed: the rule allow github.read (a class: get_*, list_*) of the role "agent" decides about'
             " github.list_commits."],
        ),
        (
            ["github.read"],
            [],
            [],
            "github.delete_repo",
            [
                'Denied: no rule of the role "agent" names github.delete_repo.',
                "Needed: one of the capabilities github.delete_repo, github.write.",
            ],
        ),
        (
            ["github.*"],
            ["github.write"],
            [],
            "github.delete_repo",
            [
                "A person is asked: the rule ask github.write (a class: create_*, update_*, delete_*) of the role"
                ' "agent" decides about github.delete_repo.',
                "Overruled: allow github.*.",
                "Needed: the capability github.delete_repo, which is more specific; or take github.write out of its"
                " ask list.",
            ],
        ),
        (
            ["github.*"],
            [],
            ["github.delete_repo"],
            "github.delete_repo",
            [
                'Denied: the rule deny github.delete_repo of the role "agent" decides about github.delete_repo.',
                "Overruled: allow github.*.",
                "Needed: take github.delete_repo out of its deny list, and have a capability that names the tool.",
            ],
        ),
        (
            [],
            [],
            [],
            "fs.do it\x1b",
            ['Denied: no rule of the role "agent" names fs.do it\\x1b.', "Needed: fs.*."],
        ),
    ],
)  # fmt: skip
def test_an_explanation_names_the_rule_and_what_is_needed(
    allow: list[str], ask: list[str], deny: list[str], call: str, expected: list[str]
) -> None:
    tool, _, method = call.partition(".")
    found = explain(roles(allow=allow, ask=ask, deny=deny), "agent", tool, method)
    assert found.text.splitlines() == expected


def test_an_explanation_says_that_a_class_is_gone() -> None:
    known = roles(allow=["github.*", "github.write"], ask=["github.write"], classes={}).after(roles())
    assert explain(known, "agent", "github", "write").text.splitlines() == [
        "A person is asked: the rule ask github.write (a class that is gone: it counts for all tools) of the role"
        ' "agent" decides about github.write.',
        "Overruled: allow github.*.",
        "Needed: take github.write out of its ask list, and have a capability that names the tool.",
    ]


def test_an_unknown_role_is_explained_with_the_nearest_name() -> None:
    assert explain(roles(), "agnt", "fs", "read").text.splitlines() == [
        'Denied: there is no role "agnt" (did you mean agent?).',
        'Needed: a role "agnt" with the capability fs.read.',
    ]


# --- the linter ------------------------------------------------------------------------------------------------------

CATALOG: Catalog = {
    "github": ["get_file", "list_commits", "create_issue", "update_issue", "delete_repo"],
    "fs": ["read", "write"],
    "asleep": None,
}


@pytest.mark.parametrize(
    ("allow", "ask", "deny", "expected"),
    [
        (["github.read"], [], [], []),
        (["asleep.anything"], [], [], []),
        ([], [], [], [("grants_nothing", 'role "agent": it grants nothing.')]),
        (
            ["github.read", "github.read"],
            [],
            [],
            [("shadowed", 'role "agent": allow github.read: it never decides, because allow github.read does.')],
        ),
        (
            ["github.get_file"],
            [],
            ["github.get_file"],
            [("shadowed", 'role "agent": allow github.get_file: it never decides, because deny github.get_file does.')],
        ),
        (
            ["github.get_*", "fs.read"],
            [],
            ["github.read"],
            [("shadowed", 'role "agent": allow github.get_*: it never decides, because deny github.read does.')],
        ),
        (
            ["github.read", "github.get_file"],
            [],
            [],
            [("redundant", 'role "agent": allow github.get_file: the role decides the same without it.')],
        ),
        (
            ["github.*"],
            [],
            [],
            [
                (
                    "over_broad",
                    'role "agent": allow github.*: it allows every tool of github, also those that the server adds'
                    " later. Narrower are github.read, github.write.",
                )
            ],
        ),
        (
            ["*.*"],
            [],
            [],
            [
                (
                    "over_broad",
                    'role "agent": allow *.*: it allows every tool of every server, also of those that are added'
                    " later.",
                )
            ],
        ),
        (
            ["fs.read", "githb.read"],
            [],
            [],
            [
                (
                    "unknown_downstream",
                    'role "agent": allow githb.read: no downstream has the name githb (did you mean github?).',
                )
            ],
        ),
        (
            ["fs.read", "github.list_comits"],
            [],
            [],
            [
                (
                    "unknown_verb",
                    'role "agent": allow github.list_comits: it names no tool of github (did you mean list_commits?).',
                )
            ],
        ),
    ],
)
def test_the_linter_finds_likely_mistakes(
    allow: list[str], ask: list[str], deny: list[str], expected: list[tuple[str, str]]
) -> None:
    found = lint(roles(allow=allow, ask=ask, deny=deny), CATALOG)
    assert [(warning.kind.value, warning.text) for warning in found] == expected


def test_the_linter_looks_at_classes() -> None:
    classes = {"fs": {"read": ["raed"], "all": ["*"]}, "gitub": {"read": ["x"]}}
    found = lint(roles(allow=["fs.write"], classes=classes), CATALOG)
    assert [(warning.kind.value, warning.text) for warning in found] == [
        ("ambiguous", "classes.fs.read: fs has a tool of this name, too; fs.read means the class."),
        ("unknown_verb", "classes.fs.read: raed matches no tool of fs (did you mean read?)."),
        ("over_broad", "classes.fs.all: it contains all tools, also those that the server adds later."),
        ("unknown_downstream", "classes.gitub: no server has this name (did you mean github?)."),
    ]


def test_without_a_catalog_names_are_taken_as_they_are() -> None:
    assert lint(roles(allow=["nobody.knows"])) == ()


# --- reading ---------------------------------------------------------------------------------------------------------


def test_roles_are_read_from_json_and_toml() -> None:
    as_json = json.loads(
        '{"roles": [{"role": "collector", "capabilities": ["github.read", "*.*"], "ask": ["github.write"],'
        ' "deny": ["github.delete_repo"]}], "classes": {"github": {"read": ["get_*"]}}}'
    )
    as_toml = tomllib.loads(
        """
        [classes.github]
        read = ["get_*"]
        [[roles]]
        role = "collector"
        capabilities = ["github.read", "*.*"]
        ask = ["github.write"]
        deny = ["github.delete_repo"]
        """
    )
    found, faults = parse(as_json)
    assert (found, faults) == parse(as_toml)
    assert found is not None
    assert found.roles["collector"].capabilities == (
        Capability("github", "read"),
        Capability("*", "*"),
        Capability("github", "write", Effect.ASK),
        Capability("github", "delete_repo", Effect.DENY),
    )
    assert found.classes == {"github": {"read": ("get_*",)}}


def test_all_faults_are_found_at_once() -> None:
    raw = {
        "rolls": [],
        "roles": [
            {"role": "", "capabilities": ["github", "-github.delete", "a.**", "a b.c", 3, "*", ".x", "x."]},
            {"role": "twice", "capabilities": []},
            {"role": "twice", "capabilities": "github.read"},
            {"role": "no\u202ename", "capabilites": []},
            {"capabilities": []},
            "reader",
        ],
        "classes": {
            "*": {"read": ["*"]},
            "a.b": {},
            "fs": ["read"],
            "git": {"r w": [], "read": "x", "w": ["a b", "**"]},
        },
    }
    found, faults = parse(raw)
    assert found is None
    assert list(faults) == [
        "rolls: is not a setting (did you mean roles?)",
        "classes.*: classes are for one downstream each; write the name of a downstream",
        "classes.a.b: is not the name of a downstream; names have letters, digits, _ and -",
        'classes.fs: must be a table, such as {"read": ["get_*", "list_*"]}, not a list',
        "classes.git.r w: is not a name for a class; names have letters, digits, _, - and .",
        'classes.git.read: must be a list of verbs and patterns, such as ["get_*"], not "x"',
        'classes.git.w[0]: "a b" is not a verb or pattern: write the name of a tool without the downstream\'s, with'
        " letters, digits, _, -, . and *",
        'classes.git.w[1]: "**" is not a verb or pattern: write one * instead of two',
        'roles[0].capabilities[0]: "github" is not a capability: write "github.*" for all tools of the downstream, or'
        " the name of a tool instead of *",
        'roles[0].capabilities[1]: "-github.delete" is not a capability: write "github.delete" in the list "deny"',
        'roles[0].capabilities[2]: "a.**" is not a capability: write one * instead of two',
        'roles[0].capabilities[3]: "a b.c" is not a capability: write <downstream>.<verb>: the names of a downstream'
        " and a tool, with letters, digits, _, - and .",
        'roles[0].capabilities[4]: 3 is not a capability: write a text, such as "github.list_commits"',
        'roles[0].capabilities[5]: "*" is not a capability: write "*.*" for all tools of all downstreams',
        'roles[0].capabilities[6]: ".x" is not a capability: write <downstream>.<verb>: the names of a downstream and a'
        " tool, with letters, digits, _, - and .",
        'roles[0].capabilities[7]: "x." is not a capability: write <downstream>.<verb>: the names of a downstream and a'
        " tool, with letters, digits, _, - and .",
        'roles[0].role: must be a name of visible characters, at most 100, not ""',
        'roles[2].capabilities: must be a list of capabilities, such as ["github.read"], not "github.read"',
        'roles[2].role: "twice" is there twice; join the two, or rename one',
        "roles[3].capabilites: is not a setting (did you mean capabilities?)",
        "roles[3].capabilities: is missing; write [] for a role that grants nothing",
        'roles[3].role: must be a name of visible characters, at most 100, not "no<U+202E>name"',
        "roles[4].role: must be a name of visible characters, at most 100, but is missing",
        'roles[5]: must be a table with "role" and "capabilities", not "reader"',
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["a.b", "*.*", "role"]),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["roles", "role", "capabilities", "ask", "deny", "classes", "x"]), each)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["roles", "classes", "x"]), JSON))
def test_any_content_gives_roles_or_faults(raw: dict[str, object]) -> None:
    found, faults = parse(raw)
    assert (found is None) == bool(faults)
    assert all(fault.isprintable() for fault in faults)
