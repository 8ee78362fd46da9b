"""Dataclasses from JSON documents.

Knows: how a field's type determines the reading of its key. ``answers`` has the dataclasses, ``_showing`` their headlines
and rows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from roofcast import _native
from roofcast._native import Error, Table

T = TypeVar("T")

JSON = Any
"""A value of a JSON document."""


class Part:
    """A part of an answer, read from an object of its document; it cannot be changed.

    The dataclasses of parts have no generated methods: these methods replace them, which makes the import fast.
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is part of an answer")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is part of an answer")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in _values(self).items())
        return f"{type(self).__name__}({shown})"


def _values(part: Part) -> dict[str, object]:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}  # type: ignore[arg-type]


class Document(Part):
    """An answer: a versioned JSON document, its keys as attributes, its rows as Arrow.

    pandas, polars, pyarrow and DuckDB read ``table()``, or the answer itself, without a copy.
    """

    _text: str
    _picture: str | None
    _records: Table | None

    @property
    def json(self) -> str:
        """The document, as the program prints it with ``--json``."""
        return self._text

    @property
    def schema(self) -> str:
        """Name and version of the document, as in ``roofcast/limits/1``."""
        return str(self.to_dict()["schema"])

    @property
    def svg(self) -> str | None:
        """The picture that the program draws of this answer; ``None`` if it draws none."""
        return self._picture

    def to_dict(self) -> dict[str, JSON]:
        """The document as dicts, lists, numbers and strings of Python."""
        return typing.cast("dict[str, JSON]", json.loads(self._text))

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """The rows of ``table()``, with the keys of the document."""
        return rows_of(self)

    def records(self) -> Table:
        """Every request as Arrow, if ``simulate(…, records=True)`` kept them; times are in ms since the start of the run."""
        if self._records is None:
            raise AttributeError("records were not kept: simulate(…, records=True)")
        return self._records

    def table(self) -> Table:
        """The answer's rows as Arrow. Keys of nested objects are joined by points; nested lists are JSON text."""
        return _native.table(json.dumps(list(self._rows())))

    def __arrow_c_schema__(self) -> object:
        return self.table().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table().__arrow_c_stream__(requested_schema)

    def headline(self) -> str:
        """The answer in one line."""
        return headline_of(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _shown(self) -> Sequence[Mapping[str, JSON]]:
        """The rows that a notebook shows."""
        return shown_of(self)

    def _repr_html_(self) -> str:
        rows = list(self._shown())
        return _escaped(self.headline(), "p") + (self.svg or "") + _html_table(rows)


@functools.singledispatch
def headline_of(answer: Document) -> str:
    """The answer in one line."""
    return answer.schema


@functools.singledispatch
def rows_of(answer: Document) -> Sequence[Mapping[str, JSON]]:
    """The rows of the answer's table: the document itself."""
    return [answer.to_dict()]


@functools.singledispatch
def shown_of(answer: Document) -> Sequence[Mapping[str, JSON]]:
    """The rows that a notebook shows: all rows."""
    return answer._rows()


MOST_ROWS = 20
"""Most rows that a notebook shows of an answer."""


def _escaped(text: str, tag: str) -> str:
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(plain, safe)
    return f"<{tag}>{text}</{tag}>"


def _html_table(rows: Sequence[Mapping[str, JSON]]) -> str:
    """An HTML table of the first rows, with only numbers and strings."""
    plain = [{k: v for k, v in row.items() if not isinstance(v, (dict, list))} for row in rows[:MOST_ROWS]]
    names = list(dict.fromkeys(name for row in plain for name in row if name != "schema"))
    if len(plain) == 1:
        lines: Iterable[Sequence[JSON]] = [(name, plain[0].get(name)) for name in names]
        head = ""
    else:
        lines = [[row.get(name) for name in names] for row in plain]
        head = "<tr>" + "".join(_escaped(name, "th") for name in names) + "</tr>"
    shown = ("<tr>" + "".join(_escaped(_cell(value), "td") for value in line) + "</tr>" for line in lines)
    more = _escaped(f"{len(rows) - MOST_ROWS} more rows", "p") if len(rows) > MOST_ROWS else ""
    return f"<table>{head}{''.join(shown)}</table>{more}"


def _cell(value: JSON) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def document(cls: type[T], answer: _native.Answer) -> T:
    """An instance of the dataclass ``cls``, filled from an answer of the program."""
    made = object.__new__(cls)
    fill(made, answer)
    return made


def read(cls: type[T], text: str) -> T:
    """An instance of the dataclass ``cls``, filled from the text of a document."""
    made = object.__new__(cls)
    _set(made, json.loads(text), "answer")
    _keep(made, text, None, None)
    return made


def fill(made: object, answer: _native.Answer) -> None:
    """Sets the fields of the document ``made`` from an answer of the program."""
    _set(made, json.loads(answer.text), "answer")
    _keep(made, answer.text, answer.picture, answer.records)


def _keep(made: object, text: str, picture: str | None, records: Table | None) -> None:
    for name, value in (("_text", text), ("_picture", picture), ("_records", records)):
        object.__setattr__(made, name, value)


def _set(made: object, keys: Mapping[str, JSON], place: str) -> None:
    cls: Any = type(made)
    for field in dataclasses.fields(cls):
        if field.name in keys:
            value = _read(_hints(cls)[field.name], keys[field.name], f"{place}.{field.name}")
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            raise Error(f"{place}: no {field.name}; the native module and the package are of different versions")
        object.__setattr__(made, field.name, value)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read(hint: Any, value: JSON, place: str) -> Any:
    """Converts a JSON value to the type ``hint``."""
    if value is None or hint is Any:
        return value
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (t for t in within if t is not type(None))
        return _read(inner, value, place)
    if origin is list:
        return [_read(within[0], item, f"{place}[{index}]") for index, item in enumerate(value)]
    if origin is tuple:
        return tuple(_read(inner, item, place) for inner, item in zip(within, value, strict=True))
    if origin is dict:
        return {key: _read(within[1], item, f"{place}.{key}") for key, item in value.items()}
    if origin is typing.Literal:
        return value
    if dataclasses.is_dataclass(hint):
        made: Any = object.__new__(typing.cast(type, hint))
        _set(made, value, place)
        if isinstance(made, Document):
            _keep(made, json.dumps(value), None, None)
        return made
    if hint is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, hint):
        raise Error(f"{place}: {value!r} is no {hint.__name__}")
    return value
