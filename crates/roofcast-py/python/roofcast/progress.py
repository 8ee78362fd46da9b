"""Progress of long work: a bar on a terminal's standard error, a bar in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

Progress = Callable[[int, int], object]
"""A function that is called with the number of finished parts and their total, which is 0 if unknown."""

WIDTH = 40
"""Width of a bar in characters."""

SILENCE_S = 0.5
"""Work that ends within this many seconds shows nothing."""


class Display:
    """A display of progress on a terminal or in a notebook; a context manager."""

    def __init__(self, unit: str = "") -> None:
        self.unit = unit
        self._began = time.monotonic()
        self._notebook = _notebook()
        self._handle: Any = None
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` parts are finished."""
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
            # Clears the line of the bar.
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _notebook() -> Any:
    """IPython's ``display`` if this runs in a notebook; ``None`` in a terminal, also in IPython's."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if ipython is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return ipython.display.display


def shown(progress: bool | Progress | None, unit: str) -> tuple[Progress | None, Display | None]:
    """The function to call with progress, and the display to close: ``None`` and ``True`` create a display, ``False``
    neither."""
    if progress is None or progress is True:
        display = Display(unit)
        return display, display
    return (progress, None) if callable(progress) else (None, None)
