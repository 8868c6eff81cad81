"""Every file that is loaded, mutated: it loads, or is refused in a sentence; nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_files import KINDS

CASES = 2000

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files(kind, tmp_path):
    # in a process of its own, which a crash in a library ends
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("fuzz_files.py"), kind, str(CASES), tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, (result.returncode, result.stderr[-3000:])
    assert f"{kind}: {CASES} cases" in result.stdout
