"""Reads settings from JSON, and reports all faults at once: each with file, line, key and remedy. Pure.

A `Table` says which keys there are, and how each is read and written. Comments and trailing commas are accepted, as in
VS Code's files. No message repeats a value that may be a secret.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from attrs import evolve, field, frozen

from intercom.gateway.variables import Malformed, references
from intercom.model.errors import ConfigError
from intercom.model.json_types import Json, JsonObject
from intercom.model.setting_checks import LONGEST_SECONDS

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
#: Names and values that a message may repeat. With so few digits they cannot be a token.
_PLAIN: Final = re.compile(r"\$?(?=[^0-9]*(?:[0-9][^0-9]*){0,3}$)[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT: Final = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_TOKEN: Final = re.compile(rf"{_STRING}|[{{}}\[\],:\n]", re.DOTALL)

T = TypeVar("T")


def plain(text: str) -> str | None:
    """Return a name or a value if a message may repeat it: it is short, and cannot be a token."""
    return text if _PLAIN.fullmatch(text) else None


@frozen
class Fault:
    """One fault of a file. The sentence is "`key` `what`: `remedy`"; without a key it is about the file."""

    file: str
    key: str
    what: str
    remedy: str
    line: int | None = None

    @property
    def sentence(self) -> str:
        line = f"line {self.line}: " if self.line else ""
        return f"{line}{self.key}{' ' if self.key else ''}{self.what}: {self.remedy}"

    def __str__(self) -> str:
        return f"{self.file}{', ' if self.line or self.key else ' '}{self.sentence}"


class SettingsError(ConfigError):
    """Files of settings are not usable. `faults` are all that was found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        message = str(faults[0])
        if len(faults) > 1:
            message = "\n  ".join([f"{faults[0].file} has {len(faults)} faults:", *(each.sentence for each in faults)])
        super().__init__(message, faults=[str(each) for each in faults])


class Unfit(Exception):
    """A value does not have the required form: what it is, and what to write."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what, self.remedy = what, remedy


@frozen
class Place:
    """Where a value stands, and the list that takes its faults. `names` are keys that this file calls otherwise."""

    file: str
    key: str = ""
    faults: list[Fault] = field(factory=list)
    names: Mapping[str, str] = field(factory=dict)

    def below(self, key: str | int) -> Place:
        """Return the place of a key of this table, or of an element of this list."""
        if isinstance(key, int):
            return evolve(self, key=f"{self.key}[{key}]")
        name = plain(self.names.get(key, key)) or f"<a key of {len(key)} characters>"
        return evolve(self, key=f"{self.key}.{name}" if self.key else name)

    def fault(self, what: str, remedy: str) -> None:
        self.faults.append(Fault(self.file, self.key, what, remedy))


#: Returns the value, or raises Unfit for one fault; or it reports several to the place and returns None.
Reader: TypeAlias = Callable[[object, Place], object]


def read_value(reader: Callable[[object, Place], T], value: object, place: Place) -> T | None:
    """Read a value. Return None if there was a fault, which the place then has."""
    if value is None:
        place.fault("is null", "leave the key out, or write a value")
        return None
    try:
        return reader(value, place)
    except Unfit as unfit:
        place.fault(unfit.what, unfit.remedy)
        return None


def kind_of(value: object) -> str:
    """Say what a value is, without the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text" if value else "empty"
        case int() | float():
            return "a number"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case _:  # TOML has dates
            return "another kind of value"


def _shown(value: object) -> str:
    """Say what a value is that cannot be a secret if it is short."""
    if isinstance(value, str) and value:
        return f'"{value}"' if plain(value) else f"a text of {len(value)} characters"
    return str(value).lower() if isinstance(value, bool) else kind_of(value)


# --- Readers


def text(value: object, _place: Place) -> str:
    """A text, which may have references to variables."""
    if not isinstance(value, str):
        raise Unfit(f"is {kind_of(value)}", "write a text in quotes")
    if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
        raise Unfit("has a character that no program takes", "remove NUL characters and halves of characters")
    try:
        references(value)
    except Malformed:
        raise Unfit(
            "has a ${ that begins no variable", "write ${NAME}, ${NAME:-text} or ${keychain:NAME}; $${ means ${ itself"
        ) from None
    return value


def filled(value: object, place: Place) -> str:
    """A text that is not blank."""
    found = text(value, place)
    if not found.strip():
        raise Unfit("is empty", "write a text, or leave the key out")
    return found


