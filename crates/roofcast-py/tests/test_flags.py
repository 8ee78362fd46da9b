"""The types of the keywords agree with the program's flags."""

import subprocess
import sys

from conftest import ROOT

FILE = ROOT / "crates/roofcast-py/python/roofcast/_flags.py"


def test_the_types_are_the_programs_flags():
    written = subprocess.check_output([sys.executable, ROOT / "scripts/python-flags"], text=True)
    assert FILE.read_text() == written, "scripts/python-flags > crates/roofcast-py/python/roofcast/_flags.py"
