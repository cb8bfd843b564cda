"""The files in which clients name their MCP servers: where they are, and edits that keep all else as it is. Pure, but
for `locate` and `read_text`.

An edit removes entries of a table, or puts one into it. Comments, the layout and the order of everything else stay. The
result is parsed again: it is only returned if it says exactly what the edit should make of the document.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import tomlkit
from attrs import define, field, frozen

from intercom.gateway import json_settings
from intercom.gateway.client_entries import TABLES, Dialect
from intercom.gateway.json_settings import BadJson
from intercom.model.json_types import Json, JsonObject

#: The largest file of a client that is read, in bytes. Claude Code keeps its history in the same file.
FILE_BYTES: Final = 64 * 1024 * 1024
#: The most pairs of lines that are compared to find what was changed.
_MOST_COMPARED: Final = 25_000_000
#: The ends of opencode's files.
_JSONS: Final = ("json", "jsonc")
#: Where something is in a document: the keys from its top.
KeyPath: TypeAlias = tuple[str, ...]


#: The files that clients have in a project.
OF_PROJECT: Final[Mapping[str, Dialect]] = {
    ".mcp.json": Dialect.CLAUDE_CODE,
    ".cursor/mcp.json": Dialect.CURSOR,
    ".vscode/mcp.json": Dialect.VSCODE,
    ".codex/config.toml": Dialect.CODEX,
    ".gemini/settings.json": Dialect.GEMINI_CLI,
    ".qwen/settings.json": Dialect.QWEN_CODE,
    **{f"{each}opencode.{end}": Dialect.OPENCODE for each in ("", ".opencode/") for end in _JSONS},
}


@frozen
class ClientFile:
    """A file with MCP servers of a client. `workspace` is the project that it belongs to; None for the user's own.

    `own_entry` is the entry of agent-intercom that replaces what is moved; None if no entry is to be written.
    """

    dialect: Dialect
    path: Path
    workspace: Path | None = None
    own_entry: JsonObject | None = field(default=None, repr=False)


def locate(home: Path, workspace: Path, environ: Mapping[str, str]) -> tuple[ClientFile, ...]:
    """Return the files that the clients on this machine have, for the user and for the project `workspace`.

    `environ` has the variables that move a client's directory. Codex reads a project's file if the project is trusted.
    """
    user = [(Dialect.CLAUDE_CODE, Path(environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json")]
    user.append((Dialect.CURSOR, home / ".cursor/mcp.json"))
    for base in (home / ".config", home / "Library/Application Support"):
        settings = base / "Code/User"
        user += [(Dialect.VSCODE, each) for each in (settings / "mcp.json", *settings.glob("profiles/*/mcp.json"))]
    user.append((Dialect.CODEX, Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"))
    user.append((Dialect.GEMINI_CLI, Path(environ.get("GEMINI_CLI_HOME") or home) / ".gemini/settings.json"))
    user.append((Dialect.QWEN_CODE, Path(environ.get("QWEN_HOME") or home / ".qwen") / "settings.json"))
    opencode = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    user += [(Dialect.OPENCODE, opencode / name) for name in ("config.json", "opencode.json", "opencode.jsonc")]
    project = [(dialect, workspace / name) for name, dialect in OF_PROJECT.items()]
    found: dict[str, ClientFile] = {}
    for at, (dialect, path) in enumerate([*user, *project]):
        if path.is_file():
            # In the home directory itself, the file of the project is the user's.
            file = ClientFile(dialect, path, None if at < len(user) else workspace)
            found.setdefault(os.path.realpath(path), file)
    return tuple(found.values())


class Unmergeable(Exception):
    """A file cannot be read, or not be edited safely. The message continues a sentence that begins with its name."""


def read_text(file: Path) -> str | None:
    """Return the text of a client's file, or None if there is none. Raises OSError and Unmergeable."""
    try:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unmergeable("is not a regular file")
    with open(descriptor, "rb") as stream:
        content = stream.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise Unmergeable(f"is larger than {FILE_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Unmergeable("is not UTF-8 text") from None


# --- documents -------------------------------------------------------------------------------------------------------


def parse(dialect: Dialect, text: str) -> JsonObject:
    """Return the document in a text. Raises Unmergeable."""
    if dialect is Dialect.CODEX:
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            at = re.search(r"line \d+", str(error))
            raise Unmergeable(f"is not TOML{f' ({at[0]})' if at else ''}") from None
    try:
        found = json_settings.parse_json(text) if text.strip("\ufeff \t\r\n") else {}
    except BadJson as error:
        raise Unmergeable(f"is not JSON ({error.what}{f', line {error.line}' if error.line else ''})") from None
    if not isinstance(found, dict):
        raise Unmergeable("is not a table of JSON")
    return found


def tables(dialect: Dialect, document: JsonObject) -> Iterator[tuple[KeyPath, str | None]]:
    """Yield the path of each table of servers in a document, and the project that it is for, or None.

    Only Claude Code's own file has tables for projects.
    """
    table = TABLES[dialect]
    if isinstance(document.get(table), dict):
        yield (table,), None
    projects = document.get("projects")
    if dialect is Dialect.CLAUDE_CODE and isinstance(projects, dict):
        for project, each in projects.items():
            if isinstance(each, dict) and isinstance(each.get(table), dict):
                yield ("projects", project, table), project


def value_at(document: JsonObject, path: Sequence[str]) -> Json:
    """Return the value at a path, or None if there is none."""
    found: Json = document
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def table_at(document: JsonObject, path: Sequence[str]) -> JsonObject:
    """Return the table at a path. Raises KeyError if there is none."""
    found = value_at(document, path)
    if not isinstance(found, dict):
        raise KeyError(path)
    return found


def remove(dialect: Dialect, text: str, paths: Collection[KeyPath]) -> str:
    """Return the text without what is at these paths. Raises Unmergeable."""
    document = parse(dialect, text)
    by_table: dict[KeyPath, list[str]] = {}
    for path in paths:
        by_table.setdefault(path[:-1], []).append(path[-1])
        del table_at(document, path[:-1])[path[-1]]
    if dialect is Dialect.CODEX:
        return _checked(dialect, _toml_without(text, paths), document)
    return _checked(dialect, _json_without(text, by_table), document)


def put(dialect: Dialect, text: str, entries: Mapping[KeyPath, Json]) -> str:
    """Return the text with these entries, which are not there yet, at the end of their tables. Raises Unmergeable."""
    document = parse(dialect, text)
    for path, value in entries.items():
        table = document
        for key in path[:-1]:
            inside = table.setdefault(key, {})
            if not isinstance(inside, dict):
                raise Unmergeable("has something other than a table where the servers are")
            table = inside
        table[path[-1]] = value
    if dialect is Dialect.CODEX:
        for path, value in entries.items():
            text = _toml_with(text, path, value)
    else:
        text = _json_with(text, entries)
    return _checked(dialect, text, document)


def says_the_same(dialect: Dialect, text: str, other: str) -> bool:
    """Whether two texts have the same document, in any order. One that cannot be read has none."""
    try:
        return _canonical(parse(dialect, text), ordered=False) == _canonical(parse(dialect, other), ordered=False)
    except (Unmergeable, RecursionError):
        return False


def with_change_undone(text: str, after: str, before: str) -> str | None:
    """Return a text without the change from `before` to `after`, which was made to it earlier, and with all that was
    changed since. None if a line of that change, or one beside it, was changed since, or if the texts are too long."""
    base = after.splitlines(keepends=True)
    undoing = _line_edits(base, before.splitlines(keepends=True))
    since = _line_edits(base, text.splitlines(keepends=True))
    if undoing is None or since is None:
        return None
    if any(first <= end and start <= last for first, last, _ in undoing for start, end, _ in since):
        return None
    parts, at = [], 0
    for start, end, new in sorted([*undoing, *since]):
        parts += [*base[at:start], *new]
        at = end
    return "".join([*parts, *base[at:]])


def _line_edits(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, Sequence[str]]] | None:
    """Return the edits that make the new lines of the old ones; None if finding them would take long."""
    start = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    start = min(len(old), len(new)) if start is None else start
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    one, other = old[start : len(old) - end], new[start : len(new) - end]
    if len(one) * len(other) > _MOST_COMPARED:
        return None
    found = SequenceMatcher(None, one, other).get_opcodes()
    return [(start + i, start + j, other[k:m]) for kind, i, j, k, m in found if kind != "equal"]


