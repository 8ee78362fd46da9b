"""Studies: answers of one verb over the values of some keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from roofcast._document import JSON, Document, _keep, read

A = TypeVar("A", bound=Document)


@dataclass(frozen=True)
class Answered(Generic[A]):
    """One answer of a study, and the value of each swept key."""

    values: list[Any]
    answer: A


class Study(Document, Generic[A]):
    """Answers of one verb, one for every combination of the values of some keys.

    ``sweep`` are the keys, ``interrupted`` says whether some took too long and are left out. ``points`` are read from the
    document one by one, when they are asked for.
    """

    sweep: list[str]
    interrupted: bool
    points: Sequence[Answered[A]]

    def __init__(self, text: str, cls: type[A]) -> None:
        head, *lines = text.splitlines()
        keys = json.loads(head + "]}")
        points = _Points([line.rstrip(",") for line in lines[:-1] if line], cls)
        for name, value in (("sweep", keys["sweep"]), ("interrupted", keys["interrupted"]), ("points", points)):
            object.__setattr__(self, name, value)
        _keep(self, text, None, None)

    def headline(self) -> str:
        return f"{len(self.points)} answers over {', '.join(self.sweep)}"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Study) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each answer, without its lists; the swept keys are the first columns."""
        points = self.to_dict()["points"]
        return [
            {
                **dict(zip(self.sweep, point["values"], strict=True)),
                **{k: v for k, v in point["answer"].items() if not isinstance(v, list) and k not in ("schema", *self.sweep)},
            }
            for point in points
        ]


class _Points(Sequence[Answered[A]]):
    """A lazy list of answers, each parsed from its line of a study's document when it is used."""

    def __init__(self, lines: list[str], cls: type[A]) -> None:
        self._lines, self._cls = lines, cls

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Answered[A]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answered[A]]: ...
    def __getitem__(self, index: int | slice) -> Answered[A] | Sequence[Answered[A]]:
        if isinstance(index, slice):
            return _Points(self._lines[index], self._cls)
        point = json.loads(self._lines[index])
        return Answered(point["values"], read(self._cls, json.dumps(point["answer"], ensure_ascii=False)))
