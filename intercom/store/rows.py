"""How values are stored in rows and read back, and the few query shapes used everywhere.

A `Table` stores the values of one attrs class, each in a row. The functions call `execute`: the library's `query` opens
a savepoint, and its `insert` inspects the table every time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from operator import attrgetter
from types import MappingProxyType, NoneType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, get_args, get_origin

import attrs
from attrs import NOTHING, Factory, frozen
from cattrs import Converter
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from intercom.model import clock
from intercom.model.errors import InvalidState

T = TypeVar("T")

Row = dict[str, Any]
Values = Sequence[object] | Mapping[str, object]
#: A JSON object.
JsonObject = dict[str, Any]

_Write = Callable[[Any], object]
_Read = Callable[[Any], Any]
#: As cattrs calls it, with the type.
_ReadTyped = Callable[[Any, Any], Any]
_Field: TypeAlias = "attrs.Attribute[Any]"

_NONE: Mapping[str, Any] = MappingProxyType({})


class Connection(Protocol):
    """What these functions need of a database: `sqlite_utils.Database`, and the databases of rooms."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...


# --- columns ---------------------------------------------------------------------------------------------------------


@frozen
class Codec:
    """How the value of a field is written to its column, and read from it."""

    write: _Write
    read: _Read


def json_text(value: object) -> str:
    """Return compact ASCII JSON. An agent's text may hold half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(value, separators=(",", ":"))


def time_text(at: datetime | None) -> str | None:
    return None if at is None else clock.to_text(at)


def time_value(text: str | None) -> datetime | None:
    return None if text is None else clock.from_text(text)


def json_codec(kind: object) -> Codec:
    """Return the codec that stores values of a type as JSON text."""
    write, read = _INSIDE_JSON.get_unstructure_hook(kind), _INSIDE_JSON.get_structure_hook(kind)
    return Codec(lambda value: json_text(write(value)), lambda text: read(json.loads(text), kind))


def _optional(kind: Any) -> Any:
    """Return `T` for the type `T | None`; None for any other type."""
    others = [each for each in get_args(kind) if each is not NoneType]
    return others[0] if len(others) == 1 and NoneType in get_args(kind) else None


def _is_json(kind: Any) -> bool:
    """Whether a column holds values of this type as JSON text."""
    return attrs.has(kind) or get_origin(kind) in (dict, list, tuple, Mapping)


def _converter() -> Converter:
    made = Converter(detailed_validation=False)

    def write_optional(kind: object) -> _Write:
        write = made.get_unstructure_hook(_optional(kind))
        return identity if write is identity else lambda value: None if value is None else write(value)

    def read_optional(kind: object) -> _ReadTyped:
        inner = _optional(kind)
        read = made.get_structure_hook(inner)
        return lambda value, _: None if value is None else read(value, inner)

    made.register_unstructure_hook(StrEnum, attrgetter("value"))
    made.register_unstructure_hook(datetime, clock.to_text)
    made.register_structure_hook(datetime, lambda text, _: clock.from_text(text))
    made.register_unstructure_hook_factory(lambda kind: kind is Any, lambda _: identity)
    # The library's own look the type up again for each value.
    made.register_unstructure_hook_factory(lambda kind: _optional(kind) is not None, write_optional)
    made.register_structure_hook_factory(lambda kind: _optional(kind) is not None, read_optional)
    return made


#: Converts between values and what JSON can say.
_INSIDE_JSON = _converter()


def _json_reader(kind: object) -> _ReadTyped:
    read = json_codec(kind).read
    return lambda text, _: read(text)


#: Converts between values and what a column can hold.
_COLUMN = _converter()
for _kind in (str, int, float):
    # A column keeps what another program stored there: the reader must see it, not a text made of it.
    _COLUMN.register_structure_hook(_kind, lambda value, _: value)
for _enum in (StrEnum, IntEnum):
    _COLUMN.register_structure_hook(_enum, lambda value, kind: kind(value))
_COLUMN.register_unstructure_hook(bool, int)
_COLUMN.register_structure_hook(bool, lambda value, _: bool(value))
_COLUMN.register_unstructure_hook_factory(_is_json, lambda kind: json_codec(kind).write)
_COLUMN.register_structure_hook_factory(_is_json, _json_reader)


class Columns(Generic[T]):
    """The columns that hold a value of the attrs class `kind`.

    The column of a field has the field's name, or the one in `names`. Enums, times and flags are stored as text or
    numbers, lists, mappings and attrs classes as JSON text, and the fields in `codecs` as these say. A field in `parts`
    has several columns. The fields in `elsewhere` have none: they are not written, and are read from the row as they
    are.

    If the default of a JSON field or of one with a codec is empty or None, null is stored for it.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        names: Mapping[str, str] = _NONE,
        codecs: Mapping[str, Codec] = _NONE,
        parts: Mapping[str, Part[Any]] = _NONE,
        elsewhere: Collection[str] = (),
    ) -> None:
        self._kind = kind
        self._codecs = codecs
        self._parts = tuple(parts.items())
        own = [each.name for each in _fields(kind) if each.name not in parts and each.name not in elsewhere]
        self._columns = {name: names.get(name, name) for name in own}
        self.names: tuple[str, ...] = (
            *self._columns.values(),
            *(name for part in parts.values() for name in part.names),
        )

    # Generating the functions takes a millisecond for each class, so the start of the server does not wait for it.

    @functools.cached_property
    def _write(self) -> Callable[[T], Row]:
        overrides: Row = {}
        for field in _fields(self._kind):
            column, codec = self._columns.get(field.name), self._codec(field)
            if column is None:
                overrides[field.name] = override(omit=True)
            else:
                hook = None if codec is None else codec.write
                overrides[field.name] = override(rename=column, unstruct_hook=hook)
        return make_dict_unstructure_fn(self._kind, _COLUMN, **overrides)

    @functools.cached_property
    def _read(self) -> Callable[[Row, Any], T]:
        overrides: Row = {}
        for field in _fields(self._kind):
            column, codec = self._columns.get(field.name), self._codec(field)
            if column is None:
                overrides[field.name] = override(struct_hook=lambda value, _: value)
            else:
                hook = None if codec is None else _ignoring_type(codec.read)
                overrides[field.name] = override(rename=column, struct_hook=hook)
        return make_dict_structure_fn(self._kind, _COLUMN, **overrides)

    def _codec(self, field: _Field) -> Codec | None:
        """Return the codec of a field; None if its column holds the value itself."""
        codec, kind = self._codecs.get(field.name), _optional(field.type) or field.type
        if codec is None and field.name in self._columns and _is_json(kind):
            codec = json_codec(kind)
        if codec is None or field.default is NOTHING:
            return codec
        default = field.default.factory() if isinstance(field.default, Factory) else field.default  # type: ignore
        return codec if default else _nullable(codec, default)

    def write(self, value: T) -> Row:
        """Return the columns of a value."""
        row = self._write(value)
        for name, part in self._parts:
            row.update(part.write(getattr(value, name)))
        return row

    def read(self, row: Row) -> T:
        """Return the value in these columns of a row. Other columns are ignored. The row may be changed."""
        for name, part in self._parts:
            row[name] = part.read(row)
        return self._read(row, self._kind)