def _checked(dialect: Dialect, new: str, document: JsonObject) -> str:
    """Return the new text if it says what the document does, in the same order."""
    ordered = dialect is not Dialect.CODEX
    try:
        if _canonical(parse(dialect, new), ordered) == _canonical(document, ordered):
            return new
    except (Unmergeable, RecursionError):
        pass
    raise Unmergeable("is laid out in a way that cannot be edited safely")


def _canonical(document: JsonObject, ordered: bool) -> str:
    if not ordered:
        # A table of TOML is gone with its last entry, or stays as an empty one.
        document = {key: value for key, value in document.items() if value != {}}
    return json.dumps(document, sort_keys=not ordered, default=repr)


# --- JSON with comments ----------------------------------------------------------------------------------------------

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/\ufeff]+', re.DOTALL)
_REST_OF_LINE: Final = re.compile(r"[ \t]*(?://[^\n]*)?\r?(?:\n|\Z)")
_LINE_COMMENT: Final = re.compile(r"[ \t]*//[^\r\n]*")
_INDENT: Final = re.compile(r"\n([ \t]+)[^\s]")


@define
class _Member:
    """A member of an object: where its name begins, where its value is, and where the comma after it is."""

    name: str
    start: int
    value: _Value | None = None
    comma: int | None = None

    @property
    def end(self) -> int:
        assert self.value is not None
        return self.value.end


