"""Questions to the program: specs, keywords, progress and warnings."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from roofcast import _native
from roofcast._native import Error
from roofcast.progress import Progress, shown

Spec = str | os.PathLike[str] | Mapping[str, Any] | None
"""A spec: the path of a TOML file, its text, or its sections as dicts; ``None`` is the verb's default."""


def spec_text(spec: Spec) -> tuple[str | None, str | None]:
    """The path of a spec's file, or the spec's text; the other is ``None``."""
    if spec is None:
        return None, None
    if isinstance(spec, Mapping):
        return None, _native.toml(json.dumps(spec, default=plain))
    path = os.fspath(spec)
    # A spec's text has several lines or an assignment; a file's name has neither.
    if isinstance(spec, str) and ("\n" in path or "=" in path):
        return None, path
    if path == "-":
        raise Error("spec: '-', standard input; accepted: a path, the text of a spec or a dict")
    return path, None


def listed(flags: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Converts keywords to flags: ``None`` is left out, a dict becomes words KEY=VALUE."""
    found: list[tuple[str, Any]] = []
    for name, value in flags.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            value = [f"{key}={word(item)}" for key, item in value.items()]
        elif isinstance(value, (set, frozenset, range)):
            value = sorted(value)
        found.append((name, value))
    return found


def word(value: Any) -> str:
    """A value of the keyword ``set`` as text: TOML or a word."""
    if isinstance(value, (bool, list, tuple)):
        return json.dumps(value, default=plain)
    return str(value)


def plain(value: Any) -> Any:
    """Converts a value that JSON has no type for: NumPy's numbers to Python's, paths and anything else to text."""
    number = getattr(value, "item", None)
    if callable(number):
        return number()
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def in_pythons_words(message: str, verb: str, flags: Mapping[str, Any]) -> str:
    """An error message of the program with Python's keywords in place of flags. With ``from_command`` it is unchanged,
    because it may name the engine's own flags."""
    if "from_command" in flags:
        return message
    known = {name for name, _, _ in _native.flags(verb)} | {name.replace("_", "-") for name in flags}

    def keyword(flag: re.Match[str]) -> str:
        return flag[1].replace("-", "_") if flag[1] in known else flag[0]

    return re.sub(r"--([a-z][a-z0-9-]*)", keyword, message)


def ask(
    verb: str,
    files: Sequence[str | os.PathLike[str]] = (),
    *,
    spec: Spec = None,
    flags: Mapping[str, Any] | None = None,
    picture: bool = False,
    records: bool = False,
    progress: bool | Progress | None = False,
    unit: str = "",
    time_limit_s: float | None = None,
) -> _native.Answer:
    """Asks the program and returns its answer; its notes on standard error become warnings."""
    path, text = spec_text(spec)
    names = [os.fspath(file) for file in files] + ([path] if path is not None else [])
    told, display = shown(progress, unit)
    try:
        answer = _native.ask(
            verb,
            names,
            listed(flags or {}),
            spec=text,
            picture=picture,
            records=records,
            progress=told,
            time_limit_s=time_limit_s,
        )
    except Error as error:
        raise Error(in_pythons_words(str(error), verb, flags or {})) from None
    finally:
        if display is not None:
            display.__exit__(None, None, None)
    for note in answer.notes:
        warnings.warn(note.strip(), stacklevel=4)
    return answer
