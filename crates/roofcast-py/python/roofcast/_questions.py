"""A study of any verb: one question for each combination of values, and the stored answer.

Knows: how a combination becomes a question, and the key of its answer, which covers everything that the answer depends on:
the version, the verb, the spec, the keywords and the contents of the files that they name. :mod:`roofcast.distributed`
decides where questions are asked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofcast import _native
from roofcast._ask import Spec, ask, listed, spec_text, word
from roofcast._native import Error

LARGE = 1 << 24
"""Most bytes of a file that a key covers. Of a larger file a key covers its size, its date and this many bytes."""


@dataclass(frozen=True)
class Done:
    """Result of a worker: files of finished runs, and the numbers of the runs that took too long."""

    files: dict[str, bytes]
    late: list[int]


@dataclass(frozen=True)
class Questions:
    """A verb asked once for each combination of values, the last key varying fastest. Workers receive a copy."""

    verb: str
    files: tuple[str, ...]
    spec: str | None
    flags: dict[str, Any]
    over: dict[str, list[Any]]
    cell_time_limit_s: float | None

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.over.values())

    def values(self, number: int) -> list[Any]:
        """The values of combination ``number``."""
        found = []
        for values in reversed(self.over.values()):
            number, index = divmod(number, len(values))
            found.append(values[index])
        return found[::-1]

    def asked(self, number: int) -> dict[str, Any]:
        """The keywords of question ``number``. A key of ``over`` is a flag of the verb, else a dotted key of the spec,
        set by ``set``."""
        flags = dict(self.flags)
        own = _names(self.verb)
        for name, value in zip(self.over, self.values(number), strict=True):
            if name in own:
                flags[name] = value
            else:
                flags["set"] = [*_settings(flags.get("set")), f"{name}={word(value)}"]
        return flags

    def key(self, number: int) -> str:
        """A hash of everything that the answer of question ``number`` depends on."""
        flags = sorted((name, _said(value)) for name, value in listed(self.asked(number)))
        words = [word for _, value in flags for word in (value if isinstance(value, list) else [value])]
        text = self.spec or ""
        # File names are in quotes in a spec, and after `=` in `--set`.
        named = {*self.files, *words, *(w.partition("=")[2] for w in words), *re.findall(r'"([^"\n]*)"', text)}
        contents = [(name, _digest(Path(name))) for name in sorted(named) if name and os.path.exists(name)]
        whole = [_native.VERSION, self.verb, self.files, text, flags, contents]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    def answered(self, numbers: Sequence[int]) -> Done:
        """Asks the questions of these numbers; called in a worker."""
        answers, late = [], []
        for number in numbers:
            answer = self._answer(number)
            if answer is None:
                late.append(number)
            else:
                answers.append((self.key(number), answer))
        with tempfile.TemporaryDirectory() as folder:
            _native.keep(folder, answers)
            return Done({file.name: file.read_bytes() for file in Path(folder).iterdir()}, late)

    def _answer(self, number: int) -> str | None:
        """The answer's document in one line; ``None`` if it took too long."""
        limit, began = self.cell_time_limit_s, time.monotonic()
        try:
            answer = ask(self.verb, self.files, spec=self.spec, flags=self.asked(number), time_limit_s=limit)
        except Error as error:
            # A verb that its time limit ends before it has found anything raises an error.
            if limit is not None and time.monotonic() - began >= limit:
                return None
            named = ", ".join(f"{name} = {value}" for name, value in zip(self.over, self.values(number), strict=True))
            raise Error(f"with {named}: {error}") from None
        found = json.loads(answer.text)
        return None if found.get("interrupted") else json.dumps(found, ensure_ascii=False)


def questions(
    verb: str, spec: Spec | Sequence[Any], over: Mapping[str, Any], flags: Mapping[str, Any], limit: float | None
) -> Questions:
    """Creates a study of ``verb``; for ``validate``, ``spec`` has its files."""
    files: tuple[str, ...] = ()
    text = None
    if verb == "validate":
        several = [spec] if isinstance(spec, (str, os.PathLike)) else list(spec or [])
        files = tuple(os.path.abspath(file) for file in several)
    else:
        path, text = spec_text(spec)  # type: ignore[arg-type]
        # Workers may run in another folder, so paths are absolute.
        files = () if path is None else (os.path.abspath(path),)
    twice = [name for name in over if flags.get(name) is not None]
    if twice:
        raise Error(f"over: {twice[0]}, which is a keyword, too; accepted: one of the two")
    spread = {name: _values(name, values) for name, values in over.items()}
    return Questions(verb, files, text, {name: value for name, value in flags.items() if value is not None}, spread, limit)


def _names(verb: str) -> set[str]:
    return {name.replace("-", "_") for name, _, _ in _native.flags(verb)}


def _values(name: str, values: Any) -> list[Any]:
    """The values of a key, from Python values or from text in the syntax of ``--sweep``."""
    if isinstance(values, str):
        found = json.loads(_native.values(values))
    elif isinstance(values, Mapping) or not hasattr(values, "__iter__"):
        found = [values]
    else:
        found = list(values)
    if not found:
        raise Error(f"over: {name} without a value; accepted: one or more")
    return [value if isinstance(value, (bool, int, float, str)) else str(value) for value in found]


def _settings(given: Any) -> list[str]:
    """The words ``KEY=VALUE`` of the keyword ``set``."""
    words = [value for _, value in listed({"set": given})]
    return list(words[0]) if words and not isinstance(words[0], str) else words


def _said(value: Any) -> Any:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _digest(path: Path) -> str:
    """A hash of the contents of a file, or of the files in a folder."""
    found = hashlib.sha256()
    for file in _files(path):
        status = file.stat()
        found.update(f"{file.relative_to(path)} {status.st_size}".encode())
        if status.st_size > LARGE:
            found.update(str(status.st_mtime_ns).encode())
        with file.open("rb") as content:
            found.update(content.read(LARGE))
    return found.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.is_file())


def document(study: Questions, folder: Path) -> str:
    """The study's document: the stored answers, in the order of their combinations; each is the program's document."""
    known = _native.kept(folder)
    there = [(number, known.get(study.key(number))) for number in range(len(study))]
    points = [f'{{"values": {json.dumps(study.values(number))}, "answer": {text}}}' for number, text in there if text]
    head = {
        "schema": "roofcast/study/1",
        "verb": study.verb,
        "sweep": list(study.over),
        "interrupted": len(points) < len(study),
    }
    return json.dumps(head)[:-1] + ', "points": [\n' + ",\n".join(points) + "\n]}\n"