@define
class _Value:
    """A value: where it begins and ends, and its members if it is an object."""

    start: int
    end: int = 0
    is_object: bool = False
    members: list[_Member] = field(factory=list)
    expects_name: bool = True


def _json_tree(text: str) -> _Value:
    """Return where everything is in valid JSON, without a recursion that its depth could exhaust."""
    top = _Value(0, len(text))
    open_values = [top]
    for found in _JSON_TOKEN.finditer(text):
        token, around = found[0], open_values[-1]
        match token[0]:
            case "/" | ":":
                continue
            case "}" | "]":
                open_values.pop().end = found.end()
                continue
            case ",":
                if around.is_object and around.members:
                    around.members[-1].comma = found.start()
                around.expects_name = True
                continue
            case '"' if around.is_object and around.expects_name:
                around.members.append(_Member(json.loads(token), found.start()))
                around.expects_name = False
                continue
        value = _Value(found.start(), found.end(), token == "{")
        if around.is_object:
            around.members[-1].value = value
        elif around is top:
            top.members.append(_Member("", found.start(), value))
        if token in ("{", "["):
            open_values.append(value)
    if not top.members or top.members[0].value is None:
        raise Unmergeable("is empty")
    return top.members[0].value


def _object_at(tree: _Value, path: Sequence[str]) -> tuple[_Value, int]:
    """Return the innermost object on a path that exists, and how many keys lead to it."""
    for depth, key in enumerate(path):
        inner = next((each.value for each in tree.members if each.name == key), None)
        if inner is None:
            return tree, depth
        tree = inner
    return tree, len(path)


def _json_without(text: str, names: Mapping[KeyPath, Collection[str]]) -> str:
    """Return the text without these names of these tables."""
    tree = _json_tree(text)
    cuts: list[tuple[int, int]] = []
    for table, gone in names.items():
        members = _object_at(tree, table)[0].members
        kept = [each for each in members if each.name not in gone]
        if len(members) - len(kept) > len(gone):
            raise Unmergeable("has a server's name twice")
        if kept and members[-1].name in gone and members[-1].comma is None:
            comma = kept[-1].comma
            assert comma is not None
            cuts.append((comma, comma + 1))
        for run in _runs([each.name in gone for each in members]):
            first, last = members[run.start], members[run.stop - 1]
            cuts.append(_widened(text, first.start, last.end if last.comma is None else last.comma + 1))
    return _replaced(text, [(start, end, "") for start, end in cuts])


