"""The search index over the tools of a catalog: SQLite's full text search (FTS5), in memory.

Names are split into words: `create_issue`, `createIssue`, `CreateIssue`, "create issue" and "issues" find each other.
The text of a query is data and never syntax: only its letters and digits count.

A tool whose name is the whole query comes first, and alone if it has all words. Then come tools that have all words of
the query, then those that have some of them and are not much worse than the best. If there are none, a tool is found
that has words which begin like those. Some words stand for each other, such as folder and directory.

SQLite's bm25 ranks what is found; a word in a tool's name counts the most. Equals are in the order of the catalog, so
that the order is stable.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice
from typing import Final

from attrs import define, field, frozen

from intercom.gateway.catalog import Catalog, Entry
from intercom.model.json_types import Json

#: The characters of a query that count, its words, the characters of one word, and the parts of one word.
QUERY: Final = 500
MOST_WORDS: Final = 16
WORD: Final = 64
PARTS: Final = 8
#: The characters of each text of a tool that are indexed, and the deepest nesting of parameters.
TEXT: Final = 4_000
DEPTH: Final = 4
#: A tool that has only some words of a query is found if its rank is at least this part of the best one's.
WORTH: Final = 0.5
#: How many names are compared when a name is not known, and how alike a near one is (0 to 1).
MOST_COMPARED: Final = 2_000
ALIKE: Final = 0.6

#: The columns of the index, and what a word in each counts.
_COLUMNS: Final[Mapping[str, float]] = {
    "name": 8.0,
    "title": 4.0,
    "downstream": 3.0,
    "description": 2.0,
    "parameters": 1.0,
}
_CREATE: Final = (
    f"create virtual table tools using fts5 ({', '.join(_COLUMNS)}, content = '',"
    " tokenize = 'porter unicode61 remove_diacritics 2')"
)
_INSERT: Final = f"insert into tools (rowid, {', '.join(_COLUMNS)}) values (?, ?, ?, ?, ?, ?)"
_SEARCH: Final = (
    f"select rowid, bm25(tools, {', '.join(map(str, _COLUMNS.values()))}) as rank_of from tools where tools match ?"
    " order by rank_of, rowid"
)
#: What may be one identifier: letters and digits, joined by `_` or `-`.
_IDENTIFIER: Final = re.compile(r"[^\W_]+(?:[_-]+[^\W_]+)*")
#: Where an identifier has a new word: `createIssue`, `HTTPServer` (but not `PRs`), `page2`. Each ideograph is a word.
_BOUNDARY: Final = re.compile(
    r"[_-]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?!.s(?![a-z]))|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"
    r"|(?=[\u3040-\u30ff\u3400-\u9fff])|(?<=[\u3040-\u30ff\u3400-\u9fff])"
)
#: Words that say nothing about a tool. A query that has no others is searched for these.
_COMMON_WORDS: Final = (
    "a an and any are as at be by can do does for from get how i in into is it its me my of on or our please should"
    " some that the their them there these this those to tool tools use using want was we what when where which with"
    " would you your"
)
_COMMON: Final = frozenset(_COMMON_WORDS.split())
#: Words that stand for each other in queries: those for common acts and things, and their usual short forms.
_SAME: Final = tuple(
    tuple(group.split())
    for group in (
        "create make add",
        "delete remove erase",
        "change edit modify update",
        "search find",
        "run execute evaluate",
        "move rename",
        "choose select pick",
        "download fetch retrieve",
        "directory folder dir",
        "image picture photo",
        "issue ticket bug",
        "log history",
        "repository repo",
        "configuration config setting",
        "environment env",
        "database db",
        "document doc",
        "information info",
        "authentication auth",
    )
)
#: The shortest beginning of a word that is looked for.
_BEGINNING: Final = 3


def _synonyms() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in _SAME:
        for word in group:
            plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
            found[word] = found[plural] = tuple(other for other in group if other != word)
    return found


_SYNONYMS: Final = _synonyms()


@frozen
class _Word:
    """One word of a text. `parts` are the words that it is made of; a plain word is its own only part."""

    whole: str
    parts: tuple[str, ...]


@define(eq=False)
class ToolIndex:
    """The index of one catalog. It is used by one task at a time; it may be built in another thread.

    Its memory is freed when nothing refers to it any more.
    """

    catalog: Catalog
    _database: sqlite3.Connection = field(init=False, repr=False)
    _by_key: dict[str, list[int]] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._database.close)
        self._database.execute(_CREATE)
        self._database.execute("begin")
        for number, entry in enumerate(self.catalog.entries):
            self._database.execute(_INSERT, (number, *_texts(entry)))
            for key in {_key(entry.tool[:TEXT]), _key(entry.name)}:
                self._by_key.setdefault(key, []).append(number)
        self._database.execute("commit")

    def is_of(self, catalog: Catalog) -> bool:
        """Whether this index has the tools of a catalog, as they are there."""
        mine, theirs = self.catalog.entries, catalog.entries
        return len(mine) == len(theirs) and all(
            one == other and one.definition is other.definition for one, other in zip(mine, theirs, strict=True)
        )

    def search(self, query: str, limit: int, may: Callable[[Entry], bool]) -> tuple[Entry, ...]:
        """Return up to `limit` tools that fit a query best, of those that `may` accepts. Any text is a query."""
        entries = self.catalog.entries
        words = _query_words(query)
        exact = [number for number in self._by_key.get(_key(query[:QUERY]), ()) if may(entries[number])]
        found = dict.fromkeys(exact)
        if words and not exact:
            for expression, worth in _expressions(words):
                if len(found) >= limit or (found and worth is None):
                    break
                matches = self._matches(expression, may)
                # A rank is negative: the lower it is, the better the match.
                found.update((number, None) for number, rank in matches if rank <= matches[0][1] * (worth or 0.0))
        return tuple(entries[number] for number in islice(found, limit))

    def _matches(self, expression: str, may: Callable[[Entry], bool]) -> list[tuple[int, float]]:
        entries = self.catalog.entries
        return [row for row in self._database.execute(_SEARCH, (expression,)) if may(entries[row[0]])]


def nearest_names(name: str, entries: Iterable[Entry], limit: int = 3) -> tuple[str, ...]:
    """Return the names under which agents call those tools whose name is like `name`, the most similar first."""
    wanted = _key(name[: 2 * WORD])
    matcher = SequenceMatcher(autojunk=False)
    # What it knows of its second text is reused.
    matcher.set_seq2(wanted)

    def likeness(entry: Entry) -> float:
        best = 0.0
        for known in (_key(entry.name), _key(entry.tool[: 2 * WORD])):
            matcher.set_seq1(known)
            if matcher.real_quick_ratio() > max(best, ALIKE) and matcher.quick_ratio() > max(best, ALIKE):
                best = max(best, matcher.ratio())
        return best

    compared = [(likeness(entry), entry.name) for entry in islice(entries, MOST_COMPARED)]
    near = nlargest(limit, compared, key=lambda each: each[0])
    return tuple(known for score, known in near if score > ALIKE)


# --- texts of tools --------------------------------------------------------------------------------------------------


def _texts(entry: Entry) -> tuple[str, ...]:
    """Return the text of each column for a tool."""
    definition = entry.definition
    texts = (
        entry.tool,
        definition.get("title"),
        entry.downstream,
        definition.get("description"),
        " ".join(_parameter_texts(definition.get("inputSchema"), DEPTH, [TEXT])),
    )
    return tuple(_indexed(text[:TEXT]) if isinstance(text, str) else "" for text in texts)


def _parameter_texts(schema: Json, depth: int, left: list[int]) -> Iterator[str]:
    """Yield names, descriptions and choices of parameters, until no characters are left."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    properties = schema.get("properties")
    parameters = properties.items() if isinstance(properties, Mapping) else ()
    for name, parameter in parameters:
        if left[0] <= 0:
            return
        described = parameter if isinstance(parameter, Mapping) else {}
        choices = described.get("enum")
        texts = (name, described.get("title"), described.get("description"))
        for text in (*texts, *(choices[:TEXT] if isinstance(choices, list) else ())):
            if isinstance(text, str) and left[0] > 0:
                left[0] -= len(text) + 1
                yield text[:TEXT]
        yield from _parameter_texts(described, depth - 1, left)
        yield from _parameter_texts(described.get("items"), depth - 1, left)