def matching(pattern: re.Pattern[str], remedy: str) -> Reader:
    """A text that has a form. It must not be a secret: messages may repeat it."""

    def read(value: object, place: Place) -> str:
        found = text(value, place)
        if not pattern.fullmatch(found):
            raise Unfit(f"is {_shown(found)}", remedy)
        return found

    return read


def flag(value: object, _place: Place) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Unfit(f"is {_shown(value)}", "write true or false, without quotes")
    return value


def whole(value: object, _place: Place) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit(f"is {_shown(value)}", "write a whole number")
    return value


def number(value: object, _place: Place) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit(f"is {_shown(value)}", "write a number")
    if not abs(value) <= LONGEST_SECONDS:
        raise Unfit("is out of range", f"write a number of at most {LONGEST_SECONDS}")
    return float(value)


def seconds(value: object, place: Place) -> float:
    """A time: a number of seconds, or a text with units."""
    if isinstance(value, str) and len(value) <= 40 and _DURATION.fullmatch(value):
        return number(sum(float(amount) * _UNITS[unit] for amount, unit in _AMOUNT.findall(value)), place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit(f"is {_shown(value)}", 'write a time like "30s", "500ms" or "1m30s", or a number of seconds')
    return number(value, place)


def one_of(kind: type[StrEnum]) -> Reader:
    """A member of an enumeration."""
    allowed = [each.value for each in kind]
    choices = " or ".join(f'"{each}"' for each in allowed)

    def read(value: object, _place: Place) -> StrEnum:
        if isinstance(value, str) and value in allowed:
            return kind(value)
        raise Unfit(f"is {_shown(value)}", f"write {choices}")

    return read


def list_of(reader: Reader, *, empty: str = "") -> Reader:
    """A list. With `empty`, there must be an element; it says what to write."""

    def read(value: object, place: Place) -> tuple[object, ...] | None:
        if not isinstance(value, list | tuple):
            raise Unfit(f"is {kind_of(value)}", 'write a list of texts, as in ["one", "two"]')
        if empty and not value:
            raise Unfit("is empty", empty)
        found = [read_value(reader, each, place.below(index)) for index, each in enumerate(value)]
        return None if None in found else tuple(found)

    return read


def mapping_of(
    pattern: re.Pattern[str], remedy: str, reader: Callable[[object, Place], T]
) -> Callable[[object, Place], dict[str, T] | None]:
    """A table whose keys are free, but have a form."""

    def read(value: object, place: Place) -> dict[str, T] | None:
        if not isinstance(value, Mapping):
            raise Unfit(f"is {kind_of(value)}", 'write a table, as in {"NAME": "value"}')
        found: dict[str, T] = {}
        for key, each in value.items():
            below = place.below(key)
            if not pattern.fullmatch(key):
                below.fault("has a name that is not allowed", remedy)
            elif (one := read_value(reader, each, below)) is not None:
                found[key] = one
        return None if len(found) < len(value) else found

    return read


def itself(value: T) -> T:
    """Write a value as it is."""
    return value


# --- Tables


def snake(name: str) -> str:
    """Return a key in the other accepted form: baseURL as base_url."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _folded(key: str) -> str:
    return re.sub("[_-]", "", key[:60]).lower()


@frozen
class Key:
    """One key: the attribute that it sets, its name in the file, and how its value is read and written.

    `required` is what to write if the key is missing. `doc` is its documentation, from which
    docs/reference/gateway-files.md is made.
    """

    attribute: str
    name: str
    read: Reader
    write: Callable[[Any], Json] = itself
    required: str = ""
    doc: str = ""


@frozen
class Table:
    """A table: the attrs class whose checks apply, its keys, and how a value is made from what was read.

    `hints` say more about unknown keys than the most similar known one does. `below` are the tables in it.
    """

    kind: type[attrs.AttrsInstance]
    keys: tuple[Key, ...]
    make: Callable[..., object]
    hints: Mapping[str, str] = field(factory=dict)
    below: Mapping[str, Table] = field(factory=dict)

    def read(self, value: object, place: Place) -> object:
        """Return what `make` returns, or None if there are faults. It may raise ValueError with the end of a sentence
        that begins with an attribute's name."""
        if not isinstance(value, Mapping):
            raise Unfit(f"is {kind_of(value)}", f'write a table, as in {{"{self.keys[0].name}": ...}}')
        before = len(place.faults)
        values = self.values(value, place)
        if len(place.faults) > before:
            return None
        return self.made(place, self.make, **values)

    def made(self, place: Place, make: Callable[..., T], **values: object) -> T | None:
        """Return what `make` returns, or None if it raises ValueError, which is about several keys."""
        try:
            return make(**values)
        except ValueError as error:
            attribute, _, what = str(error).partition(" ")
            place.below(self.name_of(attribute)).fault("does not fit the others", f"it {what}")
            return None

    def name_of(self, attribute: str) -> str:
        return next((key.name for key in self.keys if key.attribute == attribute), attribute)

    def values(self, value: Mapping[str, object], place: Place) -> dict[str, object]:
        """Read all keys. The faults go to the place, and their values are None."""
        checks = {each.name: each for each in attrs.fields(self.kind)}
        known = {name: key for key in self.keys for name in (key.name, snake(key.name))}
        values: dict[str, object] = {}
        for name, each in value.items():
            key = known.get(name)
            if key is None:
                if name != "$schema" or place.key:
                    place.below(name).fault("is not a key that is known here", self._hint(name))
                continue
            below = place.below(name)
            if key.attribute in values:
                below.fault("is written twice", f"keep one of {key.name} and {snake(key.name)}")
                continue
            found = values[key.attribute] = read_value(key.read, each, below)
            setting = checks.get(key.attribute)
            if found is not None and setting is not None and setting.validator is not None:
                try:
                    setting.validator(None, setting, found)
                except ValueError as error:
                    below.fault("is out of range", f"it {error}")
        for key in self.keys:
            if key.required and key.attribute not in values:
                place.below(key.name).fault("is missing", f"write {key.required}")
        return values

    def _hint(self, key: str) -> str:
        if key in self.hints:
            return self.hints[key]
        names = {_folded(each.name): each.name for each in self.keys}
        if near := difflib.get_close_matches(_folded(key), names, 1):
            return f"did you mean {names[near[0]]}?"
        for home, table in self.below.items():
            if _folded(key) in {_folded(each.name) for each in table.keys}:
                return f"write it in the table {home}"
        return f"known are {', '.join(names.values())}"

    def write(self, made: object) -> JsonObject:
        """Return the table without what has its default."""
        found: JsonObject = {}
        for setting in attrs.fields(self.kind):
            default: object = setting.default
            if hasattr(default, "factory"):
                default = default.factory()
            value = getattr(made, setting.name)
            key = next((each for each in self.keys if each.attribute == setting.name), None)
            if key is not None and value != default:
                found[key.name] = key.write(value)
        return found


# --- JSON with comments


class BadJson(Exception):
    """A text is not JSON. `what` says why."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


def parse_json(content: str) -> object:
    """Parse JSON that may have comments and trailing commas. Raises BadJson."""
    try:
        return json.loads(without_comments(content), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise BadJson(what, error.lineno) from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError:  # NaN and Infinity, and numbers of thousands of digits
        raise BadJson("it has a number that is out of range") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def without_comments(content: str) -> str:
    """Replace comments and trailing commas by spaces. All else keeps its place."""
    content = _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), content.removeprefix("\ufeff"))
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", content)


def key_lines(content: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each key of valid JSON, as `Place` writes it, its line, and whether its table has it already."""
    line, expects_key = 1, False
    # For each table or list that is open: its place, the position in the list (-1 in a table), and the keys so far.
    around: list[tuple[Place, int, set[str]]] = []
    here = Place("")
    for found in _TOKEN.finditer(without_comments(content)):
        token = found[0]
        match token[0]:
            case "\n":
                line += 1
            case "{":
                around.append((here, -1, set()))
                expects_key = True
            case "[":
                around.append((here, 0, set()))
                here, expects_key = here.below(0), False
            case "}" | "]":
                around.pop()
                expects_key = False
            case ",":
                place, index, keys = around[-1]
                expects_key = index < 0
                if not expects_key:
                    around[-1] = (place, index + 1, keys)
                    here = place.below(index + 1)
            case '"' if expects_key:
                place, _, keys = around[-1]
                name = json.loads(token)
                here, expects_key = place.below(name), False
                yield here.key, line, name in keys
                keys.add(name)


def located(faults: Sequence[Fault], lines: Mapping[str, int]) -> list[Fault]:
    """Return the faults in the order of their lines, each with the line of its key or of what is around it."""
    found = []
    for fault in faults:
        key, line = fault.key, fault.line
        while key and line is None:
            line = lines.get(key)
            key = re.sub(r"(?:^|\.)[^.\[]*$|\[\d+\]$", "", key)
        found.append(evolve(fault, line=line))
    return sorted(found, key=lambda each: each.line or 0)
