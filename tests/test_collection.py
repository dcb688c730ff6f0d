"""The suite runs where a tool is missing: what needs it is skipped and says so, all else runs.

Found by a newcomer: without libfuse `import mfusepy` raises OSError, not ImportError, and the whole run ended at its
collection. The test of that failed itself where other tools are missing, too, or the user is not root.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest

import tests.crash

MODULES = ["fuse", "forgetful", "failing_disk", "test_failing_disk", "test_forgetful_disk"]


@pytest.mark.parametrize(
    "fault", ["raise OSError('Unable to find libfuse')", "raise ModuleNotFoundError('No module named mfusepy')"]
)
def test_without_libfuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Both files of tests are imported, and what mounts is skipped with the reason."""
    (tmp_path / "mfusepy.py").write_text(fault)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TRANSCRIPT_STORE_ONLY_PATH", raising=False)
    with patch.dict(sys.modules), patch.dict(vars(tests.crash)):
        for name in ["mfusepy", *(f"tests.crash.{module}" for module in MODULES)]:
            sys.modules.pop(name, None)
        imported = {module: import_module(f"tests.crash.{module}") for module in MODULES}
        with (
            pytest.raises(pytest.skip.Exception, match=r"needs libfuse and mfusepy: (Unable|No module)"),
            imported["failing_disk"].failing_volume("ext4"),
        ):
            pass