def _indexed(text: str) -> str:
    """Return the words of a text: of an identifier its parts, and the whole without separators."""
    return " ".join(
        word for each in _words(text) for word in (each.parts if len(each.parts) == 1 else (*each.parts, each.whole))
    )


# --- words and queries -----------------------------------------------------------------------------------------------


def _words(text: str) -> Iterator[_Word]:
    for match in _IDENTIFIER.finditer(unicodedata.normalize("NFKC", text)):
        parts = tuple(part for part in _BOUNDARY.split(match.group()[:WORD]) if part)
        yield _Word("".join(parts), parts)


def _key(name: str) -> str:
    """Return what is the same for all ways to write a name."""
    return "".join(word.whole for word in _words(name)).casefold()


def _query_words(query: str) -> list[_Word]:
    words = list(islice(_words(query[:QUERY]), QUERY))
    telling = [word for word in words if word.whole.lower() not in _COMMON]
    return (telling or words)[:MOST_WORDS]


def _expressions(words: Collection[_Word]) -> Iterator[tuple[str, float | None]]:
    """Yield the expressions of FTS5 for a query, the strictest first, each with the part of the best rank that a match
    must have. None means that it is only tried if nothing was found."""
    yield " AND ".join(f"({_alternatives(word)})" for word in words), 0.0
    yield " AND ".join(f"({_alternatives(word, synonyms=True)})" for word in words), 0.0
    yield " OR ".join(map(_alternatives, words)), WORTH
    yield " OR ".join(_alternatives(word, synonyms=True) for word in words), None
    beginnings = dict.fromkeys(part for word in words for part in word.parts[:PARTS] if len(part) >= _BEGINNING)
    if beginnings:
        yield " OR ".join(f"{_quoted(part)} *" for part in beginnings), None


def _alternatives(word: _Word, *, synonyms: bool = False) -> str:
    """Return the expression for a word, or all its parts, or one that stands for it."""
    others = _SYNONYMS.get(word.whole.lower(), ()) if synonyms else ()
    texts = [_quoted(each) for each in (word.whole, *others)]
    if len(word.parts) > 1:
        texts.append(f"({' AND '.join(map(_quoted, word.parts[:PARTS]))})")
    return " OR ".join(texts)


def _quoted(word: str) -> str:
    """Return a word as a string of FTS5. It has letters and digits only, and so no quotes."""
    return f'"{word}"'
