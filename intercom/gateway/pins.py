"""Pins of tools: what a person allowed of a downstream's tools, and what has changed since. Pure.

A downstream can offer a harmless tool, and change it after it was allowed (the "rug pull"). So all that a model reads
of a tool is pinned: its name, title, description, schemas and annotations. Other fields are not pinned, and are not
passed on to agents.

Marks point out what people would miss: invisible characters, and sentences that speak to the model. A mark is a hint,
not a proof; a text without marks is not safe for that.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import Enum
from itertools import chain, islice
from typing import Final, TypeAlias

from attrs import frozen

from intercom.model.json_types import Json
from intercom.model.visible_text import name_of, one_line, visible, visible_line

#: The fields of a tool that are pinned, in the order in which people see them.
PINNED_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
#: The deepest nesting of a definition, and its longest canonical text in characters.
DEPTH: Final = 64
DEFINITION: Final = 500_000
#: The most characters of a description of changes, and of its summary.
TEXT: Final = 2_000_000
SUMMARY: Final = 8_000
#: The most marks of one tool.
MARKS: Final = 20

#: Longer lines are wrapped; of two long ones, what they have in common at the beginning is left out. Two texts of more
#: lines than `_ALIGNED` are not aligned line by line.
_LINE: Final = 200
_AROUND: Final = 40
_ALIGNED: Final = 400
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_$-]+")
#: The steps from a definition to a value in it: names of fields, and places in lists.
_Path: TypeAlias = "tuple[str | int, ...]"
_LINE_END: Final = re.compile(r"\r\n?|\n")


class Unpinnable(ValueError):
    """A definition cannot be pinned. The message is the end of a sentence that begins with the tool."""


@frozen
class Pin:
    """One tool as it was offered. `definition` is the canonical JSON of the pinned fields."""

    name: str
    definition: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.definition.encode("ascii")).hexdigest()

    @property
    def fields(self) -> dict[str, Json]:
        parsed: dict[str, Json] = json.loads(self.definition)
        return parsed


def pin(tool: Mapping[str, Json]) -> Pin:
    """Return the pin of a tool as `tools/list` returns it.

    The order of keys makes no difference, nor that of names in `required`; a field of null is a missing one. Raises
    Unpinnable if the name is not a text or empty, or begins with @, or if the definition is nested too deeply, too
    large or not JSON.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise Unpinnable("has no name")
    if name.startswith("@"):
        # A tool that is called @resources would have the rights of the resources.
        raise Unpinnable("has a name that begins with @, as the verbs of roles for resources and prompts do")
    present = {field: _normal(tool[field], DEPTH) for field in PINNED_FIELDS if tool.get(field) is not None}
    try:
        # ASCII, because a text may hold half a surrogate pair, which UTF-8 cannot encode.
        text = json.dumps(present, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unpinnable("has a definition that is not JSON") from error
    if len(text) > DEFINITION:
        raise Unpinnable(f"has a definition of {len(text)} characters; {DEFINITION} is the most")
    return Pin(name, text)


def _normal(value: Json, depth: int) -> Json:
    if depth == 0:
        raise Unpinnable(f"has a definition that is nested more than {DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {key: _named(key, each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(each, depth - 1) for each in value]
    return value


def _named(key: str, value: Json, depth: int) -> Json:
    # Some servers list required properties in the order of a hash table, which changes with every start.
    if key == "required" and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return sorted(str(each) for each in value)
    return _normal(value, depth)


# --- comparison ------------------------------------------------------------------------------------------------------


@frozen
class Change:
    """A pinned tool that is offered differently now."""

    before: Pin
    after: Pin

    @property
    def name(self) -> str:
        return self.after.name


@frozen
class Refused:
    """An offered tool that no agent may see: it cannot be pinned, or two different tools have its name."""

    name: str
    why: str


@frozen
class Changes:
    """How the tools that a downstream offers differ from the pinned ones. Each part is sorted by name.

    A refused tool is in `refused` only, also if it was pinned.
    """

    unchanged: tuple[Pin, ...] = ()
    changed: tuple[Change, ...] = ()
    added: tuple[Pin, ...] = ()
    removed: tuple[Pin, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.changed or self.added or self.removed or self.refused)


def compare(pinned: Iterable[Pin], offered: Iterable[Mapping[str, Json]]) -> Changes:
    """Compare the tools that a downstream offers with the pinned ones. The order of tools makes no difference."""
    known = {each.name: each for each in pinned}
    found: dict[str, Pin] = {}
    refused: dict[str, Refused] = {}
    for tool in offered:
        name = tool.get("name")
        shown = name if isinstance(name, str) else ""
        try:
            new = pin(tool)
        except Unpinnable as error:
            refused[shown] = Refused(shown, str(error))
            continue
        if found.setdefault(new.name, new) != new:
            refused[new.name] = Refused(new.name, "is offered twice, with different definitions")
    usable = {name: each for name, each in sorted(found.items()) if name not in refused}
    return Changes(
        unchanged=tuple(each for name, each in usable.items() if known.get(name) == each),
        changed=tuple(Change(known[name], each) for name, each in usable.items() if known.get(name, each) != each),
        added=tuple(each for name, each in usable.items() if name not in known),
        removed=tuple(known[name] for name in sorted(known) if name not in usable and name not in refused),
        refused=tuple(refused[name] for name in sorted(refused)),
    )


def changes_hash(changes: Changes) -> str:
    """Return the hash of all usable tools that a downstream offers now. It names the decision about them."""
    return tools_hash((*changes.unchanged, *(each.after for each in changes.changed), *changes.added))


def tools_hash(tools: Iterable[Pin]) -> str:
    """Return the hash of these tools; their order makes no difference."""
    lines = sorted(f"{json.dumps(each.name)} {each.sha256}" for each in tools)
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


# --- marks -----------------------------------------------------------------------------------------------------------


class MarkKind(Enum):
    HIDDEN = "hidden"
    INSTRUCTION = "instruction"


@frozen
class Mark:
    """Something in a definition that people should look at. `path` says where: `inputSchema.properties.note.title`.
    `excerpt` is the text around it, made visible."""

    kind: MarkKind
    path: str
    what: str
    excerpt: str

    def __str__(self) -> str:
        return f'{self.path} {self.what}: "{self.excerpt}"'


def _pattern(text: str) -> re.Pattern[str]:
    # Every gap has a limit, so that the time grows with the length of the text only.
    return re.compile(text.replace(" ", r"\s{1,20}").replace("~", r"[^.!?]{0,60}?"), re.IGNORECASE)


#: Sentences that speak to the model instead of describing a tool. A space stands for white space, and `~` for up to 60
#: characters of the same sentence. The text has spaces instead of `_`.
_INSTRUCTIONS: Final = tuple(
    (_pattern(pattern), what)
    for what, patterns in {
        "sets other instructions aside": (
            r"\b(ignore|disregard|forget|override|bypass)\b~\b(instructions?|prompts?|rules|guidelines|guardrails)\b",
            r"\b(instead of|rather than) (using|calling)\b~\btools?\b",
            r"\b(new|real|updated|actual) instructions?\b",
            r"\byou are now\b|\byou were (told|advised|instructed)\b|\bwere (told|advised|instructed) to\b",
            r"\b(system|developer) (prompt|message)\b",
        ),
        "wants something kept from the user": (
            r"\b(do not|don't|don’t|never|must not|should not|without)\b"
            r"~\b(tell|mention|inform|notify|reveal|disclose|alert|upset)(ing)?\b",
            r"\b(hide|conceal|keep) (this|it|that)\b~\b(from|secret)\b",
            r"\b(secretly|covertly|discreetly)\b",
            r"\bsilently (add|call|copy|execute|forward|include|post|read|run|send|upload)\b",
            r"\buser (must|should|need|does|will) not\b~\b(know|see|notice|aware|told)\b",
        ),
        "tells the model when to call tools": (
            r"\b(before|after|whenever|when|while|prior to) (you )?(use|using|call|calling|invoke|invoking|run|running)"
            r" (this|any|other|another|all|every|each|the)\b~\b(read|call|send|include|pass|first|must|always)\b",
            r"\b(always|must|first)\b (be )?(call(ed)?|used?|invoked?|run) (this|the|first|before)\b",
            r"\byou (must|have to|are required to|need to) (always|first|also|now)\b",
            r"\botherwise\b~\b(tool|it) (will|does) not work\b",
        ),
        "names places of secrets": (
            r"\.ssh\b|\bid[\s.]?(rsa|ed25519|ecdsa)\b|/etc/(passwd|shadow)|\bmcp\.json\b|\.aws/|\.netrc\b|\.npmrc\b",
            r"\.git-credentials\b|\bauthorized keys\b|\bssh (private )?keys?\b",
            r"\b(read|include|pass|send|provide|attach|append)\b"
            r"~(\b(private keys?|api keys?|passwords?|credentials|secrets|environment variables)\b|\.env\b)",
        ),
        "asks to send what was said or read elsewhere": (
            r"\b(send|forward|post|upload|transmit|exfiltrate|email|leak)\b"
            r"~(https?://|\bto this (address|url|server)\b|\w@[\w-]{1,60}\.\w)",
            r"\b(include|pass|put|append|attach|provide)\b~\b(entire|full|whole|complete|previous|all)\b"
            r" ([\w-]{1,20} ){0,2}(conversation|chat|history|context|messages)\b",
        ),
        "looks like a part of a prompt": (
            r"</?\s{0,5}(important|system|instructions?|secret|hidden|assistant|user|admin|critical|prompt)\s{0,5}>",
            r"\[/?(inst|system|hidden|important)\b|<\|[a-z ]{2,20}\|>|<!--|###\s{0,5}(system|instruction|assistant)\b",
        ),
    }.items()
    for pattern in patterns
)
#: The longest text that a description needs. What comes after `_SEARCHED` characters is not searched.
_LONG: Final = 8_000
_SEARCHED: Final = 50_000
#: Tag characters are invisible copies of ASCII.
_TAGS: Final = {0xE0000 + code: code for code in range(0x20, 0x7F)}
#: More blank space than anyone needs puts text where people do not look.
_BLANK: Final = re.compile(r"\s{12,}")
_BLANK_LINES: Final = 12
_BLANK_COLUMNS: Final = 60
_UNREADABLE: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs"})
_INVISIBLE: Final = re.compile(r"\\x[0-9a-f]{2}|<U\+[0-9A-F]{4,6}>")


def marks(one: Pin, others: Iterable[str] = ()) -> tuple[Mark, ...]:
    """Return the first marks of a tool, in every text of its definition, also in names of parameters.

    `others` are the names of other downstreams' tools. A text that names one may try to change how it is used.
    """
    names = [name for name in others if len(name) >= 6 and name != one.name]
    foreign = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])") if names else None
    return tuple(islice(_marks(one, foreign), MARKS))