class Part(Generic[T]):
    """The columns of a field whose value may be missing.

    The column `present` tells whether it is there: it is null if not. With `flag` it is a column for this alone, 1 or
    0. If the value is missing, the columns are null, except those in `missing`.
    """

    def __init__(
        self, columns: Columns[T], present: str, *, flag: bool = False, missing: Mapping[str, object] = _NONE
    ) -> None:
        self.names = (*columns.names, present) if flag else columns.names
        self._columns = columns
        self._present = present
        self._flag = {present: 1} if flag else {}
        self._missing: Row = {**dict.fromkeys(columns.names), **({present: 0} if flag else {}), **missing}

    def write(self, value: T | None) -> Row:
        return self._missing if value is None else self._columns.write(value) | self._flag

    def read(self, row: Row) -> T | None:
        return None if row[self._present] in (None, 0) else self._columns.read(row)


def _fields(kind: Any) -> tuple[_Field, ...]:
    found: tuple[_Field, ...] = attrs.fields(attrs.resolve_types(kind))
    return found


def _nullable(codec: Codec, default: object) -> Codec:
    return Codec(
        lambda value: None if value == default else codec.write(value),
        lambda stored: default if stored is None else codec.read(stored),
    )


def _ignoring_type(read: _Read) -> _ReadTyped:
    return lambda stored, _: read(stored)