def _replaced(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with a new text for each of these parts, which do not overlap."""
    parts, at = [], 0
    for start, end, new in sorted(edits):
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def _runs(flags: Sequence[bool]) -> Iterator[range]:
    """Yield the ranges in which the flags are set."""
    edges = [at for at, (old, new) in enumerate(pairwise([False, *flags, False])) if old != new]
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        yield range(start, end)


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Return what to cut so that no blank line stays, and no blank in a line. A comment at its end is the entry's."""
    line = text.rfind("\n", 0, start) + 1
    is_first, rest = not text[line:start].strip(" \t"), _REST_OF_LINE.match(text, end)
    if rest:
        return (line, rest.end()) if is_first else (len(text[:start].rstrip(" \t")), end)
    return start, len(text) - len(text[end:].lstrip(" \t"))


def _json_with(text: str, entries: Mapping[KeyPath, Json]) -> str:
    if not text.strip("\ufeff \t\r\n"):
        text += "{}\n"
    by_table: dict[KeyPath, JsonObject] = {}
    for path, value in entries.items():
        by_table.setdefault(path[:-1], {})[path[-1]] = value
    tree = _json_tree(text)
    edits: list[tuple[int, int, str]] = []
    missing: list[tuple[KeyPath, JsonObject]] = []
    for table, members in by_table.items():
        home, depth = _object_at(tree, table)
        if depth < len(table):
            missing.append((table, members))
        else:
            edits += _added(text, home, members)
    text = _replaced(text, edits)
    # A new table may be in another new one, so they are made one after the other.
    for table, members in missing:
        home, depth = _object_at(_json_tree(text), table)
        inside: JsonObject = members
        for key in reversed(table[depth:]):
            inside = {key: inside}
        text = _replaced(text, _added(text, home, inside))
    return text


def _added(text: str, home: _Value, members: Mapping[str, Json]) -> list[tuple[int, int, str]]:
    """Return the edits that add members at the end of an object, in the way in which it is laid out."""
    if not home.is_object:
        raise Unmergeable("has something other than a table where the servers are")
    line = "\r\n" if "\r\n" in text[:4096] else "\n"
    unit = found[1] if (found := _INDENT.search(text)) else "  "
    outer = _indent_of(text, home.start)
    indent = outer + unit
    last = home.members[-1] if home.members else None
    at = 0 if last is None else last.end if last.comma is None else last.comma + 1
    if last is not None:
        own = text[text.rfind("\n", 0, home.members[0].start) + 1 : home.members[0].start]
        if own.strip(" \t"):
            # All in one line.
            new = ", ".join(f"{_json(name)}: {_json(value)}" for name, value in members.items())
            return [(at, at, (", " if last.comma is None else " ") + new)]
        indent = own
    written = [f"{_json(name)}: {_json(value, unit)}" for name, value in members.items()]
    new = f",{line}".join(indent + each.replace("\n", f"{line}{indent}") for each in written)
    if last is None:
        start, end = home.start + 1, home.end - 1
        if text[start:end].strip():
            return [(start, start, line + new)]
        return [(start, end, f"{line}{new}{line}{outer}")]
    comment = _LINE_COMMENT.match(text, at)
    if last.comma is not None:
        below = comment.end() if comment else at
        return [(below, below, f"{line}{new},")]
    if comment is None:
        return [(at, at, f",{line}{new}")]
    return [(at, at, ","), (comment.end(), comment.end(), line + new)]


def _json(value: object, indent: str | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # Half of a character can only be written as an escape.
    return text if text.isascii() or not re.search("[\ud800-\udfff]", text) else json.dumps(value, indent=indent)


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- TOML ------------------------------------------------------------------------------------------------------------

_TOML_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}=]|[^\s"\'#\[\]{}=]+',
    re.DOTALL,
)
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r]*\n)*")


@frozen
class _Statement:
    """A header or a key with its value: the whole lines that it takes, and the path that it is about."""

    path: KeyPath
    start: int
    end: int
    is_header: bool


def _toml_statements(text: str) -> Iterator[_Statement]:
    """Yield the statements of valid TOML. Comments and blank lines are between them."""
    header: KeyPath = ()
    line = depth = 0
    key: list[int] = []  # where the key begins and ends
    is_header = has_value = False
    for found in _TOML_TOKEN.finditer(text if text.endswith("\n") else text + "\n"):
        token = found[0]
        if token == "\n" and not depth:
            end = min(found.end(), len(text))
            if key:
                path = _toml_path(text[key[0] : key[1]], is_header)
                header = path if is_header else header
                yield _Statement(path if is_header else header + path, line, end, is_header)
            line, key, is_header, has_value = end, [], False, False
        elif token[0] not in "\n#":
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            if not key:
                is_header, key = token == "[", [found.start(), found.end()]
            has_value = has_value or (token == "=" and not is_header)
            if not has_value:
                key[1] = found.end()


def _toml_path(key: str, is_header: bool) -> KeyPath:
    found: object = tomllib.loads(key if is_header else f"{key} = 0")
    path = []
    while isinstance(found, dict) and found:
        ((name, found),) = found.items()
        path.append(name)
    return tuple(path)


def _toml_without(text: str, paths: Collection[KeyPath]) -> str:
    statements = list(_toml_statements(text))
    gone = [any(each.path[: len(path)] == path for path in paths) for each in statements]
    for run in reversed(list(_runs(gone))):
        first, last = statements[run.start], statements[run.stop - 1]
        end = last.end
        if first.is_header:
            blank = _BLANK_LINES.match(text, end)
            end = blank.end() if blank else end
        text = text[: first.start] + text[end:]
    return text


def _toml_with(text: str, path: KeyPath, value: Json) -> str:
    document: JsonObject = {path[-1]: value}
    for key in reversed(path[:-1]):
        document = {key: document}
    line = "\r\n" if "\r\n" in text else "\n"
    new = tomlkit.dumps(document).replace("\n", line)
    if text and not text.endswith("\n"):
        text += line
    return text + (line if text.strip() else "") + new
