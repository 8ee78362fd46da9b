"""Common fixtures: the program, to compare the package with, and the folder of the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def program() -> str:
    """Path of the binary to compare the package with: ROOFCAST, else the debug build."""
    return os.environ.get("ROOFCAST") or shutil.which("roofcast") or str(ROOT / "target/debug/roofcast")


@pytest.fixture(scope="session")
def cli():
    """Runs `roofcast` and returns its output. Exit code 4 is an answer, too: the deployment does not fit."""

    def run(*arguments: str) -> str:
        done = subprocess.run([program(), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 4), done.stderr
        return done.stdout

    return run


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    """Runs the tests in the checkout's folder, from which paths of specs start."""
    monkeypatch.chdir(ROOT)