# --- tables ----------------------------------------------------------------------------------------------------------


class Sql(str):
    """An SQL expression, as the new value of a column."""


@frozen
class States:
    """The states that a table's rows go through, in the column `column`; `next` are the legal moves of each. `noun`
    names a row in the message about any other move."""

    noun: str
    column: str
    next: Mapping[Any, Collection[StrEnum]]


class Table(Generic[T]):
    """A table with a value of `kind` in each row, known by the column `key`; its `columns` are made as `Columns` says.

    `elsewhere` are fields that other tables hold: functions that look them up for a row. `states` are for `advance`.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        key: str = "id",
        conflict: str | None = None,
        states: States | None = None,
        names: Mapping[str, str] = _NONE,
        codecs: Mapping[str, Codec] = _NONE,
        parts: Mapping[str, Part[Any]] = _NONE,
        elsewhere: Mapping[str, Callable[[Any, Row], object]] = _NONE,
    ) -> None:
        self.name = name
        self.key = key
        self._conflict = conflict or f"({key}) do nothing"
        self._states = states
        self.columns = Columns(kind, names=names, codecs=codecs, parts=parts, elsewhere=elsewhere)
        self._elsewhere = tuple(elsewhere.items())
        self._select = f"select {', '.join(self.columns.names)} from {name} where "

    def insert(self, db: Connection, value: T, *, conflict: str | None = None, **others: object) -> bool:
        """Insert a value, and the columns `others`. Returns False if the conflict clause kept an earlier row: without
        one, a row with the same key, so repeating a call after a lost answer is safe."""
        row = {**self.columns.write(value), **others}
        return insert(db, self.name, row, conflict=conflict or self._conflict)

    def get(self, db: Connection, id: str) -> T | None:
        """Return the value with this key, or None."""
        return self.first(db, f"{self.key} = ?", (id,))

    def first(self, db: Connection, where: str, values: Values = ()) -> T | None:
        """Return the first value that matches a WHERE clause, which includes its ordering; or None."""
        found = db.execute(self._select + where, _bound(values)).fetchone()
        return None if found is None else self._value(db, found)

    def select(self, db: Connection, where: str, values: Values = ()) -> tuple[T, ...]:
        """Return the values that match a WHERE clause, which includes its ordering."""
        found = db.execute(self._select + where, _bound(values)).fetchall()
        return tuple([self._value(db, each) for each in found])

    def with_prefix(self, db: Connection, prefix: str) -> tuple[str, ...]:
        """Return the ids that begin with the literal `prefix`, sorted; at most 50. The query is a range on the primary
        key, so `%` and `_` have no special meaning."""
        sql = f"select id from {self.name} where id >= ? and id < ? || char(1114111) order by id limit 50"
        return tuple(column(db, sql, (prefix, prefix)))

    def update(self, db: Connection, where: str, values: Mapping[str, object] = _NONE, **columns: object) -> int:
        """Set columns, to values or to what an `Sql` yields, of the rows that match a WHERE clause with named
        parameters. Returns how many matched."""
        new = {name: value if isinstance(value, Sql) else f":new_{name}" for name, value in columns.items()}
        sets = ", ".join(f"{name} = {value}" for name, value in new.items())
        named = {f"new_{name}": value for name, value in columns.items() if not isinstance(value, Sql)}
        return affected(db, f"update {self.name} set {sets} where {where}", {**values, **named})

    def advance(
        self, db: Connection, id: str, expect: StrEnum | Collection[StrEnum], to: StrEnum, **columns: object
    ) -> bool:
        """Move a row from `expect` (a state, or several) to the state `to`, and set columns.
        Returns whether this call did it. Raises InvalidState if that is no legal move."""
        states, expected = self._states, (expect,) if isinstance(expect, StrEnum) else tuple(expect)
        assert states is not None, "only a table with states has moves"
        for each in expected:
            if to not in states.next[each]:
                raise InvalidState(f"{states.noun} that is {each} cannot become {to}")
        where = f"{self.key} = :id and {states.column} in ({literals(expected)})"
        return self.update(db, where, {"id": id}, **{states.column: to}, **columns) > 0

    def _value(self, db: Connection, found: Sequence[object]) -> T:
        row = dict(zip(self.columns.names, found, strict=True))
        for name, find in self._elsewhere:
            row[name] = find(db, row)
        return self.columns.read(row)


# --- queries ---------------------------------------------------------------------------------------------------------


def insert(db: Connection, table: str, row: Mapping[str, object], *, conflict: str = "(id) do nothing") -> bool:
    """Insert one row. Returns False if the conflict clause kept an earlier row."""
    return changed(db, _insert(table, tuple(row), conflict), row)


@functools.cache
def _insert(table: str, columns: tuple[str, ...], conflict: str) -> str:
    named = ", ".join(f":{name}" for name in columns)
    return f"insert into {table} ({', '.join(columns)}) values ({named}) on conflict {conflict}"


def one(db: Connection, sql: str, values: Values = ()) -> Row | None:
    """Return the first row of a query, or None."""
    cursor = db.execute(sql, _bound(values))
    found = cursor.fetchone()
    return None if found is None else dict(zip(_names(cursor.description), found, strict=True))


def every(db: Connection, sql: str, values: Values = ()) -> list[Row]:
    """Return all rows of a query."""
    cursor = db.execute(sql, _bound(values))
    names = _names(cursor.description)
    return [dict(zip(names, found, strict=True)) for found in cursor.fetchall()]


def value(db: Connection, sql: str, values: Values = ()) -> Any:
    """Return the first column of the first row of a query, or None."""
    found = db.execute(sql, _bound(values)).fetchone()
    return None if found is None else found[0]


def column(db: Connection, sql: str, values: Values = ()) -> list[Any]:
    """Return the first column of all rows of a query."""
    return [found[0] for found in db.execute(sql, _bound(values)).fetchall()]


def count(db: Connection, sql: str, values: Values = ()) -> int:
    """Return the first value of a query as a number, such as a `select count(*)`."""
    return int(value(db, sql, values))


def changed(db: Connection, sql: str, values: Values = ()) -> bool:
    """Whether a write changed any row: the result of every compare-and-set."""
    return affected(db, sql, values) > 0


def affected(db: Connection, sql: str, values: Values = ()) -> int:
    """Run a write and return how many rows it changed."""
    count: int = db.execute(sql, _bound(values)).rowcount
    return count


def placeholders(values: Sequence[object]) -> str:
    """Return `?, ?, ?` for an `in (...)`."""
    return ", ".join("?" * len(values))


def containing(text: str, words: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return a condition that the SQL expression `text` contains all words, and its parameters. Latin letters count as
    the same in both cases.

    An agent may have written the text, and may search for the words. `like` compares each word again at each place,
    character by character: a word and a text of the same letter would take a thread for seconds for each megabyte.
    """
    wanted: dict[str, object] = {f"word_{at}": word for at, word in enumerate(words)}
    return " and ".join([f"instr(lower({text}), lower(:{name})) > 0" for name in wanted]) or "true", wanted


def not_none(**columns: object) -> dict[str, object]:
    """Return the columns whose new value is not None; the others stay as they are."""
    return {name: value for name, value in columns.items() if value is not None}


def literals(values: Iterable[StrEnum]) -> str:
    """Return `'a', 'b'` for an `in (...)`: values of an enum, which need no quoting."""
    return ", ".join(f"'{value.value}'" for value in values)


def _names(description: Sequence[Sequence[object]]) -> list[str]:
    return [str(entry[0]) for entry in description]


def _bound(values: Values) -> Any:
    """Return query parameters as SQLite takes them: an instant as its text."""
    if isinstance(values, Mapping):
        return {name: _plain(value) for name, value in values.items()}
    return tuple([_plain(value) for value in values])


def _plain(value: object) -> object:
    return clock.to_text(value) if isinstance(value, datetime) else value
