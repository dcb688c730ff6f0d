"""The suite runs where a tool is missing: what needs it is skipped and says so, all else runs.

Found by a newcomer: without libfuse `import mfusepy` raises OSError, not ImportError, and the whole run ended at its
collection.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
FUSE_TESTS = ["tests/crash/test_failing_disk.py", "tests/crash/test_forgetful_disk.py"]


@pytest.mark.parametrize(
    "fault", ["raise OSError('Unable to find libfuse')", "raise ModuleNotFoundError('No module named mfusepy')"]
)
def test_without_libfuse(tmp_path: Path, fault: str) -> None:
    """Both files of tests are collected, and what mounts is skipped with the reason."""
    (tmp_path / "mfusepy.py").write_text(fault)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            "not long",
            *FUSE_TESTS,
        ],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TRANSCRIPT_STORE_REQUIRE_ALL": "", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in done.stdout.lower()
    if os.geteuid() == 0 and Path("/dev/fuse").exists():
        assert "needs libfuse and mfusepy: " in done.stdout
