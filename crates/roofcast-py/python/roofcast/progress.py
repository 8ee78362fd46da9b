"""How far long work is: a bar on a terminal's standard error, a line in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

Progress = Callable[[int, int], object]
"""Hears what is done and all there is to do; 0 where it is not known how much there is."""

WIDTH = 40
"""Characters of a bar."""

SILENCE_S = 0.5
"""Work that ends within this many seconds shows nothing."""


class Display:
    """Shows progress where somebody looks; to be used in ``with``."""

    def __init__(self, unit: str = "") -> None:
        self.unit = unit
        self._began = time.monotonic()
        self._notebook = _notebook()
        self._handle: Any = None
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` is done."""
        if time.monotonic() - self._began < SILENCE_S:
            return
        if self._notebook is not None:
            self._in_notebook(done, total)
        elif sys.stderr is not None and sys.stderr.isatty():
            self._shown = True
            sys.stderr.write("\r" + self.line(done, total))
            sys.stderr.flush()

    def line(self, done: int, total: int) -> str:
        """The bar as text."""
        seconds = time.monotonic() - self._began
        if total <= 0:
            return f"{done} {self.unit} [{seconds:.0f} s]"
        filled = WIDTH * min(done, total) // total
        left = seconds * (total - done) / done if done else 0.0
        return f"|{'█' * filled}{' ' * (WIDTH - filled)}| {done}/{total} {self.unit} [{seconds:.0f} s, {left:.0f} s left]"

    def _in_notebook(self, done: int, total: int) -> None:
        of = f' max="{total}"' if total > 0 else ""
        html = {"text/html": f'<progress value="{done}"{of}></progress> {done}/{total or "?"} {self.unit}'}
        if self._handle is None:
            self._handle = self._notebook(html, raw=True, display_id=True)
        else:
            self._handle.update(html, raw=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            # The line is made empty again.
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _notebook() -> Any:
    """IPython's ``display`` where a notebook runs this; a terminal's IPython has a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if ipython is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return ipython.display.display


def shown(progress: bool | Progress | None, unit: str) -> tuple[Progress | None, Display | None]:
    """Whom to tell, and the display to close: a function hears itself, ``None`` and ``True`` mean a display."""
    if progress is None or progress is True:
        display = Display(unit)
        return display, display
    return (progress, None) if callable(progress) else (None, None)
