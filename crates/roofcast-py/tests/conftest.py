"""What the tests share: the program beside the package, and the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def program() -> str:
    """The binary that the package is held to: ROOFCAST, else the debug build."""
    return os.environ.get("ROOFCAST") or shutil.which("roofcast") or str(ROOT / "target/debug/roofcast")


@pytest.fixture(scope="session")
def cli():
    """Runs `roofcast`; 4 is an answer, too: what was asked for does not fit."""

    def run(*arguments: str) -> str:
        done = subprocess.run([program(), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 4), done.stderr
        return done.stdout

    return run


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    """Paths of specs count from the checkout."""
    monkeypatch.chdir(ROOT)
