"""Tools are found by words, in whatever way a name is written, and any text may be a query."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.catalog import Catalog, Entry, catalog_of
from intercom.gateway.search import MOST_WORDS, QUERY, TEXT, ToolIndex, nearest_names
from intercom.model.json_types import Json
from tests.gateway.recorded_tools import HELD_OUT, QUERIES, recorded_catalog
from tests.support.machine_speed import is_below


def tool(name: str, description: str = "", **more: Json) -> dict[str, Json]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def index_of(**offers: list[dict[str, Json]]) -> ToolIndex:
    return ToolIndex(catalog_of(offers))


def anything(_entry: Entry) -> bool:
    return True


def found(index: ToolIndex, query: str, limit: int = 5, may: Callable[[Entry], bool] = anything) -> list[str]:
    return [entry.name for entry in index.search(query, limit, may)]


# --- the quality of the search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "floor"), [pytest.param(QUERIES, 0.95, id="queries"), pytest.param(HELD_OUT, 0.95, id="held out")]
)
def test_what_agents_look_for_is_among_the_first_five(
    queries: tuple[tuple[str, tuple[str, ...]], ...], floor: float
) -> None:
    catalog = recorded_catalog()
    index = ToolIndex(catalog)
    # A wrong name would never be found, and a right one always if there were few tools.
    assert {name for _, wanted in queries for name in wanted} <= {entry.name for entry in catalog.entries}
    assert len(catalog.entries) > 70
    missed = [query for query, wanted in queries if not set(wanted) & set(found(index, query))]
    assert len(missed) <= len(queries) * (1 - floor) + 1e-9, missed


def test_every_tool_is_the_first_one_for_its_own_name() -> None:
    catalog = recorded_catalog()
    index = ToolIndex(catalog)
    for entry in catalog.entries:
        assert found(index, entry.tool)[0] == found(index, entry.name)[0] == entry.name


# --- words -----------------------------------------------------------------------------------------------------------

SPELLINGS = [
    "create_issue",
    "createIssue",
    "CreateIssue",
    "create-issue",
    "create issue",
    "CREATE_ISSUE",
    "createissue",
]


@pytest.mark.parametrize("name", [each for each in SPELLINGS if " " not in each])
@pytest.mark.parametrize(
    "query", [*SPELLINGS, "create issues", "issue", "issues", "creating an issue", "git hub issue"]
)
def test_all_spellings_find_each_other(name: str, query: str) -> None:
    index = index_of(github=[tool(name), tool("merge"), tool("push")])
    # `createissue` as a name has no words that could be told apart.
    if name != "createissue" or query.replace(" ", "").replace("_", "").replace("-", "").lower() == "createissue":
        assert found(index, query)[0] == f"github__{name}"


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("getHTTPResponse", "http response"),
        ("listPRs", "prs"),
        ("page2pdf", "pdf"),
        ("utf8_encode", "utf-8"),
        ("résumé_lesen", "resume"),
        ("RESUME", "résumé"),
        ("发送消息", "消息"),
        ("ﬁnd", "find"),
    ],
)
def test_words_are_told_apart(name: str, query: str) -> None:
    index = index_of(one=[tool(name), tool("zzz")])
    assert [entry.tool for entry in index.search(query, 5, anything)] == [name]


@pytest.mark.parametrize(
    ("query", "word"), [("folder", "directory"), ("repos", "repository"), ("remove", "delete"), ("history", "log")]
)
def test_some_words_stand_for_each_other_but_the_word_itself_comes_first(query: str, word: str) -> None:
    assert found(index_of(one=[tool(f"{word}_it")]), query) == [f"one__{word}_it"]
    assert found(index_of(one=[tool(f"a_{word}"), tool(f"b_{query}")]), query)[0] == f"one__b_{query}"


def test_titles_descriptions_and_parameters_are_searched_after_names() -> None:
    deep: Json = {"type": "object", "properties": {"inner": {"type": "string", "enum": ["parachute"]}}}
    index = index_of(
        one=[
            tool("a", inputSchema={"properties": {"x": {"description": "a parachute"}}}),
            tool("b", "Opens the parachute."),
            tool("c", title="Parachute"),
            tool("parachute"),
            tool("e", inputSchema={"properties": {"list": {"type": "array", "items": deep}}}),
        ]
    )
    assert found(index, "parachute") == ["one__parachute"]
    assert found(index, "parachutes open") == ["one__b"]
    assert set(found(index, "some parachute here", 9)) >= {"one__parachute", "one__c"}
    assert found(index, "inner parachute") == ["one__e"]


# --- how a query falls back ------------------------------------------------------------------------------------------


def test_all_words_come_before_any_and_any_before_beginnings() -> None:
    index = index_of(one=[tool("red_apple"), tool("red_car"), tool("green_apple"), tool("blue_whale")])
    assert found(index, "red apple") == ["one__red_apple"]
    assert found(index, "apple which is red and of gold")[0] == "one__red_apple"
    assert found(index, "purple whale") == ["one__blue_whale"]
    assert found(index, "purple wha") == ["one__blue_whale"]
    assert found(index, "purple wh") == []


def test_common_words_count_only_if_there_are_no_others() -> None:
    index = index_of(one=[tool("a", "How do I get it for you with this?"), tool("b", "Reads mail.")])
    assert found(index, "how do I get to read my mail") == ["one__b"]
    assert found(index, "how do you") == ["one__a"]


def test_what_may_not_be_found_does_not_stop_the_fallback() -> None:
    index = index_of(one=[tool("read_mail")], two=[tool("read_news")])
    assert found(index, "read mail") == ["one__read_mail"]
    assert found(index, "read mail", may=lambda entry: entry.downstream == "two") == ["two__read_news"]
    assert found(index, "one__read_mail", may=lambda entry: entry.downstream == "two") == ["two__read_news"]
    assert found(index, "read", may=lambda _entry: False) == []


def test_equals_are_in_the_order_of_the_catalog_and_the_limit_holds() -> None:
    offers = {f"d{number}": [tool("same", "word")] for number in range(9)}
    names = [f"d{number}__same" for number in range(9)]
    assert found(index_of(**offers), "word", 9) == names
    assert found(index_of(**dict(reversed(offers.items()))), "word", 4) == names[:4]
    assert found(index_of(**offers), "same", 4) == names[:4]


# --- hostile queries and tools ---------------------------------------------------------------------------------------

SYNTAX = [
    '"',
    '""',
    '"unclosed',
    "'; drop table tools; --",
    "name: secret",
    "{name title}: x",
    "^first",
    "a NEAR(b c, 2)",
    "AND",
    "OR OR OR",
    "NOT",
    "not issue",
    "(((",
    "a*",
    "*",
    "-x",
    "+",
    "\x00",
    "a\x00b",
    "\ud800",
    "\u0301",
    "²",
    "😀",
    "_",
    "___",
    "--",
    "%_",
]


@pytest.mark.parametrize("query", SYNTAX)
def test_operators_are_data(query: str) -> None:
    index = index_of(one=[tool("issue"), tool("b")])
    assert set(found(index, query)) <= {"one__issue", "one__b"}
    assert found(index, "issue") == ["one__issue"]


def test_operators_are_words_like_others() -> None:
    index = index_of(one=[tool("logical_NOT"), tool("near"), tool("issue")])
    assert found(index, "NOT issue")[0] == "one__issue"
    assert found(index, "NEAR") == ["one__near"]
    assert "one__logical_NOT" in found(index, "logical AND NOT")


TEXTS = st.text(max_size=40) | st.lists(st.sampled_from([*SYNTAX, "issue", "createIssue"]), max_size=8).map(" ".join)


@given(TEXTS, TEXTS, TEXTS)
def test_any_text_is_a_query_and_any_tool_can_be_indexed(query: str, name: str, description: str) -> None:
    offered = [tool(name, description, inputSchema={"properties": {name: {"description": query}}}), tool("other")]
    catalog = catalog_of({"one": offered})
    index = ToolIndex(catalog)
    first = index.search(query, 3, anything)
    assert set(first) <= set(catalog.entries)
    assert index.search(query, 3, anything) == first
    nearest_names(query, catalog.entries)


@pytest.mark.parametrize("query", ["a" * 1_000_000, "a " * 500_000, "aB" * 500_000, "_" * 1_000_000, "消" * 1_000_000])
def test_long_queries_are_not_read_to_their_end(query: str) -> None:
    index = ToolIndex(recorded_catalog())
    began = time.process_time()
    index.search(query, 5, anything)
    nearest_names(query, recorded_catalog().entries)
    # Reading all of it takes seconds.
    assert is_below(0.5, time.process_time() - began)


def test_only_the_beginning_of_a_query_counts() -> None:
    index = index_of(one=[tool("issue"), tool("b")])
    assert found(index, "zz " * MOST_WORDS + "issue") == []
    assert found(index, "." * QUERY + "issue") == []
    assert found(index, "zz " * (MOST_WORDS - 1) + "issue") == ["one__issue"]


def test_only_the_beginning_of_a_text_is_indexed() -> None:
    long = "x. " * TEXT + "parachute"
    many = {f"p{number}": {"description": "d" * 100} for number in range(1000)} | {"parachute": {}}
    index = index_of(one=[tool("a", long), tool("b", inputSchema={"properties": many}), tool("c", "x" * TEXT)])
    assert found(index, "parachute") == []
    assert found(index, "p3") == ["one__b"]


@pytest.mark.parametrize(
    "schema",
    [None, 7, [], {"properties": []}, {"properties": {"a": None}}, {"properties": {"a": {"enum": [1, None, "b"]}}}],
)
def test_a_schema_of_any_shape_can_be_indexed(schema: Json) -> None:
    assert found(index_of(one=[tool("a", inputSchema=schema, title=[1], outputSchema=3)]), "a") == ["one__a"]


def test_a_schema_may_be_nested_deeply() -> None:
    schema: Json = {}
    for _ in range(5_000):
        schema = {"properties": {"p": schema}, "items": schema}
    assert found(index_of(one=[tool("a", inputSchema=schema)]), "p") == ["one__a"]


# --- the index and its catalog ---------------------------------------------------------------------------------------


def test_an_index_is_that_of_a_catalog_until_a_definition_changes() -> None:
    offered, other = tool("a"), tool("b")
    index = ToolIndex(catalog_of({"one": [offered, other]}))
    assert index.is_of(catalog_of({"one": [other, offered]}))
    assert not index.is_of(catalog_of({"one": [offered]}))
    # The catalog's own comparison does not see this.
    assert not index.is_of(catalog_of({"one": [tool("a", "changed"), other]}))
    assert ToolIndex(Catalog()).search("a", 5, anything) == ()


def test_an_index_made_in_another_thread_can_be_used_and_is_freed() -> None:
    made: list[ToolIndex] = []
    thread = threading.Thread(target=lambda: made.append(ToolIndex(recorded_catalog())))
    thread.start()
    thread.join()
    [index] = made
    assert found(index, "git_log")[0] == "git__git_log"
    database = index._database
    del index, made[:]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("select 1")


# --- names that are not known ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("git__git_lgo", "git__git_log"),
        ("git_log", "git__git_log"),
        ("gitLog", "git__git_log"),
        ("mcp__intercom__git__git_log", "git__git_log"),
        ("playwright__take_screenshot", "playwright__browser_take_screenshot"),
        ("list-directory", "filesystem__list_directory"),
    ],
)
def test_names_that_are_nearly_right_lead_to_the_right_one(name: str, expected: str) -> None:
    assert expected in nearest_names(name, recorded_catalog().entries)


def test_no_name_is_near_to_nonsense() -> None:
    assert nearest_names("qqqqqqqqqq", recorded_catalog().entries) == ()
    assert nearest_names("", recorded_catalog().entries) == ()
    assert nearest_names("git_log", ()) == ()
