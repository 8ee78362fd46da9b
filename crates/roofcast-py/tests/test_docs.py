"""The chapter on Python: its blocks run, one after the other, and print what stands below them.

UPDATE_DOCS=1 rewrites what they print.
"""

import contextlib
import io
import os
import re

from conftest import ROOT

CHAPTER = ROOT / "docs/python.md"
BLOCK = re.compile(r"```python\n(.*?)```\n<!-- printed -->\n(.*?)<!-- end -->", re.DOTALL)


def test_the_chapters_blocks_print_what_it_says():
    names: dict[str, object] = {}

    def printed(block: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block[1], CHAPTER.name, "exec"), names)  # noqa: S102
        return f"```python\n{block[1]}```\n<!-- printed -->\n```text\n{out.getvalue()}```\n<!-- end -->"

    text = CHAPTER.read_text()
    blocks = text.count("```python")
    assert blocks == len(BLOCK.findall(text)) >= 5
    now = BLOCK.sub(printed, text)
    if os.environ.get("UPDATE_DOCS"):
        CHAPTER.write_text(now)
    assert text == now or os.environ.get("UPDATE_DOCS"), "UPDATE_DOCS=1 scripts/test-python -k chapter"


def test_the_package_has_what_the_chapter_says():
    import roofcast

    text = CHAPTER.read_text()
    functions = [name for name in roofcast.__all__ if name[0].islower()]
    assert functions and all(f"`{name}`" in text for name in functions)