def _marks(one: Pin, foreign: re.Pattern[str] | None) -> Iterator[Mark]:
    for path, text in _texts(one.fields, ()):
        where = _path(path)
        hidden = _hidden(text)
        if hidden:
            yield Mark(MarkKind.HIDDEN, where, f"has hidden characters ({', '.join(hidden)})", _first_hidden(text))
        behind = _behind_blank(text)
        if behind is not None:
            yield Mark(MarkKind.HIDDEN, where, "has text behind a long blank space", _excerpt(text, behind, behind))
        if len(text) > _LONG:
            yield Mark(MarkKind.HIDDEN, where, f"is {len(text)} characters long", _excerpt(text, len(text), len(text)))
        plain = _readable(text[:_SEARCHED])
        spaced = plain.replace("_", " ")
        told: set[str] = set()
        for pattern, what in _INSTRUCTIONS:
            found = None if what in told else pattern.search(spaced)
            if found:
                told.add(what)
                yield Mark(MarkKind.INSTRUCTION, where, what, _excerpt(plain, *found.span()))
        named = foreign.search(plain) if foreign else None
        if named:
            what = "names a tool of another downstream"
            yield Mark(MarkKind.INSTRUCTION, where, what, _excerpt(plain, *named.span()))


def _texts(value: Json, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Yield every text in a definition with its path. The names of properties are texts, too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for field in _fields(value, path):
            below = (*path, field)
            if path:
                yield below, field
            yield from _texts(value[field], below)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _texts(each, (*path, at))


def _fields(value: Mapping[str, Json], path: _Path) -> Iterable[str]:
    return value if path else [field for field in PINNED_FIELDS if field in value]


def _path(path: _Path, *, whole: bool = False) -> str:
    """Return a path as people see it: `inputSchema.properties.note`, `inputSchema.anyOf[0]`; shortened unless
    `whole`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        # A name may be as long as the definition, and stand in the path of every value below it.
        step = step if whole else step[: _LINE + 1]
        name = step if _PLAIN_KEY.fullmatch(step) else visible_line(json.dumps(step, ensure_ascii=False))
        name = name if whole or len(name) <= _LINE else f"{name[:_LINE]}..."
        text += f".{name}" if text else name
    return text if whole or len(text) <= 2 * _LINE else f"{text[:_LINE]}...{text[-_LINE:]}"


def _hidden(text: str) -> list[str]:
    """Return the names of the characters that people do not see. Unusual spaces are not hidden."""
    text = _LINE_END.sub("\n", text)
    if visible(text) == text:
        return []
    found: dict[str, None] = {}
    for line in text.split("\n"):
        visible_line(line, lambda character: found.setdefault(name_of(character)))
    spaces = {name_of(each) for each in set(text) if unicodedata.category(each) == "Zs"}
    names = [name for name in found if name not in spaces]
    return [*names[:3], f"{len(names) - 3} more"] if len(names) > 3 else names


def _behind_blank(text: str) -> int | None:
    """Return where text comes after many empty lines, or after a long space in a line."""
    for blank in _BLANK.finditer(text.rstrip()):
        lines = blank.group().split("\n")
        if len(lines) > _BLANK_LINES or (len(lines) == 1 and len(blank.group()) >= _BLANK_COLUMNS):
            return blank.end()
    return None


def _first_hidden(text: str) -> str:
    shown = visible(_LINE_END.sub("\n", text))
    found = _INVISIBLE.search(shown)
    return _excerpt(shown, *found.span()) if found else _excerpt(shown, 0, 0)


def _readable(text: str) -> str:
    """Return a text as a model reads it: without invisible characters, and with the usual forms of letters."""
    if text.isascii():
        return text
    text = text.translate(_TAGS)
    kept = "".join(each for each in text if each in "\n\t" or unicodedata.category(each) not in _UNREADABLE)
    return unicodedata.normalize("NFKC", kept)


def _excerpt(text: str, start: int, end: int) -> str:
    first, last = max(0, start - _AROUND), min(len(text), max(end, start) + _AROUND)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    return f"{before}{one_line(text[first:last])}{after}"


# --- for people ------------------------------------------------------------------------------------------------------


@frozen
class Description:
    """Changes as people see them. `summary` names the tools, those with marks first. `text` has every changed text of
    every tool; `is_whole` is False if it would be too long, and ends early."""

    summary: str
    text: str
    is_whole: bool


def describe(changes: Changes, downstream: str, others: Iterable[str] = ()) -> Description:
    """Describe changes for a person who decides about them: marks first, then what was (-) and what is (+).

    Every line of a downstream's own text begins with a sign of ours, so that no text can pass for ours. A long line is
    wrapped: the signs of its further parts are `+|` and `-|`. `others` are the names of other downstreams' tools. It
    may take seconds: call it in a thread.
    """
    known = tuple(others)
    heads: list[tuple[bool, str]] = []
    lines = [_counts(changes, downstream)]
    size, is_whole = len(lines[0]), True
    for heading, found, body in _parts(changes, known):
        marked = [f"  ! {mark}" for mark in found]
        heads.append((not marked, "\n".join([_cut(heading), *marked])))
        for line in chain(("",), _wrapped("", heading), marked, body) if is_whole else ():
            size += len(line) + 1
            if size > TEXT:
                lines.append(f"... more is not shown: these texts are longer than {TEXT} characters")
                is_whole = False
                break
            lines.append(line)
    return Description(_summary(lines[0], heads), "\n".join(lines), is_whole)


def _parts(changes: Changes, others: tuple[str, ...]) -> Iterator[tuple[str, tuple[Mark, ...], Iterator[str]]]:
    """Yield for each tool its heading, its marks, and the lines about it."""
    for refused in changes.refused:
        yield _cut(f"refused: {_shown_name(refused.name)} {refused.why}"), (), iter(())
    for change in changes.changed:
        yield f"changed: {_shown_name(change.name)}", marks(change.after, others), _changed(change)
    for added in changes.added:
        yield f"new: {_shown_name(added.name)}", marks(added, others), _added(added)
    for removed in changes.removed:
        yield f"gone: {_shown_name(removed.name)}", (), iter(())


def _counts(changes: Changes, downstream: str) -> str:
    counts = [
        (len(changes.changed), "changed"),
        (len(changes.added), "new"),
        (len(changes.removed), "gone"),
        (len(changes.refused), "refused"),
    ]
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"Tools of {one_line(downstream)}: {said or 'no changes'}"


def _summary(counts: str, heads: list[tuple[bool, str]]) -> str:
    """Return what is shown first: tools with marks, then the others, as far as there is room."""
    text = counts
    heads = sorted(heads, key=lambda each: each[0])
    for at, (_, head) in enumerate(heads):
        if len(text) + len(head) > SUMMARY:
            return f"{text}\n... and {len(heads) - at} more: all are in the whole text"
        text += f"\n{head}"
    return text


def _shown_name(name: str) -> str:
    return one_line(name) or "a tool"


def _cut(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."


def _changed(change: Change) -> Iterator[str]:
    before, after = dict(_leaves(change.before.fields, ())), dict(_leaves(change.after.fields, ()))
    for path in chain(after, (path for path in before if path not in after)):
        old, new = before.get(path), after.get(path)
        if old != new:
            yield from _wrapped("  ", f"{_path(path, whole=True)}:")
            yield from _differences(_display(path, old), _display(path, new))


def _added(one: Pin) -> Iterator[str]:
    for path, value in _leaves(one.fields, ()):
        # The heading has the name already, unless it looks like another.
        if path != ("name",) or _shown_name(one.name) != one.name:
            yield from _wrapped("  ", f"{_path(path, whole=True)}:")
            yield from _differences(None, _display(path, value))


def _leaves(value: Json, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Yield the JSON of all values below a value, with their paths. A list of plain values is one value."""
    if isinstance(value, Mapping) and value:
        for field in _fields(value, path):
            yield from _leaves(value[field], (*path, field))
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        for at, each in enumerate(value):
            yield from _leaves(each, (*path, at))
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _display(path: _Path, value: str | None) -> str | None:
    """Return a value as people read it. Prose is shown without quotes and escapes."""
    if value is None or not value.startswith('"'):
        return value
    text = str(json.loads(value))
    return text if "\n" in text or path[-1] in ("description", "title") else value


def _differences(old: str | None, new: str | None) -> list[str]:
    """Return the lines that differ, each after a sign: `-` for what was, `+` for what is."""
    before = [] if old is None else _LINE_END.split(old)
    after = [] if new is None else _LINE_END.split(new)
    if before == after:
        return ["    - (only line ends, or the type of the value, differ)"]
    lines: list[str] = []
    for was, now in _replaced(before, after):
        pairs = [_shortened(*pair) for pair in zip(was, now, strict=False)]
        for line in [*[a for a, _ in pairs], *was[len(pairs) :]]:
            lines += _wrapped("    -", line)
        for line in [*[b for _, b in pairs], *now[len(pairs) :]]:
            lines += _wrapped("    +", line)
    return lines


def _wrapped(sign: str, line: str) -> Iterator[str]:
    """Yield a line after a sign of ours, and what does not fit on it after `|`."""
    between = " " if sign.strip() else ""
    yield f"{sign}{between}{visible_line(line[:_LINE])}"
    for at in range(_LINE, len(line), _LINE):
        yield f"{sign}| {visible_line(line[at : at + _LINE])}"


def _replaced(before: list[str], after: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the runs of lines that differ: what was there, and what is there instead."""
    if len(before) + len(after) > _ALIGNED:
        # Aligning takes time that grows with the square of the number of lines.
        start = _first_difference(before, after)
        yield before[start:], after[start:]
        return
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield before[a:b], after[c:d]


def _shortened(was: str, now: str) -> tuple[str, str]:
    """Return two lines; if they are long, only from where they differ, with some characters before."""
    start = _first_difference(was, now) - _AROUND
    if start <= 0 or max(len(was), len(now)) <= _LINE:
        return was, now
    return f"...{was[start:]}", f"...{now[start:]}"


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    same = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(same, min(len(one), len(other)))
