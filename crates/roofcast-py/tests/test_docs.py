"""The chapter on Python: its blocks run, one after the other, and print what stands below them.

UPDATE_DOCS=1 rewrites what they print.
"""

import contextlib
import io
import json
import os
import re
from pathlib import Path

import roofcast
from conftest import ROOT
from roofcast import _native

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


SPEC = {
    "model": {"name": "llama-3.1-8b"},
    "hardware": {"accelerator": "h100-sxm", "count": 4},
    "workload": {
        "requests": 20,
        "input_len": 100,
        "output_len": 20,
        "arrivals": {"kind": "poisson", "rate": 1.0},
    },
}


def test_the_blocks_of_the_chapter_on_studies_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs/studies.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(_native.toml(json.dumps(SPEC)))
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "studies.md", "exec"), names)  # noqa: S102
    over = {"tp": [1, 2, 4], "rate": "1..64:x2", "seed": range(5)}
    assert names["study"].json == roofcast.sweep("study.toml", over=over).json
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["5", "h100-sxm"], ["5", "l40s"], ["10", "h100-sxm"], ["10", "l40s"]
    ]


def test_the_package_has_what_the_chapter_says():
    text = CHAPTER.read_text()
    functions = [name for name in roofcast.__all__ if name[0].islower()]
    assert functions and all(f"`{name}`" in text for name in functions)
